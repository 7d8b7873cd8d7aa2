#include "trainer/memory_plan.h"

#include <algorithm>
#include <fstream>
#include <numeric>

#include "internevo/collectives.h"
#include "trainer/failure.h"
#include "trainer/held.h"

namespace internevo::trainer {

namespace {

/// Hands out pieces of the arena one behind the other and books them on a line.
class Planner {
 public:
  explicit Planner(MemoryPlan* plan) : plan_(plan) {}

  Piece take(MemoryLine line, std::int64_t bytes) {
    const std::int64_t whole = alignUp(bytes, kAlignmentBytes);
    const Piece piece{next_, bytes};
    next_ += whole;
    plan_->lines[static_cast<std::size_t>(line)] += whole;
    return piece;
  }
  /// Pieces laid over memory that a former take reserved.
  static Piece overlay(std::int64_t* offset, std::int64_t bytes) {
    const Piece piece{*offset, bytes};
    *offset += alignUp(bytes, kAlignmentBytes);
    return piece;
  }

 private:
  MemoryPlan* plan_;
  std::int64_t next_ = 0;
};

std::int64_t aligned(std::int64_t bytes) { return alignUp(bytes, kAlignmentBytes); }

void planStates(const Config& c, const Layout& layout, Planner* take, MemoryPlan* plan) {
  const PlanConfig& p = c.plan;
  const std::int64_t total = layout.totalElements(), width = bytesPerElement(c.precision);
  const std::int64_t owned = total / (p.parameterSharding * p.optimizerStateSharding);
  plan->parameters = take->take(MemoryLine::parameters, total / p.parameterSharding * width);
  plan->gradients = take->take(MemoryLine::gradients, total / (p.parameterSharding * p.gradientSharding) * 4);
  plan->firstMoment = take->take(MemoryLine::optimizerStates, owned * 4);
  plan->secondMoment = take->take(MemoryLine::optimizerStates, owned * 4);
  if (c.bf16()) plan->master = take->take(MemoryLine::optimizerStates, owned * 4);
}

void planActivations(const Config& c, const LocalShape& s, Planner* take, MemoryPlan* plan) {
  const std::int64_t width = bytesPerElement(c.precision);
  const std::int64_t hidden = s.rows * c.model.hiddenSize * width;
  const auto activation = [&](std::int64_t bytes) { return take->take(MemoryLine::activations, bytes); };
  for (std::int64_t i = 0; i <= c.model.layers; ++i) plan->layerInputs.push_back(activation(hidden));
  const std::int64_t kept = c.plan.recompute ? 1 : c.model.layers;
  for (std::int64_t i = 0; i < kept; ++i) {
    LayerPieces layer;
    layer.qkv = activation(s.headRows() * s.headQkvWidth() * width);
    layer.attentionHeads = activation(s.headRows() * s.heads * s.headSize * width);
    if (c.plan.sequenceParallel > 1) layer.attentionTokens = activation(hidden);
    layer.logSumExp = activation(s.batch * s.heads * s.sequence * 4);
    layer.middle = activation(hidden);
    layer.gateUp = activation(s.rows * 2 * c.model.ffnHiddenSize * width);
    plan->layers.push_back(layer);
  }
}

void planWorkspace(const Config& c, const LocalShape& s, Planner* take, MemoryPlan* plan) {
  const std::int64_t width = bytesPerElement(c.precision);
  const std::int64_t hidden = s.rows * c.model.hiddenSize * width, mlp = s.rows * c.model.ffnHiddenSize * width;
  const bool split = c.plan.sequenceParallel > 1;
  const std::int64_t qkv = s.headRows() * s.headQkvWidth() * width;
  const std::int64_t qkvTokens = split ? s.rows * (c.model.hiddenSize + 2 * c.model.kvWidth()) * width : 0;
  const std::int64_t heads = split ? s.headRows() * s.heads * s.headSize * width : 0;
  WorkspacePieces& w = plan->workspace;
  w.norm = take->take(MemoryLine::layerWorkspace, hidden);
  w.hidden = take->take(MemoryLine::layerWorkspace, hidden);
  w.hiddenGradient = take->take(MemoryLine::layerWorkspace, hidden);
  w.inverseRms = take->take(MemoryLine::layerWorkspace, s.rows * 4);
  const Piece shared = take->take(MemoryLine::layerWorkspace,
                                  std::max(2 * aligned(mlp), aligned(qkv) + aligned(qkvTokens) + aligned(heads)));
  std::int64_t at = shared.offset;
  w.mlp = Planner::overlay(&at, mlp);
  w.mlpGradient = Planner::overlay(&at, mlp);
  at = shared.offset;
  w.qkvGradient = Planner::overlay(&at, qkv);
  w.qkvTokens = Planner::overlay(&at, qkvTokens);
  w.attentionGradientHeads = Planner::overlay(&at, heads);
}

void planStaging(const Config& c, const Layout& layout, const LocalShape& s, Planner* take, MemoryPlan* plan) {
  const PlanConfig& p = c.plan;
  const std::int64_t width = bytesPerElement(c.precision);
  if (p.parameterSharding > 1) plan->gatherPool = take->take(MemoryLine::gatherPool, layout.largestElements() * width);
  if (p.parameterSharding > 1 || p.gradientSharding > 1) {
    plan->unitGradient = take->take(MemoryLine::reduceStaging, layout.largestElements() * 4);
  }
  const int replicas = p.replicaRanks() / (p.parameterSharding * p.optimizerStateSharding);
  std::int64_t reduce = 0;
  for (const int group : {p.parameterSharding, p.optimizerStateSharding, replicas, p.worldSize()}) {
    reduce = std::max(reduce, Communicator::reduceWorkspaceBytes(group));
  }
  plan->reduceWorkspace = take->take(MemoryLine::reduceStaging, reduce);
  if (p.sequenceParallel > 1) {
    const UlyssesShape query{s.batch, s.sequence, c.model.heads, s.headSize, 0, 0};
    plan->allToAllStaging =
        take->take(MemoryLine::allToAllStaging, ulyssesWorkspaceBytes(query, p.sequenceParallel, c.precision));
  }
}

}  // namespace

const char* memoryLineName(MemoryLine line) {
  switch (line) {
    case MemoryLine::parameters: return "parameters";
    case MemoryLine::gradients: return "gradients";
    case MemoryLine::optimizerStates: return "optimizerStates";
    case MemoryLine::activations: return "activations";
    case MemoryLine::layerWorkspace: return "layerWorkspace";
    case MemoryLine::attentionWorkspace: return "attentionWorkspace";
    case MemoryLine::logits: return "logits";
    case MemoryLine::gatherPool: return "gatherPool";
    case MemoryLine::reduceStaging: return "reduceStaging";
    case MemoryLine::allToAllStaging: return "allToAllStaging";
    case MemoryLine::ropeTables: return "ropeTables";
    case MemoryLine::dataBuffers: return "dataBuffers";
    case MemoryLine::checkpointStaging: return "checkpointStaging";
    case MemoryLine::count: break;
  }
  return "unknown";
}

LocalShape localShape(const Config& c) {
  const std::int64_t sp = c.plan.sequenceParallel;
  LocalShape s;
  s.batch = c.plan.microBatchSize;
  s.sequence = c.sequenceLengthTokens;
  s.localSequence = s.sequence / sp;
  s.rows = s.batch * s.localSequence;
  s.heads = ulyssesLocalHeads(c.model.heads, static_cast<int>(sp));
  s.kvHeads = ulyssesLocalHeads(c.model.kvHeads, static_cast<int>(sp));
  s.headSize = c.model.headSize();
  return s;
}

std::int64_t MemoryPlan::arenaBytes() const { return std::accumulate(lines.begin(), lines.end(), std::int64_t{0}); }

MemoryPlan planMemory(const Config& c, const Layout& layout, const Backend& backend) {
  MemoryPlan plan;
  Planner take(&plan);
  const LocalShape s = localShape(c);
  planStates(c, layout, &take, &plan);
  planActivations(c, s, &take, &plan);
  planWorkspace(c, s, &take, &plan);
  AttentionShape attention;
  attention.batch = s.batch, attention.sequence = s.sequence;
  attention.heads = s.heads, attention.kvHeads = s.kvHeads, attention.headSize = s.headSize;
  plan.attentionWorkspace = take.take(MemoryLine::attentionWorkspace, backend.attentionWorkspaceBytes(attention));
  plan.headWorkspace =
      take.take(MemoryLine::logits,
                backend.headLossWorkspaceBytes({s.rows, c.model.hiddenSize, c.model.vocabularySize, kLossChunkRows}));
  planStaging(c, layout, s, &take, &plan);
  plan.cosines = take.take(MemoryLine::ropeTables, s.sequence * s.headSize / 2 * 4);
  plan.sines = take.take(MemoryLine::ropeTables, s.sequence * s.headSize / 2 * 4);
  plan.tokens = take.take(MemoryLine::dataBuffers, s.rows * 4);
  plan.targets = take.take(MemoryLine::dataBuffers, s.rows * 4);
  return plan;
}

std::int64_t stagingBytes(const Config& c, const Layout& layout) {
  if (!c.checkpoint) return 0;
  const int replicas = c.plan.replicaRanks() / (c.plan.parameterSharding * c.plan.optimizerStateSharding);
  return 3 * 4 * savedElementsBound(layout, replicas);
}

bool stagesCheckpoint(const Config& c, std::int64_t arenaBytes, std::int64_t stagingBytes, std::int64_t runtimeBytes) {
  if (!c.checkpoint || c.checkpoint->writing == CheckpointWriting::synchronous) return false;
  if (c.checkpoint->writing == CheckpointWriting::asynchronous || !c.memoryLimitBytes) return true;
  return arenaBytes + aligned(stagingBytes) + runtimeBytes <= *c.memoryLimitBytes;
}

void planCheckpointStaging(const Config& c, const Layout& layout, MemoryPlan* plan) {
  plan->checkpointStaging = {plan->arenaBytes(), stagingBytes(c, layout)};
  plan->lines[static_cast<std::size_t>(MemoryLine::checkpointStaging)] = aligned(plan->checkpointStaging.bytes);
}

void requireFits(const Config& config, const MemoryPlan& plan, std::int64_t runtimeBytes) {
  const std::int64_t peak = plan.arenaBytes() + runtimeBytes;
  if (!config.memoryLimitBytes || peak <= *config.memoryLimitBytes) return;
  std::string message = "the plan needs " + std::to_string(peak) + " bytes a rank; memoryLimitBytes is " +
                        std::to_string(*config.memoryLimitBytes) + ":";
  for (int i = 0; i < kMemoryLines; ++i) {
    message += std::string(i == 0 ? " " : ", ") + memoryLineName(static_cast<MemoryLine>(i)) + " " +
               std::to_string(plan.lines[static_cast<std::size_t>(i)]);
  }
  message += ", runtime " + std::to_string(runtimeBytes);
  throw Failure(Problem{StatusCode::outOfMemory, message, "memoryLimitBytes", std::to_string(*config.memoryLimitBytes),
                        "use more ranks, more sharding, recomputation or a smaller micro-batch"});
}

namespace {

std::int64_t statusBytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) == 0) return std::stoll(line.substr(key.size())) * 1024;
  }
  return 0;
}

}  // namespace

std::int64_t residentBytes() { return statusBytes("VmRSS:"); }
std::int64_t residentPeakBytes() { return statusBytes("VmHWM:"); }

}  // namespace internevo::trainer
