// Plans of several ranks on the model of a device, with the model of NCCL: the losses and gradients of the same plan on the CPU, and bit
// by bit the same for plans that keep the order of arithmetic, whatever the plan overlaps and in whatever order the device's streams
// come to their work. With INTERNEVO_CUDA_TESTS=all a sample of the lattice that covers every pair of values; else few plans that
// have every kind of collective, overlap and stages, each with and without what it overlaps.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>

#include "../installed.h"
#include "checkpoint/safetensors.h"
#include "cuda/plan_sample.h"
#include "trainer/lattice.h"
#include "trainer/support.h"
#include "trainer/trainer.h"

namespace internevo::trainer::testing {
namespace {

constexpr int kSteps = 2;
constexpr std::int64_t kSequences = 4;

int worldRank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<std::vector<float>> gradients;  ///< [unit], of the first step
  std::uint64_t bits = 0;                     ///< of losses, gradients, final weights and moments
};

Outcome train(Config config, const PlanConfig& plan, DeviceKind device, const std::vector<int>& ranks) {
  config.plan = plan, config.mesh = meshOf(plan), config.device = device;
  validatePlan(config);
  Trainer trainer(
      config, static_cast<int>(std::find(ranks.begin(), ranks.end(), worldRank()) - ranks.begin()), ranks);
  trainer.initializeWeights();
  Outcome outcome;
  std::string bytes;
  const auto collect = [&](Trainer::Quantity quantity) {
    std::vector<std::vector<float>> units;
    for (int unit = 0; unit < trainer.wholeLayout().unitCount(); ++unit) {
      units.push_back(trainer.collect(unit, quantity));
      bytes.append(reinterpret_cast<const char*>(units.back().data()), units.back().size() * sizeof(float));
    }
    return units;
  };
  for (int step = 1; step <= kSteps; ++step) {
    outcome.losses.push_back(trainer.step(step).loss);
    bytes.append(reinterpret_cast<const char*>(&outcome.losses.back()), sizeof(double));
    auto gradients = collect(Trainer::Quantity::gradient);
    if (step == 1) outcome.gradients = std::move(gradients);
  }
  for (const auto quantity :
       {Trainer::Quantity::weights, Trainer::Quantity::firstMoment, Trainer::Quantity::secondMoment})
    collect(quantity);
  outcome.bits = checksumOf(bytes);
  return outcome;
}

double differenceOf(const Outcome& one, const Outcome& other) {
  double largest = 0;
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    largest = std::max(largest, std::abs(other.losses[i] - one.losses[i]) / std::abs(one.losses[i]));
  }
  for (std::size_t unit = 0; unit < one.gradients.size(); ++unit) {
    const auto &a = other.gradients[unit], &b = one.gradients[unit];
    if (a.size() != b.size()) return HUGE_VAL;
    largest = std::max(largest, relativeError(a.data(), b.data(), static_cast<std::int64_t>(b.size())));
  }
  return largest;
}

struct Model {
  const char* name;
  ModelConfig config;
  std::int64_t sequence;
};
/// What a model may have and a plain one has not.
ModelConfig everyField() {
  ModelConfig model{16, 2, 4, 2, 24, 29, false, 10000, 1e-5, 0.07};
  model.queryKeyNorm = model.queryKeyValueBias = true;
  model.givenHeadSize = 6, model.slidingWindowTokens = 3;
  model.ropeScaling = {.kind = RopeScalingKind::yarn, .factor = 4, .originalPositions = 8, .betaFast = 2};
  return model;
}

const Model kModels[] = {
    {"grouped", {16, 2, 4, 2, 24, 29, false, 10000, 1e-5, 0.07}, 8},
    {"tiedOneKeyHead", {16, 2, 4, 1, 24, 29, true, 10000, 1e-5, 0.07}, 8},
    {"everyField", everyField(), 8},
};

class DeviceLattice : public ::testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
    setenv("INTERNEVO_CUDA_LIBRARY", built::kModelLibrary, 1);
    setenv("INTERNEVO_NCCL_LIBRARY", built::kNcclModel, 1);
  }
  void TearDown() override { unsetenv("INTERNEVO_MODEL_STREAMS"); }
};

