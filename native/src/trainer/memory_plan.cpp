#include "trainer/memory_plan.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>

#include "executor_sizes/executor_sizes.h"
#include "internevo/activity.h"
#include "internevo/collectives.h"
#include "trainer/failure.h"
#include "trainer/gather_schedule.h"
#include "trainer/groups.h"
#include "trainer/held.h"
#include "trainer/pipeline_schedule.h"

namespace internevo::trainer {

namespace {

/// Hands out pieces of the arena one behind the other and books them on a line.
class Planner {
 public:
  explicit Planner(MemoryPlan* plan) : plan_(plan) {}

  Piece take(MemoryLine line, const std::string& name, std::int64_t bytes) {
    const Piece piece = reserve(line, bytes);
    if (bytes > 0) plan_->pieces.push_back({name, line, piece, {}});
    return piece;
  }
  /// Memory for pieces that share it.
  Piece reserve(MemoryLine line, std::int64_t bytes) {
    const std::int64_t whole = alignUp(bytes, kAlignmentBytes);
    const Piece piece{next_, bytes};
    next_ += whole;
    plan_->lines[static_cast<std::size_t>(line)] += whole;
    return piece;
  }
  /// A piece laid over memory that was reserved.
  Piece overlay(MemoryLine line, const std::string& name, std::int64_t* offset, std::int64_t bytes,
                std::vector<std::string> uses) {
    const Piece piece{*offset, bytes};
    *offset += alignUp(bytes, kAlignmentBytes);
    if (bytes > 0) plan_->pieces.push_back({name, line, piece, std::move(uses)});
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
  plan->parameters = take->take(MemoryLine::parameters, "parameters", total / p.parameterSharding * width);
  plan->gradients =
      take->take(MemoryLine::gradients, "gradients",
                 total / (p.parameterSharding * p.gradientSharding) * bytesPerElement(c.gradientPrecision));
  plan->firstMoment = take->take(MemoryLine::optimizerStates, "firstMoment", owned * 4);
  plan->secondMoment = take->take(MemoryLine::optimizerStates, "secondMoment", owned * 4);
  if (c.bf16()) plan->master = take->take(MemoryLine::optimizerStates, "master", owned * 4);
}

/// Bytes of a value on this rank, where the plan has it.
std::int64_t valueBytes(const Config& c, const LocalShape& s, const LayerProgram& program,
                        const ProgramValue& value) {
  const auto bytes = [&](std::int64_t rows, int ranks) {
    return rows * program.width(c.model, value.width, ranks) *
           bytesPerElement(value.float32 ? DataType::float32 : c.precision);
  };
  switch (value.rows) {
    case RowsOf::tokens: return bytes(s.rows, 1);
    case RowsOf::block: return bytes(s.blockRows, c.plan.tensorParallel);
    case RowsOf::once: return bytes(1, 1);
    case RowsOf::attention: break;
  }
  return bytes(s.headRows(), c.plan.headRanks());
}

ValuePieces planLayer(const Config& c, const LocalShape& s, std::int64_t layer, const std::string& owner,
                      Planner* take) {
  const LayerProgram& program = layerProgram(c.model, layer);
  const ProgramFlags flags = flagsOf(c.model, c.plan);
  ValuePieces pieces;
  for (const ProgramValue& value : program.values()) {
    pieces.emplace_back();  // what waits in the host's memory has no place here
    if (fateOf(value, flags) != Fate::kept || !holds(value, flags)) continue;
    pieces.back() =
        take->take(MemoryLine::activations, owner + "." + value.name, valueBytes(c, s, program, value));
  }
  return pieces;
}

/// Behind the activations: what a layer keeps in the host's memory is one block, which is copied as a whole.
void planOffload(const Config& c, const LocalShape& s, bool recomputes, Planner* take, MemoryPlan* plan) {
  const LayerProgram& program = layerProgram(c.model, 0);
  const ProgramFlags flags = flagsOf(c.model, c.plan);
  MemoryPlan::Offload& offload = plan->offload;
  for (const ProgramValue& value : program.values()) {
    offload.values.emplace_back();
    if (fateOf(value, flags) != Fate::host || !holds(value, flags)) continue;
    offload.values.back() = {offload.blockBytes, valueBytes(c, s, program, value)};
    offload.blockBytes += aligned(offload.values.back().bytes);
  }
  if (offload.blockBytes == 0) return;
  for (std::size_t i = 0; i < offload.places.size(); ++i) {
    offload.places[i] =
        take->take(MemoryLine::offloadStaging, "offload " + std::to_string(i), offload.blockBytes);
  }
  for (std::size_t set = 0; set < plan->layers.size(); ++set) {
    const bool recomputed = recomputes && set == 0;
    offload.ofLayerSet.push_back(recomputed ? Piece{} : Piece{offload.hostBytes, offload.blockBytes});
    offload.hostBytes += offload.ofLayerSet.back().bytes;
  }
}

void planActivations(const Config& c, const Layout& layout, const LocalShape& s, Planner* take,
                     MemoryPlan* plan) {
  const PlanConfig& p = c.plan;
  const std::int64_t hidden = s.rows * c.model.hiddenSize * bytesPerElement(c.precision);
  const std::int64_t recomputed = p.recomputedOf(layout.stageLayers());
  const auto operations =
      pipelineSchedule(layout.position().stage, p.pipelineParallel, p.microBatches, p.pipelineChunks);
  // Recomputed layers, the first of the stage, share one set.
  if (recomputed > 0) {
    plan->layers.push_back(planLayer(c, s, layout.chunks().front().first, "recomputed layer", take));
  }
  for (int chunk = 0; chunk < p.pipelineChunks; ++chunk) {
    const LayerRange& range = layout.chunks()[static_cast<std::size_t>(chunk)];
    plan->slots.emplace_back();
    for (std::int64_t slot = mostInFlight(operations, chunk); slot > 0; --slot) {
      SlotPieces pieces;
      for (std::int64_t layer = range.first; layer < range.last; ++layer) {
        const std::string owner =
            "layers." + std::to_string(layer) + ", in flight " + std::to_string(plan->slots.back().size());
        pieces.inputs.push_back(take->take(MemoryLine::activations, owner + ".input", hidden));
        pieces.layerSets.push_back(0);
        if (layout.placeInStage(layer) < recomputed) continue;
        pieces.layerSets.back() = static_cast<int>(plan->layers.size());
        plan->layers.push_back(planLayer(c, s, layer, owner, take));
      }
      const bool head = layout.hasHead() && chunk + 1 == p.pipelineChunks;
      if (head) {
        pieces.output = take->take(MemoryLine::activations,
                                   "output, in flight " + std::to_string(plan->slots.back().size()), hidden);
      }
      plan->slots.back().push_back(std::move(pieces));
    }
  }
  planOffload(c, s, recomputed > 0, take, plan);
}

/// Workspaces that every block of a layer uses are behind one another; those of one block lie where those of others do.
void planWorkspace(const Config& c, const LocalShape& s, Planner* take, MemoryPlan* plan) {
  const LayerProgram& program = layerProgram(c.model, 0);
  const ProgramFlags flags = flagsOf(c.model, c.plan);
  const auto isWorkspace = [&](const ProgramValue& value) {
    const Fate fate = fateOf(value, flags);
    return (fate == Fate::again || fate == Fate::workspace) && holds(value, flags);
  };
  const auto& values = program.values();
  plan->workspace.resize(values.size());
  std::map<std::string, std::int64_t> ofBlock;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!isWorkspace(values[i])) continue;
    const std::int64_t bytes = valueBytes(c, s, program, values[i]);
    if (values[i].block.empty()) {
      plan->workspace[i] = take->take(MemoryLine::layerWorkspace, values[i].name, bytes);
    } else {
      ofBlock[values[i].block] += aligned(bytes);
    }
  }
  std::int64_t largest = 0;
  for (const auto& [block, bytes] : ofBlock) largest = std::max(largest, bytes);
  const Piece shared = take->reserve(MemoryLine::layerWorkspace, largest);
  std::map<std::string, std::int64_t> next;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!isWorkspace(values[i]) || values[i].block.empty()) continue;
    std::vector<std::string> uses;
    for (const std::string& pass : values[i].passes) uses.push_back(pass + " " + values[i].block);
    std::int64_t& at = next.try_emplace(values[i].block, shared.offset).first->second;
    plan->workspace[i] = take->overlay(MemoryLine::layerWorkspace, values[i].name, &at,
                                       valueBytes(c, s, program, values[i]), std::move(uses));
  }
}

