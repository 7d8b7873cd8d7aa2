// Every plan against one rank and against the plain model in float64: 1e-6 relative in float32 on losses and on every
// gradient, bfloat16 at most twice the error of one rank, and bit by bit between plans that keep the order of arithmetic.
// Runs a sample that covers every pair of values. In the environment:
//   INTERNEVO_LATTICE=whole         every plan, and each under every different policy of overlap: the bits of none, over two steps
//   INTERNEVO_LATTICE=whole-unoverlapped   every plan without overlap
//   INTERNEVO_LATTICE_PART=2/8      of the whole, the second of eight parts (plans that are compared stay together)
//   INTERNEVO_LATTICE_RECORD=FILE   what each model and part gave is appended as a line of JSON; what this very program has a line
//                                   for without failures is not run again
// Plans on fewer ranks than the job has run side by side, each in a world of its own.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>

#include "checkpoint/safetensors.h"
#include "data_writers.h"
#include "lattice.h"
#include "lattice_record.h"
#include "reference.h"
#include "support.h"
#include "trainer/trainer.h"

namespace internevo::trainer::testing {
namespace {

constexpr int kSteps = 3;
constexpr std::int64_t kSequences = 8;
constexpr double kTolerance = 1e-6;
constexpr std::int64_t kValidationBatches = 2;
constexpr int kOverlapSteps = 2;  ///< the second uses what the first left under way
constexpr int kNarrowEvery =
    3;  ///< of the plans run in bfloat16 too, and as many others with bfloat16 gradients
constexpr double kRoundedQuotient = 2, kRoundedLoss = 5e-4;

int worldRank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int worldSize() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<double> validations;  ///< before the first step, and before the second
  std::vector<std::int64_t> tokens;
  std::int64_t validationTokens = 0;
  std::vector<std::vector<std::vector<float>>> gradients;  ///< [step][unit]
  std::uint64_t bits = 0;  ///< of losses, norms, all gradients and the final weights and moments
  std::uint64_t ownBits =
      0;  ///< after two steps, of losses, norms, and this rank's shards: compares runs of one plan
};

Config under(const Config& base, const PlanConfig& plan) {
  Config config = base;
  config.plan = plan;
  config.mesh = meshOf(plan);
  validatePlan(config);
  return config;
}

int placeIn(const std::vector<int>& ranks) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), worldRank()) - ranks.begin());
}

/// What a rank has of gradients, weights and moments, byte by byte.
std::uint64_t ownBitsOf(Trainer& trainer, const std::vector<double>& told) {
  std::string bytes(reinterpret_cast<const char*>(told.data()), told.size() * sizeof(double));
  ParameterStore& store = trainer.parameters();
  for (int unit = 0; unit < trainer.layout().unitCount(); ++unit) {
    for (const View& view : {store.summedGradient(unit), store.weights(unit), store.firstMoment(unit),
                             store.secondMoment(unit)}) {
      bytes.append(
          static_cast<const char*>(view.data),
          static_cast<std::size_t>(bytesPerElement(view.type) * trainer.layout().optimizerShard(unit)));
    }
  }
  return checksumOf(bytes);
}

/// The run of a plan that is compared with the same plan's without overlap only. It evaluates nothing.
std::uint64_t ownBitsUnder(const Config& base, const PlanConfig& plan, const std::vector<int>& ranks) {
  Config config = under(base, plan);
  config.validation.reset();
  Trainer trainer(config, placeIn(ranks), ranks);
  trainer.initializeWeights();
  std::vector<double> told;
  for (int step = 1; step <= kOverlapSteps; ++step) {
    const StepResult result = trainer.step(step);
    told.push_back(result.loss), told.push_back(result.gradientNorm);
  }
  return ownBitsOf(trainer, told);
}

