// Moves of activations between the ranks of a sequence or tensor group, attention over them, and rotary positions.
#include "trainer/model.h"

#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

constexpr const char* kGatherActivations = "all-gather activations";
constexpr const char* kScatterActivations = "reduce-scatter activations";

}  // namespace

void Model::exchange(std::int64_t heads, ConstView source, std::int64_t sequenceStride, View target,
                     std::int64_t headStride, bool toHeads) {
  const Exposed exposed(groups_, "all-to-all of heads and sequence");
  const UlyssesShape shape{shape_.batch,    shape_.attentionSequence, heads,
                           shape_.headSize, sequenceStride,           headStride};
  require(toHeads ? ulyssesToHeads(groups_.heads, shape, source, target, allToAllStaging_)
                  : ulyssesToSequence(groups_.heads, shape, source, target, allToAllStaging_));
}

void Model::exchangeQkv(View tokensSide, View headsSide, bool toHeads) {
  const std::int64_t width = config_.model.queryWidth(), kv = config_.model.kvWidth(), size = shape_.headSize;
  const std::int64_t tokensAt[3] = {0, width, width + kv};
  const std::int64_t headsAt[3] = {0, shape_.heads * size, (shape_.heads + shape_.kvHeads) * size};
  const std::int64_t tokensStride = width + 2 * kv, headsStride = shape_.headQkvWidth();
  for (int i = 0; i < 3; ++i) {
    const View onTokens = tokensSide.offset(tokensAt[i]), onHeads = headsSide.offset(headsAt[i]);
    const std::int64_t heads = i == 0 ? config_.model.heads : config_.model.kvHeads;
    exchange(heads, toHeads ? onTokens : onHeads, tokensStride, toHeads ? onHeads : onTokens, headsStride,
             toHeads);
  }
}

void Model::rotate(View qkv, bool insideAttention, bool backward) {
  const bool whole = insideAttention || config_.plan.tensorParallel > 1;  // all positions, own heads
  const std::int64_t query = insideAttention ? shape_.heads * shape_.headSize : shape_.queryWidth;
  const std::int64_t keys = insideAttention ? shape_.kvHeads * shape_.headSize : shape_.kvWidth;
  RopeShape s;
  s.rows = insideAttention ? shape_.headRows() : shape_.blockRows, s.headSize = shape_.headSize;
  s.stride = query + 2 * keys;
  s.positions = batch_.positions;
  if (!s.positions.empty() || whole) {
    s.sequence = shape_.sequence;
  } else {
    s.sequence = shape_.localSequence;
    s.positionOffset = groups_.heads.index() * shape_.localSequence;
  }
  for (const bool key : {false, true}) {
    s.heads = (key ? keys : query) / shape_.headSize;
    const View part = qkv.offset(key ? query : 0);
    require(backward ? backend_.ropeBackward(s, cosines_, sines_, part)
                     : backend_.ropeForward(s, cosines_, sines_, part));
  }
}

// ---- norms of heads ------------------------------------------------------------------------------------------------

void Model::normaliseHeads(const LayerViews& saved) {
  const auto epsilon = static_cast<float>(config_.model.normEpsilon);
  const std::int64_t query = shape_.heads * shape_.headSize;
  const WorkspaceViews& w = workspace_;
  require(backend_.headNormForward(headNorm(shape_.heads), saved.qkv, saved.headGains, epsilon, w.queryKey,
                                   w.headInverseRms));
  require(backend_.headNormForward(headNorm(shape_.kvHeads), saved.qkv.offset(query),
                                   saved.headGains.offset(shape_.headSize), epsilon, w.queryKey.offset(query),
                                   w.headInverseRms.offset(shape_.headRows() * shape_.heads)));
  rotate(w.queryKey, true, false);
}

void Model::normaliseHeadsBackward(const LayerViews& saved, View gQueryKey, View gGains) {
  const std::int64_t query = shape_.heads * shape_.headSize;
  const WorkspaceViews& w = workspace_;
  rotate(gQueryKey, true, true);
  require(backend_.headNormBackward(headNorm(shape_.heads), saved.qkv, saved.headGains, w.headInverseRms,
                                    gQueryKey, gQueryKey, gGains, matrixScratch()));
  const View gKey = gQueryKey.offset(query);
  require(backend_.headNormBackward(headNorm(shape_.kvHeads), saved.qkv.offset(query),
                                    saved.headGains.offset(shape_.headSize),
                                    w.headInverseRms.offset(shape_.headRows() * shape_.heads), gKey, gKey,
                                    gGains.offset(shape_.headSize), matrixScratch()));
}

// ---- attention -----------------------------------------------------------------------------------------------------

template <typename Call>
void Model::communicatingAround(const Call& call) {
  if (groups_.activity->onDevice()) return require(call());  // the ring's own operations count
  const double before = ring_->exchangeSeconds();
  require(call());
  const double seconds = ring_->exchangeSeconds() - before;
  groups_.exposedCommunicationSeconds += seconds;
  if (ringLane_) groups_.laneWaitSeconds += seconds;
}

