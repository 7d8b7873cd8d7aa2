#include "trainer/model.h"

#include "trainer/failure.h"

namespace internevo::trainer {

Model::Model(const Config& config, const Layout& layout, const MemoryPlan& plan, Arena& arena,
             Backend& backend, GroupSet& groups, ParameterStore& parameters)
    : config_(config),
      layout_(layout),
      shape_(localShape(config)),
      ulysses_(config.plan.ulysses()),
      recomputed_(config.plan.recomputedOf(layout.stageLayers())),
      backend_(backend),
      groups_(groups),
      parameters_(parameters),
      operations_(pipelineSchedule(layout.position().stage, config.plan.pipelineParallel,
                                   config.plan.microBatches, config.plan.pipelineChunks)),
      evaluationOperations_(forwardOnly(operations_)),
      link_(config, layout, plan, arena, backend.memory(), groups, operations_),
      tensorLane_(backend, groups, config.plan.overlapsActivations()) {
  const DataType type = config.precision;
  const auto view = [&](const Piece& piece) { return viewOf(arena, piece, type); };
  const auto float32 = [&](const Piece& piece) { return viewOf(arena, piece, DataType::float32); };
  const auto scratch = [&](const Piece& piece) {
    return Workspace{viewOf(arena, piece, DataType::byte).data, piece.bytes};
  };
  for (const LayerRange& range : layout.chunks()) {
    for (std::int64_t layer = range.first; layer < range.last; ++layer) {
      const auto at = [&](const char* name) { return layout.tensorPlace(layer, name); };
      const auto named = [&](const char* name) {
        return &layerProgram(config.model, layer).operatorOf(name);
      };
      const auto atIf = [&](bool there, const char* name) { return there ? at(name) : TensorPlace{}; };
      layerPlaces_.push_back({at("attentionNorm"),
                              at("wq"),
                              at("wo"),
                              at("mlpNorm"),
                              at("gate"),
                              at("down"),
                              atIf(config.model.queryKeyValueBias, "queryBias"),
                              atIf(config.model.queryKeyNorm, "queryNorm"),
                              {named("qkv"), named("attention"), named("attention output"),
                               named("gate and up"), named("down")}});
    }
  }
  for (const auto& chunk : plan.slots) {
    slots_.emplace_back();
    for (const SlotPieces& pieces : chunk) {
      Slot slot{{}, pieces.layerSets, view(pieces.output)};
      for (const Piece& input : pieces.inputs) slot.inputs.push_back(view(input));
      slots_.back().push_back(std::move(slot));
    }
  }
  offload_.start(plan, arena, backend, layerTurns());
  const LayerProgram& program = layerProgram(config.model, 0);
  const ProgramFlags flags = flagsOf(config.model, config.plan);
  const auto value = [&](const ValuePieces& kept, const char* name) {
    const ProgramValue* const wanted = program.presentValue(name, flags);
    if (wanted == nullptr) return View{};
    const Fate fate = fateOf(*wanted, flags);
    if (fate == Fate::host) return View{};  // beginTurn() says where
    const ValuePieces& pieces = fate == Fate::kept ? kept : plan.workspace;
    return viewOf(arena, pieces[static_cast<std::size_t>(program.valuePlace(*wanted))],
                  wanted->float32 ? DataType::float32 : type);
  };
  for (const ValuePieces& p : plan.layers) {
    layers_.push_back({value(p, "qkv"), value(p, "headGains"), value(p, "attentionHeads"),
                       value(p, "attentionTokens"), value(p, "logSumExp"), value(p, "middle"),
                       value(p, "gateUp")});
  }
  for (std::size_t i = 0; i < gateUpPlaces_.size() && !offload_.empty(); ++i) {
    const Piece& inBlock =
        plan.offload.values[static_cast<std::size_t>(program.valuePlace(program.value("gateUp")))];
    gateUpPlaces_[i] = view({plan.offload.places[i].offset + inBlock.offset, inBlock.bytes});
  }
  const auto work = [&](const char* name) { return value(plan.workspace, name); };
  workspace_ = {work("norm"),
                work("hidden"),
                work("hiddenGradient"),
                work("inverseRms"),
                work("mlp"),
                work("mlpGradient"),
                work("qkvGradient"),
                ulysses_ ? work("qkvTokens") : View{},
                config.model.queryKeyNorm ? work("queryKey") : View{},
                work("headInverseRms"),
                work("attentionGradientTokens"),
                work("attentionGradientHeads")};
  cosines_ = float32(plan.cosines), sines_ = float32(plan.sines);
  const auto int32 = [&](const Piece& piece) { return viewOf(arena, piece, DataType::int32); };
  batch_ = {int32(plan.tokens), int32(plan.targets), int32(plan.positions), int32(plan.firstKeys),
            int32(plan.documentStarts)};
  block_ = view(plan.block), gradientBlock_ = view(plan.gradientBlock);
  headStatistics_ = viewOf(arena, plan.headStatistics, DataType::float64);
  attentionWorkspace_ = scratch(plan.attentionWorkspace);
  headWorkspace_ = scratch(plan.headWorkspace);
  allToAllStaging_ = scratch(plan.allToAllStaging);
  reduceWorkspace_ = scratch(plan.reduceWorkspace);
  if (config.plan.contextParallel > 1) {
    if (config.plan.overlaps()) ringLane_ = backend.createLane();
    ring_.emplace(backend_, groups_.context, ringShape(config), scratch(plan.ringStaging),
                  attentionWorkspace_, ringLane_.get());
    ring_->setActivity(
        *groups_.activity, groups_.microBatch,
        {&groups_.exposedCommunicationSeconds, ringLane_ ? &groups_.laneWaitSeconds : nullptr});
  }
  RopeFrequencies frequencies;
  require(ropeFrequencies(config.model.ropeFields(), &frequencies));
  require(backend_.ropeTable(shape_.sequence, frequencies, cosines_, sines_));
}

LinearShape Model::linear(std::int64_t inputs, std::int64_t outputs) const {
  LinearShape s;
  s.rows = shape_.blockRows, s.inputs = inputs, s.outputs = outputs;
  return s;
}

AttentionShape Model::attentionShape() const {
  AttentionShape s;
  s.batch = shape_.batch, s.sequence = shape_.sequence;
  s.heads = shape_.heads, s.kvHeads = shape_.kvHeads, s.headSize = shape_.headSize;
  s.queryStride = s.keyStride = s.valueStride = shape_.headQkvWidth();
  s.firstKeys = batch_.firstKeys, s.window = config_.model.slidingWindowTokens;
  return s;
}

Model::Slot& Model::slotOf(const PipelineOperation& operation) {
  auto& slots = slots_[static_cast<std::size_t>(operation.chunk)];
  return slots[static_cast<std::size_t>(operation.microBatch) % slots.size()];
}

std::vector<LayerTurn> Model::layerTurns() const {
  std::vector<LayerTurn> turns;
  for (const PipelineOperation& operation : operations_) {
    const auto& slots = slots_[static_cast<std::size_t>(operation.chunk)];
    const Slot& slot = slots[static_cast<std::size_t>(operation.microBatch) % slots.size()];
    const LayerRange& range = layout_.chunks()[static_cast<std::size_t>(operation.chunk)];
    const std::int64_t count = range.count();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t place = operation.pass == Pass::forward ? i : count - 1 - i;
      turns.push_back({operation.pass, slot.layerSets[static_cast<std::size_t>(place)],
                       isRecomputed(range.first + place)});
    }
  }
  return turns;
}

