// Whether a model can run under a plan, and whether the mesh is the plan's.
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/config.h"
#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

[[noreturn]] void refuse(StatusCode code, const std::string& field, std::int64_t value,
                         const std::string& message, const std::string& remedy) {
  const std::string text = std::to_string(value);
  throw Failure(Problem{code, field + " " + text + " " + message, field, text, remedy});
}

void requireDivides(const std::string& field, std::int64_t divisor, std::int64_t whole,
                    const std::string& ofWhat) {
  if (whole % divisor == 0) return;
  refuse(StatusCode::badConfig, field, divisor, "does not divide " + ofWhat + " " + std::to_string(whole),
         "choose a divisor of " + std::to_string(whole));
}

void checkModel(const ModelConfig& m) {
  requireDivides("model.heads", m.heads, m.hiddenSize, "model.hiddenSize");
  requireDivides("model.kvHeads", m.kvHeads, m.heads, "model.heads");
  if (m.headSize() % 2 != 0) {
    refuse(StatusCode::badConfig, "model.hiddenSize", m.hiddenSize,
           "gives heads of " + std::to_string(m.headSize()) +
               " elements, an odd number, which rotary positions cannot use",
           "choose hiddenSize / heads even");
  }
}

void checkTensorParallel(const Config& c) {
  const std::int64_t tp = c.plan.tensorParallel, vocabulary = c.model.vocabularySize;
  if (tp == 1) return;
  requireDivides("plan.tensorParallel", tp, c.model.ffnHiddenSize, "model.ffnHiddenSize");
  if ((tp - 1) * ((vocabulary + tp - 1) / tp) >= vocabulary) {
    refuse(StatusCode::badConfig, "plan.tensorParallel", tp,
           "leaves the last rank no row of model.vocabularySize " + std::to_string(vocabulary),
           "use fewer tensor ranks or a larger vocabulary");
  }
}

void checkPipeline(const Config& c) {
  const PlanConfig& p = c.plan;
  const std::int64_t pp = p.pipelineParallel, chunks = p.pipelineChunks, layers = c.model.layers;
  if (pp > layers) {
    refuse(StatusCode::badConfig, "plan.pipelineParallel", pp,
           "is more than model.layers " + std::to_string(layers), "use at most one stage a layer");
  }
  if (chunks > 1 && (pp == 1 || pp * chunks > layers || p.microBatches % pp != 0)) {
    refuse(StatusCode::badConfig, "plan.pipelineChunks", chunks,
           "needs more than one stage, a layer for each chunk of each, and microBatches in multiples of the "
           "stages; there "
           "are " +
               std::to_string(pp) + " stages, " + std::to_string(layers) + " layers and " +
               std::to_string(p.microBatches) + " micro-batches",
           "use 1");
  }
  const std::int64_t most = (layers + pp - 1) / pp;
  if (p.recomputeLayers > most || (p.recompute && p.recomputeLayers > 0)) {
    refuse(StatusCode::badConfig, "plan.recomputeLayers", p.recomputeLayers,
           p.recompute ? "is given although plan.recompute is true, which means all layers"
                       : "is more than the " + std::to_string(most) + " layers of a stage",
           p.recompute ? "use 0" : "use at most " + std::to_string(most) + ", or recompute");
  }
}

