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

/// f(c, x): forwards of chunk c among the first x of a stage; backwards run through the chunks from the last.
Integer inFlight(const PlanConfig& p, Integer stage, Integer chunk) {
  const Integer pp = p.pipelineParallel, v = p.pipelineChunks, n = p.microBatches;
  if (v == 1) return std::min(pp - stage, n);
  const auto f = [&](Integer c, Integer x) {
    return x / (pp * v) * pp + std::clamp<Integer>(x % (pp * v) - c * pp, 0, pp);
  };
  const Integer warmUp = std::min(n * v, 2 * (pp - stage - 1) + (v - 1) * pp);
  Integer most = 0;
  for (Integer j = 0; j < pp * v; ++j)
    most = std::max(most, f(chunk, std::min(n * v, warmUp + 1 + j)) - f(v - 1 - chunk, j));
  return most;
}

std::map<std::string, Integer> formulas(const Config& c, Integer s) {
  const ModelConfig& m = c.model;
  const PlanConfig& p = c.plan;
  const Integer H = m.hiddenSize, L = m.layers, A = m.heads, K = m.kvHeads, F = m.ffnHiddenSize,
                V = m.vocabularySize;
  const Integer ctx = p.contextParallel, u = p.sequenceParallel / ctx;
  const Integer D = m.givenHeadSize > 0 ? m.givenHeadSize : H / A, X = A * D, W = K * D,
                S = c.sequenceLengthTokens, b = p.microBatchSize;
  const Integer pp = p.pipelineParallel, v = p.pipelineChunks, tp = p.tensorParallel, sp = p.sequenceParallel,
                ps = p.parameterSharding, gs = p.gradientSharding, oss = p.optimizerStateSharding,
                R = p.dataParallel * sp / tp, N = pp * p.dataParallel * sp;
  const bool documents = c.data.packing == DataConfig::Packing::documents;
  const bool first = s == 0, last = s == pp - 1, tied = m.tiedEmbeddings, ulysses = tp == 1 && u > 1;
  const Integer T = b * S / sp, B = tp > 1 ? b * S : T, heads = A / u, kv = K >= u ? K / u : 1,
                Q = b * S / ctx, beta = c.bf16() ? 2 : 4, gamma = bytesPerElement(c.gradientPrecision);
  const Integer Vt = (V + tp - 1) / tp, Xt = X / tp, Wt = tp > 1 ? kv * D : W, Ft = F / tp;

  const auto unit = [&](Integer P) { return up(P, 64 * ps * oss); };
  const Integer embedding = first || (tied && last) ? unit(tied ? Vt * H + H : Vt * H) : 0;
  const Integer vectors = (m.queryKeyValueBias ? Xt + 2 * Wt : 0) + (m.queryKeyNorm ? 2 * D : 0);
  const Integer qkv = unit(H + H * Xt + 2 * H * Wt + vectors), out = unit(H * Xt),
                gateUp = unit(H + 2 * H * Ft), down = unit(H * Ft);
  const Integer layer = qkv + out + gateUp + down;
  const Integer module = std::max({qkv, out, gateUp, down}), block = std::max(qkv + out, gateUp + down);
  const Integer head = last && !tied ? unit(Vt * H + H) : 0;
  Integer layers = 0, inputs = last ? 1 : 0, recomputed = 0, sets = 0;
  for (Integer chunk = 0; chunk < v; ++chunk) {
    const Integer index = chunk * pp + s;
    layers += L / (pp * v) + (index < L % (pp * v) ? 1 : 0);
  }
  recomputed = p.recompute ? layers : std::min(p.recomputeLayers, layers);
  sets = recomputed > 0 ? 1 : 0;
  Integer before = 0;
  for (Integer chunk = 0; chunk < v; ++chunk) {
    const Integer own = L / (pp * v) + (chunk * pp + s < L % (pp * v) ? 1 : 0), held = inFlight(p, s, chunk);
    inputs += held * own;
    sets += held * (own - std::clamp<Integer>(recomputed - before, 0, own));
    before += own;
  }
  const Integer sum = embedding + layers * layer + head;
  // Groups that are gathered, and gradients that are staged, at one time.
  const bool overlaps =
      p.forwardOverlap != ForwardOverlap::none || p.backwardOverlap != BackwardOverlap::none;
  const Integer forward = p.forwardOverlap == ForwardOverlap::block        ? block
                          : p.forwardOverlap == ForwardOverlap::interLayer ? layer
                                                                           : module;
  const Integer staged = p.backwardOverlap == BackwardOverlap::block ? block : module;
  const bool again = p.gateUp == GateUp::again, host = p.gateUp == GateUp::host;
  // What makes gate and up again stays until its gradients are computed: beside it down is gathered.
  const Integer usedAtOnce =
      again && p.backwardOverlap != BackwardOverlap::block ? std::max({qkv, out, gateUp + down}) : staged;
  const Integer backward = std::max(recomputed > 0 ? layer : 0, recomputed < layers ? usedAtOnce : 0);
  const Integer gathered = std::max({embedding, head, forward, backward}),
                gradients = std::max({embedding, head, staged});
  const Integer gradientSlots = p.backwardOverlap == BackwardOverlap::none ? 1 : 2;

  const Integer stream = al(T * H * beta);
  const Integer layerSet = al(Q * (heads + 2 * kv) * D * beta) + al(Q * heads * D * beta) +
                           (m.queryKeyNorm ? al(2 * D * beta) : 0) + (ulysses ? al(T * X * beta) : 0) +
                           al(4 * heads * Q) + stream + (again || host ? 0 : al(B * 2 * Ft * beta));
  const Integer mlpPart = 2 * al(B * Ft * beta) + (again ? al(B * 2 * Ft * beta) : 0);
  const Integer attentionPart =
      al(Q * (heads + 2 * kv) * D * beta) +
      (ulysses ? al(T * (X + 2 * W) * beta) + al(Q * heads * D * beta) : 0) +
      (m.queryKeyNorm ? al(Q * (heads + 2 * kv) * D * beta) + al(4 * Q * (heads + kv)) : 0) +
      (X != H ? al(B * Xt * beta) : 0);
  const Integer keys = ctx > 1 ? S / (2 * ctx) : S, t = up(keys, 96), d = up(D, 32);
  const Integer E = t * (2 * D + d) + 2 * keys * D + 2 * 96 * 96 + 3 * 96 * D + 2 * 96 * d + 96;
  const auto scratch = [](std::initializer_list<Integer> sizes) {
    Integer most = 0;
    for (const Integer g : sizes) {
      Integer segment = 262144;
      while (segment > 16384 && segment * g > 4194304) segment /= 2;
      if (g > 1) most = std::max(most, 2 * g * segment);
    }
    return most;
  };
  const Integer reduce = scratch({ps, oss, R / (ps * oss), N, tp, std::max<Integer>(1, tp / K),
                                  tied && pp > 1 ? Integer{2} : Integer{1}});
  const Integer laneReduce = overlaps ? scratch({ps, oss, R / (ps * oss)}) : 0;
  const Integer chunkRows = std::min<Integer>(256, B), replicas = R / (ps * oss);
  const auto part = [&](Integer U) { return up(U / (64 * ps * oss), replicas) / replicas; };
  const Integer buffers = pp == 1 ? 0 : v > 1 ? 4 : 2 * ((first ? 0 : 1) + (last ? 0 : 1));
  return {
      {"parameters", beta * sum / ps},
      {"gradients", gamma * sum / (ps * gs)},
      {"optimizerStates", (c.bf16() ? 12 : 8) * sum / (ps * oss)},
      {"activations", inputs * stream + sets * layerSet},
      {"offloadStaging", host ? 2 * al(B * 2 * Ft * beta) : 0},
      {"layerWorkspace", 3 * stream + al(4 * T) + std::max(mlpPart, attentionPart)},
      {"attentionWorkspace", 4 * c.threadsPerRank * up(E, 16)},
      {"logits", (last ? al(4 * Vt * chunkRows) : 0) + 4243968 * c.threadsPerRank},
      {"gatherPool", ps > 1 ? (overlaps ? 2 : 1) * beta * gathered : 0},
      {"reduceStaging", (ps > 1 || gs > 1 ? gradientSlots * gamma * gradients : 0) + reduce + laneReduce},
      {"allToAllStaging", ulysses ? 2 * al(Q * heads * D * beta) : 0},
      {"contextStaging", ctx > 1 ? 2 * al(beta * Q * 2 * kv * D) + 3 * al(4 * Q * 2 * kv * D) +
                                       (c.bf16() ? al(4 * Q * heads * D) : 0)
                                 : 0},
      {"tensorParallelStaging",
       tp > 1 ? (p.backwardOverlap == BackwardOverlap::none ? 1 : 2) * al(b * S * H * beta) +
                    (last ? al(24 * tp * chunkRows) : 0)
              : 0},
      {"pipelineBuffers", buffers * stream},
      {"ropeTables", 2 * al(4 * S * D / 2)},
      {"dataBuffers",
       (first || last ? 2 * al(4 * B) : 0) + (documents || ctx > 1 ? al(4 * (m.queryKeyNorm ? Q : B)) : 0) +
           (documents ? al(4 * Q) + al(4 * (std::min(c.data.maxDocumentsPerSequence, S) + 1)) : 0)},
      {"checkpointStaging",
       c.checkpoint
           ? al(3 * 4 * 64 *
                (part(embedding) + layers * (part(qkv) + part(out) + part(gateUp) + part(down)) + part(head)))
           : 0}};
}