LayerViews Model::beginTurn(int layerSet, bool trains) {
  LayerViews views = layers_[static_cast<std::size_t>(layerSet)];
  if (!offload_.empty()) {
    const int place = trains ? offload_.begin() : 0;
    views.gateUp = gateUpPlaces_[static_cast<std::size_t>(place)];
  }
  return views;
}

void Model::run(const PipelineOperation& operation, float gradientScale, ExactSum* lossSum) {
  groups_.microBatch = static_cast<std::int32_t>(operation.microBatch);
  if (operation.pass == Pass::forward) {
    forward(operation, true);
  } else {
    backward(operation, gradientScale, lossSum);
  }
}

void Model::evaluate(const PipelineOperation& operation, ExactSum* lossSum) {
  groups_.microBatch = static_cast<std::int32_t>(operation.microBatch);
  forward(operation, false);
  if (endsAtHead(operation)) evaluateHead(slotOf(operation).output, lossSum);
}

void Model::forward(const PipelineOperation& operation, bool trains) {
  const PlanConfig& p = config_.plan;
  const LayerRange& range = layout_.chunks()[static_cast<std::size_t>(operation.chunk)];
  Slot& slot = slotOf(operation);
  const bool onward = sends(operation, layout_.position().stage, p.pipelineParallel, p.pipelineChunks);
  if (receives(operation, layout_.position().stage, p.pipelineParallel, p.pipelineChunks)) {
    link_.receive(operation, slot.inputs.front());
  } else {
    embed(slot.inputs.front());
  }
  for (std::size_t i = 0; i < slot.inputs.size(); ++i) {
    const bool last = i + 1 == slot.inputs.size();
    const View output = !last ? slot.inputs[i + 1] : onward ? link_.sendBuffer(Pass::forward) : slot.output;
    forwardLayer(range.first + static_cast<std::int64_t>(i), beginTurn(slot.layerSets[i], trains),
                 slot.inputs[i], output, false);
    if (trains) offload_.end();
  }
  if (onward) link_.send(operation);
}

void Model::backward(const PipelineOperation& operation, float gradientScale, ExactSum* lossSum) {
  const PlanConfig& p = config_.plan;
  const LayerRange& range = layout_.chunks()[static_cast<std::size_t>(operation.chunk)];
  Slot& slot = slotOf(operation);
  if (receives(operation, layout_.position().stage, p.pipelineParallel, p.pipelineChunks)) {
    link_.receive(operation, workspace_.hiddenGradient);
  } else {
    head(slot.output, gradientScale, lossSum);
  }
  for (std::size_t i = slot.inputs.size(); i-- > 0;) {
    backwardLayer(range.first + static_cast<std::int64_t>(i), beginTurn(slot.layerSets[i]), slot.inputs[i]);
    offload_.end();
  }
  if (!sends(operation, layout_.position().stage, p.pipelineParallel, p.pipelineChunks))
    return embedBackward();
  const View outgoing = link_.sendBuffer(Pass::backward);
  require(backend_.memory().copy(outgoing.data, workspace_.hiddenGradient.data,
                                 shape_.rows * config_.model.hiddenSize * bytesPerElement(outgoing.type)));
  link_.send(operation);
}

}  // namespace internevo::trainer
