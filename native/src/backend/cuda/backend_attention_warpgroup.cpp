#include "backend/cuda/backend_attention_warpgroup.h"

#include <algorithm>
#include <iterator>

#include "backend/cuda/kernels/attention_backward_warpgroup.h"
#include "backend/cuda/kernels/attention_forward_warpgroup.h"
#include "backend/cuda/launch.h"

namespace internevo::cuda {

namespace {

static_assert(kWarpgroupHeads[0] == 64 && kWarpgroupHeads[1] == 128 && std::size(kWarpgroupHeads) == 2);

constexpr std::int64_t kMostItems = std::int64_t{1} << 30;

/// [batch, heads, rows, headSize] of a view whose rows are `stride` elements apart, copied by `boxRows` rows of one head.
Status mapOf(const void* data, const AttentionArguments& a, std::int64_t rows, std::int64_t heads,
             std::int64_t stride, std::int64_t batchRows, int boxRows, TensorMap* map) {
  TensorBox box;
  box.data = data;
  const std::int64_t extent[4] = {a.headSize, rows, heads, a.batch};
  const std::int64_t strides[3] = {2 * stride, 2 * a.headSize, 2 * stride * batchRows};
  std::copy_n(extent, 4, box.extent);
  std::copy_n(strides, 3, box.strideBytes);
  box.box[1] = boxRows;
  return makeTensorMap(box, map);
}

Status queryMap(const void* data, const AttentionArguments& a, std::int64_t stride, int boxRows,
                TensorMap* map) {
  return mapOf(data, a, a.sequence, a.heads, stride, a.queryBatchRows, boxRows, map);
}
Status keyMap(const void* data, const AttentionArguments& a, std::int64_t stride, int boxRows,
              TensorMap* map) {
  return mapOf(data, a, a.keySequence, a.kvHeads, stride, a.keyBatchRows, boxRows, map);
}

template <typename T>
T* at(Workspace scratch, std::int64_t offset) {
  return reinterpret_cast<T*>(static_cast<unsigned char*>(scratch.data) + offset);
}

template <int kHead, typename O>
Status startForward(const WarpgroupAttention& w, View o, float* logSumExp, bool merge) {
  using Kernel = AttentionForwardWarpgroupKernel<kHead, O>;
  const AttentionArguments& a = w.a;
  Kernel kernel{};
  INTERNEVO_RETURN_IF_ERROR(queryMap(w.q.data, a, a.queryStride, Kernel::kQueries, &kernel.q));
  INTERNEVO_RETURN_IF_ERROR(keyMap(w.k.data, a, a.keyStride, Kernel::kKeys, &kernel.k));
  INTERNEVO_RETURN_IF_ERROR(keyMap(w.v.data, a, a.valueStride, Kernel::kKeys, &kernel.v));
  kernel.s = a, kernel.o = o.as<O>(), kernel.logSumExp = logSumExp, kernel.merge = merge;
  kernel.ticket = at<std::int32_t>(w.scratch, AttentionScratch::kTickets);
  kernel.order = forwardOrder(a, Kernel::kQueries);
  INTERNEVO_RETURN_IF_ERROR(w.memory.zero(kernel.ticket, AttentionScratch::kTicketBytes));
  return launch(w.queue, {std::min(w.blocks, kernel.order.items()), 1, 1, Kernel::kSharedBytes}, kernel,
                w.call);
}

/// gQ, gK, gV as the caller has them.
template <typename G>
struct Gradients {
  ConstView o, gO;
  const float* logSumExp;
  G *gQ, *gK, *gV;
};

template <int kHead, typename G, bool kAdd>
Status startBackward(const WarpgroupAttention& w, const Gradients<G>& g) {
  using Kernel = AttentionBackwardWarpgroupKernel<kHead, G, kAdd>;
  using Statistics = AttentionStatisticsKernel<kHead>;
  using Sums = AttentionQuerySumsKernel<kHead, G, kAdd>;
  const AttentionArguments& a = w.a;
  const AttentionScratch scratch =
      attentionScratch(a.batch, a.sequence, a.heads, a.kvHeads, a.headSize, w.sumsBytes);
  static_assert(AttentionScratch::kQueries == Kernel::kQueries);
  const std::int64_t group = a.heads / a.kvHeads, allPairs = a.batch * a.kvHeads;
  Kernel kernel{};
  INTERNEVO_RETURN_IF_ERROR(queryMap(w.q.data, a, a.queryStride, Kernel::kQueries, &kernel.q));
  INTERNEVO_RETURN_IF_ERROR(queryMap(g.gO.data, a, a.outputStride, Kernel::kQueries, &kernel.gO));
  INTERNEVO_RETURN_IF_ERROR(keyMap(w.k.data, a, a.keyStride, Kernel::kKeys, &kernel.k));
  INTERNEVO_RETURN_IF_ERROR(keyMap(w.v.data, a, a.valueStride, Kernel::kKeys, &kernel.v));
  kernel.s = a, kernel.gK = g.gK, kernel.gV = g.gV;
  kernel.statistics = at<unsigned char>(w.scratch, scratch.statistics),
  kernel.sums = at<float>(w.scratch, scratch.sums);
  kernel.counts = at<std::int32_t>(w.scratch, scratch.counts),
  kernel.ticket = at<std::int32_t>(w.scratch, AttentionScratch::kTickets);
  kernel.tiles = static_cast<int>(scratch.tiles);
  const std::int64_t rows = a.batch * a.heads * scratch.tiles * AttentionScratch::kQueries;
  INTERNEVO_RETURN_IF_ERROR(
      launch(w.queue, {blocksFor(rows, Statistics::kThreads / kWarp)},
             Statistics{a, g.o.template as<Bfloat16>(), g.gO.template as<Bfloat16>(), g.logSumExp,
                        at<unsigned char>(w.scratch, scratch.statistics), scratch.tiles},
             w.call));
  for (std::int64_t first = 0; first < allPairs; first += scratch.pairs) {
    const std::int64_t pairs = std::min(scratch.pairs, allPairs - first);
    kernel.firstPair = static_cast<int>(first),
    kernel.order = keyOrder(a, Kernel::kKeys, pairs, sizeof(float));
    INTERNEVO_RETURN_IF_ERROR(w.memory.zero(kernel.ticket, AttentionScratch::kTicketBytes));
    INTERNEVO_RETURN_IF_ERROR(w.memory.zero(kernel.counts, scratch.countsBytes));
    INTERNEVO_RETURN_IF_ERROR(
        launch(w.queue, {kernel.order.items(), 1, 1, Kernel::kSharedBytes}, kernel, w.call));
    INTERNEVO_RETURN_IF_ERROR(launch(w.queue, {scratch.tiles, pairs * group, 1, 0},
                                     Sums{a, kernel.sums, g.gQ, static_cast<int>(first), Kernel::kKeys},
                                     w.call));
  }
  return Status::success();
}

}  // namespace

bool WarpgroupAttention::fits() const {
  return blocks > 0 && hasWarpgroupKernels(a.headSize) && a.sequence < kMostItems &&
         a.keySequence < kMostItems &&
         std::max(a.batch * a.heads * tilesOf(a.sequence, 64),
                  a.batch * a.kvHeads * tilesOf(a.keySequence, 64)) < kMostItems;
}

Status WarpgroupAttention::forward(View o, float* logSumExp, bool merge) const {
  const bool wide = o.type == DataType::float32;
  if (a.headSize <= kWarpgroupHeads[0]) {
    return wide ? startForward<64, float>(*this, o, logSumExp, merge)
                : startForward<64, Bfloat16>(*this, o, logSumExp, merge);
  }
  return wide ? startForward<128, float>(*this, o, logSumExp, merge)
              : startForward<128, Bfloat16>(*this, o, logSumExp, merge);
}

Status WarpgroupAttention::backward(ConstView o, ConstView gO, const float* logSumExp, View gQ, View gK,
                                    View gV, bool add) const {
  if (add) {
    const Gradients<float> g{o, gO, logSumExp, gQ.as<float>(), gK.as<float>(), gV.as<float>()};
    return a.headSize <= kWarpgroupHeads[0] ? startBackward<64, float, true>(*this, g)
                                            : startBackward<128, float, true>(*this, g);
  }
  const Gradients<Bfloat16> g{o, gO, logSumExp, gQ.as<Bfloat16>(), gK.as<Bfloat16>(), gV.as<Bfloat16>()};
  return a.headSize <= kWarpgroupHeads[0] ? startBackward<64, Bfloat16, false>(*this, g)
                                          : startBackward<128, Bfloat16, false>(*this, g);
}

}  // namespace internevo::cuda
