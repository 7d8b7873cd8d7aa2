// One layer, forward and backward.
#include "trainer/model.h"

#include "trainer/failure.h"

namespace internevo::trainer {

void Model::attentionForward(const LayerViews& saved) {
  const View ownTokens = ulysses_ ? workspace_.qkvTokens : saved.qkv;
  rotate(ownTokens, false);
  if (ulysses_) exchangeQkv(ownTokens, saved.qkv, true);
  const std::int64_t heads = shape_.heads * shape_.headSize, kv = shape_.kvHeads * shape_.headSize;
  require(backend_.attentionForward(attentionShape(), saved.qkv, saved.qkv.offset(heads), saved.qkv.offset(heads + kv),
                                    saved.attentionHeads, saved.logSumExp, attentionWorkspace_));
  if (ulysses_) exchange(config_.model.heads, saved.attentionHeads, 0, saved.attentionTokens, 0, false);
}

void Model::forwardLayer(const LayerViews& saved, View input, View output, bool onlySaved, ConstView unit) {
  const ModelConfig& m = config_.model;
  const LayerOffsets& at = layout_.layerOffsets();
  const NormShape norm{shape_.rows, m.hiddenSize};
  const auto epsilon = static_cast<float>(m.normEpsilon);
  const WorkspaceViews& w = workspace_;

  require(backend_.rmsNormForward(norm, input, {}, unit.offset(at.attentionNorm), epsilon, {}, w.norm, w.inverseRms));
  require(backend_.linearForward(linear(m.hiddenSize, shape_.queryWidth + 2 * shape_.kvWidth), blockInput(w.norm),
                                 unit.offset(at.queryKeyValue), ulysses_ ? w.qkvTokens : saved.qkv, matrixScratch()));
  attentionForward(saved);
  require(backend_.linearForward(linear(shape_.queryWidth, m.hiddenSize), saved.attentionTokens,
                                 unit.offset(at.attentionOutput), blockOutput(w.hidden), matrixScratch()));
  finishBlock(w.hidden);
  require(backend_.rmsNormForward(norm, w.hidden, input, unit.offset(at.mlpNorm), epsilon, saved.middle, w.norm,
                                  w.inverseRms));
  require(backend_.linearForward(linear(m.hiddenSize, 2 * shape_.ffnWidth), blockInput(w.norm), unit.offset(at.gateUp),
                                 saved.gateUp, matrixScratch()));
  if (onlySaved) return;
  const SwigluShape swiglu{shape_.blockRows, shape_.ffnWidth, 2 * shape_.ffnWidth, 0};
  require(backend_.swigluForward(swiglu, saved.gateUp, saved.gateUp.offset(shape_.ffnWidth), w.mlp));
  require(backend_.linearForward(linear(shape_.ffnWidth, m.hiddenSize), w.mlp, unit.offset(at.down),
                                 blockOutput(w.hidden), matrixScratch()));
  finishBlock(w.hidden);
  require(backend_.add(shape_.rows * m.hiddenSize, saved.middle, w.hidden, output));
}

// ---- backward ------------------------------------------------------------------------------------------------------

void Model::backwardLayer(std::int64_t layer, const LayerViews& saved, View input) {
  const int index = layout_.layerUnit(layer);
  const ConstView unit = parameters_.gather(index);
  if (layout_.placeInStage(layer) < recomputed_) forwardLayer(saved, input, {}, true, unit);
  const View gradient = parameters_.gradient(index);
  mlpBackward(saved, unit, gradient);
  attentionBackward(saved, input, unit, gradient);
  parameters_.reduce(index);
}

void Model::mlpBackward(const LayerViews& saved, ConstView unit, View gradient) {
  const ModelConfig& m = config_.model;
  const LayerOffsets& at = layout_.layerOffsets();
  const WorkspaceViews& w = workspace_;
  const NormShape norm{shape_.rows, m.hiddenSize};
  const SwigluShape swiglu{shape_.blockRows, shape_.ffnWidth, 2 * shape_.ffnWidth, 0};
  const View gate = saved.gateUp, up = saved.gateUp.offset(shape_.ffnWidth);
  const LinearShape down = linear(shape_.ffnWidth, m.hiddenSize);
  const LinearShape gateUp = linear(m.hiddenSize, 2 * shape_.ffnWidth);

  require(backend_.swigluForward(swiglu, gate, up, w.mlp));
  const ConstView gOutput = blockInput(w.hiddenGradient);
  require(backend_.linearGradWeight(down, w.mlp, gOutput, gradient.offset(at.down), matrixScratch()));
  require(backend_.linearGradInput(down, gOutput, unit.offset(at.down), w.mlpGradient, false, matrixScratch()));
  require(backend_.swigluBackward(swiglu, gate, up, w.mlpGradient, gate, up));
  require(backend_.rmsNormForward(norm, saved.middle, {}, unit.offset(at.mlpNorm), static_cast<float>(m.normEpsilon),
                                  {}, w.norm, w.inverseRms));
  require(backend_.linearGradWeight(gateUp, blockInput(w.norm), saved.gateUp, gradient.offset(at.gateUp), matrixScratch()));
  require(backend_.linearGradInput(gateUp, saved.gateUp, unit.offset(at.gateUp), blockOutput(w.hidden), false,
                                   matrixScratch()));
  finishBlock(w.hidden);
  require(backend_.rmsNormBackward(norm, saved.middle, unit.offset(at.mlpNorm), w.inverseRms, w.hidden,
                                   w.hiddenGradient, w.hiddenGradient, gradient.offset(at.mlpNorm)));
}

void Model::attentionBackward(const LayerViews& saved, ConstView input, ConstView unit, View gradient) {
  const ModelConfig& m = config_.model;
  const LayerOffsets& at = layout_.layerOffsets();
  const WorkspaceViews& w = workspace_;
  const NormShape norm{shape_.rows, m.hiddenSize};
  const LinearShape output = linear(shape_.queryWidth, m.hiddenSize);
  const LinearShape projection = linear(m.hiddenSize, shape_.queryWidth + 2 * shape_.kvWidth);

  const ConstView gOutput = blockInput(w.hiddenGradient);
  require(backend_.linearGradWeight(output, saved.attentionTokens, gOutput, gradient.offset(at.attentionOutput),
                                    matrixScratch()));
  require(backend_.linearGradInput(output, gOutput, unit.offset(at.attentionOutput), w.hidden, false,
                                   matrixScratch()));
  if (ulysses_) exchange(m.heads, w.hidden, 0, w.attentionGradientHeads, 0, true);
  const std::int64_t heads = shape_.heads * shape_.headSize, kv = shape_.kvHeads * shape_.headSize;
  require(backend_.attentionBackward(
      attentionShape(), saved.qkv, saved.qkv.offset(heads), saved.qkv.offset(heads + kv), saved.attentionHeads,
      saved.logSumExp, ulysses_ ? w.attentionGradientHeads : w.hidden, w.qkvGradient, w.qkvGradient.offset(heads),
      w.qkvGradient.offset(heads + kv), attentionWorkspace_));
  if (ulysses_) exchangeQkv(w.qkvTokens, w.qkvGradient, false);
  const View ownTokens = ulysses_ ? w.qkvTokens : w.qkvGradient;
  rotate(ownTokens, true);
  require(backend_.rmsNormForward(norm, input, {}, unit.offset(at.attentionNorm), static_cast<float>(m.normEpsilon),
                                  {}, w.norm, w.inverseRms));
  require(backend_.linearGradWeight(projection, blockInput(w.norm), ownTokens, gradient.offset(at.queryKeyValue),
                                    matrixScratch()));
  require(backend_.linearGradInput(projection, ownTokens, unit.offset(at.queryKeyValue), blockOutput(w.hidden), false,
                                   matrixScratch()));
  finishBlock(w.hidden);
  require(backend_.rmsNormBackward(norm, input, unit.offset(at.attentionNorm), w.inverseRms, w.hidden,
                                   w.hiddenGradient, w.hiddenGradient, gradient.offset(at.attentionNorm)));
}

}  // namespace internevo::trainer
