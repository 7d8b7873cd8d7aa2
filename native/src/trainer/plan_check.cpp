// Whether a model can run under a plan, and whether the mesh has the shape that the plan needs. Constraints have
// their names and their order in libs/plan/src/legality.ts.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "executor_sizes/executor_sizes.h"
#include "trainer/config.h"
#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

[[noreturn]] void refuse(StatusCode code, const std::string& field, std::int64_t value,
                         const std::string& message, const std::string& remedy) {
  const std::string text = std::to_string(value);
  throw Failure(Problem{code, field + " " + text + " " + message, field, text, remedy});
}

/// A plan that does not meet a constraint; the message begins with the constraint's name.
[[noreturn]] void reject(const char* constraint, const std::string& field, std::int64_t value,
                         const std::string& message, const std::string& remedy,
                         StatusCode code = StatusCode::badConfig) {
  const std::string text = std::to_string(value);
  throw Failure(Problem{code, std::string(constraint) + ": " + field + " " + text + " " + message, field,
                        text, remedy});
}
/// The same of a choice.
[[noreturn]] void reject(const char* constraint, const std::string& field, const std::string& word,
                         const std::string& message, const std::string& remedy) {
  throw Failure(Problem{StatusCode::badConfig,
                        std::string(constraint) + ": " + field + " " + word + " " + message, field,
                        nlohmann::json(word).dump(), remedy});
}

void requireDivides(const std::string& field, std::int64_t divisor, std::int64_t whole,
                    const std::string& ofWhat) {
  if (whole % divisor == 0) return;
  refuse(StatusCode::badConfig, field, divisor, "does not divide " + ofWhat + " " + std::to_string(whole),
         "choose a divisor of " + std::to_string(whole));
}

void requireDivides(const char* constraint, const std::string& field, std::int64_t divisor,
                    std::int64_t whole, const std::string& ofWhat) {
  if (whole % divisor == 0) return;
  reject(constraint, field, divisor, "does not divide " + ofWhat + " " + std::to_string(whole),
         "choose a divisor of " + std::to_string(whole));
}

void checkModel(const ModelConfig& m) {
  const bool own = m.givenHeadSize > 0;
  if (!own) requireDivides("model.heads", m.heads, m.hiddenSize, "model.hiddenSize");
  requireDivides("model.kvHeads", m.kvHeads, m.heads, "model.heads");
  if (m.headSize() % 2 != 0) {
    refuse(StatusCode::badConfig, own ? "model.headSize" : "model.hiddenSize",
           own ? m.givenHeadSize : m.hiddenSize,
           "gives heads of " + std::to_string(m.headSize()) +
               " elements, an odd number, which rotary positions cannot use",
           own ? "choose headSize even" : "choose hiddenSize / heads even");
  }
  RopeFrequencies frequencies;
  if (const Status status = ropeFrequencies(m.ropeFields(), &frequencies); !status.ok())
    throw Failure(Problem{StatusCode::badConfig, "model.ropeScaling: " + status.message(),
                          "model.ropeScaling", "", "mend the field that it names"});
}

void checkTensorParallel(const Config& c) {
  const std::int64_t tp = c.plan.tensorParallel, vocabulary = c.model.vocabularySize;
  if (tp == 1) return;
  requireDivides("tensor-not-divisible", "plan.tensorParallel", tp, c.model.ffnHiddenSize,
                 "model.ffnHiddenSize");
  if ((tp - 1) * ((vocabulary + tp - 1) / tp) >= vocabulary) {
    reject("tensor-not-divisible", "plan.tensorParallel", tp,
           "leaves the last rank no row of model.vocabularySize " + std::to_string(vocabulary),
           "use fewer tensor ranks or a larger vocabulary");
  }
}

void checkStages(const Config& c) {
  const std::int64_t pp = c.plan.pipelineParallel, layers = c.model.layers;
  if (pp <= layers) return;
  reject("more-stages-than-layers", "plan.pipelineParallel", pp,
         "is more than model.layers " + std::to_string(layers), "use at most one stage a layer");
}

void checkChunks(const Config& c) {
  const PlanConfig& p = c.plan;
  const std::int64_t pp = p.pipelineParallel, chunks = p.pipelineChunks, layers = c.model.layers;
  if (chunks == 1 || (pp > 1 && pp * chunks <= layers && p.microBatches % pp == 0)) return;
  reject("chunks-not-possible", "plan.pipelineChunks", chunks,
         "needs more than one stage, a layer for each chunk of each, and microBatches in multiples of the "
         "stages; there are " +
             std::to_string(pp) + " stages, " + std::to_string(layers) + " layers and " +
             std::to_string(p.microBatches) + " micro-batches",
         "use 1");
}

