#include "backend/cuda/backend_attention_warp.h"

#include <iterator>

#include "backend/cuda/kernels/attention_backward.h"
#include "backend/cuda/kernels/attention_forward.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/sizes_attention.h"

namespace internevo::cuda {

namespace {

template <int kHead, typename O>
Status startForward(const WarpAttention& w, View o, float* logSumExp, bool merge) {
  using Kernel = AttentionForwardKernel<kHead, O>;
  const TileOrder order = forwardOrder(w.a, Kernel::kTile);
  return launch(w.queue, {order.items(), 1, 1, Kernel::kSharedBytes},
                Kernel{w.a, w.q.as<Bfloat16>(), w.k.as<Bfloat16>(), w.v.as<Bfloat16>(), o.as<O>(), logSumExp,
                       merge, order},
                w.call);
}

/// One kernel for the gradients of keys and values, one for those of queries.
template <int kHead, typename G, bool kAdd>
Status startBackward(const WarpAttention& w, ConstView gO, const float* logSumExp, const float* delta,
                     View gQ, View gK, View gV) {
  using Keys = AttentionKeyGradientKernel<kHead, G, kAdd>;
  using Queries = AttentionQueryGradientKernel<kHead, G, kAdd>;
  const AttentionArguments& a = w.a;
  const auto *const q = w.q.as<Bfloat16>(), *const k = w.k.as<Bfloat16>(), *const v = w.v.as<Bfloat16>(),
                    *const gradients = gO.as<Bfloat16>();
  const TileOrder keys = keyOrder(a, Keys::kTile, a.batch * a.kvHeads, 0),
                  queries = forwardOrder(a, Queries::kTile);
  INTERNEVO_RETURN_IF_ERROR(
      launch(w.queue, {keys.items(), 1, 1, Keys::kSharedBytes},
             Keys{a, q, k, v, gradients, logSumExp, delta, gK.as<G>(), gV.as<G>(), keys}, w.call));
  return launch(w.queue, {queries.items(), 1, 1, Queries::kSharedBytes},
                Queries{a, q, k, v, gradients, logSumExp, delta, gQ.as<G>(), queries}, w.call);
}

/// Calls body(std::integral_constant<int, width>) with the narrowest tiles that the head fits into.
template <std::size_t kWhich = 0, typename Body>
Status withWidth(std::int64_t headSize, const Body& body) {
  constexpr auto kWidth = static_cast<int>(kWarpHeads[kWhich]);
  if constexpr (kWhich + 1 < std::size(kWarpHeads)) {
    if (headSize > kWidth) return withWidth<kWhich + 1>(headSize, body);
  }
  return body(std::integral_constant<int, kWidth>{});
}

}  // namespace

Status WarpAttention::forward(View o, float* logSumExp, bool merge) const {
  return withWidth(a.headSize, [&](auto width) {
    constexpr int kHead = decltype(width)::value;
    return o.type == DataType::float32 ? startForward<kHead, float>(*this, o, logSumExp, merge)
                                       : startForward<kHead, Bfloat16>(*this, o, logSumExp, merge);
  });
}

Status WarpAttention::backward(ConstView gO, const float* logSumExp, const float* delta, View gQ, View gK,
                               View gV, bool add) const {
  return withWidth(a.headSize, [&](auto width) {
    constexpr int kHead = decltype(width)::value;
    return add ? startBackward<kHead, float, true>(*this, gO, logSumExp, delta, gQ, gK, gV)
               : startBackward<kHead, Bfloat16, false>(*this, gO, logSumExp, delta, gQ, gK, gV);
  });
}

}  // namespace internevo::cuda
