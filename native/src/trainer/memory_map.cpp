#include "trainer/memory_map.h"

#include <map>

#include "trainer/pipeline_schedule.h"

namespace internevo::trainer {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEmbedding = "embedding";
constexpr const char* kForwardAttention = "forward attention";
constexpr const char* kForwardMlp = "forward MLP";
constexpr const char* kHead = "head";
constexpr const char* kBackwardMlp = "backward MLP";
constexpr const char* kBackwardAttention = "backward attention";
constexpr const char* kEmbeddingGradient = "embedding gradient";
constexpr const char* kUpdate = "update";

using Phases = std::vector<std::string>;
const Phases kAll = {kEmbedding,   kForwardAttention,  kForwardMlp,        kHead,
                     kBackwardMlp, kBackwardAttention, kEmbeddingGradient, kUpdate};
const Phases kPasses(kAll.begin(), kAll.end() - 1);
const Phases kLayer = {kForwardAttention, kForwardMlp, kBackwardMlp, kBackwardAttention};
// The head's loss and its gradient are one call, at the beginning of the backward pass.
const Phases kBackward = {kHead, kBackwardMlp, kBackwardAttention, kEmbeddingGradient};
const Phases kAttention = {kForwardAttention, kBackwardAttention};

Json work(const Phases& phases) { return {{"kind", "work"}, {"phases", phases}}; }
Json work(Phases phases, const char* last) {
  phases.push_back(last);
  return work(phases);
}

/// Lifetimes of what is kept between the passes of a micro-batch, by where it lies.
class Kept {
 public:
  Kept(const Config& config, const Layout& layout, const MemoryPlan& plan)
      : model_(config.model),
        layout_(layout),
        plan_(plan),
        recomputed_(config.plan.recomputedOf(layout.stageLayers())) {
    std::vector<std::int64_t> again;
    for (std::size_t chunk = 0; chunk < plan.slots.size(); ++chunk) {
      const LayerRange& range = layout.chunks()[chunk];
      for (std::int64_t layer = range.first; layer < range.last; ++layer) {
        if (isRecomputed(layer)) again.push_back(layer);
      }
      for (std::size_t place = 0; place < plan.slots[chunk].size(); ++place) addSlot(chunk, place, range);
    }
    if (again.empty()) return;
    Json shared = work(kLayer);
    shared["layers"] = again;  // recomputed layers share one set, the first
    addLayer(again.front(), plan.layers.front(),
             [&](const std::string&, const std::string&) { return shared; });
  }

  const Json* find(const Piece& piece) const {
    const auto found = byOffset_.find(piece.offset);
    return found == byOffset_.end() ? nullptr : &found->second;
  }

 private:
  bool isRecomputed(std::int64_t layer) const { return layout_.placeInStage(layer) < recomputed_; }
  void add(const Piece& piece, const Json& lifetime) {
    if (piece.bytes > 0) byOffset_.emplace(piece.offset, lifetime);
  }
  template <typename LifetimeOf>
  void addLayer(std::int64_t layer, const ValuePieces& pieces, const LifetimeOf& lifetimeOf) {
    const auto& values = program(layer).values();
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      add(pieces[i], lifetimeOf("forward " + values[i].block, "backward " + values[i].block));
    }
  }
  void addSlot(std::size_t chunk, std::size_t place, const LayerRange& range) {
    const SlotPieces& slot = plan_.slots[chunk][place];
    const bool embeds = layout_.hasEmbedding() && chunk == 0;
    const auto kept = [&](std::int64_t from, const std::string& fromPhase, std::int64_t until,
                          const std::string& untilPhase) {
      return Json{{"kind", "kept"},
                  {"chunk", chunk},
                  {"place", place},
                  {"from", {{"layer", from}, {"phase", fromPhase}}},
                  {"until", {{"layer", until}, {"phase", untilPhase}}}};
    };
    for (std::size_t i = 0; i < slot.inputs.size(); ++i) {
      const std::int64_t layer = range.first + static_cast<std::int64_t>(i);
      // A layer's input is the result of the one before it; the chunk's is looked up, or comes from a neighbour.
      add(slot.inputs[i],
          i > 0 ? kept(layer - 1, kForwardMlp, layer, kBackwardAttention)
                : kept(layer, embeds ? kEmbedding : kForwardAttention, layer, kBackwardAttention));
      if (isRecomputed(layer)) continue;
      addLayer(
          layer, plan_.layers[static_cast<std::size_t>(slot.layerSets[i])],
          [&](const std::string& from, const std::string& until) { return kept(layer, from, layer, until); });
    }
    add(slot.output, kept(range.last - 1, kForwardMlp, range.last - 1, kHead));
  }