void checkRecomputedLayers(const Config& c) {
  const PlanConfig& p = c.plan;
  const std::int64_t pp = p.pipelineParallel, most = (c.model.layers + pp - 1) / pp;
  if (p.recomputeLayers == 0 || (!p.recompute && p.recomputeLayers <= most)) return;
  reject("recompute-layers-not-possible", "plan.recomputeLayers", p.recomputeLayers,
         p.recompute ? "is given although plan.recompute is true, which means all layers"
                     : "is more than the " + std::to_string(most) + " layers of a stage",
         p.recompute ? "use 0" : "use at most " + std::to_string(most) + ", or recompute");
}

void checkGateUp(const Config& c) {
  const PlanConfig& p = c.plan;
  const std::int64_t pp = p.pipelineParallel, most = (c.model.layers + pp - 1) / pp;
  if (p.gateUp == GateUp::kept || p.recomputedOf(most) < most) return;
  const std::string reason =
      p.recompute ? "plan.recompute is true" : "plan.recomputeLayers is " + std::to_string(most);
  reject("gate-up-not-possible", "plan.gateUp", p.gateUp == GateUp::again ? "again" : "host",
         "is given although " + reason + ", which makes all layers again as a whole", "leave it out");
}

/// Ring attention cuts the sequence into two chunks a ring rank; the heads are shared by the ranks beside them.
void checkContextParallel(const Config& c) {
  const PlanConfig& p = c.plan;
  if (p.contextParallel == 1) return;
  if (p.tensorParallel != 1) {
    reject("context-not-possible", "plan.contextParallel", p.contextParallel,
           "needs tensorParallel 1; it is " + std::to_string(p.tensorParallel),
           "use contextParallel 1, or tensorParallel 1");
  }
  requireDivides("context-not-possible", "plan.contextParallel", p.contextParallel, p.sequenceParallel,
                 "plan.sequenceParallel");
  if (c.sequenceLengthTokens % (2 * p.contextParallel) != 0) {
    reject("context-not-possible", "plan.contextParallel", p.contextParallel,
           "cuts a sequence into 2 x " + std::to_string(p.contextParallel) +
               " equal chunks, which do not divide sequenceLengthTokens " +
               std::to_string(c.sequenceLengthTokens),
           "choose sequenceLengthTokens as a multiple of " + std::to_string(2 * p.contextParallel) +
               ", or fewer context ranks");
  }
}

void checkHeads(const Config& c) {
  const PlanConfig& p = c.plan;
  const std::int64_t heads = c.model.heads, kv = c.model.kvHeads, ranks = p.headRanks();
  const std::string sharing =
      p.contextParallel == 1
          ? ""
          : "/ contextParallel " + std::to_string(p.contextParallel) + " = " + std::to_string(ranks) + " ";
  if (heads % ranks != 0) {
    reject("heads-not-divisible", "plan.sequenceParallel", p.sequenceParallel,
           sharing + "does not divide model.heads " + std::to_string(heads),
           "choose a divisor of " + std::to_string(heads) +
               (p.tensorParallel == 1
                    ? ", or contextParallel such that sequenceParallel / contextParallel is one"
                    : ""));
  }
  if (kv >= ranks ? kv % ranks != 0 : ranks % kv != 0) {
    reject("heads-not-divisible", "plan.sequenceParallel", p.sequenceParallel,
           sharing + "and model.kvHeads " + std::to_string(kv) +
               " do not divide one another, so key/value heads can be neither split nor replicated evenly",
           "choose a divisor or a multiple of model.kvHeads", StatusCode::planUnsupported);
  }
}

/// What the CUDA backend does not do yet.
void checkDevice(const Config& c) {
  if (c.device == DeviceKind::cpu) return;
  if (c.model.headSize() > sizes::gpuLargestHead) {
    refuse(StatusCode::planUnsupported, "model.heads", c.model.heads,
           "gives heads of " + std::to_string(c.model.headSize()) +
               "; device cuda computes heads of at most " + std::to_string(sizes::gpuLargestHead),
           "use more heads, or set device to cpu");
  }
}

