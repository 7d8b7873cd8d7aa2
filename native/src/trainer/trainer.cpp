#include "trainer/trainer.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/safetensors.h"
#include "internevo/device_library.h"
#include "trainer/clock.h"
#include "trainer/held.h"
#include "trainer/products.h"
#include "trainer/schedule.h"

namespace internevo::trainer {

namespace {

/// Moments of a step, two for each operation; a step of 80 layers and 64 micro-batches that is recorded has some 300000.
constexpr std::int64_t kMostMoments = 1 << 20;

std::unique_ptr<Backend> openBackend(const Config& config) {
  std::unique_ptr<Backend> backend;
  if (config.device == DeviceKind::cpu) {
    require(openCpuBackend(config.threadsPerRank, &backend));
    return backend;
  }
  if (const Status status = openCudaBackend({localRank(), config.deterministic}, &backend); !status.ok()) {
    throw Failure(Problem{status.code(), status.message(), "device", "\"cuda\"",
                          "set cluster.device to cpu to run without a GPU"});
  }
  return backend;
}

}  // namespace

Trainer::Trainer(const Config& config, int rank, const std::vector<int>& ranks, Activity* activity)
    : config_(config),
      rank_(rank),
      layout_(config.model, config.plan, positionOf(config.mesh, rank)),
      whole_(Layout::whole(config.model)) {
  groups_.activity = activity == nullptr ? &unwatched_ : activity;
  createWorld(config_, ranks, &groups_);
  // Before the arena there is no planned scratch, and on a device none that the program may touch: words that all ranks compare
  // have their own.
  hostScratch_.resize(static_cast<std::size_t>(groups_.world.reduceWorkspaceBytes() + kAlignmentBytes));
  const auto address = reinterpret_cast<std::uintptr_t>(hostScratch_.data());
  reduceWorkspace_ = {hostScratch_.data() + (alignUp(static_cast<std::int64_t>(address), kAlignmentBytes) -
                                             static_cast<std::int64_t>(address)),
                      groups_.world.reduceWorkspaceBytes()};
  agree(groups_.world, reduceWorkspace_, [&] { backend_ = openBackend(config_); });
  backend_->shareWithCommunication(config_.plan.overlaps() && groups_.world.size() > 1);
  deviceClock_.activity = groups_.activity;
  if ((deviceClock_.moments = backend_->createMoments(kMostMoments)))
    require(groups_.activity->timeBy(deviceClock_.moments.get()));
  startDeviceGroups(groups_.world, reduceWorkspace_, backend_->groups());
  createGroups(config_, rank, ranks, backend_->groups(), &groups_);
  stagePlans_ = planStages(config_, *backend_);
  // The recorder exists already, and is a line of its own. A device's context and libraries are in its memory before the arena is.
  const std::int64_t onDevice = backend_->memory().occupancy().takenBytes;
  runtimeBytes_ =
      maximum(onDevice > 0 ? onDevice : residentBytes() - (activity == nullptr ? 0 : timelineBytes(config_)));
  if (backend_->memory().hostReads()) addCheckpointStaging(config_, runtimeBytes_, &stagePlans_);
  const MemoryPlan& plan = stagePlans_.plans[static_cast<std::size_t>(layout_.position().stage)];
  agree(groups_.world, reduceWorkspace_, [&] {
    requireFits(config_, memoryPlan(), runtimeBytes_);
    data_.open(config_.data, config_.model.vocabularySize, config_.sequenceLengthTokens);
    openValidationData(config_, &validationData_);
    require(arena_.create(plan.arenaBytes(), backend_->memory()));
  });
  chooseProducts(plan.arenaBytes());
  if (backend_->memory().hostReads()) {
    reduceWorkspace_ = {viewOf(arena_, plan.reduceWorkspace, DataType::byte).data,
                        plan.reduceWorkspace.bytes};
    std::vector<std::byte>().swap(hostScratch_);
  }
  parameters_ = std::make_unique<ParameterStore>(config_, layout_, plan, arena_, *backend_, groups_);
  checkpointStaging_ = viewOf(arena_, plan.checkpointStaging, DataType::float32);
  if (!backend_->memory().hostReads() &&
      config_.checkpoint) {  // files are written from the program's memory only
    agree(groups_.world, reduceWorkspace_, [&] {
      void* staging = nullptr;
      checkpointCopies_ = backend_->createBackgroundCopies();
      require(checkpointCopies_->allocate(3 * 4 * savedElementsBound(layout_, groups_.replicas.size()),
                                          &staging));
      checkpointStaging_ = {staging, DataType::float32};
    });
  }
  // Memory of the host may be short on one rank alone.
  agree(groups_.world, reduceWorkspace_, [&] {
    model_ = std::make_unique<Model>(config_, layout_, plan, arena_, *backend_, groups_, *parameters_);
  });
  agree(groups_.world, reduceWorkspace_, [&] { model_->prepareAttention(largestOfRanks()); });
  reader_ = std::make_unique<BatchReader>(config_, data_, sequencePlaceOf(config_, rank),
                                          groups_.data.index(), model_->batch(), backend_->memory());
}

LargestOfRanks Trainer::largestOfRanks() {
  return [this](std::int64_t* words, int count) {
    return groups_.world.allReduce({words, DataType::int64}, count, ReduceOperation::maximum,
                                   reduceWorkspace_);
  };
}

/// While nothing is in the arena yet: operands of the trials lie there.
void Trainer::chooseProducts(std::int64_t arenaBytes) {
  if (config_.device == DeviceKind::cpu) return;
  ProductRequest request;
  agree(groups_.world, reduceWorkspace_, [&] {
    if (groups_.world.index() == 0) request = productRequest(config_);
  });
  request.uses = productsOf(config_, localShape(config_), backend_->lossChunkRows());
  agree(groups_.world, reduceWorkspace_, [&] {
    request.memory = {arena_.whole(), arenaBytes};
    require(backend_->chooseProducts(request, largestOfRanks(), &products_));
  });
}

std::int64_t Trainer::maximum(std::int64_t value) {
  require(groups_.world.allReduce({&value, DataType::int64}, 1, ReduceOperation::maximum, reduceWorkspace_));
  return value;
}

// ---- data ----------------------------------------------------------------------------------------------------------

/// Reads what this rank needs in the step once before anything is computed, so that a bad token is an error that all
/// ranks learn of. Returns the real tokens of the global batch, by which its loss is divided.
std::int64_t Trainer::checkData(std::int64_t step) {
  const std::int64_t count = checkBatch([&](std::int64_t microBatch) { reader_->read(step, microBatch); });
  if (count > 0) return count;
  throw AgreedFailure({StatusCode::dataError,
                       data_.words() + " has only documents of one token in the sequences of step " +
                           std::to_string(step) + ", so there is nothing to predict",
                       "data.packing", "\"documents\"", "join short documents, or set data.packing to none"},
                      groups_.world.index() == 0);
}

// ---- step ----------------------------------------------------------------------------------------------------------

StepResult Trainer::step(std::int64_t number) {
  const double start = secondsNow();
  groups_.exposedCommunicationSeconds = groups_.bubbleSeconds = 0;
  const auto besideSeconds = [&] {
    return parameters_->hiddenBusySeconds() + model_->hiddenBusySeconds() + besideSeconds_;
  };
  const double besideBefore = besideSeconds();
  groups_.laneWaitSeconds = 0;
  groups_.activity->beginStep(number);
  groups_.microBatch = -1;
  const OptimizerConfig& o = config_.optimizer;
  StepResult result;
  result.step = number;
  result.learningRate = learningRateAt(o, number);

  parameters_->beginStep();
  result.tokens = checkData(number);
  ExactSum sums[2];  // loss, squares of the gradient
  const auto gradientScale = static_cast<float>(1.0 / static_cast<double>(result.tokens));
  model_->beginStep();
  for (const PipelineOperation& operation : model_->operations()) {
    if (model_->needsData(operation)) reader_->read(number, operation.microBatch);
    model_->run(operation, gradientScale, &sums[0]);
  }
  model_->endStep();
  groups_.microBatch = -1;
  parameters_->endPasses();
  parameters_->finishGradients(&sums[1]);
  require(backend_->settle());
  require(groups_.activity->settle(&besideSeconds_));
  static_assert(sizeof sums == 2 * ExactSum::kWords * sizeof(std::int64_t));
  {
    const Exposed exposed(groups_, "all-reduce loss and gradient norm");
    require(groups_.world.allReduce({sums, DataType::int64}, 2 * ExactSum::kWords, ReduceOperation::sum,
                                    reduceWorkspace_));
  }
  result.loss = sums[0].value() / static_cast<double>(result.tokens);
  result.gradientNorm = std::sqrt(sums[1].value());
  if (!std::isfinite(result.loss) || !std::isfinite(result.gradientNorm)) {
    throw AgreedFailure({StatusCode::notFinite,
                         "the loss or the gradient of step " + std::to_string(number) + " is not finite",
                         "optimizer.peakLearningRate", std::to_string(o.peakLearningRate),
                         "lower the learning rate, or set clipGlobalNorm"},
                        groups_.world.index() == 0);
  }
  AdamwSettings settings;
  settings.learningRate = static_cast<float>(result.learningRate);
  settings.beta1 = static_cast<float>(o.beta1), settings.beta2 = static_cast<float>(o.beta2);
  settings.epsilon = static_cast<float>(o.epsilon), settings.weightDecay = static_cast<float>(o.weightDecay);
  settings.step = number;
  if (o.clipGlobalNorm > 0 && result.gradientNorm > o.clipGlobalNorm) {
    settings.gradientScale = static_cast<float>(o.clipGlobalNorm / result.gradientNorm);
  }
  if (checkpointCopies_)
    require(checkpointCopies_->settle());  // a checkpoint may still be copied from what is updated here
  parameters_->update(settings);
  result.exposedCommunicationSeconds = groups_.exposedCommunicationSeconds;
  // Waiting for the lane is waiting for what the lane is busy with, and counts once.
  result.communicationSeconds =
      groups_.exposedCommunicationSeconds - groups_.laneWaitSeconds + besideSeconds() - besideBefore;
  result.bubbleSeconds = groups_.bubbleSeconds;
  result.stepTimeSeconds = secondsNow() - start;
  return result;
}

void Trainer::settleActivity() {
  if (!groups_.activity->onDevice()) return;
  require(backend_->settle());
  require(groups_.activity->settle(&besideSeconds_));
}

// ---- whole tensors, for tests and dumps ----------------------------------------------------------------------------

std::vector<float> Trainer::ownShardOf(const std::string& unitName, Quantity quantity,
                                       std::int64_t elements) {
  std::vector<float> own(static_cast<std::size_t>(elements));
  const int unit = layout_.findUnit(unitName);
  if (unit < 0) return own;
  View shard;
  switch (quantity) {
    case Quantity::gradient: shard = parameters_->summedGradient(unit); break;
    case Quantity::weights: shard = parameters_->weights(unit); break;
    case Quantity::firstMoment: shard = parameters_->firstMoment(unit); break;
    case Quantity::secondMoment: shard = parameters_->secondMoment(unit); break;
  }
  const std::int64_t held = layout_.optimizerShard(unit);
  if (shard.type == DataType::float32) {
    require(backend_->memory().download(own.data(), shard.data, 4 * held));
    return own;
  }
  std::vector<std::uint16_t> narrow(static_cast<std::size_t>(held));
  require(backend_->memory().download(narrow.data(), shard.data, 2 * held));
  std::transform(narrow.begin(), narrow.end(), own.begin(), floatFromBfloat16);
  return own;
}

std::vector<float> Trainer::collect(int unit, Quantity quantity) {
  const Unit& wanted = whole_.unit(unit);
  const PlanConfig& plan = config_.plan;
  const auto placeIn = [](const std::vector<int>& group, int member) {
    return static_cast<std::int64_t>(std::find(group.begin(), group.end(), member) - group.begin());
  };
  // All positions give the same number of elements: that of those which hold the unit.
  std::vector<Layout> layouts;
  std::int64_t elements = 0;
  for (int member = 0; member < config_.mesh.worldSize; ++member) {
    layouts.emplace_back(config_.model, plan, positionOf(config_.mesh, member));
    const int held = layouts.back().findUnit(wanted.name);
    if (held >= 0) elements = std::max(elements, layouts.back().optimizerShard(held));
  }
  const std::vector<float> own = ownShardOf(wanted.name, quantity, elements);
  std::vector<float> parts(own.size() * layouts.size());
  require(
      groups_.world.allGather({own.data(), DataType::float32}, {parts.data(), DataType::float32}, elements));
  std::vector<float> result(static_cast<std::size_t>(wanted.elements));
  for (int member = 0; member < config_.mesh.worldSize; ++member) {
    const Layout& layout = layouts[static_cast<std::size_t>(member)];
    const int held = layout.findUnit(wanted.name);
    if (held < 0) continue;
    const std::int64_t shard = layout.optimizerShard(held);
    const std::int64_t begin =
        (placeIn(groupOf(config_.mesh.parameterSharding, member), member) * plan.optimizerStateSharding +
         placeIn(groupOf(config_.mesh.optimizerStateSharding, member), member)) *
        shard;
    const auto& tensors = layout.unit(held).tensors;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const std::int64_t first = std::max(begin, tensors[t].offset);
      const std::int64_t last = std::min(begin + shard, tensors[t].offset + tensors[t].elements());
      for (std::int64_t i = first; i < last; ++i) {
        const std::int64_t target = wanted.tensors[t].offset + tensors[t].globalIndex(i - tensors[t].offset);
        result[static_cast<std::size_t>(target)] =
            parts[static_cast<std::size_t>(member * elements + i - begin)];
      }
    }
  }
  return result;
}

void Trainer::dumpGradients(const std::string& path, double loss) {
  std::vector<std::vector<float>> units;
  for (int unit = 0; unit < whole_.unitCount(); ++unit) units.push_back(collect(unit, Quantity::gradient));
  agree(groups_.world, reduceWorkspace_, [&] {
    if (rank_ != 0) return;
    std::vector<SafetensorsEntry> entries;
    for (int unit = 0; unit < whole_.unitCount(); ++unit) {
      for (const LogicalTensor& t : whole_.unit(unit).tensors) {
        std::vector<std::int64_t> shape{t.rows, t.columns};
        if (t.kind != TensorKind::matrix) shape = {t.columns};
        entries.push_back({t.name, shape, units[static_cast<std::size_t>(unit)].data() + t.offset});
      }
    }
    const float lossValue = static_cast<float>(loss);
    entries.push_back({"loss", {1}, &lossValue});
    writeSafetensors(path, entries, {});
  });
}

}  // namespace internevo::trainer