void planReductions(const Config& c, const Layout& layout, Planner* take, MemoryPlan* plan) {
  const PlanConfig& p = c.plan;
  const std::int64_t width = bytesPerElement(c.precision);
  const auto schedule = gatherSchedule(
      p, layout,
      pipelineSchedule(layout.position().stage, p.pipelineParallel, p.microBatches, p.pipelineChunks));
  if (!schedule.empty()) {
    plan->gatherPool = take->take(MemoryLine::gatherPool, "gatherPool",
                                  (p.overlaps() ? 2 : 1) * gatherSlotElements(schedule, layout) * width);
  }
  if (p.parameterSharding > 1 || p.gradientSharding > 1) {
    const int slots = p.backwardOverlap == BackwardOverlap::none ? 1 : 2;
    plan->unitGradient =
        take->take(MemoryLine::reduceStaging, "unitGradient",
                   slots * gradientSlotElements(p, layout) * bytesPerElement(c.gradientPrecision));
  }
  const int replicas = p.replicaRanks() / (p.parameterSharding * p.optimizerStateSharding);
  const int ends = c.model.tiedEmbeddings && p.pipelineParallel > 1 ? 2 : 1;
  std::int64_t reduce = 0;
  for (const int group : {p.parameterSharding, p.optimizerStateSharding, replicas, p.worldSize(),
                          p.tensorParallel, keyReplicasOf(c), ends}) {
    reduce = std::max(reduce, Communicator::reduceWorkspaceBytes(group));
  }
  plan->reduceWorkspace = take->take(MemoryLine::reduceStaging, "reduceWorkspace", reduce);
  if (!p.overlaps()) return;
  std::int64_t lane = 0;
  for (const int group : {p.parameterSharding, p.optimizerStateSharding, replicas}) {
    lane = std::max(lane, Communicator::reduceWorkspaceBytes(group));
  }
  plan->laneReduceWorkspace = take->take(MemoryLine::reduceStaging, "laneReduceWorkspace", lane);
}

