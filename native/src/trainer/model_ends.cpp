// Both ends of the model: embedding, and final norm with head and loss.
#include "trainer/model.h"

#include <algorithm>

#include "trainer/failure.h"

namespace internevo::trainer {

EmbeddingShape Model::embeddingShape() const {
  const VocabularySlice& slice = layout_.vocabulary();
  return {shape_.blockRows, config_.model.hiddenSize, slice.count, slice.first, config_.model.vocabularySize};
}

void Model::embed(View output) {
  const ConstView unit = parameters_.get(layout_.embeddingUnit());
  {
    const auto scope = computing("embedding forward", layout_.embeddingUnit());
    require(backend_.embeddingForward(embeddingShape(), batch_.tokens, unit, blockOutput(output)));
  }
  parameters_.release(layout_.embeddingUnit());
  finishBlock(output);  // one of the slices has the row, the others give zeros
}

void Model::embedBackward() {
  const View gradient = parameters_.gradient(layout_.embeddingUnit());
  {
    const auto scope = computing("embedding backward", layout_.embeddingUnit());
    require(backend_.embeddingBackward(embeddingShape(), batch_.tokens, blockInput(workspace_.hiddenGradient),
                                       gradient));
  }
  parameters_.reduce(layout_.embeddingUnit());
}

void Model::normHeadInput(View input, ConstView unit) {
  const ModelConfig& m = config_.model;
  require(backend_.rmsNormForward({shape_.rows, m.hiddenSize}, input, {},
                                  unit.offset(layout_.finalNormOffset()), static_cast<float>(m.normEpsilon),
                                  {}, workspace_.norm, workspace_.inverseRms));
}

void Model::headLoss(ConstView unit, View gradient, float gradientScale, ExactSum* lossSum) {
  const ModelConfig& m = config_.model;
  const WorkspaceViews& w = workspace_;
  if (!block_.empty()) blockInput(w.norm);
  const auto scope = computing("head and loss", layout_.headUnit());
  if (!block_.empty()) return headLossOfSlices(unit, gradient, gradientScale, lossSum);
  require(backend_.headLoss({shape_.rows, m.hiddenSize, m.vocabularySize, backend_.lossChunkRows()}, w.norm,
                            unit, batch_.targets, gradientScale, lossSum,
                            gradient.empty() ? View{} : w.hidden, gradient, headWorkspace_));
}

void Model::head(View input, float gradientScale, ExactSum* lossSum) {
  const ConstView unit = parameters_.get(layout_.headUnit());
  const View gradient = parameters_.gradient(layout_.headUnit());
  const NormShape norm{shape_.rows, config_.model.hiddenSize};
  const WorkspaceViews& w = workspace_;
  normHeadInput(input, unit);
  headLoss(unit, gradient, gradientScale, lossSum);
  finishBlock(w.hidden);
  require(backend_.rmsNormBackward(norm, input, unit.offset(layout_.finalNormOffset()), w.inverseRms,
                                   w.hidden, {}, w.hiddenGradient, gradient.offset(layout_.finalNormOffset()),
                                   matrixScratch()));
  parameters_.reduce(layout_.headUnit());
  parameters_.release(layout_.headUnit());
}

void Model::evaluateHead(View input, ExactSum* lossSum) {
  const ConstView unit = parameters_.get(layout_.headUnit());
  normHeadInput(input, unit);
  headLoss(unit, {}, 0, lossSum);
  parameters_.release(layout_.headUnit());
}

/// The block buffer [b·S, H] holds the head's input and then this slice's part of its gradient, chunk by chunk. The
/// tensor ranks share three numbers a row; the loss is counted by the first of them.
void Model::headLossOfSlices(ConstView unit, View gradient, float gradientScale, ExactSum* lossSum) {
  const std::int64_t width = config_.model.hiddenSize;
  const int slices = groups_.tensor.size(), own = groups_.tensor.index();
  const VocabularySlice& slice = layout_.vocabulary();
  const std::int64_t chunkRows = backend_.lossChunkRows();
  const std::int64_t logitsBytes =
      alignUp(4 * std::min(chunkRows, shape_.blockRows) * slice.count, kAlignmentBytes);
  const View logits{headWorkspace_.data, DataType::float32};
  const Workspace scratch{static_cast<std::byte*>(headWorkspace_.data) + logitsBytes,
                          headWorkspace_.bytes - logitsBytes};
  for (std::int64_t first = 0; first < shape_.blockRows; first += chunkRows) {
    const std::int64_t rows = std::min(chunkRows, shape_.blockRows - first);
    const HeadSliceShape shape{rows, width, slice.count, slice.first, config_.model.vocabularySize};
    const View x = block_.offset(first * width), targets = batch_.targets.offset(first);
    const View statistics = headStatistics_.offset(own * rows * kHeadStatistics);
    require(backend_.headSliceForward(shape, x, unit, targets, logits, statistics, scratch));
    {
      const Exposed exposed(groups_, "all-gather loss statistics", layout_.headUnit());
      require(groups_.tensor.allGather(statistics, headStatistics_, rows * kHeadStatistics));
    }
    require(backend_.headSliceBackward(shape, slices, own, x, unit, targets, headStatistics_, gradientScale,
                                       own == 0 ? lossSum : nullptr, logits, gradient.empty() ? View{} : x,
                                       gradient, scratch));
  }
}

}  // namespace internevo::trainer