Outcome train(const Config& base, const PlanConfig& plan, const std::vector<int>& ranks) {
  const Config config = under(base, plan);
  Trainer trainer(config, placeIn(ranks), ranks);
  trainer.initializeWeights();
  Outcome outcome;
  std::vector<double> told;
  std::string bytes;
  const auto keep = [&bytes](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  };
  const auto keepAll = [&](Trainer::Quantity quantity, std::vector<std::vector<float>>* result) {
    for (int unit = 0; unit < trainer.wholeLayout().unitCount(); ++unit) {
      std::vector<float> values = trainer.collect(unit, quantity);
      keep(values.data(), values.size() * sizeof(float));
      if (result != nullptr) result->push_back(std::move(values));
    }
  };
  const std::atomic<bool> never{false};
  for (int step = 1; step <= kSteps; ++step) {
    if (step <= kOverlapSteps && config.validation) {
      const Evaluation evaluation = trainer.evaluate(never).value();
      outcome.validations.push_back(evaluation.loss), outcome.validationTokens = evaluation.tokens;
      keep(&evaluation.loss, sizeof evaluation.loss);
    }
    const StepResult result = trainer.step(step);
    outcome.losses.push_back(result.loss), outcome.norms.push_back(result.gradientNorm);
    outcome.tokens.push_back(result.tokens);
    keep(&result.loss, sizeof result.loss), keep(&result.gradientNorm, sizeof result.gradientNorm);
    told.push_back(result.loss), told.push_back(result.gradientNorm);
    if (step == kOverlapSteps) outcome.ownBits = ownBitsOf(trainer, told);
    outcome.gradients.emplace_back();
    keepAll(Trainer::Quantity::gradient, &outcome.gradients.back());
  }
  for (const auto quantity :
       {Trainer::Quantity::weights, Trainer::Quantity::firstMoment, Trainer::Quantity::secondMoment}) {
    keepAll(quantity, nullptr);
  }
  outcome.bits = checksumOf(bytes);
  return outcome;
}

/// Largest relative difference of a loss, and of the gradient of any logical tensor at any step, over what rounding allows it.
double differenceOf(const Config& base, const Outcome& one, const Outcome& other) {
  const Layout layout = Layout::whole(base.model);
  double largest = 0;
  if (one.tokens != other.tokens || one.validationTokens != other.validationTokens) return HUGE_VAL;
  for (std::size_t i = 0; i < one.validations.size(); ++i)
    largest = std::max(largest, std::abs(other.validations[i] / one.validations[i] - 1));
  for (std::size_t step = 0; step < kSteps; ++step) {
    largest = std::max(largest, std::abs(other.losses[step] - one.losses[step]) / std::abs(one.losses[step]));
    for (int unit = 0; unit < layout.unitCount(); ++unit) {
      const auto &a = other.gradients[step][static_cast<std::size_t>(unit)],
                 &b = one.gradients[step][static_cast<std::size_t>(unit)];
      if (a.size() != b.size()) return HUGE_VAL;
      for (const LogicalTensor& t : layout.unit(unit).tensors) {
        const double error = relativeError(a.data() + t.offset, b.data() + t.offset, t.elements());
        largest = std::max(largest, error / roundingOf(base.model, t.name));
      }
    }
  }
  return largest;
}

using Errors = std::map<std::string, double>;

/// Relative errors of the gradients of the first step.
Errors errorsOf(const Config& base, const Outcome& outcome, const Tensors& exact) {
  const Layout layout = Layout::whole(base.model);
  Errors errors;
  for (int unit = 0; unit < layout.unitCount(); ++unit) {
    const auto& values = outcome.gradients[0][static_cast<std::size_t>(unit)];
    for (const LogicalTensor& t : layout.unit(unit).tensors) {
      errors[t.name] = relativeError(values.data() + t.offset, exact.at(t.name).data(), t.elements());
    }
  }
  return errors;
}

double largestOf(const Config& base, const Errors& errors) {
  double largest = 0;
  for (const auto& [name, error] : errors) largest = std::max(largest, error / roundingOf(base.model, name));
  return largest;
}

/// Largest quotient of errors of a tensor.
double largestQuotient(const Errors& errors, const Errors& ofOne) {
  double largest = 0;
  for (const auto& [name, error] : errors) largest = std::max(largest, error / ofOne.at(name));
  return largest;
}

/// The weights that training begins with.
Tensors initialWeights(const Config& config) {
  Trainer trainer(config, 0, {worldRank()});
  trainer.initializeWeights();
  Tensors weights;
  const Layout& layout = trainer.wholeLayout();
  for (int unit = 0; unit < layout.unitCount(); ++unit) {
    const std::vector<float> values = trainer.collect(unit, Trainer::Quantity::weights);
    for (const LogicalTensor& t : layout.unit(unit).tensors) {
      weights[t.name].assign(values.begin() + t.offset, values.begin() + t.offset + t.elements());
    }
  }
  return weights;
}

