// The Communication Scheduler: every policy gives the bits of none, nothing is allocated in a step, and the pool and the
// accounting of time say what happened.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <numeric>

#include "checkpoint/safetensors.h"
#include "data_writers.h"
#include "lattice.h"
#include "support.h"
#include "trainer/gather_pool.h"
#include "trainer/trainer.h"

namespace {
// Counts what C++ asks for while it is on. What MPI and OpenMP take for themselves (malloc) is not ours to plan.
std::atomic<bool> counting{false};
std::atomic<long> allocations{0};
}  // namespace

void* operator new(std::size_t bytes) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace internevo::trainer::testing {
namespace {

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
std::vector<int> everyRank() {
  std::vector<int> ranks(static_cast<std::size_t>(worldSize()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

struct Policy {
  ForwardOverlap forward;
  BackwardOverlap backward;
};
std::vector<Policy> policies() {
  std::vector<Policy> all;
  for (const auto forward : {ForwardOverlap::none, ForwardOverlap::block, ForwardOverlap::interLayer,
                             ForwardOverlap::intraLayer}) {
    for (const auto backward : {BackwardOverlap::none, BackwardOverlap::block, BackwardOverlap::intraLayer}) {
      all.push_back({forward, backward});
    }
  }
  return all;
}

class Overlap : public ::testing::Test {
 protected:
  void SetUp() override {
    writeTokenFile(data_, sampleTokens(1500, 61), 61);
    config_ = smallConfig(data_);
    config_.model.layers = 4;
    config_.optimizer.clipGlobalNorm = 0.3;
  }
  Config configOf(const PlanConfig& plan, const Policy& policy) const {
    Config c = config_;
    c.plan = plan;
    c.plan.forwardOverlap = policy.forward, c.plan.backwardOverlap = policy.backward;
    c.mesh = meshOf(plan);
    validatePlan(c);
    return c;
  }
  static std::uint64_t bitsAfter(const Config& config, int steps) {
    Trainer trainer(config, worldRank(), everyRank());
    trainer.initializeWeights();
    std::string bytes;
    for (int step = 1; step <= steps; ++step) {
      const StepResult result = trainer.step(step);
      bytes.append(reinterpret_cast<const char*>(&result.loss), sizeof result.loss);
      bytes.append(reinterpret_cast<const char*>(&result.gradientNorm), sizeof result.gradientNorm);
    }
    for (const auto quantity :
         {Trainer::Quantity::gradient, Trainer::Quantity::weights, Trainer::Quantity::secondMoment}) {
      for (int unit = 0; unit < trainer.wholeLayout().unitCount(); ++unit) {
        const std::vector<float> values = trainer.collect(unit, quantity);
        bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      }
    }
    return checksumOf(bytes);
  }

  TemporaryDirectory directory_;
  const std::string data_ = directory_.file("d.tokens");
  Config config_;
};

/// b, n, a (layers recomputed, −1 all), pp, v, dp, tp, sp, ps, gs, oss
PlanConfig planOf(std::int64_t b, std::int64_t n, std::int64_t a, int pp, int v, int dp, int tp, int sp,
                  int ps, int gs, int oss) {
  PlanConfig p;
  p.microBatchSize = b, p.microBatches = n, p.recompute = a < 0,
  p.recomputeLayers = std::max<std::int64_t>(a, 0);
  p.pipelineParallel = pp, p.pipelineChunks = v, p.dataParallel = dp, p.tensorParallel = tp,
  p.sequenceParallel = sp;
  p.parameterSharding = ps, p.gradientSharding = gs, p.optimizerStateSharding = oss;
  return p;
}

PlanConfig onContext(int ranks, PlanConfig plan) {
  plan.contextParallel = ranks;
  return plan;
}

PlanConfig withGateUpAgain(PlanConfig plan) {
  plan.gateUp = GateUp::again;
  return plan;
}

std::vector<PlanConfig> samplePlans() {
  if (worldSize() == 2) {
    return {planOf(2, 2, 0, 1, 1, 2, 1, 1, 2, 1, 1), planOf(2, 2, -1, 1, 1, 2, 1, 1, 2, 1, 1),
            planOf(2, 3, 1, 1, 1, 1, 1, 2, 2, 1, 1), planOf(2, 2, 0, 1, 1, 2, 1, 1, 1, 2, 2),
            planOf(2, 2, 0, 1, 1, 2, 1, 1, 1, 1, 2), planOf(1, 4, 0, 1, 1, 2, 1, 1, 1, 1, 1),
            planOf(2, 2, 0, 2, 1, 1, 1, 1, 1, 1, 1), withGateUpAgain(planOf(2, 3, 1, 1, 1, 2, 1, 1, 2, 1, 1)),
            planOf(2, 3, 1, 1, 1, 1, 2, 2, 1, 1, 1), onContext(2, planOf(2, 3, 1, 1, 1, 1, 1, 2, 2, 1, 1))};
  }
  return {onContext(2, planOf(2, 2, 1, 1, 1, 1, 1, 4, 2, 2, 2)),
          onContext(2, planOf(1, 4, 0, 2, 2, 1, 1, 2, 2, 1, 1)),
          planOf(1, 2, 1, 1, 1, 4, 1, 1, 2, 2, 2),
          planOf(2, 2, 0, 1, 1, 2, 1, 2, 2, 1, 2),
          planOf(2, 2, -1, 1, 1, 2, 2, 2, 2, 1, 1),
          planOf(2, 2, 0, 1, 1, 2, 2, 2, 1, 2, 2),
          planOf(2, 2, 1, 1, 1, 1, 4, 4, 1, 1, 1),
          planOf(1, 4, 0, 2, 2, 1, 2, 2, 1, 1, 1),
          withGateUpAgain(planOf(2, 2, 0, 1, 1, 2, 2, 2, 2, 1, 1)),
          planOf(1, 4, 1, 2, 1, 2, 1, 1, 2, 1, 1),
          planOf(1, 4, 0, 2, 1, 2, 1, 1, 1, 2, 2),
          planOf(1, 4, 0, 2, 2, 1, 1, 2, 2, 1, 1),
          planOf(1, 2, 0, 1, 1, 4, 1, 1, 4, 1, 1)};
}

TEST_F(Overlap, EveryPolicyGivesTheBitsOfNone) {
  int compared = 0, narrow = 0;
  for (const bool tied : {false, true}) {
    config_.model.tiedEmbeddings = tied;
    for (const PlanConfig& plan : samplePlans()) {
      for (const DataType precision : {DataType::float32, DataType::bfloat16}) {
        if (precision == DataType::bfloat16 && (tied || compared % 3 == 1)) continue;
        config_.precision = precision;
        // Every second of those in bfloat16 has gradients in bfloat16 too.
        narrow += precision == DataType::bfloat16;
        config_.gradientPrecision =
            precision == DataType::bfloat16 && narrow % 2 == 0 ? DataType::bfloat16 : DataType::float32;
        std::uint64_t none = 0;
        for (const Policy& policy : policies()) {
          const Config config = configOf(plan, policy);
          const std::uint64_t bits = bitsAfter(config, 2);
          if (!config.plan.overlaps()) none = bits;
          EXPECT_EQ(bits, none) << planJson(config.plan) << (tied ? " tied" : "");
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 9 * 14);
}

/// The same product of the same numbers, wherever its parameters are gathered and whatever travels meanwhile.
TEST_F(Overlap, GateAndUpMadeAgainOrInTheHostsMemoryGiveTheBitsOfThoseKept) {
  const std::vector<Policy> some = {{ForwardOverlap::none, BackwardOverlap::none},
                                    {ForwardOverlap::block, BackwardOverlap::block},
                                    {ForwardOverlap::interLayer, BackwardOverlap::intraLayer}};
  int compared = 0;
  for (PlanConfig plan : samplePlans()) {
    if (plan.recompute) continue;
    config_.precision = compared % 2 == 0 ? DataType::float32 : DataType::bfloat16;
    plan.gateUp = GateUp::kept;
    const std::uint64_t kept = bitsAfter(configOf(plan, some.front()), 2);
    for (const GateUp gateUp : {GateUp::again, GateUp::host}) {
      plan.gateUp = gateUp;
      for (const Policy& policy : some) {
        const Config config = configOf(plan, policy);
        EXPECT_EQ(bitsAfter(config, 2), kept) << planJson(config.plan);
      }
    }
    ++compared;
  }
  EXPECT_GE(compared, 8);
}

TEST_F(Overlap, AStepAllocatesNothingAfterTheFirst) {
  writeOwn(data_, samplePacked(1500, 61).documents, 61, 2);
  for (const PlanConfig& plan : samplePlans()) {
    const bool packed =
        config_.data.packing == DataConfig::Packing::documents;  // every second plan packs documents
    config_.data.packing = packed ? DataConfig::Packing::none : DataConfig::Packing::documents;
    for (const Policy& policy : {Policy{ForwardOverlap::none, BackwardOverlap::none},
                                 Policy{ForwardOverlap::interLayer, BackwardOverlap::intraLayer}}) {
      Config config = configOf(plan, policy);
      Activity activity(10000);
      activity.record(true);
      allocations = 0, counting = true;
      Trainer trainer(config, worldRank(), everyRank(), &activity);
      counting = false;
      EXPECT_GT(allocations.load(), 100) << "nothing is counted";
      trainer.initializeWeights();
      trainer.step(1);
      const std::int64_t high = trainer.peakMemoryBytes();
      allocations = 0, counting = true;
      trainer.step(2), trainer.step(3);
      counting = false;
      EXPECT_EQ(allocations.load(), 0) << planJson(config.plan);
      EXPECT_EQ(trainer.peakMemoryBytes(), high);
      EXPECT_EQ(high, alignUp(planMemory(config, trainer.layout(), *createCpuBackend(1)).arenaBytes(), 64) +
                          trainer.runtimeBytes());
    }
  }
}

TEST_F(Overlap, CommunicationBesideComputingIsNotExposed) {
  Config config = configOf(samplePlans().front(), {ForwardOverlap::interLayer, BackwardOverlap::intraLayer});
  Activity activity(100000);
  Trainer trainer(config, worldRank(), everyRank(), &activity);
  trainer.initializeWeights();
  trainer.step(1);
  trainer.parameters().settle();
  const double busyBefore = trainer.parameters().hiddenBusySeconds();
  activity.record(true);
  const StepResult result = trainer.step(2);
  const std::int64_t end = steadyNanoseconds();
  trainer.parameters().settle();  // what the update left under way
  activity.record(false);
  const double busy = trainer.parameters().hiddenBusySeconds() - busyBefore;
  double beside = 0, exposed = 0;
  int gathers = 0, reductions = 0;
  std::map<int, std::vector<std::int64_t>> ready, sent;  // starts by unit
  for (std::int64_t i = 0; i < activity.eventCount(); ++i) {
    const ActivityEvent& e = activity.events()[i];
    const double seconds = static_cast<double>(e.endNanoseconds - e.startNanoseconds) * 1e-9;
    if (e.lane == ActivityLane::communication) beside += seconds;
    if (e.lane == ActivityLane::exposed && e.endNanoseconds <= end) exposed += seconds;
    EXPECT_EQ(e.exposed, e.lane == ActivityLane::exposed) << e.name;
    gathers += e.lane == ActivityLane::communication && std::string(e.name) == "all-gather parameters";
    reductions += e.lane == ActivityLane::communication && std::string(e.name) == "reduce-scatter gradients";
    if (std::string(e.name) == "ready to be sent") ready[e.unit].push_back(e.startNanoseconds);
    if (e.lane == ActivityLane::communication && std::string(e.name) != "all-gather parameters")
      sent[e.unit].push_back(e.startNanoseconds);
  }
  EXPECT_EQ(ready.size(), sent.size());
  for (auto& [unit, starts] : sent) {
    std::sort(starts.begin(), starts.end()), std::sort(ready[unit].begin(), ready[unit].end());
    ASSERT_EQ(ready[unit].size(), starts.size()) << unit;
    for (std::size_t i = 0; i < starts.size(); ++i) EXPECT_LE(ready[unit][i], starts[i]);
  }
  EXPECT_GT(gathers, 0);
  EXPECT_GT(reductions, 0);
  EXPECT_NEAR(result.exposedCommunicationSeconds, exposed, 0.2 * exposed + 1e-3);
  EXPECT_NEAR(busy, beside, 0.2 * busy + 1e-3);
  EXPECT_LE(result.communicationSeconds, exposed + busy + 1e-3);
  EXPECT_LE(result.exposedCommunicationSeconds, result.stepTimeSeconds);
}

/// Of both products of a layer that read the gathered sequence, in each backward pass.
TEST_F(Overlap, TensorRanksMoveActivationsBesideProductsOfTheBackwardPass) {
  const PlanConfig plan = planOf(2, 2, 1, 1, 1, worldSize() / 2, 2, 2, 1, 1, 1);
  for (const BackwardOverlap backward :
       {BackwardOverlap::none, BackwardOverlap::block, BackwardOverlap::intraLayer}) {
    const Config config = configOf(plan, {ForwardOverlap::block, backward});
    Activity activity(100000);
    Trainer trainer(config, worldRank(), everyRank(), &activity);
    trainer.initializeWeights();
    activity.record(true);
    const StepResult result = trainer.step(1);
    activity.record(false);
    std::map<std::string, std::int64_t> beside, alone;
    double besideSeconds = 0;
    for (std::int64_t i = 0; i < activity.eventCount(); ++i) {
      const ActivityEvent& e = activity.events()[i];
      if (e.lane == ActivityLane::exposed) ++alone[e.name];
      if (e.lane != ActivityLane::activations) continue;
      ++beside[e.name];
      besideSeconds += static_cast<double>(e.endNanoseconds - e.startNanoseconds) * 1e-9;
      EXPECT_FALSE(e.exposed);
      EXPECT_GE(e.unit, 0);
    }
    const std::int64_t passes = config.plan.microBatches * config.model.layers;
    const std::int64_t moved = backward == BackwardOverlap::none ? 0 : 2 * passes;
    for (const std::string collective : {"all-gather", "reduce-scatter"}) {
      EXPECT_EQ(beside[collective + " activations"], moved) << collective;
      EXPECT_EQ(alone["wait for " + collective + " of activations"], moved) << collective;
    }
    // Forward: two of each a layer, the recomputed one two and one more, the embedding and the head one of each.
    const std::int64_t recomputed = config.plan.microBatches * config.plan.recomputeLayers;
    EXPECT_EQ(alone["all-gather activations"],
              6 * passes + 2 * recomputed + 2 * config.plan.microBatches - moved);
    EXPECT_EQ(alone["reduce-scatter activations"],
              4 * passes + recomputed + 2 * config.plan.microBatches - moved);
    EXPECT_GE(result.communicationSeconds, besideSeconds);
  }
}

TEST_F(Overlap, UpdatedParametersTravelUntilTheirFirstUseInTheNextStep) {
  Config config = configOf(planOf(2, 2, 0, 1, 1, worldSize(), 1, 1, 1, worldSize(), worldSize()),
                           {ForwardOverlap::interLayer, BackwardOverlap::intraLayer});
  Activity activity(100000);
  Trainer trainer(config, worldRank(), everyRank(), &activity);
  trainer.initializeWeights();
  trainer.step(1);
  activity.record(true);
  trainer.step(2);
  trainer.parameters().settle();
  activity.record(false);
  std::map<int, int> waited, sent;
  bool computed = false;
  for (std::int64_t i = 0; i < activity.eventCount(); ++i) {
    const ActivityEvent& e = activity.events()[i];
    computed |= std::string(e.name).rfind("linear forward", 0) == 0;
    if (std::string(e.name) == "wait for updated parameters" && e.unit >= 0) {
      ++waited[e.unit];
      EXPECT_EQ(computed, e.unit > trainer.layout().layerUnits(0).first) << e.unit;  // each before its use
    }
  }
  EXPECT_EQ(static_cast<int>(waited.size()), trainer.layout().unitCount());
  for (const auto& [unit, times] : waited) EXPECT_EQ(times, 1) << unit;
}

// ---- the pool ------------------------------------------------------------------------------------------------------

class Pool : public Overlap {
 protected:
  void build(const Policy& policy, GateUp gateUp = GateUp::kept) {
    PlanConfig plan = planOf(1, 1, 0, 1, 1, worldSize(), 1, 1, worldSize(), 1, 1);
    plan.gateUp = gateUp;
    config_ = configOf(plan, policy);
    layout_ = std::make_unique<Layout>(config_.model, config_.plan, Position{});
    groups_ = std::make_unique<GroupSet>();
    groups_->activity = &activity_;
    createGroups(config_, worldRank(), everyRank(), nullptr, groups_.get());
    shard_.resize(static_cast<std::size_t>(layout_->totalElements() / worldSize()));
    for (std::size_t i = 0; i < shard_.size(); ++i)
      shard_[i] = static_cast<float>(worldRank() * 1000000 + static_cast<int>(i));
    schedule_ = gatherSchedule(config_.plan, *layout_, pipelineSchedule(0, 1, 1, 1));
    const int slots = config_.plan.overlaps() ? 2 : 1;
    memory_.resize(static_cast<std::size_t>(slots * gatherSlotElements(schedule_, *layout_)));
    lane_ = std::make_unique<CommunicationLane>(*backend_, *groups_, config_.plan.overlaps());
    pool_ = std::make_unique<GatherPool>(*layout_, schedule_, slots, View{memory_.data(), DataType::float32},
                                         View{shard_.data(), DataType::float32}, groups_->parameterShards,
                                         *groups_, *lane_);
  }
  void expectInternal(const std::function<void()>& call, const std::string& part) {
    try {
      call();
      ADD_FAILURE() << "accepted: " << part;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.problem().code, StatusCode::internal);
      EXPECT_NE(failure.problem().message.find(part), std::string::npos) << failure.problem().message;
    }
  }

  Activity activity_{10000};
  std::unique_ptr<Backend> backend_ = createCpuBackend(1);
  std::unique_ptr<Layout> layout_;
  std::unique_ptr<GroupSet> groups_;
  std::vector<float> shard_, memory_;
  std::vector<GatherGroup> schedule_;
  std::unique_ptr<GatherPool> pool_;
  std::unique_ptr<CommunicationLane> lane_;
};

TEST_F(Pool, EveryGroupIsGatheredWholeAndTheNextOneGoesAhead) {
  const auto run = [&] {
    pool_->beginStep();
    for (const GatherGroup& group : schedule_) {
      for (const int unit : group.units) {
        const float* const values = pool_->get(unit).as<float>();
        const std::int64_t part = layout_->parameterShard(unit),
                           start = layout_->unitStart(unit) / worldSize();
        for (std::int64_t i = 0; i < layout_->unit(unit).paddedElements; ++i) {
          ASSERT_EQ(values[i], static_cast<float>(i / part * 1000000 + start + i % part));
        }
        EXPECT_EQ(pool_->get(unit).data, values);
      }
      for (const int unit : group.units) pool_->release(unit);
    }
    pool_->endStep();
    pool_->weightsChanged();
  };
  for (const Policy& policy : policies()) {
    for (const GateUp gateUp : {GateUp::kept, GateUp::again}) {
      build(policy, gateUp);
      for (int step = 0; step < 2; ++step) run();
    }
  }
}

/// The lane has run what could go ahead: how many units that are.
TEST_F(Pool, WhatHasRoomIsGatheredAheadAndNothingElse) {
  build({ForwardOverlap::interLayer, BackwardOverlap::intraLayer});
  const auto gathered = [&] {
    lane_->waitAll("wait for all");
    return std::count_if(activity_.events(), activity_.events() + activity_.eventCount(),
                         [](const ActivityEvent& e) { return e.lane == ActivityLane::communication; });
  };
  const auto fits = [&](std::size_t first) {  // units from there on that fit beside nothing
    std::int64_t elements = 0, units = 0;
    for (std::size_t group = first; group < schedule_.size(); ++group) {
      for (const int unit : schedule_[group].units) {
        elements += layout_->unit(unit).paddedElements;
        if (elements > static_cast<std::int64_t>(memory_.size())) return units;
        ++units;
      }
    }
    return units;
  };
  activity_.record(true);
  EXPECT_EQ(gathered(), 0);
  pool_->beginStep();
  const std::int64_t first = gathered();
  EXPECT_GE(first, 1 + 4);  // the embedding and a layer
  EXPECT_LE(first, fits(0));
  pool_->get(schedule_[0].units[0]);
  EXPECT_EQ(gathered(), first);
  pool_->release(schedule_[0].units[0]);
  EXPECT_GT(gathered(), first);  // units of the second layer before the first is used
  EXPECT_LE(gathered(), 1 + fits(1));
  for (std::size_t group = 1; group < schedule_.size(); ++group) {
    for (const int unit : schedule_[group].units) pool_->get(unit), pool_->release(unit);
  }
  pool_->endStep();
  const std::int64_t before = gathered();
  pool_->weightsChanged();
  EXPECT_EQ(gathered(), before);  // nothing is updated yet
  pool_->updated(0);
  EXPECT_EQ(gathered(), before + 1);
  pool_->updated(2);
  EXPECT_EQ(gathered(), before + 3);
  pool_->weightsChanged();  // these hold no longer
  pool_->beginStep();
  EXPECT_EQ(gathered(), before + 3 + first);
}

TEST_F(Pool, UseAgainstTheScheduleIsAnError) {
  const Policy ahead{ForwardOverlap::interLayer, BackwardOverlap::intraLayer};
  build(ahead);
  pool_->beginStep();
  const int second = schedule_[1].units[0], embedding = schedule_[0].units[0];
  expectInternal([&] { pool_->release(embedding); }, "without having been taken");
  expectInternal([&] { pool_->get(second); }, "out of turn");
  pool_->get(embedding);
  expectInternal([&] { pool_->get(second); }, "while the group before is in use");
  pool_->release(embedding);
  expectInternal([&] { pool_->release(embedding); }, "without having been taken");
  pool_->get(second);
  pool_->release(second);
  expectInternal([&] { pool_->release(second); }, "given back twice");
  expectInternal([&] { pool_->get(second); }, "after they had been given back");
  expectInternal([&] { pool_->endStep(); }, "not the last of the step");
  pool_->weightsChanged();
  expectInternal([&] { pool_->get(schedule_[1].units[1]); }, "older than the weights");
  expectInternal([&] { pool_->beginStep(); }, "still held");
}

}  // namespace
}  // namespace internevo::trainer::testing