/// MEMORY.md, of the host's memory.
Integer hostBytes(const Config& c, Integer s) {
  const PlanConfig& p = c.plan;
  if (p.gateUp != GateUp::host) return 0;
  const Integer L = c.model.layers, pp = p.pipelineParallel, v = p.pipelineChunks, tp = p.tensorParallel;
  const Integer B = p.microBatchSize * c.sequenceLengthTokens / (tp > 1 ? 1 : p.sequenceParallel);
  Integer sets = 0, before = 0;
  for (Integer chunk = 0; chunk < v; ++chunk) {
    const Integer own = L / (pp * v) + (chunk * pp + s < L % (pp * v) ? 1 : 0);
    sets += inFlight(p, s, chunk) * (own - std::clamp<Integer>(p.recomputeLayers - before, 0, own));
    before += own;
  }
  return sets * al(B * 2 * (c.model.ffnHiddenSize / tp) * (c.bf16() ? 2 : 4));
}

std::map<std::string, Integer> linesOf(const MemoryPlan& plan) {
  std::map<std::string, Integer> lines;
  for (int i = 0; i < kMemoryLines; ++i) {
    lines[memoryLineName(static_cast<MemoryLine>(i))] = plan.lines[static_cast<std::size_t>(i)];
  }
  return lines;
}

