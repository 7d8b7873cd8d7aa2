#include "trainer/trainer.h"

#include <algorithm>
#include <cmath>

#include "trainer/clock.h"
#include "trainer/safetensors.h"
#include "trainer/schedule.h"

namespace internevo::trainer {

Trainer::Trainer(const Config& config, int rank, const std::vector<int>& ranks)
    : config_(config), rank_(rank), layout_(config.model, config.plan), backend_(createCpuBackend(config.threadsPerRank)) {
  createGroups(config_, rank, ranks, &groups_);
  plan_ = planMemory(config_, layout_, *backend_);
  // Before the arena there is no planned scratch: the few words of the agreements below have their own.
  std::vector<std::byte> early(static_cast<std::size_t>(groups_.world.reduceWorkspaceBytes() + kAlignmentBytes));
  const auto address = reinterpret_cast<std::uintptr_t>(early.data());
  reduceWorkspace_ = {early.data() + (alignUp(static_cast<std::int64_t>(address), kAlignmentBytes) -
                                      static_cast<std::int64_t>(address)),
                      groups_.world.reduceWorkspaceBytes()};
  runtimeBytes_ = maximum(residentBytes());
  agree(groups_.world, reduceWorkspace_, [&] {
    requireFits(config_, plan_, runtimeBytes_);
    data_.open(config_.data, config_.model.vocabularySize, config_.sequenceLengthTokens);
    require(arena_.create(plan_.arenaBytes()));
  });
  reduceWorkspace_ = {viewOf(arena_, plan_.reduceWorkspace, DataType::byte).data, plan_.reduceWorkspace.bytes};
  parameters_ = std::make_unique<ParameterStore>(config_, layout_, plan_, arena_, *backend_, groups_);
  model_ = std::make_unique<Model>(config_, layout_, plan_, arena_, *backend_, groups_, *parameters_);
}

std::int64_t Trainer::maximum(std::int64_t value) {
  require(groups_.world.allReduce({&value, DataType::int64}, 1, ReduceOperation::maximum, reduceWorkspace_));
  return value;
}

// ---- data ----------------------------------------------------------------------------------------------------------

void Trainer::readMicroBatch(std::int64_t step, std::int64_t microBatch) {
  const PlanConfig& p = config_.plan;
  const std::int64_t part = config_.sequenceLengthTokens / p.sequenceParallel;
  for (std::int64_t row = 0; row < p.microBatchSize; ++row) {
    const std::int64_t place =
        microBatch * p.microBatchSize * p.dataParallel + groups_.data.index() * p.microBatchSize + row;
    const std::int64_t draw = (step - 1) * p.globalBatchSequences() + place;
    const std::int64_t sequence = sequenceOfDraw(config_.seed, data_.sequenceCount(), draw);
    data_.read(sequence, groups_.sequence.index() * part, part, model_->tokens() + row * part,
               model_->targets() + row * part);
  }
}

/// Reads what this rank needs in the step once before anything is computed, so that a bad token is an error that all
/// ranks learn of.
void Trainer::checkData(std::int64_t step) {
  agree(groups_.world, reduceWorkspace_, [&] {
    for (std::int64_t m = config_.plan.microBatches - 1; m >= 0; --m) readMicroBatch(step, m);
  });
}

// ---- step ----------------------------------------------------------------------------------------------------------

StepResult Trainer::step(std::int64_t number) {
  const double start = secondsNow();
  groups_.communicationSeconds = 0;
  const OptimizerConfig& o = config_.optimizer;
  StepResult result;
  result.step = number;
  result.learningRate = learningRateAt(o, number);
  result.tokens = config_.plan.globalBatchSequences() * config_.sequenceLengthTokens;

  checkData(number);
  parameters_->beginStep();
  ExactSum sums[2];  // loss, squares of the gradient
  const auto gradientScale = static_cast<float>(1.0 / static_cast<double>(result.tokens));
  for (std::int64_t m = 0; m < config_.plan.microBatches; ++m) {
    readMicroBatch(number, m);
    model_->forwardBackward(gradientScale, &sums[0]);
  }
  parameters_->finishGradients(&sums[1]);
  static_assert(sizeof sums == 2 * ExactSum::kWords * sizeof(std::int64_t));
  {
    const Timed timed(&groups_.communicationSeconds);
    require(groups_.world.allReduce({sums, DataType::int64}, 2 * ExactSum::kWords, ReduceOperation::sum,
                                    reduceWorkspace_));
  }
  result.loss = sums[0].value() / static_cast<double>(result.tokens);
  result.gradientNorm = std::sqrt(sums[1].value());
  if (!std::isfinite(result.loss) || !std::isfinite(result.gradientNorm)) {
    throw AgreedFailure({StatusCode::internal,
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
  parameters_->update(settings);
  result.communicationSeconds = groups_.communicationSeconds;
  result.stepTimeSeconds = secondsNow() - start;
  return result;
}

// ---- whole tensors, for tests and dumps ----------------------------------------------------------------------------

std::vector<float> Trainer::collect(int unit, Quantity quantity) {
  View own;
  switch (quantity) {
    case Quantity::gradient: own = parameters_->summedGradient(unit); break;
    case Quantity::weights: own = parameters_->weights(unit); break;
    case Quantity::firstMoment: own = parameters_->firstMoment(unit); break;
    case Quantity::secondMoment: own = parameters_->secondMoment(unit); break;
  }
  const auto shard = static_cast<std::size_t>(layout_.optimizerShard(unit));
  std::vector<float> parts(shard * static_cast<std::size_t>(config_.mesh.worldSize));
  require(groups_.world.allGather(own, {parts.data(), DataType::float32}, layout_.optimizerShard(unit)));
  std::vector<float> whole(static_cast<std::size_t>(layout_.unit(unit).paddedElements));
  const auto placeIn = [](const std::vector<int>& group, int member) {
    return static_cast<std::size_t>(std::find(group.begin(), group.end(), member) - group.begin());
  };
  for (int member = 0; member < config_.mesh.worldSize; ++member) {
    const std::size_t p = placeIn(groupOf(config_.mesh.parameterSharding, member), member);
    const std::size_t o = placeIn(groupOf(config_.mesh.optimizerStateSharding, member), member);
    const std::size_t start = (p * static_cast<std::size_t>(config_.plan.optimizerStateSharding) + o) * shard;
    std::copy_n(parts.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(member) * shard), shard,
                whole.begin() + static_cast<std::ptrdiff_t>(start));
  }
  whole.resize(static_cast<std::size_t>(layout_.unit(unit).elements));
  return whole;
}

void Trainer::dumpGradients(const std::string& path, double loss) {
  std::vector<std::vector<float>> units;
  for (int unit = 0; unit < layout_.unitCount(); ++unit) units.push_back(collect(unit, Quantity::gradient));
  agree(groups_.world, reduceWorkspace_, [&] {
    if (rank_ != 0) return;
    std::vector<SafetensorsEntry> entries;
    for (int unit = 0; unit < layout_.unitCount(); ++unit) {
      for (const LogicalTensor& t : layout_.unit(unit).tensors) {
        std::vector<std::int64_t> shape{t.rows, t.columns};
        if (t.kind == TensorKind::gain) shape = {t.columns};
        entries.push_back({t.name, shape, units[static_cast<std::size_t>(unit)].data() + t.offset});
      }
    }
    const float lossValue = static_cast<float>(loss);
    entries.push_back({"loss", {1}, &lossValue});
    writeSafetensors(path, entries, {});
  });
}

}  // namespace internevo::trainer
