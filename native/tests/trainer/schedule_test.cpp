// The order of work in a pipeline, and what it promises to the executor's few buffers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support.h"
#include "trainer/gather_schedule.h"
#include "trainer/layout.h"
#include "trainer/pipeline_schedule.h"
#include "trainer/ring_plan.h"

namespace internevo::trainer::testing {
namespace {

struct Shape {
  int stages;
  std::int64_t microBatches;
  int chunks;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (int stages = 1; stages <= 8; ++stages) {
    for (int chunks = 1; chunks <= (stages == 1 ? 1 : 4); ++chunks) {
      for (std::int64_t n = 1; n <= 24; ++n) {
        if (chunks == 1 || n % stages == 0) all.push_back({stages, n, chunks});
      }
    }
  }
  return all;
}

std::vector<PipelineOperation> of(const Shape& s, int stage) {
  return pipelineSchedule(stage, s.stages, s.microBatches, s.chunks);
}

std::string nameOf(const Shape& s) {
  return std::to_string(s.stages) + " stages, " + std::to_string(s.microBatches) + " micro-batches, " +
         std::to_string(s.chunks) + " chunks";
}

TEST(PipelineSchedule, EveryMicroBatchGoesForwardAndThenBackwardOnceThroughEveryChunk) {
  for (const Shape& s : shapes()) {
    for (int stage = 0; stage < s.stages; ++stage) {
      std::set<std::pair<std::int64_t, int>> gone, come;
      for (const PipelineOperation& o : of(s, stage)) {
        const std::pair<std::int64_t, int> which{o.microBatch, o.chunk};
        if (o.pass == Pass::forward) {
          EXPECT_TRUE(gone.insert(which).second) << nameOf(s);
        } else {
          EXPECT_TRUE(gone.count(which) == 1 && come.insert(which).second) << nameOf(s);
        }
      }
      EXPECT_EQ(come.size(), static_cast<std::size_t>(s.microBatches * s.chunks)) << nameOf(s);
    }
  }
}

TEST(PipelineSchedule, KeepsMinOfStagesLeftAndMicroBatchesInFlight) {
  for (const Shape& s : shapes()) {
    if (s.chunks > 1) continue;
    for (int stage = 0; stage < s.stages; ++stage) {
      EXPECT_EQ(mostInFlight(of(s, stage), 0), std::min<std::int64_t>(s.stages - stage, s.microBatches))
          << nameOf(s);
    }
  }
}

TEST(PipelineSchedule, MicroBatchesInFlightAreConsecutiveAndTheHeadHasOne) {
  for (const Shape& s : shapes()) {
    for (int stage = 0; stage < s.stages; ++stage) {
      const auto operations = of(s, stage);
      std::vector<std::int64_t> nextForward(static_cast<std::size_t>(s.chunks)), nextBackward = nextForward;
      for (const PipelineOperation& o : operations) {
        auto& next = o.pass == Pass::forward ? nextForward : nextBackward;
        EXPECT_EQ(o.microBatch, next[static_cast<std::size_t>(o.chunk)]++) << nameOf(s);
      }
    }
    EXPECT_EQ(mostInFlight(of(s, s.stages - 1), s.chunks - 1), 1) << nameOf(s);
  }
}

/// The executor's stage: one send buffer and one started receive a direction; a send lasts until its receive is started
/// (rendezvous). Runs all stages as far as they go, in an order of their own; true when all finish.
class Simulation {
 public:
  explicit Simulation(const Shape& s) : s_(s) {
    for (int stage = 0; stage < s.stages; ++stage) {
      Stage each;
      each.operations = of(s, stage);
      for (const PipelineOperation& o : each.operations) {
        if (receives(o, stage, s.stages, s.chunks)) each.expected[index(o.pass)].push_back(o);
      }
      stages_.push_back(each);
    }
  }

  bool run(bool lastFirst) {
    for (bool moved = true; moved;) {
      moved = false;
      for (int i = 0; i < s_.stages; ++i) {
        const int stage = lastFirst ? s_.stages - 1 - i : i;
        while (step(stage)) moved = true;
      }
    }
    return std::all_of(stages_.begin(), stages_.end(),
                       [](const Stage& stage) { return stage.at == stage.operations.size(); });
  }