/// MEMORY.md, of a plan on GPUs.
Integer communicators(const Config& c) {
  const PlanConfig& p = c.plan;
  const Integer MiB = 1 << 20, R = p.dataParallel * p.sequenceParallel / p.tensorParallel;
  const Integer u = p.tensorParallel == 1 ? p.sequenceParallel / p.contextParallel : 1;
  Integer sum = 0;
  for (const Integer g :
       {u, Integer{p.contextParallel}, Integer{p.parameterSharding}, Integer{p.optimizerStateSharding},
        R / (p.parameterSharding * p.optimizerStateSharding), Integer{p.tensorParallel},
        std::max<Integer>(1, p.tensorParallel / c.model.kvHeads),
        Integer{c.model.tiedEmbeddings && p.pipelineParallel > 1 ? 2 : 1}}) {
    if (g > 1) sum += 16 * (24 + 12 * std::min<Integer>(g - 1, 7)) * MiB;
  }
  if (p.pipelineParallel > 1) sum += (p.pipelineParallel > 2 || p.pipelineChunks > 1 ? 2 : 1) * 16 * 16 * MiB;
  return sum;
}

TEST(Memory, CommunicatorsOfAGpuAreTheFormulaOfMemoryMd) {
  int plans = 0;
  for (const int ranks : {1, 2, 4, 6, 8, 12}) {
    Config c = smallConfig("d.tokens");
    c.model.hiddenSize = 240, c.model.heads = 24, c.model.kvHeads = 4, c.model.layers = 9;
    c.model.ffnHiddenSize = 96, c.sequenceLengthTokens = 480;
    c.model.tiedEmbeddings = ranks % 4 == 0;
    for (const PlanConfig& plan : latticeOf(c, ranks, 24)) {
      c.plan = plan;
      c.device = DeviceKind::cpu;
      EXPECT_EQ(communicatorBytes(c), 0);
      c.device = DeviceKind::cuda;
      EXPECT_EQ(communicatorBytes(c), communicators(c)) << nameOf(plan);
      EXPECT_EQ(communicatorBytes(c) > 0, ranks > 1) << nameOf(plan);
      ++plans;
    }
  }
  EXPECT_GT(plans, 100);
}