void Model::attend(const LayerViews& saved) {
  const std::int64_t heads = shape_.heads * shape_.headSize, kv = shape_.kvHeads * shape_.headSize;
  const ConstView q = queryKeyOf(saved), k = q.offset(heads), v = saved.qkv.offset(heads + kv);
  if (!ring_) {
    return require(backend_.attentionForward(attentionShape(), q, k, v, saved.attentionHeads, saved.logSumExp,
                                             attentionWorkspace_));
  }
  communicatingAround(
      [&] { return ring_->forward(q, k, v, batch_.firstKeys, saved.attentionHeads, saved.logSumExp); });
}

void Model::prepareAttention(const LargestOfRanks& largest) {
  if (ring_) return;  // pieces are the backend's own
  const std::int64_t heads = shape_.heads * shape_.headSize, kv = shape_.kvHeads * shape_.headSize;
  const LayerViews& saved = layers_.front();
  const View q = queryKeyOf(saved), gQ = workspace_.qkvGradient;
  const View gO = ulysses_ ? workspace_.attentionGradientHeads : workspace_.attentionGradientTokens;
  require(backend_.prepareAttention(
      attentionShape(),
      {q, q.offset(heads), saved.qkv.offset(heads + kv), saved.attentionHeads, saved.logSumExp, gO, gQ,
       gQ.offset(heads), gQ.offset(heads + kv), attentionWorkspace_},
      largest));
}

void Model::attendBackward(const LayerViews& saved, ConstView gO) {
  const std::int64_t heads = shape_.heads * shape_.headSize, kv = shape_.kvHeads * shape_.headSize;
  const ConstView q = queryKeyOf(saved), k = q.offset(heads), v = saved.qkv.offset(heads + kv),
                  o = saved.attentionHeads;
  const View gQ = workspace_.qkvGradient, gK = gQ.offset(heads), gV = gQ.offset(heads + kv);
  if (!ring_) {
    return require(backend_.attentionBackward(attentionShape(), q, k, v, o, saved.logSumExp, gO, gQ, gK, gV,
                                              attentionWorkspace_));
  }
  communicatingAround(
      [&] { return ring_->backward(q, k, v, o, saved.logSumExp, gO, batch_.firstKeys, gQ, gK, gV); });
}

// ---- tensor parallelism --------------------------------------------------------------------------------------------

ConstView Model::blockInput(ConstView own) {
  if (block_.empty()) return own;
  const Exposed exposed(groups_, kGatherActivations);
  require(gatherBlock(own));
  return block_;
}

void Model::finishBlock(View own) {
  if (block_.empty()) return;
  const Exposed exposed(groups_, kScatterActivations);
  require(scatterBlock(block_, own));
}

Status Model::gatherBlock(ConstView own) {
  const std::int64_t part = shape_.localSequence * config_.model.hiddenSize;
  for (std::int64_t b = 0; b < shape_.batch; ++b) {
    INTERNEVO_RETURN_IF_ERROR(groups_.tensor.allGather(
        own.offset(b * part), block_.offset(b * part * groups_.tensor.size()), part));
  }
  return Status::success();
}

Status Model::scatterBlock(ConstView block, View own) {
  const std::int64_t part = shape_.localSequence * config_.model.hiddenSize;
  for (std::int64_t b = 0; b < shape_.batch; ++b) {
    INTERNEVO_RETURN_IF_ERROR(groups_.tensor.reduceScatter(block.offset(b * part * groups_.tensor.size()),
                                                           own.offset(b * part), part, reduceWorkspace_));
  }
  return Status::success();
}

/// The computing thread waits for every job before it uses the group or the scratch of its sums again.
Status Model::moveBeside(bool scatters, int unit) {
  const Activity::Scope scope(*groups_.activity, ActivityLane::activations,
                              scatters ? kScatterActivations : kGatherActivations, unit, groups_.microBatch);
  groups_.tensor.setPolite(true);
  const Status moved =
      scatters ? scatterBlock(gradientBlock_, workspace_.hidden) : gatherBlock(workspace_.norm);
  groups_.tensor.setPolite(false);
  return moved;
}

Lane::Ticket Model::submitBeside(bool scatters, int unit) {
  // From here on it could travel: what the lane makes of it is seen beside it in the timeline.
  const Activity::Scope ready(*groups_.activity, ActivityLane::compute, "activations ready to be sent", unit,
                              groups_.microBatch);
  return tensorLane_.submit(scatters ? kScatterActivations : kGatherActivations, unit,
                            TensorJob{this, scatters, unit});
}

void Model::gatheredBackward(const LinearShape& shape, int unit, ConstView gOutput, ConstView weights,
                             View gradient) {
  const WorkspaceViews& w = workspace_;
  if (!tensorLane_.overlapped()) {
    require(backend_.linearGradWeight(shape, blockInput(w.norm), gOutput, gradient, matrixScratch()));
    require(backend_.linearGradInput(shape, gOutput, weights, blockOutput(w.hidden), false, matrixScratch()));
    return;
  }
  const Lane::Ticket gathered = submitBeside(false, unit);
  require(backend_.linearGradInput(shape, gOutput, weights, gradientBlock_, false, matrixScratch()));
  tensorLane_.wait(gathered, "wait for all-gather of activations", unit);
  scattered_ = submitBeside(true, unit);
  require(backend_.linearGradWeight(shape, block_, gOutput, gradient, matrixScratch()));
}

void Model::finishInputGradient(int unit) {
  if (!tensorLane_.overlapped()) return finishBlock(workspace_.hidden);
  tensorLane_.wait(scattered_, "wait for reduce-scatter of activations", unit);
}

}  // namespace internevo::trainer