/// The gradients of the first step in float64, by the plain model.
Tensors exactGradients(const Config& config, const Batch& batch) {
  Tensors gradients;
  batchLoss(Reference(config.model, config.sequenceLengthTokens, false), initialWeights(config), batch,
            &gradients);
  return gradients;
}

struct Model {
  const char* name;
  ModelConfig config;
  std::int64_t sequence;
  bool documents;
};

/// Wide heads that are normed (Qwen3), and windows.
ModelConfig normedHeads() {
  ModelConfig model = qwen3Model();
  model.layers = 2, model.initStandardDeviation = 0.07, model.slidingWindowTokens = 7;
  return model;
}
ModelConfig biases() {
  ModelConfig model = qwen2Model();
  model.layers = 2, model.initStandardDeviation = 0.07, model.tiedEmbeddings = true;
  return model;
}

/// H, L, A, K, F, V: sizes that shards and tensor ranks do not divide evenly, numbers of layers that stages do not divide,
/// grouped queries with fewer and with more key/value heads than sequence or tensor ranks, tied and untied heads, fewer
/// heads than ranks (then only context parallelism gives a sequence to all of them), packed documents or none. Initial
/// weights of the deeper ones are smaller: rounding grows with depth and with the size of the weights.
const Model kModels[] = {
    {"grouped", {48, 5, 4, 2, 80, 97, false, 10000, 1e-5, 0.07}, 24, false},
    {"tied", {64, 4, 8, 8, 72, 61, true, 500, 1e-6, 0.07}, 16, false},
    {"oneKeyHead", {80, 1, 8, 1, 56, 130, false, 10000, 1e-5, 0.1}, 40, false},
    {"groupedDocuments", {48, 3, 4, 2, 80, 97, false, 10000, 1e-5, 0.07}, 24, true},
    {"fewWideHeadsTiedDocuments", {64, 2, 2, 1, 40, 61, true, 10000, 1e-5, 0.07}, 48, true},
    {"normedHeadsWindowDocuments", normedHeads(), 24, true},
    {"biasesScaledPositionsTied", biases(), 24, false},
};

/// What the plans of a model are compared on: its data, in `directory`, and one rank.
struct Setting {
  Config base;
  PlanConfig one;
  Batch batch;  ///< of the first step
  std::int64_t realTokens = 0;
  Batch heldOut;  ///< all that is evaluated
};
Setting settingOf(const Model& model, const TemporaryDirectory& directory) {
  Setting setting;
  const Packed packed = samplePacked(1500, 61);
  const std::vector<std::uint32_t> data = model.documents ? packed.tokens : sampleTokens(1500, 61);
  Config& base = setting.base = smallConfig(directory.file("d.tokens"));
  if (model.documents) {
    writeOwn(base.data.path, packed.documents, 61, 2);
    base.data.packing = DataConfig::Packing::documents;
  } else {
    writeTokenFile(base.data.path, data, 61);
  }
  base.model = model.config;
  base.sequenceLengthTokens = model.sequence;
  base.optimizer.clipGlobalNorm = 0.3;
  setting.one.microBatchSize = kSequences;
  base.plan = setting.one, base.mesh = meshOf(setting.one);
  setting.batch = batchOf(base, data, model.documents ? packed.documentOf : std::vector<int>{}, 1);
  const Packed other = samplePacked(1000, 53);
  const std::vector<std::uint32_t> heldOut = model.documents ? other.tokens : sampleTokens(1000, 53);
  base.validation.emplace();
  base.validation->batches = kValidationBatches;
  base.validation->data = base.data;
  base.validation->data.path = directory.file("v.tokens");
  if (model.documents) {
    writeOwn(base.validation->data.path, other.documents, 61, 2);
  } else {
    writeTokenFile(base.validation->data.path, heldOut, 61);
  }
  setting.heldOut = firstSequences(base, heldOut, model.documents ? other.documentOf : std::vector<int>{},
                                   kValidationBatches * kSequences);
  for (const auto& targets : setting.batch.targets)
    setting.realTokens += std::count_if(targets.begin(), targets.end(), [](int t) { return t >= 0; });
  return setting;
}