/// Plans that add in the same order stand together.
std::vector<PlanConfig> plansOf(const Config& base) {
  const std::vector<PlanConfig> lattice = withOverlaps(latticeOf(base, 4, kSequences));
  if (allAsked()) return pairwiseSample(lattice);
  std::vector<PlanConfig> plans;
  for (PlanConfig plan : planSample(lattice, false)) {
    plans.push_back(plan);
    if (!plan.overlaps()) continue;
    plan.forwardOverlap = ForwardOverlap::none, plan.backwardOverlap = BackwardOverlap::none;
    plans.push_back(plan);
  }
  return plans;
}

TEST_P(DeviceLattice, IsTheCpusAndBitByBitInEveryOrderOfStreams) {
  TemporaryDirectory directory;  // of each rank
  Config base = smallConfig(directory.file("d.tokens"));
  writeTokenFile(base.data.path, sampleTokens(600, 29), 29);
  base.model = GetParam().config;
  base.sequenceLengthTokens = GetParam().sequence;
  base.watchdog.reset(), base.checkpoint.reset();
  std::vector<int> everyone(4);
  std::iota(everyone.begin(), everyone.end(), 0);
  std::map<std::string, std::pair<std::string, std::uint64_t>> bitsOfKey;
  const std::array<const char*, 3> orders{"first", "last", "mixed"};
  std::size_t count = 0, compared = 0;
  double worst = 0;
  for (const PlanConfig& plan : plansOf(base)) {
    setenv("INTERNEVO_MODEL_STREAMS", orders[count++ % orders.size()], 1);
    const Outcome onDevice = train(base, plan, DeviceKind::cuda, everyone);
    const auto [first, fresh] = bitsOfKey.emplace(orderKeyOf(plan, base.model.tiedEmbeddings),
                                                  std::pair(nameOf(plan), onDevice.bits));
    if (!fresh) {
      ++compared;
      EXPECT_EQ(onDevice.bits, first->second.second)
          << nameOf(plan) << " and " << first->second.first << " add in the same order";
      if (onDevice.bits == first->second.second && !allAsked())
        continue;  // as far from the CPU's as that one
    }
    const double difference = differenceOf(train(base, plan, DeviceKind::cpu, everyone), onDevice);
    EXPECT_LT(difference, 2e-6) << nameOf(plan);
    worst = std::max(worst, difference);
  }
  EXPECT_GT(compared, 3u);
  if (worldRank() == 0) {
    std::printf("%s: %zu plans, at most %.2e from the CPU's; %zu compared bit by bit\n", GetParam().name,
                count, worst, compared);
  }
}

/// bf16-grad16: the bits of plans that add and round in the same order, and about the CPU's losses.
TEST_P(DeviceLattice, WithBfloat16GradientsHasTheBitsOfPlansThatRoundInTheSameOrder) {
  TemporaryDirectory directory;  // of each rank
  Config base = smallConfig(directory.file("d.tokens"));
  writeTokenFile(base.data.path, sampleTokens(600, 29), 29);
  base.model = GetParam().config;
  base.sequenceLengthTokens = GetParam().sequence;
  base.watchdog.reset(), base.checkpoint.reset();
  base.precision = base.gradientPrecision = DataType::bfloat16;
  std::vector<int> everyone(4);
  std::iota(everyone.begin(), everyone.end(), 0);
  std::map<std::string, std::pair<std::string, Outcome>> ofKey;
  std::size_t compared = 0;
  for (const PlanConfig& plan : plansOf(base)) {
    const Outcome onDevice = train(base, plan, DeviceKind::cuda, everyone);
    const auto [first, fresh] =
        ofKey.emplace(roundedOrderKeyOf(plan, base.model.tiedEmbeddings), std::pair(nameOf(plan), onDevice));
    if (!fresh) {
      ++compared;
      EXPECT_EQ(onDevice.bits, first->second.second.bits)
          << nameOf(plan) << " and " << first->second.first << " add and round in the same order";
      continue;
    }
    const Outcome onCpu = train(base, plan, DeviceKind::cpu, everyone);
    for (int step = 0; step < kSteps; ++step) {
      const auto place = static_cast<std::size_t>(step);
      EXPECT_NEAR(onDevice.losses[place], onCpu.losses[place], 1e-3 * onCpu.losses[place]) << nameOf(plan);
    }
  }
  EXPECT_GT(compared, 3u);
}

INSTANTIATE_TEST_SUITE_P(Models, DeviceLattice, ::testing::ValuesIn(kModels),
                         [](const auto& model) { return std::string(model.param.name); });

}  // namespace
}  // namespace internevo::trainer::testing