void planStaging(const Config& c, const Layout& layout, const LocalShape& s, const BackendSizes& backend,
                 Planner* take, MemoryPlan* plan) {
  const PlanConfig& p = c.plan;
  const std::int64_t width = bytesPerElement(c.precision);
  if (p.ulysses()) {
    const UlyssesShape query{s.batch, s.attentionSequence, c.model.heads, s.headSize, 0, 0};
    plan->allToAllStaging = take->take(MemoryLine::allToAllStaging, "allToAllStaging",
                                       ulyssesWorkspaceBytes(query, p.headRanks(), c.precision));
  }
  if (p.contextParallel > 1) {
    plan->ringStaging = take->take(MemoryLine::contextStaging, "ringStaging",
                                   RingAttention::stagingBytes(ringShape(c), p.contextParallel));
  }
  if (p.tensorParallel > 1) {
    plan->block =
        take->take(MemoryLine::tensorParallelStaging, "block", s.headRows() * c.model.hiddenSize * width);
    if (p.overlapsActivations())
      plan->gradientBlock = take->take(MemoryLine::tensorParallelStaging, "gradientBlock", plan->block.bytes);
    if (layout.hasHead()) {
      plan->headStatistics = take->take(MemoryLine::tensorParallelStaging, "headStatistics",
                                        p.tensorParallel * std::min(backend.lossChunkRows(), s.blockRows) *
                                            kHeadStatistics * bytesPerElement(DataType::float64));
    }
  }
  if (p.pipelineParallel == 1) return;
  const std::int64_t hidden = s.rows * c.model.hiddenSize * width;
  const bool wraps = p.pipelineChunks > 1;  // the last stage passes on to the first
  const auto buffer = [&](const char* name, bool passes) {
    return passes ? take->take(MemoryLine::pipelineBuffers, name, hidden) : Piece{};
  };
  plan->sendForward = buffer("sendForward", wraps || !layout.hasHead());
  plan->receiveForward = buffer("receiveForward", wraps || !layout.hasEmbedding());
  plan->sendBackward = buffer("sendBackward", wraps || !layout.hasEmbedding());
  plan->receiveBackward = buffer("receiveBackward", wraps || !layout.hasHead());
}