  const LayerProgram& program(std::int64_t layer) const { return layerProgram(model_, layer); }

  const ModelConfig& model_;
  const Layout& layout_;
  const MemoryPlan& plan_;
  const std::int64_t recomputed_;
  std::map<std::int64_t, Json> byOffset_;
};

/// Of everything else.
Json lifetimeOf(const NamedPiece& named, const Config& config) {
  if (!named.uses.empty()) return work(named.uses);
  const bool tensor = config.plan.tensorParallel > 1;
  switch (named.line) {
    case MemoryLine::parameters:
    case MemoryLine::gradients:
    case MemoryLine::optimizerStates:
    case MemoryLine::ropeTables:
    case MemoryLine::checkpointStaging: return {{"kind", "step"}};
    case MemoryLine::layerWorkspace:
      if (layerProgram(config.model, 0).value(named.name).passes == Phases{"backward"})
        return work(kBackward);
      return work({kForwardAttention, kForwardMlp, kHead, kBackwardMlp, kBackwardAttention});
    case MemoryLine::attentionWorkspace:
    case MemoryLine::allToAllStaging:
    case MemoryLine::contextStaging: return work(kAttention);
    case MemoryLine::logits:
      return work({kForwardAttention, kForwardMlp, kHead, kBackwardMlp, kBackwardAttention});
    case MemoryLine::gatherPool: return work(config.plan.overlaps() ? kAll : kPasses);
    case MemoryLine::reduceStaging:
      if (named.name == "reduceWorkspace") return tensor ? work(kAll) : work(kBackward, kUpdate);
      return work(kBackward, kUpdate);
    case MemoryLine::tensorParallelStaging:
      if (named.name == "gradientBlock") return work({kBackwardMlp, kBackwardAttention});
      return work(named.name == "headStatistics" ? Phases{kHead} : kPasses);
    case MemoryLine::activations:
    case MemoryLine::offloadStaging:
    case MemoryLine::pipelineBuffers:
    case MemoryLine::dataBuffers: return work(kPasses);
    case MemoryLine::count: break;
  }
  return {{"kind", "step"}};
}

}  // namespace

Json memoryMapOf(const Config& config, int stage, const MemoryPlan& plan) {
  const Layout layout(config.model, config.plan, {stage, 0});
  Json operations = Json::array(), chunks = Json::array(), pieces = Json::array();
  for (const PipelineOperation& each : pipelineSchedule(
           stage, config.plan.pipelineParallel, config.plan.microBatches, config.plan.pipelineChunks)) {
    operations.push_back({{"pass", each.pass == Pass::forward ? "forward" : "backward"},
                          {"microBatch", each.microBatch},
                          {"chunk", each.chunk}});
  }
  for (std::size_t chunk = 0; chunk < plan.slots.size(); ++chunk) {
    const LayerRange& range = layout.chunks()[chunk];
    chunks.push_back(
        {{"firstLayer", range.first}, {"layers", range.count()}, {"inFlight", plan.slots[chunk].size()}});
  }
  const Kept kept(config, layout, plan);
  for (const NamedPiece& piece : plan.pieces) {
    Json each = {{"name", piece.name},
                 {"line", memoryLineName(piece.line)},
                 {"offset", piece.piece.offset},
                 {"bytes", piece.piece.bytes}};
    if (!piece.uses.empty()) {
      each["firstUse"] = piece.uses.front(), each["lastUse"] = piece.uses.back(), each["uses"] = piece.uses;
    }
    const Json* const lifetime = piece.line == MemoryLine::activations ? kept.find(piece.piece) : nullptr;
    each["lifetime"] = lifetime != nullptr ? *lifetime : lifetimeOf(piece, config);
    pieces.push_back(each);
  }
  return {{"stage", stage},   {"arenaBytes", plan.arenaBytes()},
          {"phases", kAll},   {"operations", operations},
          {"chunks", chunks}, {"pieces", pieces}};
}

}  // namespace internevo::trainer
