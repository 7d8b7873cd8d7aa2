#include "trainer/model.h"

#include "trainer/clock.h"
#include "trainer/failure.h"

namespace internevo::trainer {

Model::Model(const Config& config, const Layout& layout, const MemoryPlan& plan, Arena& arena, Backend& backend,
             GroupSet& groups, ParameterStore& parameters)
    : config_(config),
      layout_(layout),
      shape_(localShape(config)),
      split_(config.plan.sequenceParallel > 1),
      backend_(backend),
      groups_(groups),
      parameters_(parameters) {
  const DataType type = config.precision;
  const auto view = [&](const Piece& piece) { return viewOf(arena, piece, type); };
  const auto float32 = [&](const Piece& piece) { return viewOf(arena, piece, DataType::float32); };
  const auto scratch = [&](const Piece& piece) {
    return Workspace{viewOf(arena, piece, DataType::byte).data, piece.bytes};
  };
  for (const Piece& piece : plan.layerInputs) layerInputs_.push_back(view(piece));
  for (const LayerPieces& p : plan.layers) {
    const View heads = view(p.attentionHeads);
    layers_.push_back({view(p.qkv), heads, split_ ? view(p.attentionTokens) : heads, float32(p.logSumExp),
                       view(p.middle), view(p.gateUp)});
  }
  const WorkspacePieces& w = plan.workspace;
  workspace_ = {view(w.norm), view(w.hidden), view(w.hiddenGradient), float32(w.inverseRms), view(w.mlp),
                view(w.mlpGradient), view(w.qkvGradient), view(w.qkvTokens), view(w.attentionGradientHeads)};
  cosines_ = float32(plan.cosines), sines_ = float32(plan.sines);
  tokens_ = viewOf(arena, plan.tokens, DataType::int32), targets_ = viewOf(arena, plan.targets, DataType::int32);
  attentionWorkspace_ = scratch(plan.attentionWorkspace);
  headWorkspace_ = scratch(plan.headWorkspace);
  allToAllStaging_ = scratch(plan.allToAllStaging);
  require(backend_.ropeTable(shape_.sequence, shape_.headSize, config.model.ropeTheta, cosines_, sines_));
}

LinearShape Model::linear(std::int64_t inputs, std::int64_t outputs) const {
  LinearShape s;
  s.rows = shape_.rows, s.inputs = inputs, s.outputs = outputs;
  return s;
}

AttentionShape Model::attentionShape() const {
  AttentionShape s;
  s.batch = shape_.batch, s.sequence = shape_.sequence;
  s.heads = shape_.heads, s.kvHeads = shape_.kvHeads, s.headSize = shape_.headSize;
  s.queryStride = s.keyStride = s.valueStride = shape_.headQkvWidth();
  return s;
}

void Model::forwardBackward(float gradientScale, ExactSum* lossSum) {
  embed();
  for (std::int64_t layer = 0; layer < config_.model.layers; ++layer) {
    forwardLayer(layer, false, parameters_.gather(layout_.layerUnit(layer)));
  }
  headForwardBackward(gradientScale, lossSum);
  for (std::int64_t layer = config_.model.layers - 1; layer >= 0; --layer) backwardLayer(layer);
  embedBackward();
}

void Model::embed() {
  const ConstView unit = parameters_.gather(layout_.embeddingUnit());
  require(backend_.embeddingForward({shape_.rows, config_.model.hiddenSize, config_.model.vocabularySize}, tokens_,
                                    unit, layerInputs_.front()));
}

void Model::embedBackward() {
  const View gradient = parameters_.gradient(layout_.embeddingUnit());
  require(backend_.embeddingBackward({shape_.rows, config_.model.hiddenSize, config_.model.vocabularySize}, tokens_,
                                     workspace_.hiddenGradient, gradient));
  parameters_.reduce(layout_.embeddingUnit());
}

// ---- moves between own tokens and own heads ------------------------------------------------------------------------

void Model::exchange(std::int64_t heads, ConstView source, std::int64_t sequenceStride, View target,
                     std::int64_t headStride, bool toHeads) {
  const Timed timed(&groups_.communicationSeconds);
  const UlyssesShape shape{shape_.batch, shape_.sequence, heads, shape_.headSize, sequenceStride, headStride};
  require(toHeads ? ulyssesToHeads(groups_.sequence, shape, source, target, allToAllStaging_)
                  : ulyssesToSequence(groups_.sequence, shape, source, target, allToAllStaging_));
}

void Model::exchangeQkv(View tokensSide, View headsSide, bool toHeads) {
  const std::int64_t width = config_.model.hiddenSize, kv = config_.model.kvWidth(), size = shape_.headSize;
  const std::int64_t tokensAt[3] = {0, width, width + kv};
  const std::int64_t headsAt[3] = {0, shape_.heads * size, (shape_.heads + shape_.kvHeads) * size};
  const std::int64_t tokensStride = width + 2 * kv, headsStride = shape_.headQkvWidth();
  for (int i = 0; i < 3; ++i) {
    const View onTokens = tokensSide.offset(tokensAt[i]), onHeads = headsSide.offset(headsAt[i]);
    const std::int64_t heads = i == 0 ? config_.model.heads : config_.model.kvHeads;
    exchange(heads, toHeads ? onTokens : onHeads, tokensStride, toHeads ? onHeads : onTokens, headsStride, toHeads);
  }
}

/// Rotary positions on q and k of [rows, H + 2·W], own tokens.
void Model::rotate(View qkv, bool backward) {
  RopeShape s;
  s.rows = shape_.rows, s.headSize = shape_.headSize;
  s.stride = config_.model.hiddenSize + 2 * config_.model.kvWidth();
  s.sequence = shape_.localSequence;
  s.positionOffset = groups_.sequence.index() * shape_.localSequence;
  for (const bool key : {false, true}) {
    s.heads = key ? config_.model.kvHeads : config_.model.heads;
    const View part = qkv.offset(key ? config_.model.hiddenSize : 0);
    require(backward ? backend_.ropeBackward(s, cosines_, sines_, part)
                     : backend_.ropeForward(s, cosines_, sines_, part));
  }
}

// ---- forward -------------------------------------------------------------------------------------------------------

void Model::attentionForward(const LayerViews& saved) {
  const View ownTokens = split_ ? workspace_.qkvTokens : saved.qkv;
  rotate(ownTokens, false);
  if (split_) exchangeQkv(ownTokens, saved.qkv, true);
  const std::int64_t heads = shape_.heads * shape_.headSize, kv = shape_.kvHeads * shape_.headSize;
  require(backend_.attentionForward(attentionShape(), saved.qkv, saved.qkv.offset(heads), saved.qkv.offset(heads + kv),
                                    saved.attentionHeads, saved.logSumExp, attentionWorkspace_));
  if (split_) exchange(config_.model.heads, saved.attentionHeads, 0, saved.attentionTokens, 0, false);
}

void Model::forwardLayer(std::int64_t layer, bool onlySaved, ConstView unit) {
  const ModelConfig& m = config_.model;
  const LayerOffsets& at = layout_.layerOffsets();
  const LayerViews& saved = savedOf(layer);
  const View input = layerInputs_[static_cast<std::size_t>(layer)];
  const NormShape norm{shape_.rows, m.hiddenSize};
  const auto epsilon = static_cast<float>(m.normEpsilon);
  const WorkspaceViews& w = workspace_;

  require(backend_.rmsNormForward(norm, input, {}, unit.offset(at.attentionNorm), epsilon, {}, w.norm, w.inverseRms));
  require(backend_.linearForward(linear(m.hiddenSize, m.hiddenSize + 2 * m.kvWidth()), w.norm,
                                 unit.offset(at.queryKeyValue), split_ ? w.qkvTokens : saved.qkv, matrixScratch()));
  attentionForward(saved);
  require(backend_.linearForward(linear(m.hiddenSize, m.hiddenSize), saved.attentionTokens,
                                 unit.offset(at.attentionOutput), w.hidden, matrixScratch()));
  require(backend_.rmsNormForward(norm, w.hidden, input, unit.offset(at.mlpNorm), epsilon, saved.middle, w.norm,
                                  w.inverseRms));
  require(backend_.linearForward(linear(m.hiddenSize, 2 * m.ffnHiddenSize), w.norm, unit.offset(at.gateUp),
                                 saved.gateUp, matrixScratch()));
  if (onlySaved) return;
  const SwigluShape swiglu{shape_.rows, m.ffnHiddenSize, 2 * m.ffnHiddenSize, 0};
  require(backend_.swigluForward(swiglu, saved.gateUp, saved.gateUp.offset(m.ffnHiddenSize), w.mlp));
  require(backend_.linearForward(linear(m.ffnHiddenSize, m.hiddenSize), w.mlp, unit.offset(at.down), w.hidden,
                                 matrixScratch()));
  require(backend_.add(shape_.rows * m.hiddenSize, saved.middle, w.hidden,
                       layerInputs_[static_cast<std::size_t>(layer + 1)]));
}

// ---- head, forward and backward ------------------------------------------------------------------------------------

void Model::headForwardBackward(float gradientScale, ExactSum* lossSum) {
  const ModelConfig& m = config_.model;
  const ConstView unit = parameters_.gather(layout_.headUnit());
  const View gradient = parameters_.gradient(layout_.headUnit());
  const NormShape norm{shape_.rows, m.hiddenSize};
  const WorkspaceViews& w = workspace_;
  const ConstView gain = unit.offset(layout_.finalNormOffset());
  require(backend_.rmsNormForward(norm, layerInputs_.back(), {}, gain, static_cast<float>(m.normEpsilon), {}, w.norm,
                                  w.inverseRms));
  require(backend_.headLoss({shape_.rows, m.hiddenSize, m.vocabularySize, kLossChunkRows}, w.norm, unit, targets_,
                            gradientScale, lossSum, w.hidden, gradient, headWorkspace_));
  require(backend_.rmsNormBackward(norm, layerInputs_.back(), gain, w.inverseRms, w.hidden, {}, w.hiddenGradient,
                                   gradient.offset(layout_.finalNormOffset())));
  parameters_.reduce(layout_.headUnit());
}

// ---- backward ------------------------------------------------------------------------------------------------------

void Model::backwardLayer(std::int64_t layer) {
  const int index = layout_.layerUnit(layer);
  const ConstView unit = parameters_.gather(index);
  if (config_.plan.recompute) forwardLayer(layer, true, unit);
  const View gradient = parameters_.gradient(index);
  mlpBackward(savedOf(layer), unit, gradient);
  attentionBackward(savedOf(layer), layerInputs_[static_cast<std::size_t>(layer)], unit, gradient);
  parameters_.reduce(index);
}

void Model::mlpBackward(const LayerViews& saved, ConstView unit, View gradient) {
  const ModelConfig& m = config_.model;
  const LayerOffsets& at = layout_.layerOffsets();
  const WorkspaceViews& w = workspace_;
  const NormShape norm{shape_.rows, m.hiddenSize};
  const SwigluShape swiglu{shape_.rows, m.ffnHiddenSize, 2 * m.ffnHiddenSize, 0};
  const View gate = saved.gateUp, up = saved.gateUp.offset(m.ffnHiddenSize);
  const LinearShape down = linear(m.ffnHiddenSize, m.hiddenSize), gateUp = linear(m.hiddenSize, 2 * m.ffnHiddenSize);

  require(backend_.swigluForward(swiglu, gate, up, w.mlp));
  require(backend_.linearGradWeight(down, w.mlp, w.hiddenGradient, gradient.offset(at.down), matrixScratch()));
  require(backend_.linearGradInput(down, w.hiddenGradient, unit.offset(at.down), w.mlpGradient, false,
                                   matrixScratch()));
  require(backend_.swigluBackward(swiglu, gate, up, w.mlpGradient, gate, up));
  require(backend_.rmsNormForward(norm, saved.middle, {}, unit.offset(at.mlpNorm), static_cast<float>(m.normEpsilon),
                                  {}, w.norm, w.inverseRms));
  require(backend_.linearGradWeight(gateUp, w.norm, saved.gateUp, gradient.offset(at.gateUp), matrixScratch()));
  require(backend_.linearGradInput(gateUp, saved.gateUp, unit.offset(at.gateUp), w.hidden, false, matrixScratch()));
  require(backend_.rmsNormBackward(norm, saved.middle, unit.offset(at.mlpNorm), w.inverseRms, w.hidden,
                                   w.hiddenGradient, w.hiddenGradient, gradient.offset(at.mlpNorm)));
}

void Model::attentionBackward(const LayerViews& saved, ConstView input, ConstView unit, View gradient) {
  const ModelConfig& m = config_.model;
  const LayerOffsets& at = layout_.layerOffsets();
  const WorkspaceViews& w = workspace_;
  const NormShape norm{shape_.rows, m.hiddenSize};
  const LinearShape output = linear(m.hiddenSize, m.hiddenSize);
  const LinearShape projection = linear(m.hiddenSize, m.hiddenSize + 2 * m.kvWidth());

  require(backend_.linearGradWeight(output, saved.attentionTokens, w.hiddenGradient,
                                    gradient.offset(at.attentionOutput), matrixScratch()));
  require(backend_.linearGradInput(output, w.hiddenGradient, unit.offset(at.attentionOutput), w.hidden, false,
                                   matrixScratch()));
  if (split_) exchange(m.heads, w.hidden, 0, w.attentionGradientHeads, 0, true);
  const std::int64_t heads = shape_.heads * shape_.headSize, kv = shape_.kvHeads * shape_.headSize;
  require(backend_.attentionBackward(
      attentionShape(), saved.qkv, saved.qkv.offset(heads), saved.qkv.offset(heads + kv), saved.attentionHeads,
      saved.logSumExp, split_ ? w.attentionGradientHeads : w.hidden, w.qkvGradient, w.qkvGradient.offset(heads),
      w.qkvGradient.offset(heads + kv), attentionWorkspace_));
  if (split_) exchangeQkv(w.qkvTokens, w.qkvGradient, false);
  const View ownTokens = split_ ? w.qkvTokens : w.qkvGradient;
  rotate(ownTokens, true);
  require(backend_.rmsNormForward(norm, input, {}, unit.offset(at.attentionNorm), static_cast<float>(m.normEpsilon),
                                  {}, w.norm, w.inverseRms));
  require(backend_.linearGradWeight(projection, w.norm, ownTokens, gradient.offset(at.queryKeyValue),
                                    matrixScratch()));
  require(backend_.linearGradInput(projection, ownTokens, unit.offset(at.queryKeyValue), w.hidden, false,
                                   matrixScratch()));
  require(backend_.rmsNormBackward(norm, input, unit.offset(at.attentionNorm), w.inverseRms, w.hidden,
                                   w.hiddenGradient, w.hiddenGradient, gradient.offset(at.attentionNorm)));
}

}  // namespace internevo::trainer