/// Ring attention cuts the sequence into two chunks a ring rank; the heads are shared by the ranks beside them.
void checkContextParallel(const Config& c) {
  const PlanConfig& p = c.plan;
  if (p.contextParallel == 1) return;
  if (p.tensorParallel != 1) {
    refuse(StatusCode::badConfig, "plan.contextParallel", p.contextParallel,
           "needs tensorParallel 1; it is " + std::to_string(p.tensorParallel),
           "use contextParallel 1, or tensorParallel 1");
  }
  requireDivides("plan.contextParallel", p.contextParallel, p.sequenceParallel, "plan.sequenceParallel");
  if (c.sequenceLengthTokens % (2 * p.contextParallel) != 0) {
    refuse(StatusCode::badConfig, "plan.contextParallel", p.contextParallel,
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
    refuse(StatusCode::badConfig, "plan.sequenceParallel", p.sequenceParallel,
           sharing + "does not divide model.heads " + std::to_string(heads),
           "choose a divisor of " + std::to_string(heads) +
               (p.tensorParallel == 1
                    ? ", or contextParallel such that sequenceParallel / contextParallel is one"
                    : ""));
  }
  if (kv >= ranks ? kv % ranks != 0 : ranks % kv != 0) {
    refuse(StatusCode::planUnsupported, "plan.sequenceParallel", p.sequenceParallel,
           sharing + "and model.kvHeads " + std::to_string(kv) +
               " do not divide one another, so key/value heads can be neither split nor replicated evenly",
           "choose a divisor or a multiple of model.kvHeads");
  }
}

/// What the CUDA backend does not do yet.
void checkDevice(const Config& c) {
  if (c.device == DeviceKind::cpu) return;
  constexpr std::int64_t kLargestHead = 256;
  if (c.model.headSize() > kLargestHead) {
    refuse(StatusCode::planUnsupported, "model.heads", c.model.heads,
           "gives heads of " + std::to_string(c.model.headSize()) +
               "; device cuda computes heads of at most " + std::to_string(kLargestHead),
           "use more heads, or set device to cpu");
  }
}

void checkFactors(const Config& c) {
  const PlanConfig& p = c.plan;
  if (p.tensorParallel != 1 && p.tensorParallel != p.sequenceParallel) {
    refuse(StatusCode::badConfig, "plan.tensorParallel", p.tensorParallel,
           "is neither 1 nor sequenceParallel " + std::to_string(p.sequenceParallel),
           "use 1 (Ulysses) or " + std::to_string(p.sequenceParallel));
  }
  requireDivides("plan.sequenceParallel", p.sequenceParallel, c.sequenceLengthTokens, "sequenceLengthTokens");
  checkContextParallel(c);
  checkHeads(c);
  checkTensorParallel(c);
  checkPipeline(c);
  const int ranks = p.replicaRanks();
  requireDivides("plan.parameterSharding", p.parameterSharding, ranks,
                 p.tensorParallel > 1 ? "dataParallel =" : "dataParallel x sequenceParallel =");
  requireDivides("plan.optimizerStateSharding", p.optimizerStateSharding, ranks / p.parameterSharding,
                 "the replicas of a parameter shard,");
  if (p.gradientSharding != 1 && p.gradientSharding != p.optimizerStateSharding) {
    refuse(StatusCode::badConfig, "plan.gradientSharding", p.gradientSharding,
           "is neither 1 nor optimizerStateSharding " + std::to_string(p.optimizerStateSharding),
           p.optimizerStateSharding == 1 ? std::string("use 1, or shard optimizer states as much")
                                         : "use 1 or " + std::to_string(p.optimizerStateSharding));
  }
}

/// The groups {block + offset + k·stride}: rank k of a group sits `stride` from the next.
Groups expected(int worldSize, int size, int stride) {
  Groups groups;
  for (int block = 0; block < worldSize; block += size * stride) {
    for (int offset = 0; offset < stride; ++offset) {
      groups.emplace_back();
      for (int k = 0; k < size; ++k) groups.back().push_back(block + offset + k * stride);
    }
  }
  return groups;
}

void checkGroups(const char* name, const Groups& given, int worldSize, int size, int stride) {
  if (given == expected(worldSize, size, stride)) return;
  const std::string text = nlohmann::json(given).dump();
  const std::string want = nlohmann::json(expected(worldSize, size, stride)).dump();
  const auto cut = [](const std::string& s) { return s.size() > 200 ? s.substr(0, 200) + "..." : s; };
  throw Failure(Problem{
      StatusCode::badConfig,
      std::string("mesh.") + name + " is not the plan's: it is " + cut(text) + " and must be " + cut(want),
      std::string("mesh.") + name, nlohmann::json(cut(text)).dump(),
      "give the mesh that the planner made for this plan"});
}

void checkMesh(const PlanConfig& p, const MeshConfig& m) {
  const int world = p.worldSize();
  if (m.worldSize != world) {
    refuse(StatusCode::badConfig, "mesh.worldSize", m.worldSize,
           "is not pipelineParallel x dataParallel x sequenceParallel = " + std::to_string(world),
           "give the mesh that the planner made for this plan");
  }
  const int tp = p.tensorParallel, sp = p.sequenceParallel, dp = p.dataParallel, ps = p.parameterSharding;
  checkGroups("tensorParallel", m.tensorParallel, world, tp, 1);
  checkGroups("sequenceParallel", m.sequenceParallel, world, sp, 1);
  checkGroups("dataParallel", m.dataParallel, world, dp, sp);
  checkGroups("pipelineParallel", m.pipelineParallel, world, p.pipelineParallel, dp * sp);
  checkGroups("parameterSharding", m.parameterSharding, world, ps, tp);
  checkGroups("optimizerStateSharding", m.optimizerStateSharding, world, p.optimizerStateSharding, tp * ps);
  checkGroups("gradientReplicas", m.gradientReplicas, world, p.replicaRanks() / ps, tp * ps);
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