class LatticeTest : public ::testing::TestWithParam<Model> {};

TEST_P(LatticeTest, EveryPlanGivesTheLossesAndGradientsOfOneRank) {
  const Asked which = asked();
  const std::string key = recordKey(which, GetParam().name, worldSize());
  if (isRecorded(which, key)) GTEST_SKIP() << "recorded";
  const double start = MPI_Wtime();
  TemporaryDirectory directory;  // of each rank
  const auto [base, onePlan, batch, realTokens, heldOut] = settingOf(GetParam(), directory);
  const bool documents = GetParam().documents;
  Config narrow = base;
  narrow.precision = DataType::bfloat16;
  const Tensors exact = exactGradients(base, batch);
  const Errors narrowErrors = errorsOf(base, train(narrow, onePlan, {worldRank()}), exact);
  const Outcome one = train(base, onePlan, {worldRank()});
  EXPECT_GT(one.norms[0], base.optimizer.clipGlobalNorm);
  EXPECT_LT(one.losses[2], one.losses[0]);
  EXPECT_EQ(one.tokens[0], realTokens);
  const double exactLoss = batchLoss(Reference(base.model, base.sequenceLengthTokens, false),
                                     initialWeights(base), heldOut, nullptr);
  EXPECT_NEAR(one.validations[0] / exactLoss, 1, kTolerance);
  EXPECT_NE(one.validations[1], one.validations[0]);
  EXPECT_EQ(realTokens < kSequences * base.sequenceLengthTokens, documents);

  std::vector<PlanConfig> plans;
  for (int ranks = worldSize() == 8 ? 8 : 1; ranks <= worldSize(); ranks *= 2) {
    const std::vector<PlanConfig> plain = latticeOf(base, ranks, kSequences);
    const std::vector<PlanConfig> chosen = which.whole ? plain : pairwiseSample(withOverlaps(plain));
    plans.insert(plans.end(), chosen.begin(), chosen.end());
  }
  const std::vector<int> parts = partsOf(plans, base.model.tiedEmbeddings, which.parts);
  std::vector<PlanConfig> mine;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (parts[i] == which.part) mine.push_back(plans[i]);
  }
  plans.swap(mine);
  std::vector<double> differences(plans.size(), 0), fromReference(plans.size(), 0),
      narrowQuotients(plans.size(), 0);
  std::vector<std::uint64_t> bits(plans.size(), 0);
  std::vector<int> policies(plans.size(), 0),
      others(plans.size(), 0);  // how many, and a bit for each that gives other bits
  std::vector<int> again(plans.size(),
                         0);  // 1: has the bits of the same plan that keeps gate and up, 2: has others
  std::vector<int> untouched(plans.size(), 0);  // 1: evaluation changes no bit, 2: it does
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const int ranks = plans[i].worldSize(), worlds = worldSize() / ranks;
    const bool narrowToo = static_cast<int>(i) / worlds % kNarrowEvery == 0;
    if (static_cast<int>(i) % worlds != worldRank() / ranks) continue;
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), worldRank() / ranks * ranks);
    const Outcome outcome = train(base, plans[i], members);
    const Outcome narrowOutcome = narrowToo ? train(narrow, plans[i], members) : Outcome{};
    // Of a run that evaluates nothing.
    PlanConfig kept = plans[i];
    kept.gateUp = GateUp::kept;
    if (plans[i].gateUp != GateUp::kept)
      again[i] = ownBitsUnder(base, kept, members) == outcome.ownBits ? 1 : 2;
    else if (narrowToo)
      untouched[i] = ownBitsUnder(base, kept, members) == outcome.ownBits ? 1 : 2;
    if (which.overlaps) {
      const std::vector<PlanConfig> different = overlapsOf(base, plans[i]);
      for (std::size_t k = 0; k < different.size(); ++k) {
        others[i] |= (ownBitsUnder(base, different[k], members) != outcome.ownBits) << k;
      }
      policies[i] = worldRank() == members[0] ? static_cast<int>(different.size()) : 0;
    }
    if (worldRank() != members[0]) continue;
    bits[i] = outcome.bits;
    fromReference[i] = largestOf(base, errorsOf(base, outcome, exact));
    if (narrowToo) narrowQuotients[i] = largestQuotient(errorsOf(base, narrowOutcome, exact), narrowErrors);
    differences[i] = differenceOf(base, one, outcome);
  }
  MPI_Allreduce(MPI_IN_PLACE, policies.data(), static_cast<int>(plans.size()), MPI_INT, MPI_SUM,
                MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, others.data(), static_cast<int>(plans.size()), MPI_INT, MPI_BOR,
                MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, again.data(), static_cast<int>(plans.size()), MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, untouched.data(), static_cast<int>(plans.size()), MPI_INT, MPI_MAX,
                MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, fromReference.data(), static_cast<int>(plans.size()), MPI_DOUBLE, MPI_SUM,
                MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, narrowQuotients.data(), static_cast<int>(plans.size()), MPI_DOUBLE, MPI_SUM,
                MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, differences.data(), static_cast<int>(plans.size()), MPI_DOUBLE, MPI_SUM,
                MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, bits.data(), static_cast<int>(plans.size()), MPI_UINT64_T, MPI_SUM,
                MPI_COMM_WORLD);

  std::map<std::string, std::size_t> firstOfKey;
  std::size_t bitwise = 0;
  double worst = 0, worstReference = 0, worstNarrow = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    EXPECT_LE(differences[i], kTolerance) << nameOf(plans[i]);
    EXPECT_LE(fromReference[i], kTolerance) << nameOf(plans[i]);
    EXPECT_LE(narrowQuotients[i], 2) << "bfloat16, " << nameOf(plans[i]);
    EXPECT_EQ(again[i], plans[i].gateUp == GateUp::kept ? 0 : 1)
        << nameOf(plans[i]) << " does not give the bits of the same plan that keeps gate and up";
    EXPECT_LT(untouched[i], 2) << nameOf(plans[i]) << " has other bits where it evaluates";
    for (int k = 0; others[i] >> k != 0; ++k) {
      EXPECT_EQ(others[i] >> k & 1, 0) << nameOf(overlapsOf(base, plans[i])[static_cast<std::size_t>(k)])
                                       << " does not give the bits of no overlap";
    }
    worst = std::max(worst, differences[i]), worstReference = std::max(worstReference, fromReference[i]);
    worstNarrow = std::max(worstNarrow, narrowQuotients[i]);
    const auto [first, fresh] = firstOfKey.emplace(orderKeyOf(plans[i], base.model.tiedEmbeddings), i);
    if (fresh) continue;
    ++bitwise;
    EXPECT_EQ(bits[i], bits[first->second])
        << nameOf(plans[i]) << " and " << nameOf(plans[first->second]) << " add in the same order";
  }
  EXPECT_GT(plans.size(), which.parts == 1 ? 4u : 0u);
  const auto madeAgain = std::count(again.begin(), again.end(), 1);
  EXPECT_GT(madeAgain, which.parts == 1 ? 4 : 0);
  int failed = HasFailure();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (worldRank() != 0) return;
  const int underPolicies = std::accumulate(policies.begin(), policies.end(), 0);
  std::printf(
      "%s: %zu plans, largest relative difference %.2e from one rank, %.2e from the plain model; bfloat16 "
      "errs at "
      "most %.2f times as much as on one rank; %zu compared bit by bit; %td do not keep gate and up; %d more "
      "runs under policies of overlap\n",
      GetParam().name, plans.size(), worst, worstReference, worstNarrow, bitwise, madeAgain, underPolicies);
  if (which.record.empty()) return;
  char numbers[256];
  std::snprintf(numbers, sizeof numbers,
                "\"plans\": %zu, \"underPolicies\": %d, \"bitwise\": %zu, \"fromOneRank\": %.3e, "
                "\"fromFloat64\": %.3e, \"bfloat16\": %.3f, \"seconds\": %.0f, \"failed\": %s}\n",
                plans.size(), underPolicies, bitwise, worst, worstReference, worstNarrow, MPI_Wtime() - start,
                failed != 0 ? "true" : "false");
  appendRecord(which, key + numbers);
}

