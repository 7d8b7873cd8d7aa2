// Moves of activations between the ranks of a sequence or tensor group, and rotary positions.
#include "trainer/model.h"

#include "trainer/failure.h"

namespace internevo::trainer {

void Model::exchange(std::int64_t heads, ConstView source, std::int64_t sequenceStride, View target,
                     std::int64_t headStride, bool toHeads) {
  const Exposed exposed(groups_, "all-to-all of heads and sequence");
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

/// Rotary positions on q and k of [blockRows, queryWidth + 2·kvWidth].
void Model::rotate(View qkv, bool backward) {
  const bool whole = config_.plan.tensorParallel > 1;  // all positions, own heads
  RopeShape s;
  s.rows = shape_.blockRows, s.headSize = shape_.headSize;
  s.stride = shape_.queryWidth + 2 * shape_.kvWidth;
  s.sequence = whole ? shape_.sequence : shape_.localSequence;
  s.positionOffset = whole ? 0 : groups_.sequence.index() * shape_.localSequence;
  for (const bool key : {false, true}) {
    s.heads = (key ? shape_.kvWidth : shape_.queryWidth) / shape_.headSize;
    const View part = qkv.offset(key ? shape_.queryWidth : 0);
    require(backward ? backend_.ropeBackward(s, cosines_, sines_, part)
                     : backend_.ropeForward(s, cosines_, sines_, part));
  }
}

// ---- tensor parallelism --------------------------------------------------------------------------------------------

ConstView Model::blockInput(ConstView own) {
  if (block_.empty()) return own;
  const Exposed exposed(groups_, "all-gather activations");
  const std::int64_t part = shape_.localSequence * config_.model.hiddenSize;
  for (std::int64_t b = 0; b < shape_.batch; ++b) {
    require(groups_.tensor.allGather(own.offset(b * part), block_.offset(b * part * groups_.tensor.size()), part));
  }
  return block_;
}

void Model::finishBlock(View own) {
  if (block_.empty()) return;
  const Exposed exposed(groups_, "reduce-scatter activations");
  const std::int64_t part = shape_.localSequence * config_.model.hiddenSize;
  for (std::int64_t b = 0; b < shape_.batch; ++b) {
    require(groups_.tensor.reduceScatter(block_.offset(b * part * groups_.tensor.size()), own.offset(b * part), part,
                                         reduceWorkspace_));
  }
}

}  // namespace internevo::trainer