 private:
  struct Stage {
    std::vector<PipelineOperation> operations;
    std::size_t at = 0;
    bool ready = false;  ///< the next operation has what it needs
    std::array<std::vector<PipelineOperation>, 2> expected;
    std::array<std::size_t, 2> taken{};
    std::array<std::vector<PipelineOperation>, 2>
        sent;  ///< as their receivers name them; the last may be under way
  };
  static std::size_t index(Pass pass) { return pass == Pass::forward ? 0 : 1; }
  int neighbour(int stage, Pass pass) const {
    return (stage + (pass == Pass::forward ? 1 : s_.stages - 1)) % s_.stages;
  }
  /// Whether a message to `stage` has met its receive: it is the one that the stage is waiting for, or was taken.
  bool met(int stage, const PipelineOperation& message) const {
    const Stage& target = stages_[static_cast<std::size_t>(stage)];
    const auto& expected = target.expected[index(message.pass)];
    const auto place =
        static_cast<std::size_t>(std::find(expected.begin(), expected.end(), message) - expected.begin());
    EXPECT_LT(place, expected.size()) << "a message that nobody expects";
    return place <= target.taken[index(message.pass)];
  }
  /// Takes the message of the next operation, or passes on its result; false when it has to wait.
  bool step(int stage) {
    Stage& own = stages_[static_cast<std::size_t>(stage)];
    if (own.at == own.operations.size()) return false;
    const PipelineOperation& o = own.operations[own.at];
    const std::size_t pass = index(o.pass);
    if (!own.ready) {
      if (receives(o, stage, s_.stages, s_.chunks)) {
        const int from = neighbour(stage, o.pass == Pass::forward ? Pass::backward : Pass::forward);
        const auto& sent = stages_[static_cast<std::size_t>(from)].sent[pass];
        if (std::find(sent.begin(), sent.end(), o) == sent.end()) return false;
        EXPECT_EQ(own.expected[pass][own.taken[pass]++], o)
            << "messages are taken in the order of the schedule";
      }
      own.ready = true;
      return true;
    }
    if (sends(o, stage, s_.stages, s_.chunks)) {
      auto& sent = own.sent[pass];
      if (!sent.empty() && !met(neighbour(stage, o.pass), sent.back())) return false;
      sent.push_back(receiverOf(o, stage, s_.stages));
    }
    own.ready = false;
    ++own.at;
    return true;
  }

  const Shape s_;
  std::vector<Stage> stages_;
};

TEST(PipelineSchedule, NeverStopsWithOneBufferADirectionAndSendsThatWaitForTheirReceives) {
  for (const Shape& s : shapes()) {
    EXPECT_TRUE(Simulation(s).run(false)) << nameOf(s);
    EXPECT_TRUE(Simulation(s).run(true)) << nameOf(s);
  }
}

/// Between devices messages have no tags: what a stage sends in a pass comes to its neighbour in the order in which that one takes it.
TEST(PipelineSchedule, MessagesOfAPassAreTakenInTheOrderInWhichTheyAreSent) {
  for (const Shape& s : shapes()) {
    for (int stage = 0; stage < s.stages && s.stages > 1; ++stage) {
      for (const Pass pass : {Pass::forward, Pass::backward}) {
        const int neighbour = (stage + (pass == Pass::forward ? 1 : s.stages - 1)) % s.stages;
        std::vector<PipelineOperation> sent, taken;
        for (const PipelineOperation& o : pipelineSchedule(stage, s.stages, s.microBatches, s.chunks)) {
          if (o.pass == pass && sends(o, stage, s.stages, s.chunks))
            sent.push_back(receiverOf(o, stage, s.stages));
        }
        for (const PipelineOperation& o : pipelineSchedule(neighbour, s.stages, s.microBatches, s.chunks)) {
          if (o.pass == pass && receives(o, neighbour, s.stages, s.chunks)) taken.push_back(o);
        }
        EXPECT_EQ(sent, taken) << nameOf(s) << " stage " << stage;
      }
    }
  }
}

// ---- the ring of buffers -------------------------------------------------------------------------------------------

bool apart(const RingPlace& a, std::int64_t sizeOfA, const RingPlace& b, std::int64_t sizeOfB) {
  return a.offset + sizeOfA <= b.offset || b.offset + sizeOfB <= a.offset;
}

/// What is said of every place holds: inside the memory, apart from all that may still be in use, and not waiting for more.
void expectSound(const std::vector<std::int64_t>& sizes, std::int64_t capacity,
                 const std::vector<RingPlace>& places) {
  ASSERT_EQ(places.size(), sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_GE(places[i].offset, 0);
    ASSERT_LE(places[i].offset + sizes[i], capacity);
    ASSERT_LT(places[i].after, static_cast<std::int64_t>(i));
    for (std::size_t j = static_cast<std::size_t>(places[i].after + 1); j < i; ++j) {
      ASSERT_TRUE(apart(places[j], sizes[j], places[i], sizes[i]))
          << i << " may be filled while " << j << " is in use";
    }
    if (places[i].after >= 0) {
      const auto after = static_cast<std::size_t>(places[i].after);
      ASSERT_FALSE(apart(places[after], sizes[after], places[i], sizes[i])) << i << " waits for " << after;
    }
  }
}

TEST(Ring, WhatMayBeInUseAtOneTimeIsApart) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    std::vector<std::int64_t> sizes(1 + random() % 60);
    const std::uint32_t largest = 1 + random() % 50;
    for (std::int64_t& size : sizes) size = 64 * (1 + random() % largest);
    const std::int64_t most = *std::max_element(sizes.begin(), sizes.end());
    const std::vector<RingPlace> one = planRing(sizes, most), two = planRing(sizes, 2 * most);
    expectSound(sizes, most, one);
    expectSound(sizes, 2 * most, two);
    for (std::size_t i = 0; i < sizes.size();
         ++i) {  // as two slots that take turns: the next can always be filled
      ASSERT_LE(two[i].after, std::max<std::int64_t>(-1, static_cast<std::int64_t>(i) - 2));
    }
    EXPECT_EQ(two, planRing(sizes, 2 * most));
  }
}