/// Largest relative difference of a loss.
double lossDifference(const Outcome& one, const Outcome& other) {
  double largest = 0;
  for (std::size_t step = 0; step < one.losses.size(); ++step)
    largest = std::max(largest, std::abs(other.losses[step] / one.losses[step] - 1));
  return largest;
}

/// What a plan with bfloat16 gradients gave.
struct RoundedOutcome {
  double quotient = 0;  ///< error of a gradient of the first step, by that of one rank with float32 gradients
  double loss = 0;      ///< relative difference of a loss from one rank with bfloat16 gradients
  std::uint64_t bits = 0;
};

/// Of those plans of a sample whose turn it is; on every rank.
std::vector<RoundedOutcome> roundedOutcomes(const Setting& setting, const Config& narrow,
                                            const std::vector<PlanConfig>& plans) {
  const Tensors exact = exactGradients(setting.base, setting.batch);
  Config wide = narrow;
  wide.gradientPrecision = DataType::float32;
  const Errors ofOne = errorsOf(setting.base, train(wide, setting.one, {worldRank()}), exact);
  const Outcome one = train(narrow, setting.one, {worldRank()});
  std::vector<double> quotients(plans.size(), 0), losses(plans.size(), 0);
  std::vector<std::uint64_t> bits(plans.size(), 0);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const int ranks = plans[i].worldSize(), worlds = worldSize() / ranks;
    if (static_cast<int>(i) % worlds != worldRank() / ranks) continue;
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), worldRank() / ranks * ranks);
    const Outcome outcome = train(narrow, plans[i], members);
    if (worldRank() != members[0]) continue;
    quotients[i] = largestQuotient(errorsOf(setting.base, outcome, exact), ofOne);
    losses[i] = lossDifference(one, outcome), bits[i] = outcome.bits;
  }
  const int count = static_cast<int>(plans.size());
  MPI_Allreduce(MPI_IN_PLACE, quotients.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, losses.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, bits.data(), count, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  std::vector<RoundedOutcome> outcomes;
  for (std::size_t i = 0; i < plans.size(); ++i) outcomes.push_back({quotients[i], losses[i], bits[i]});
  return outcomes;
}

