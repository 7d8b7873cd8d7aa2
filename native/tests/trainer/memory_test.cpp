// The formulas of MEMORY.md, written once more, against the plan that the arena is made from.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lattice.h"
#include "support.h"
#include "trainer/failure.h"
#include "trainer/memory_plan.h"

namespace internevo::trainer::testing {
namespace {

using Integer = std::int64_t;

Integer up(Integer value, Integer multiple) { return (value + multiple - 1) / multiple * multiple; }
Integer al(Integer value) { return up(value, 64); }

std::map<std::string, Integer> formulas(const Config& c) {
  const ModelConfig& m = c.model;
  const Integer H = m.hiddenSize, L = m.layers, A = m.heads, K = m.kvHeads, F = m.ffnHiddenSize, V = m.vocabularySize;
  const Integer D = H / A, W = K * D, S = c.sequenceLengthTokens, b = c.plan.microBatchSize;
  const Integer sp = c.plan.sequenceParallel, ps = c.plan.parameterSharding, gs = c.plan.gradientSharding,
                oss = c.plan.optimizerStateSharding, R = c.plan.dataParallel * sp, N = R;
  const Integer T = b * S / sp, heads = A / sp, kv = K >= sp ? K / sp : 1, beta = c.bf16() ? 2 : 4;
  const auto unit = [&](Integer P) { return up(P, 64 * ps * oss); };
  const Integer embedding = unit(m.tiedEmbeddings ? V * H + H : V * H);
  const Integer layer = unit(2 * H + 2 * H * H + 2 * H * W + 3 * H * F);
  const Integer head = m.tiedEmbeddings ? 0 : unit(V * H + H);
  const Integer sum = embedding + L * layer + head, largest = std::max({embedding, layer, head});
  const Integer layerSet = al(b * S * (heads + 2 * kv) * D * beta) + al(b * S * heads * D * beta) +
                           (sp > 1 ? al(T * H * beta) : 0) + al(4 * b * heads * S) + al(T * H * beta) +
                           al(T * 2 * F * beta);
  const Integer mlpPart = 2 * al(T * F * beta);
  const Integer attentionPart = al(b * S * (heads + 2 * kv) * D * beta) +
                                (sp > 1 ? al(T * (H + 2 * W) * beta) + al(b * S * heads * D * beta) : 0);
  const Integer t = up(S, 96), d = up(D, 32);
  const Integer E = t * (2 * D + d) + 2 * S * D + 2 * 96 * 96 + 3 * 96 * D + 2 * 96 * d + 96;
  Integer reduce = 0;
  for (const Integer g : {ps, oss, R / (ps * oss), N}) {
    Integer segment = 262144;
    while (segment > 16384 && segment * g > 4194304) segment /= 2;
    if (g > 1) reduce = std::max(reduce, 2 * g * segment);
  }
  return {{"parameters", beta * sum / ps},
          {"gradients", 4 * sum / (ps * gs)},
          {"optimizerStates", (c.bf16() ? 12 : 8) * sum / (ps * oss)},
          {"activations", (L + 1) * al(T * H * beta) + (c.plan.recompute ? 1 : L) * layerSet},
          {"layerWorkspace", 3 * al(T * H * beta) + al(4 * T) + std::max(mlpPart, attentionPart)},
          {"attentionWorkspace", 4 * c.threadsPerRank * up(E, 16)},
          {"logits", al(4 * V * std::min<Integer>(256, T)) + 4243968 * c.threadsPerRank},
          {"gatherPool", ps > 1 ? beta * largest : 0},
          {"reduceStaging", (ps > 1 || gs > 1 ? 4 * largest : 0) + reduce},
          {"allToAllStaging", sp > 1 ? 2 * al(b * S * heads * D * beta) : 0},
          {"ropeTables", 2 * al(4 * S * D / 2)},
          {"dataBuffers", 2 * al(4 * T)}};
}

std::map<std::string, Integer> planned(const Config& c, Integer* arenaBytes) {
  const Layout layout(c.model, c.plan);
  const auto backend = createCpuBackend(c.threadsPerRank);
  const MemoryPlan plan = planMemory(c, layout, *backend);
  std::map<std::string, Integer> lines;
  for (int i = 0; i < kMemoryLines; ++i) {
    lines[memoryLineName(static_cast<MemoryLine>(i))] = plan.lines[static_cast<std::size_t>(i)];
  }
  *arenaBytes = plan.arenaBytes();
  return lines;
}

TEST(Memory, EveryLineOfEveryPlanIsTheFormulaOfMemoryMd) {
  int plans = 0;
  for (const bool tied : {false, true}) {
    for (const DataType precision : {DataType::float32, DataType::bfloat16}) {
      for (const int ranks : {1, 2, 4, 6, 8, 32}) {
        Config c = smallConfig("d.tokens");
        c.model.hiddenSize = 240, c.model.heads = 24, c.model.kvHeads = 12, c.model.tiedEmbeddings = tied;
        c.sequenceLengthTokens = 480;
        c.precision = precision;
        c.threadsPerRank = 1 + ranks % 3;
        for (const PlanConfig& plan : latticeOf(c, ranks, 24)) {
          c.plan = plan;
          Integer arena = 0, sum = 0;
          const auto expected = formulas(c);
          EXPECT_EQ(planned(c, &arena), expected) << nameOf(plan);
          for (const auto& [name, bytes] : expected) sum += bytes;
          EXPECT_EQ(arena, sum);
          ++plans;
        }
      }
    }
  }
  EXPECT_GT(plans, 1000);
}

TEST(Memory, ALimitBelowThePeakIsRefusedWithEveryLine) {
  Config c = smallConfig("d.tokens");
  const Layout layout(c.model, c.plan);
  const auto backend = createCpuBackend(1);
  const MemoryPlan plan = planMemory(c, layout, *backend);
  c.memoryLimitBytes = plan.arenaBytes() + 1000;
  EXPECT_NO_THROW(requireFits(c, plan, 1000));
  try {
    requireFits(c, plan, 1001);
    FAIL() << "one byte more than the limit was accepted";
  } catch (const Failure& failure) {
    const Problem& problem = failure.problem();
    EXPECT_EQ(problem.code, StatusCode::outOfMemory);
    EXPECT_EQ(problem.field, "memoryLimitBytes");
    for (int i = 0; i < kMemoryLines; ++i) {
      const std::string line = std::string(memoryLineName(static_cast<MemoryLine>(i))) + " " +
                               std::to_string(plan.lines[static_cast<std::size_t>(i)]);
      EXPECT_NE(problem.message.find(line), std::string::npos) << problem.message;
    }
  }
}

TEST(Layout, ShardsOfAUnitTileItAndTensorsDoNotOverlap) {
  Config c = smallConfig("d.tokens");
  c.plan.dataParallel = 6, c.plan.parameterSharding = 3, c.plan.optimizerStateSharding = 2;
  const Layout layout(c.model, c.plan);
  Integer parameters = 0;
  for (int u = 0; u < layout.unitCount(); ++u) {
    const Unit& unit = layout.unit(u);
    Integer end = 0;
    for (const LogicalTensor& t : unit.tensors) {
      EXPECT_EQ(t.offset, end) << t.name;
      end += t.elements();
    }
    EXPECT_EQ(end, unit.elements);
    EXPECT_GE(unit.paddedElements, unit.elements);
    EXPECT_EQ(layout.optimizerShard(u) * 6, unit.paddedElements);
    EXPECT_EQ(layout.optimizerShard(u) % 64, 0);
    parameters += unit.elements;
  }
  EXPECT_EQ(parameters, layout.parameters());
}

}  // namespace
}  // namespace internevo::trainer::testing