/// Scratch of the kernels: with a ring, of a chunk of queries against a chunk of keys.
std::int64_t attentionScratchBytes(const Config& c, const LocalShape& s, const BackendSizes& backend) {
  if (c.plan.contextParallel > 1)
    return RingAttention::scratchBytes(ringShape(c), c.plan.contextParallel, backend);
  AttentionShape attention;
  attention.batch = s.batch, attention.sequence = s.sequence;
  attention.heads = s.heads, attention.kvHeads = s.kvHeads, attention.headSize = s.headSize;
  attention.window = c.model.slidingWindowTokens;
  return backend.attentionWorkspaceBytes(attention);
}

/// What a rank knows of a micro-batch. With packed documents every stage reads where they begin.
void planData(const Config& c, const Layout& layout, const LocalShape& s, Planner* take, MemoryPlan* plan) {
  if (layout.hasEmbedding() || layout.hasHead()) {
    plan->tokens = take->take(MemoryLine::dataBuffers, "tokens", s.blockRows * 4);
    plan->targets = take->take(MemoryLine::dataBuffers, "targets", s.blockRows * 4);
  }
  if (c.listsPositions())
    plan->positions = take->take(MemoryLine::dataBuffers, "positions", s.positionRows * 4);
  if (!c.packsDocuments()) return;
  plan->firstKeys = take->take(MemoryLine::dataBuffers, "firstKeys", s.headRows() * 4);
  plan->documentStarts = take->take(MemoryLine::dataBuffers, "documentStarts",
                                    (std::min(c.data.maxDocumentsPerSequence, s.sequence) + 1) * 4);
}

/// Room for the logits of a chunk, where the head is, and for the scratch of every matrix product.
std::int64_t headWorkspaceBytes(const Config& c, const Layout& layout, const LocalShape& s,
                                const BackendSizes& backend) {
  if (!layout.hasHead()) return backend.linearWorkspaceBytes();
  const std::int64_t tp = c.plan.tensorParallel, vocabulary = (c.model.vocabularySize + tp - 1) / tp;
  return backend.headLossWorkspaceBytes(
      {s.blockRows, c.model.hiddenSize, vocabulary, backend.lossChunkRows()});
}

}  // namespace

const char* memoryLineName(MemoryLine line) {
  switch (line) {
    case MemoryLine::parameters: return "parameters";
    case MemoryLine::gradients: return "gradients";
    case MemoryLine::optimizerStates: return "optimizerStates";
    case MemoryLine::activations: return "activations";
    case MemoryLine::offloadStaging: return "offloadStaging";
    case MemoryLine::layerWorkspace: return "layerWorkspace";
    case MemoryLine::attentionWorkspace: return "attentionWorkspace";
    case MemoryLine::logits: return "logits";
    case MemoryLine::gatherPool: return "gatherPool";
    case MemoryLine::reduceStaging: return "reduceStaging";
    case MemoryLine::allToAllStaging: return "allToAllStaging";
    case MemoryLine::contextStaging: return "contextStaging";
    case MemoryLine::tensorParallelStaging: return "tensorParallelStaging";
    case MemoryLine::pipelineBuffers: return "pipelineBuffers";
    case MemoryLine::ropeTables: return "ropeTables";
    case MemoryLine::dataBuffers: return "dataBuffers";
    case MemoryLine::checkpointStaging: return "checkpointStaging";
    case MemoryLine::count: break;
  }
  return "unknown";
}

