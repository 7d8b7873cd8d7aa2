// One layer, forward and backward.
#include "trainer/model.h"

#include "trainer/failure.h"

namespace internevo::trainer {

void Model::attentionForward(const LayerPlaces& at, const LayerViews& saved) {
  const View ownTokens = ulysses_ ? workspace_.qkvTokens : saved.qkv;
  const bool norms = config_.model.queryKeyNorm;
  if (!norms) rotate(ownTokens, false, false);
  if (ulysses_) exchangeQkv(ownTokens, saved.qkv, true);
  if (norms) normaliseHeads(saved);
  {
    const auto scope = computing(at.operators.attention, Pass::forward, at.queryKeyValue.unit);
    attend(saved);
  }
  if (ulysses_) exchange(config_.model.heads, saved.attentionHeads, 0, saved.attentionTokens, 0, false);
}

void Model::gateAndUp(const LayerPlaces& at, const LayerViews& saved, ConstView unit) {
  const auto scope = computing(at.operators.gateUp, Pass::forward, at.gateUp.unit);
  require(backend_.linearForward(linear(config_.model.hiddenSize, 2 * shape_.ffnWidth),
                                 blockInput(workspace_.norm), unit.offset(at.gateUp.offset), saved.gateUp,
                                 matrixScratch()));
}

void Model::forwardLayer(std::int64_t layer, const LayerViews& saved, View input, View output,
                         bool onlySaved) {
  const ModelConfig& m = config_.model;
  const LayerPlaces& at = placesOf(layer);
  const NormShape norm{shape_.rows, m.hiddenSize};
  const auto epsilon = static_cast<float>(m.normEpsilon);
  const WorkspaceViews& w = workspace_;
  const auto done = [&](int unit) {
    if (!onlySaved) parameters_.release(unit);
  };

  const int qkvUnit = at.queryKeyValue.unit;
  ConstView unit = parameters_.get(qkvUnit);
  require(backend_.rmsNormForward(norm, input, {}, unit.offset(at.attentionNorm.offset), epsilon, {}, w.norm,
                                  w.inverseRms));
  {
    const auto scope = computing(at.operators.queryKeyValue, Pass::forward, qkvUnit);
    require(backend_.linearForward(linear(m.hiddenSize, shape_.queryWidth + 2 * shape_.kvWidth),
                                   blockInput(w.norm), unit.offset(at.queryKeyValue.offset),
                                   ulysses_ ? w.qkvTokens : saved.qkv, matrixScratch()));
  }
  if (m.queryKeyValueBias)
    require(backend_.biasAdd(projectionBias(), unit.offset(at.projectionBias.offset),
                             ulysses_ ? w.qkvTokens : saved.qkv));
  // The backward pass makes the normed heads again before it has the unit.
  if (m.queryKeyNorm)
    require(backend_.memory().copy(saved.headGains.data, unit.offset(at.headGains.offset).data,
                                   2 * shape_.headSize * bytesPerElement(unit.type)));
  done(qkvUnit);
  attentionForward(at, saved);

  const int outputUnit = at.attentionOutput.unit;
  unit = parameters_.get(outputUnit);
  {
    const auto scope = computing(at.operators.attentionOutput, Pass::forward, outputUnit);
    require(backend_.linearForward(linear(shape_.queryWidth, m.hiddenSize), saved.attentionTokens,
                                   unit.offset(at.attentionOutput.offset), blockOutput(w.hidden),
                                   matrixScratch()));
  }
  done(outputUnit);
  finishBlock(w.hidden);

  const int gateUpUnit = at.gateUp.unit;
  unit = parameters_.get(gateUpUnit);
  require(backend_.rmsNormForward(norm, w.hidden, input, unit.offset(at.mlpNorm.offset), epsilon,
                                  saved.middle, w.norm, w.inverseRms));
  gateAndUp(at, saved, unit);
  done(gateUpUnit);
  if (onlySaved) return;

  const int downUnit = at.down.unit;
  unit = parameters_.get(downUnit);
  {
    const auto scope = computing(at.operators.down, Pass::forward, downUnit);
    const SwigluShape swiglu{shape_.blockRows, shape_.ffnWidth, 2 * shape_.ffnWidth, 0};
    require(backend_.swigluForward(swiglu, saved.gateUp, saved.gateUp.offset(shape_.ffnWidth), w.mlp));
    require(backend_.linearForward(linear(shape_.ffnWidth, m.hiddenSize), w.mlp, unit.offset(at.down.offset),
                                   blockOutput(w.hidden), matrixScratch()));
  }
  done(downUnit);
  finishBlock(w.hidden);
  require(backend_.add(shape_.rows * m.hiddenSize, saved.middle, w.hidden, output));
}

// ---- backward ------------------------------------------------------------------------------------------------------
// By modules: the gradient of the weight (G-W) first, so that it is on its way while the gradient of the input (G-X) and
// what follows is computed. A module with a norm waits for the norm's gain, whose gradient needs G-X. Where tensor ranks
// communicate beside it, its G-X comes first, so that the sums of G-X are on their way while G-W is computed.

void Model::backwardLayer(std::int64_t layer, const LayerViews& saved, View input) {
  if (isRecomputed(layer)) forwardLayer(layer, saved, input, {}, true);
  mlpBackward(layer, saved);
  attentionBackward(layer, saved, input);
}

void Model::mlpBackward(std::int64_t layer, const LayerViews& saved) {
  const ModelConfig& m = config_.model;
  const LayerPlaces& at = placesOf(layer);
  const WorkspaceViews& w = workspace_;
  const NormShape norm{shape_.rows, m.hiddenSize};
  const SwigluShape swiglu{shape_.blockRows, shape_.ffnWidth, 2 * shape_.ffnWidth, 0};
  const View gate = saved.gateUp, up = saved.gateUp.offset(shape_.ffnWidth);
  const LinearShape down = linear(shape_.ffnWidth, m.hiddenSize);
  const LinearShape gateUp = linear(m.hiddenSize, 2 * shape_.ffnWidth);

  const int gateUpUnit = at.gateUp.unit, downUnit = at.down.unit;
  const auto makeNorm = [&](ConstView gateUpParameters) {
    require(backend_.rmsNormForward(norm, saved.middle, {}, gateUpParameters.offset(at.mlpNorm.offset),
                                    static_cast<float>(m.normEpsilon), {}, w.norm, w.inverseRms));
  };
  // A layer that is recomputed whole has just made the products.
  const bool again = layout_.unit(gateUpUnit).runsAgain && !isRecomputed(layer);
  ConstView unit;
  if (again) {
    unit = parameters_.get(gateUpUnit);
    makeNorm(unit);
    gateAndUp(at, saved, unit);
  }

  unit = parameters_.get(downUnit);
  View gradient = parameters_.gradient(downUnit);
  {
    const auto scope = computing(at.operators.down, Pass::backward, downUnit);
    require(backend_.swigluForward(swiglu, gate, up, w.mlp));
    const ConstView gOutput = blockInput(w.hiddenGradient);
    require(
        backend_.linearGradWeight(down, w.mlp, gOutput, gradient.offset(at.down.offset), matrixScratch()));
    parameters_.reduce(downUnit);
    require(backend_.linearGradInput(down, gOutput, unit.offset(at.down.offset), w.mlpGradient, false,
                                     matrixScratch()));
    parameters_.release(downUnit);
    require(backend_.swigluBackward(swiglu, gate, up, w.mlpGradient, gate, up));
  }

  unit = parameters_.get(gateUpUnit);
  gradient = parameters_.gradient(gateUpUnit);
  {
    const auto scope = computing(at.operators.gateUp, Pass::backward, gateUpUnit);
    if (!again) makeNorm(unit);
    gatheredBackward(gateUp, gateUpUnit, saved.gateUp, unit.offset(at.gateUp.offset),
                     gradient.offset(at.gateUp.offset));
  }
  finishInputGradient(gateUpUnit);
  require(backend_.rmsNormBackward(norm, saved.middle, unit.offset(at.mlpNorm.offset), w.inverseRms, w.hidden,
                                   w.hiddenGradient, w.hiddenGradient, gradient.offset(at.mlpNorm.offset),
                                   matrixScratch()));
  parameters_.reduce(gateUpUnit);
  parameters_.release(gateUpUnit);
}

void Model::attentionBackward(std::int64_t layer, const LayerViews& saved, ConstView input) {
  const ModelConfig& m = config_.model;
  const LayerPlaces& at = placesOf(layer);
  const WorkspaceViews& w = workspace_;
  const NormShape norm{shape_.rows, m.hiddenSize};
  const LinearShape output = linear(shape_.queryWidth, m.hiddenSize);
  const LinearShape projection = linear(m.hiddenSize, shape_.queryWidth + 2 * shape_.kvWidth);

  const int outputUnit = at.attentionOutput.unit;
  ConstView unit = parameters_.get(outputUnit);
  View gradient = parameters_.gradient(outputUnit);
  {
    const auto scope = computing(at.operators.attentionOutput, Pass::backward, outputUnit);
    const ConstView gOutput = blockInput(w.hiddenGradient);
    require(backend_.linearGradWeight(output, saved.attentionTokens, gOutput,
                                      gradient.offset(at.attentionOutput.offset), matrixScratch()));
    parameters_.reduce(outputUnit);
    require(backend_.linearGradInput(output, gOutput, unit.offset(at.attentionOutput.offset),
                                     w.attentionGradientTokens, false, matrixScratch()));
    parameters_.release(outputUnit);
  }

  // The next module's parameters are on their way while attention computes.
  const int qkvUnit = at.queryKeyValue.unit;
  if (ulysses_) exchange(m.heads, w.attentionGradientTokens, 0, w.attentionGradientHeads, 0, true);
  if (m.queryKeyNorm) normaliseHeads(saved);
  {
    const auto scope = computing(at.operators.attention, Pass::backward, qkvUnit);
    attendBackward(saved, ulysses_ ? w.attentionGradientHeads : w.attentionGradientTokens);
  }
  const View ownTokens = ulysses_ ? w.qkvTokens : w.qkvGradient;
  if (!m.queryKeyNorm) {
    if (ulysses_) exchangeQkv(ownTokens, w.qkvGradient, false);
    rotate(ownTokens, false, true);
  }

  unit = parameters_.get(qkvUnit);
  gradient = parameters_.gradient(qkvUnit);
  if (m.queryKeyNorm) {
    normaliseHeadsBackward(saved, w.qkvGradient, gradient.offset(at.headGains.offset));
    if (ulysses_) exchangeQkv(ownTokens, w.qkvGradient, false);
  }
  if (m.queryKeyValueBias)
    require(backend_.biasGradient(projectionBias(), ownTokens, gradient.offset(at.projectionBias.offset),
                                  matrixScratch()));
  {
    const auto scope = computing(at.operators.queryKeyValue, Pass::backward, qkvUnit);
    require(backend_.rmsNormForward(norm, input, {}, unit.offset(at.attentionNorm.offset),
                                    static_cast<float>(m.normEpsilon), {}, w.norm, w.inverseRms));
    gatheredBackward(projection, qkvUnit, ownTokens, unit.offset(at.queryKeyValue.offset),
                     gradient.offset(at.queryKeyValue.offset));
  }
  finishInputGradient(qkvUnit);
  require(backend_.rmsNormBackward(norm, input, unit.offset(at.attentionNorm.offset), w.inverseRms, w.hidden,
                                   w.hiddenGradient, w.hiddenGradient,
                                   gradient.offset(at.attentionNorm.offset), matrixScratch()));
  parameters_.reduce(qkvUnit);
  parameters_.release(qkvUnit);
}

}  // namespace internevo::trainer