void checkSharding(const PlanConfig& p) {
  const int ranks = p.replicaRanks();
  requireDivides("sharding-not-divisible", "plan.parameterSharding", p.parameterSharding, ranks,
                 p.tensorParallel > 1 ? "dataParallel =" : "dataParallel x sequenceParallel =");
  requireDivides("sharding-not-divisible", "plan.optimizerStateSharding", p.optimizerStateSharding,
                 ranks / p.parameterSharding, "the replicas of a parameter shard,");
  if (p.gradientSharding == 1 || p.gradientSharding == p.optimizerStateSharding) return;
  reject("gradient-sharding-not-allowed", "plan.gradientSharding", p.gradientSharding,
         "is neither 1 nor optimizerStateSharding " + std::to_string(p.optimizerStateSharding),
         p.optimizerStateSharding == 1 ? std::string("use 1, or shard optimizer states as much")
                                       : "use 1 or " + std::to_string(p.optimizerStateSharding));
}

void checkFactors(const Config& c) {
  const PlanConfig& p = c.plan;
  if (p.tensorParallel != 1 && p.tensorParallel != p.sequenceParallel) {
    reject("tensor-sequence-mismatch", "plan.tensorParallel", p.tensorParallel,
           "is neither 1 nor sequenceParallel " + std::to_string(p.sequenceParallel),
           "use 1 (Ulysses) or " + std::to_string(p.sequenceParallel));
  }
  checkStages(c);
  checkContextParallel(c);
  requireDivides("sequence-not-divisible", "plan.sequenceParallel", p.sequenceParallel,
                 c.sequenceLengthTokens, "sequenceLengthTokens");
  checkHeads(c);
  checkTensorParallel(c);
  checkChunks(c);
  checkRecomputedLayers(c);
  checkGateUp(c);
  checkSharding(p);
}

/// Whether groups of so many ranks have every rank of the world once.
bool arePartition(const Groups& groups, int worldSize, int size) {
  std::vector<bool> seen(static_cast<std::size_t>(worldSize), false);
  for (const std::vector<int>& group : groups) {
    if (static_cast<int>(group.size()) != size) return false;
    for (const int rank : group) {
      if (rank < 0 || rank >= worldSize || seen[static_cast<std::size_t>(rank)]) return false;
      seen[static_cast<std::size_t>(rank)] = true;
    }
  }
  return static_cast<int>(groups.size()) * size == worldSize;
}

void checkGroups(const char* name, const Groups& given, int worldSize, int size) {
  if (arePartition(given, worldSize, size)) return;
  const std::string text = nlohmann::json(given).dump();
  const std::string shown = text.size() > 200 ? text.substr(0, 200) + "..." : text;
  throw Failure(Problem{StatusCode::badConfig,
                        std::string("mesh.") + name + " must have each of the " + std::to_string(worldSize) +
                            " ranks once, in groups of " + std::to_string(size) + "; it is " + shown,
                        std::string("mesh.") + name, nlohmann::json(shown).dump(),
                        "give the mesh that the planner made for this plan"});
}

/// Which ranks are in which group is the planner's: here only the shape is checked.
void checkMesh(const PlanConfig& p, const MeshConfig& m) {
  const int world = p.worldSize();
  if (m.worldSize != world) {
    reject("ranks-not-divisible", "mesh.worldSize", m.worldSize,
           "is not pipelineParallel x dataParallel x sequenceParallel = " + std::to_string(world),
           "give the mesh that the planner made for this plan");
  }
  checkGroups("tensorParallel", m.tensorParallel, world, p.tensorParallel);
  checkGroups("sequenceParallel", m.sequenceParallel, world, p.sequenceParallel);
  checkGroups("dataParallel", m.dataParallel, world, p.dataParallel);
  checkGroups("pipelineParallel", m.pipelineParallel, world, p.pipelineParallel);
  checkGroups("parameterSharding", m.parameterSharding, world, p.parameterSharding);
  checkGroups("optimizerStateSharding", m.optimizerStateSharding, world, p.optimizerStateSharding);
  checkGroups("gradientReplicas", m.gradientReplicas, world, p.replicaRanks() / p.parameterSharding);
}

}  // namespace

void validateFactors(const Config& config) {
  checkModel(config.model);
  checkFactors(config);
}

void validatePlan(const Config& config) {
  validateFactors(config);
  checkDevice(config);
  checkMesh(config.plan, config.mesh);
}

}  // namespace internevo::trainer