LocalShape localShape(const Config& c) {
  const int headRanks = c.plan.headRanks();
  LocalShape s;
  s.batch = c.plan.microBatchSize;
  s.sequence = c.sequenceLengthTokens;
  s.localSequence = s.sequence / c.plan.sequenceParallel;
  s.attentionSequence = s.sequence / c.plan.contextParallel;
  s.rows = s.batch * s.localSequence;
  const LayerProgram& program = layerProgram(c.model, 0);
  s.heads = program.count(c.model, "query", headRanks);
  s.kvHeads = program.count(c.model, "key", headRanks);
  s.headSize = c.model.headSize();
  s.blockRows = c.plan.tensorParallel > 1 ? s.headRows() : s.rows;
  s.queryWidth = program.size(c.model, "query", c.plan.tensorParallel);
  s.kvWidth = program.size(c.model, "key", c.plan.tensorParallel);
  // A norm of heads comes before their positions, and works on what attention sees.
  s.positionRows = c.model.queryKeyNorm ? s.headRows() : s.blockRows;
  s.ffnWidth = program.size(c.model, "ffn", c.plan.tensorParallel);
  return s;
}

RingAttentionShape ringShape(const Config& c) {
  const LocalShape s = localShape(c);
  RingAttentionShape ring;
  ring.type = c.precision, ring.batch = s.batch, ring.sequence = s.sequence;
  ring.heads = s.heads, ring.kvHeads = s.kvHeads, ring.headSize = s.headSize;
  ring.window = c.model.slidingWindowTokens;
  ring.queryStride = ring.keyStride = ring.valueStride = s.headQkvWidth();
  return ring;
}

std::int64_t MemoryPlan::arenaBytes() const {
  return std::accumulate(lines.begin(), lines.end(), std::int64_t{0});
}

MemoryPlan planMemory(const Config& c, const Layout& layout, const BackendSizes& backend) {
  MemoryPlan plan;
  Planner take(&plan);
  const LocalShape s = localShape(c);
  planStates(c, layout, &take, &plan);
  planActivations(c, layout, s, &take, &plan);
  planWorkspace(c, s, &take, &plan);
  plan.attentionWorkspace =
      take.take(MemoryLine::attentionWorkspace, "attentionWorkspace", attentionScratchBytes(c, s, backend));
  plan.headWorkspace =
      take.take(MemoryLine::logits, "headWorkspace", headWorkspaceBytes(c, layout, s, backend));
  planReductions(c, layout, &take, &plan);
  planStaging(c, layout, s, backend, &take, &plan);
  plan.cosines = take.take(MemoryLine::ropeTables, "cosines", s.sequence * s.headSize / 2 * 4);
  plan.sines = take.take(MemoryLine::ropeTables, "sines", s.sequence * s.headSize / 2 * 4);
  planData(c, layout, s, &take, &plan);
  return plan;
}

StagePlans planStages(const Config& c, const BackendSizes& backend) {
  StagePlans stages;
  for (int stage = 0; stage < c.plan.pipelineParallel; ++stage) {
    stages.plans.push_back(planMemory(c, Layout(c.model, c.plan, {stage, 0}), backend));
  }
  stages.findFullest();
  return stages;
}

std::int64_t hostBytesOf(const StagePlans& stages) {
  std::int64_t most = 0;
  for (const MemoryPlan& plan : stages.plans) most = std::max(most, plan.offload.hostBytes);
  return most;
}

static_assert(sizeof(ActivityEvent) == sizes::timelineEventBytes);
std::int64_t timelineBytes(const Config& config) {
  return config.timeline ? config.timeline->capacityEvents * static_cast<std::int64_t>(sizeof(ActivityEvent))
                         : 0;
}