/// bf16-grad16. Where gradients are rounded depends on the plan, so plans that round in different places differ: their gradients err
/// at most kRoundedQuotient times as much as those of one rank with float32 gradients do, and a loss differs by at most
/// kRoundedLoss of it. Plans that add and round in the same order give the same bits.
TEST_P(LatticeTest, EveryPlanWithBfloat16GradientsErrsAboutAsMuchAsOneRank) {
  const Asked which = asked();
  TemporaryDirectory directory;  // of each rank
  const Setting setting = settingOf(GetParam(), directory);
  Config narrow = setting.base;
  narrow.precision = narrow.gradientPrecision = DataType::bfloat16;
  std::vector<PlanConfig> plans;
  for (int ranks = worldSize() == 8 ? 8 : 1; ranks <= worldSize(); ranks *= 2) {
    const std::vector<PlanConfig> plain = latticeOf(setting.base, ranks, kSequences);
    const std::vector<PlanConfig> chosen = which.whole ? plain : pairwiseSample(withOverlaps(plain));
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (static_cast<int>(i) % kNarrowEvery == 1) plans.push_back(chosen[i]);
    }
  }
  const std::vector<int> parts = partsOf(plans, setting.base.model.tiedEmbeddings, which.parts);
  std::vector<PlanConfig> mine;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (parts[i] == which.part) mine.push_back(plans[i]);
  }
  const std::vector<RoundedOutcome> outcomes = roundedOutcomes(setting, narrow, mine);
  std::map<std::string, std::size_t> firstOfKey;
  std::size_t bitwise = 0;
  double worstQuotient = 0, worstLoss = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_LE(outcomes[i].quotient, kRoundedQuotient) << nameOf(mine[i]);
    EXPECT_LE(outcomes[i].loss, kRoundedLoss) << nameOf(mine[i]);
    worstQuotient = std::max(worstQuotient, outcomes[i].quotient);
    worstLoss = std::max(worstLoss, outcomes[i].loss);
    const auto [first, fresh] =
        firstOfKey.emplace(roundedOrderKeyOf(mine[i], setting.base.model.tiedEmbeddings), i);
    if (fresh) continue;
    ++bitwise;
    EXPECT_EQ(outcomes[i].bits, outcomes[first->second].bits)
        << nameOf(mine[i]) << " and " << nameOf(mine[first->second]) << " add and round in the same order";
  }
  EXPECT_GT(mine.size(), which.parts == 1 ? 4u : 0u);
  if (worldRank() != 0) return;
  std::printf(
      "%s: %zu plans with bfloat16 gradients err at most %.2f times as much as one rank with float32 ones, "
      "and "
      "losses differ by %.2e at most from one rank; %zu compared bit by bit\n",
      GetParam().name, mine.size(), worstQuotient, worstLoss, bitwise);
}