TEST(Memory, EveryLineOfEveryStageOfEveryPlanIsTheFormulaOfMemoryMd) {
  int plans = 0, interleaved = 0, tensor = 0, context = 0, again = 0, host = 0, rounded = 0;
  for (const bool tied : {false, true}) {
    const ModelConfig ofFamily = tied ? qwen3Model() : qwen2Model();
    for (const DataType precision : {DataType::float32, DataType::bfloat16}) {
      for (const int ranks : {1, 2, 4, 6, 8, 12}) {
        Config c = smallConfig("d.tokens");
        if (ranks % 4 == 0) c.model = ofFamily;
        c.model.hiddenSize = 240, c.model.heads = 24, c.model.kvHeads = 4, c.model.tiedEmbeddings = tied;
        c.model.layers = 9, c.model.ffnHiddenSize = 96;
        c.sequenceLengthTokens = 480;
        c.precision = precision;
        c.threadsPerRank = 1 + ranks % 3;
        const auto backend = createCpuBackend(c.threadsPerRank);
        for (PlanConfig plan : latticeOf(c, ranks, 24)) {
          plan.forwardOverlap = static_cast<ForwardOverlap>(plans % 4);
          plan.backwardOverlap = static_cast<BackwardOverlap>(plans / 3 % 3);
          c.plan = plan;
          c.gradientPrecision = c.bf16() && plans % 5 > 2 ? DataType::bfloat16 : DataType::float32;
          rounded += c.gradientPrecision == DataType::bfloat16;
          c.checkpoint.reset();
          if (plans % 2 == 0) c.checkpoint = CheckpointConfig{};
          c.data.packing = plans % 4 > 1 ? DataConfig::Packing::documents : DataConfig::Packing::none;
          c.data.maxDocumentsPerSequence = plans % 8 > 3 ? 1024 : 17;
          StagePlans stages = planStages(c, *backend);
          addCheckpointStaging(c, 0, &stages);
          ASSERT_EQ(stages.plans.size(), static_cast<std::size_t>(plan.pipelineParallel));
          Integer most = 0;
          for (std::size_t stage = 0; stage < stages.plans.size(); ++stage) {
            const auto expected = formulas(c, static_cast<Integer>(stage));
            ASSERT_EQ(linesOf(stages.plans[stage]), expected) << nameOf(plan) << " stage " << stage;
            EXPECT_EQ(stages.plans[stage].offload.hostBytes, hostBytes(c, static_cast<Integer>(stage)));
            Integer sum = 0;
            for (const auto& [name, bytes] : expected) sum += bytes;
            EXPECT_EQ(stages.plans[stage].arenaBytes(), sum);
            most = std::max(most, sum);
          }
          EXPECT_EQ(stages.largest().arenaBytes(), most);
          ++plans, interleaved += plan.pipelineChunks > 1, tensor += plan.tensorParallel > 1;
          context += plan.contextParallel > 1, again += plan.gateUp == GateUp::again;
          host += plan.gateUp == GateUp::host;
        }
      }
    }
  }
  EXPECT_GT(plans, 1000);
  EXPECT_GT(interleaved, 100);
  EXPECT_GT(tensor, 100);
  EXPECT_GT(context, 1000);
  EXPECT_GT(again, 1000);
  EXPECT_GT(host, 1000);
  EXPECT_GT(rounded, 1000);
}

/// Every element of every logical tensor is held, and as the primary copy by exactly one position.
TEST(Layout, SlicesOfThePositionsTileEveryTensorOnce) {
  Config c = smallConfig("d.tokens");
  c.model.layers = 5;
  for (const bool tied : {false, true}) {
    c.model.tiedEmbeddings = tied;
    for (const int pp : {1, 2, 4}) {
      for (const int tp : {1, 2, 4}) {
        for (const int chunks : {1, 2}) {
          if (chunks > 1 && pp != 2) continue;
          c.plan.pipelineParallel = pp, c.plan.tensorParallel = c.plan.sequenceParallel = tp,
          c.plan.pipelineChunks = chunks;
          std::map<std::string, std::vector<int>> primaries;
          for (int stage = 0; stage < pp; ++stage) {
            for (int index = 0; index < tp; ++index) {
              const Layout layout(c.model, c.plan, {stage, index});
              for (const Unit& unit : layout.units()) {
                Integer end = 0;
                for (const LogicalTensor& t : unit.tensors) {
                  EXPECT_GE(t.offset, end) << t.name;
                  end = t.offset + t.elements();
                  auto& counts = primaries[t.name];
                  counts.resize(static_cast<std::size_t>(t.globalElements()));
                  for (Integer i = 0; i < t.elements(); ++i)
                    counts.at(static_cast<std::size_t>(t.globalIndex(i))) += t.primary;
                }
                EXPECT_LE(end, unit.elements);
              }
            }
          }
          const Layout whole = Layout::whole(c.model);
          std::size_t tensors = 0;
          for (const Unit& unit : whole.units()) {
            for (const LogicalTensor& t : unit.tensors) {
              EXPECT_EQ(primaries[t.name], std::vector<int>(static_cast<std::size_t>(t.elements()), 1))
                  << t.name;
              ++tensors;
            }
          }
          EXPECT_EQ(tensors, primaries.size());
        }
      }
    }
  }
}

TEST(Memory, ALimitBelowThePeakIsRefusedWithEveryLine) {
  Config c = smallConfig("d.tokens");
  const auto backend = createCpuBackend(1);
  const MemoryPlan plan = planMemory(c, Layout(c.model, c.plan, {}), *backend);
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
  const Layout layout(c.model, c.plan, {});
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