/// A connection of every channel to each neighbour of a ring, and to each other rank that a message goes to directly.
std::int64_t communicatorBytes(const Config& c) {
  const PlanConfig& p = c.plan;
  if (c.device == DeviceKind::cpu) return 0;
  const std::int64_t channels = sizes::communicationBlocks;
  const auto group = [&](std::int64_t ranks) {
    return ranks <= 1 ? 0
                      : channels * (sizes::collectiveConnectionBytes + sizes::sharedMessageBytes +
                                    std::min(ranks - 1, sizes::directPeers) * sizes::messageConnectionBytes);
  };
  const int replicas = p.replicaRanks() / (p.parameterSharding * p.optimizerStateSharding);
  std::int64_t bytes = 0;
  for (const int ranks : {p.ulysses() ? p.headRanks() : 1, p.contextParallel, p.parameterSharding,
                          p.optimizerStateSharding, replicas, p.tensorParallel, keyReplicasOf(c),
                          c.model.tiedEmbeddings && p.pipelineParallel > 1 ? 2 : 1})
    bytes += group(ranks);
  if (p.pipelineParallel == 1) return bytes;
  // To a neighbour there is a communicator for each direction; stages at the ends may have one neighbour only.
  const std::int64_t neighbours = p.pipelineParallel > 2 || p.pipelineChunks > 1 ? 2 : 1;
  return bytes + neighbours * channels * (sizes::sharedMessageBytes + sizes::messageConnectionBytes);
}

std::int64_t besideArenaBytes(const Config& config) {
  return timelineBytes(config) + communicatorBytes(config);
}

void StagePlans::findFullest() {
  for (std::size_t stage = 0; stage < plans.size(); ++stage) {
    if (plans[stage].arenaBytes() > largest().arenaBytes()) fullest = static_cast<int>(stage);
  }
}

void addCheckpointStaging(const Config& c, std::int64_t runtimeBytes, StagePlans* stages) {
  if (!c.checkpoint || c.checkpoint->writing == CheckpointWriting::synchronous) return;
  const int replicas = c.plan.replicaRanks() / (c.plan.parameterSharding * c.plan.optimizerStateSharding);
  StagePlans staged = *stages;
  for (std::size_t stage = 0; stage < staged.plans.size(); ++stage) {
    MemoryPlan& plan = staged.plans[stage];
    const Layout layout(c.model, c.plan, {static_cast<int>(stage), 0});
    plan.checkpointStaging = {plan.arenaBytes(), 3 * 4 * savedElementsBound(layout, replicas)};
    plan.lines[static_cast<std::size_t>(MemoryLine::checkpointStaging)] =
        aligned(plan.checkpointStaging.bytes);
    plan.pieces.push_back({"checkpointStaging", MemoryLine::checkpointStaging, plan.checkpointStaging, {}});
  }
  staged.findFullest();
  const bool asked = c.checkpoint->writing == CheckpointWriting::asynchronous;
  if (asked || !c.memoryLimitBytes || staged.largest().arenaBytes() + runtimeBytes <= *c.memoryLimitBytes) {
    *stages = std::move(staged);
  }
}

void requireFits(const Config& config, const MemoryPlan& plan, std::int64_t runtimeBytes) {
  const std::int64_t peak = plan.arenaBytes() + besideArenaBytes(config) + runtimeBytes;
  if (!config.memoryLimitBytes || peak <= *config.memoryLimitBytes) return;
  std::string message = "the plan needs " + std::to_string(peak) + " bytes a rank; memoryLimitBytes is " +
                        std::to_string(*config.memoryLimitBytes) + ":";
  for (int i = 0; i < kMemoryLines; ++i) {
    message += std::string(i == 0 ? " " : ", ") + memoryLineName(static_cast<MemoryLine>(i)) + " " +
               std::to_string(plan.lines[static_cast<std::size_t>(i)]);
  }
  if (config.timeline) message += ", timeline " + std::to_string(timelineBytes(config));
  if (const std::int64_t bytes = communicatorBytes(config); bytes > 0)
    message += ", communicators " + std::to_string(bytes);
  message += ", runtime " + std::to_string(runtimeBytes);
  throw Failure(Problem{StatusCode::outOfMemory, message, "memoryLimitBytes",
                        std::to_string(*config.memoryLimitBytes),
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