TEST(Lattice, PoliciesThatDoTheSameAreOne) {
  TemporaryDirectory directory;
  const Config base = smallConfig(directory.file("d.tokens"));
  const auto policies = [&](int ps, int gs, int oss, int dp, int tp = 1) {
    PlanConfig p;
    p.tensorParallel = p.sequenceParallel = tp;
    p.microBatches = 2, p.dataParallel = dp, p.parameterSharding = ps, p.gradientSharding = gs,
    p.optimizerStateSharding = oss;
    return overlapsOf(base, p).size();
  };
  EXPECT_EQ(policies(1, 1, 1, 1), 1u);  // a lane with nothing on it
  EXPECT_EQ(policies(1, 1, 2, 2), 2u);  // sums beside the backward pass or behind it
  EXPECT_EQ(policies(1, 2, 2, 2), 3u);  // and staged by blocks or by modules
  EXPECT_EQ(policies(2, 1, 1, 2), 11u);
  EXPECT_EQ(policies(1, 1, 1, 1, 2), 2u);  // activations beside the backward pass or not
}

TEST(Lattice, PartsHaveEveryPlanOnceAndKeepTogetherWhatIsCompared) {
  TemporaryDirectory directory;
  const std::vector<PlanConfig> plans = latticeOf(smallConfig(directory.file("d.tokens")), 4, kSequences);
  const std::vector<int> parts = partsOf(plans, false, 3);
  std::map<std::string, int> partOfKey;
  std::map<int, int> sizes;
  ASSERT_EQ(parts.size(), plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    ++sizes[parts[i]];
    EXPECT_EQ(partOfKey.emplace(orderKeyOf(plans[i], false), parts[i]).first->second, parts[i]);
  }
  EXPECT_EQ(sizes.size(), 3u);
  for (const auto& [part, size] : sizes) EXPECT_GT(size, static_cast<int>(plans.size()) / 9) << part;
}

/// A file that is one document: positions and keys are listed, and the arithmetic is that of no packing.
TEST(PackedDocuments, OneDocumentGivesTheBitsOfNone) {
  if (worldSize() != 4) GTEST_SKIP() << "needs 4 ranks";
  TemporaryDirectory directory;
  const Documents whole = sampleDocuments({1500}, 61);
  Config none = smallConfig(directory.file("d.tokens"));
  writeOwn(none.data.path, whole, 61, 2);
  Config packed = none;
  packed.data.packing = DataConfig::Packing::documents;
  std::vector<int> everyone(4);
  std::iota(everyone.begin(), everyone.end(), 0);
  std::map<std::string, int> kinds;
  for (const PlanConfig& plan : pairwiseSample(latticeOf(none, 4, kSequences))) {
    // One of each kind of communication is enough: the rest is the other test's.
    const std::string kind =
        "tp" + std::to_string(plan.tensorParallel) + " sp" + std::to_string(plan.sequenceParallel) + " c" +
        std::to_string(plan.contextParallel) + " pp" + std::to_string(plan.pipelineParallel);
    if (++kinds[kind] > 1) continue;
    EXPECT_EQ(train(packed, plan, everyone).bits, train(none, plan, everyone).bits) << nameOf(plan);
  }
  EXPECT_GT(kinds.size(), 8u);
}

INSTANTIATE_TEST_SUITE_P(Models, LatticeTest, ::testing::ValuesIn(kModels),
                         [](const auto& model) { return std::string(model.param.name); });

}  // namespace
}  // namespace internevo::trainer::testing