TEST(Ring, SmallGroupsAreFilledFurtherAheadThanTheNext) {
  // Modules of layers as a backward pass has them (down, gate and up, output, qkv), in memory of two layers.
  std::vector<std::int64_t> sizes;
  for (int layer = 0; layer < 12; ++layer) sizes.insert(sizes.end(), {192, 384, 64, 192});
  const std::vector<RingPlace> places = planRing(sizes, 2 * (192 + 384 + 64 + 192));
  // After the first layers every group is filled as soon as the one two layers before it is done with.
  for (std::size_t i = 16; i < sizes.size(); ++i)
    EXPECT_LE(places[i].after, static_cast<std::int64_t>(i) - 7) << i;
}

TEST(Ring, EqualGroupsTakeTurns) {
  const std::vector<RingPlace> places = planRing({64, 64, 64, 64}, 128);
  EXPECT_EQ(places, (std::vector<RingPlace>{{0, -1}, {64, -1}, {0, 0}, {64, 1}}));
  EXPECT_TRUE(planRing({}, 0).empty());
}

// ---- what is gathered ----------------------------------------------------------------------------------------------

using Gathered = std::vector<std::vector<std::string>>;

/// The groups of the backward pass of two layers on one stage, of which the first may be recomputed.
Gathered gatheredBackward(std::int64_t recomputed, GateUp gateUp, BackwardOverlap overlap) {
  Config c = smallConfig("d.tokens");
  c.model.layers = 2;
  c.plan.dataParallel = c.plan.parameterSharding = 2;
  c.plan.recomputeLayers = recomputed, c.plan.gateUp = gateUp, c.plan.backwardOverlap = overlap;
  const Layout layout(c.model, c.plan, {});
  Gathered groups;
  for (const GatherGroup& group : gatherSchedule(c.plan, layout, pipelineSchedule(0, 1, 1, 1))) {
    if (!group.backward) continue;
    groups.emplace_back();
    for (const int unit : group.units) groups.back().push_back(layout.unit(unit).name);
  }
  return groups;
}

TEST(GatherSchedule, ALayerIsUsedFromItsEndAndWhatIsMadeAgainFirst) {
  const std::string one = "layers.1.", nought = "layers.0.";
  const std::vector<std::string> whole = {nought + "qkv", nought + "attentionOutput", nought + "gateUp",
                                          nought + "mlpOutput"};
  for (const BackwardOverlap overlap : {BackwardOverlap::none, BackwardOverlap::intraLayer}) {
    EXPECT_EQ(gatheredBackward(1, GateUp::kept, overlap), (Gathered{{"head"},
                                                                    {one + "mlpOutput"},
                                                                    {one + "gateUp"},
                                                                    {one + "attentionOutput"},
                                                                    {one + "qkv"},
                                                                    whole}));
    EXPECT_EQ(
        gatheredBackward(1, GateUp::again, overlap),
        (Gathered{
            {"head"}, {one + "gateUp", one + "mlpOutput"}, {one + "attentionOutput"}, {one + "qkv"}, whole}));
  }
  EXPECT_EQ(
      gatheredBackward(1, GateUp::kept, BackwardOverlap::block),
      (Gathered{
          {"head"}, {one + "mlpOutput", one + "gateUp"}, {one + "attentionOutput", one + "qkv"}, whole}));
  EXPECT_EQ(
      gatheredBackward(1, GateUp::again, BackwardOverlap::block),
      (Gathered{
          {"head"}, {one + "gateUp", one + "mlpOutput"}, {one + "attentionOutput", one + "qkv"}, whole}));
  EXPECT_EQ(gatheredBackward(0, GateUp::again, BackwardOverlap::none).size(), 7u);
}

TEST(LayersOfStages, AreDealtEvenlyTheFirstStagesHaveOneMore) {
  for (std::int64_t layers = 1; layers <= 40; ++layers) {
    for (std::int64_t stages = 1; stages <= layers; ++stages) {
      std::int64_t end = 0;
      for (std::int64_t stage = 0; stage < stages; ++stage) {
        const LayerRange range = layersOf(layers, stages, stage);
        EXPECT_EQ(range.first, end);
        EXPECT_EQ(range.count(), layers / stages + (stage < layers % stages ? 1 : 0));
        end = range.last;
      }
      EXPECT_EQ(end, layers);
    }
  }
}

}  // namespace
}  // namespace internevo::trainer::testing
