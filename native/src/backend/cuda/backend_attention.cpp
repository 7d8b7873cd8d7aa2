// Attention: checks, and the choice of a kernel. bfloat16 with heads of multiples of 8 runs on matrix instructions, everything
// else on the plain kernels. firstKeys is not checked here, where it stands on the device: its maker gives it.
#include <cmath>

#include "backend/attention_shape.h"
#include "backend/cuda/backend.h"
#include "backend/cuda/backend_attention_warp.h"
#include "backend/cuda/backend_attention_warpgroup.h"
#include "backend/cuda/kernels/attention_plain.h"
#include "backend/cuda/launch.h"

namespace internevo::cuda {

namespace {

/// Resolves strides and makes the kernels' arguments of the shape.
Status argumentsOf(const char* call, AttentionBlockShape* s, AttentionArguments* a) {
  INTERNEVO_RETURN_IF_ERROR(prepareAttention(call, s));
  if (s->headSize > kLargestHead) {
    return badArgument(call, "headSize",
                       "is " + std::to_string(s->headSize) + "; a GPU computes heads of at most " +
                           std::to_string(kLargestHead));
  }
  if (!s->firstKeys.empty()) {
    INTERNEVO_RETURN_IF_ERROR(requireType(call, DataType::int32, "int32", {{"firstKeys", s->firstKeys}}));
  }
  *a = {s->batch, s->sequence, s->keySequence, s->heads, s->kvHeads, s->headSize, s->queryStride,
        s->keyStride, s->valueStride, s->outputStride, s->queryGradientStride, s->queryBatchRows,
        s->keyBatchRows, s->queryPosition - s->keyPosition, s->keyPosition, s->firstKeys.as<std::int32_t>(),
        1.f / std::sqrt(static_cast<float>(s->headSize)),
        // One that holds every key before a query hides nothing.
        s->window < s->queryPosition + s->sequence ? s->window : 0};
  return Status::success();
}

bool onMatrixInstructions(const AttentionArguments& a, std::initializer_list<ConstView> loaded) {
  bool fits = hasTensorKernels(a.headSize);
  for (const std::int64_t stride :
       {a.queryStride, a.keyStride, a.valueStride, a.outputStride, a.queryGradientStride}) {
    fits = fits && stride % 8 == 0;
  }
  for (const ConstView& view : loaded) {
    fits = fits && view.type == DataType::bfloat16 && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
  }
  return fits;
}

struct Forward {
  const Queue& queue;
  MemorySpace& memory;
  int warpgroupBlocks;
  const AttentionArguments& a;
  ConstView q, k, v;
  View o;
  float* logSumExp;
  bool merge;
  Workspace scratch;
  const char* call;

  template <typename T, typename O, int kMaximumHead>
  Status plain() const {
    using Kernel = AttentionPlainKernel<T, O, kMaximumHead>;
    const TileOrder order = forwardOrder(a, kPlainTile, sizeof(T));
    return launch(queue, {order.items(), 1, 1, plainSharedBytes(a.headSize, 3, 1)},
                  Kernel{a, q.as<T>(), k.as<T>(), v.as<T>(), o.as<O>(), logSumExp, merge, order}, call);
  }
  template <typename T, typename O>
  Status anyHead() const {
    return a.headSize <= 64 ? plain<T, O, 64>() : plain<T, O, kLargestHead>();
  }

  Status run() const {
    const bool wide = o.type == DataType::float32;
    if (onMatrixInstructions(a, {q, k, v})) {
      const WarpgroupAttention warpgroups{queue, memory, warpgroupBlocks, a, q, k, v, scratch, call};
      if (warpgroups.fits()) return warpgroups.forward(o, logSumExp, merge);
      return WarpAttention{queue, a, q, k, v, call}.forward(o, logSumExp, merge);
    }
    if (q.type == DataType::float32) return anyHead<float, float>();
    return wide ? anyHead<Bfloat16, float>() : anyHead<Bfloat16, Bfloat16>();
  }
};

struct Backward {
  const Queue& queue;
  MemorySpace& memory;
  int warpgroupBlocks;
  const AttentionArguments& a;
  ConstView q, k, v, o, gO;
  const float* logSumExp;
  Workspace scratch;
  View gQ, gK, gV;
  const char* call;
  float* const delta = static_cast<float*>(scratch.data);

  template <typename T>
  Status deltas() const {
    using Kernel = AttentionDeltaKernel<T>;
    return launch(queue, {blocksFor(a.batch * a.heads * a.sequence, Kernel::kThreads / kWarp)},
                  Kernel{a, o.as<T>(), gO.as<T>(), delta}, call);
  }
  /// One kernel for the gradients of keys and values, one for those of queries, with tiles of the same size.
  template <typename T, typename G, class Keys, class Queries>
  Status both(std::int64_t tile, int keySharedBytes, int querySharedBytes) const {
    INTERNEVO_RETURN_IF_ERROR(deltas<T>());
    const TileOrder keys = keyOrder(a, tile, a.batch * a.kvHeads, 0, sizeof(T)),
                    queries = forwardOrder(a, tile, sizeof(T));
    INTERNEVO_RETURN_IF_ERROR(launch(
        queue, {keys.items(), 1, 1, keySharedBytes},
        Keys{a, q.as<T>(), k.as<T>(), v.as<T>(), gO.as<T>(), logSumExp, delta, gK.as<G>(), gV.as<G>(), keys},
        call));
    return launch(
        queue, {queries.items(), 1, 1, querySharedBytes},
        Queries{a, q.as<T>(), k.as<T>(), v.as<T>(), gO.as<T>(), logSumExp, delta, gQ.as<G>(), queries}, call);
  }
  template <typename T, typename G, bool kAdd, int kMaximumHead>
  Status plain() const {
    using Keys = AttentionPlainKeyGradientKernel<T, G, kAdd, kMaximumHead>;
    using Queries = AttentionPlainQueryGradientKernel<T, G, kAdd, kMaximumHead>;
    return both<T, G, Keys, Queries>(kPlainTile, plainSharedBytes(a.headSize, 4, 2),
                                     plainSharedBytes(a.headSize, 4, 1));
  }
  template <typename T, typename G, bool kAdd>
  Status anyHead() const {
    return a.headSize <= 64 ? plain<T, G, kAdd, 64>() : plain<T, G, kAdd, kLargestHead>();
  }

  /// Of a whole, gradients are written in the type of q; of a piece, added in float32.
  template <bool kAdd>
  Status run() const {
    if (onMatrixInstructions(a, {q, k, v, gO})) {
      const WarpgroupAttention warpgroups{queue, memory, warpgroupBlocks, a, q, k, v, scratch, call};
      if (warpgroups.fits()) return warpgroups.backward(o, gO, logSumExp, gQ, gK, gV, kAdd);
      INTERNEVO_RETURN_IF_ERROR(deltas<Bfloat16>());
      return WarpAttention{queue, a, q, k, v, call}.backward(gO, logSumExp, delta, gQ, gK, gV, kAdd);
    }
    if (q.type == DataType::float32) return anyHead<float, float, kAdd>();
    return anyHead<Bfloat16, std::conditional_t<kAdd, float, Bfloat16>, kAdd>();
  }
};

}  // namespace

Status CudaBackend::attentionForward(const AttentionShape& given, ConstView q, ConstView k, ConstView v,
                                     View o, View logSumExp, Workspace workspace) {
  constexpr const char* kCall = "attentionForward";
  AttentionBlockShape s = wholeAttention(given);
  AttentionArguments a{};
  INTERNEVO_RETURN_IF_ERROR(argumentsOf(kCall, &s, &a));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"q", q}, {"k", k}, {"v", v}, {"o", o}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"logSumExp", logSumExp}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, attentionWorkspaceBytes(s)));
  const LibraryAttention views{q, k, v, o, logSumExp, {}, {}, {}, {}, workspace};
  if (libraryTakes(a, {q, k, v, o})) {
    const AttentionProblem problem = problemOf(a, device_.deterministic);
    bool served = false;
    INTERNEVO_RETURN_IF_ERROR(servedByLibrary(problem, AttentionPass::forward, workspace, &served));
    if (served) return device_.attentionLibrary->compute(queue(), problem, AttentionPass::forward, views);
  }
  return ownForward(a, views);
}

Status CudaBackend::ownForward(const AttentionArguments& a, const LibraryAttention& x) {
  return Forward{queue(), memory(), warpgroupBlocks(),       a,     x.q,       x.k,
                 x.v,     x.o,      x.logSumExp.as<float>(), false, x.scratch, "attentionForward"}
      .run();
}

Status CudaBackend::attentionBackward(const AttentionShape& given, ConstView q, ConstView k, ConstView v,
                                      ConstView o, ConstView logSumExp, ConstView gO, View gQ, View gK,
                                      View gV, Workspace workspace) {
  constexpr const char* kCall = "attentionBackward";
  AttentionBlockShape s = wholeAttention(given);
  AttentionArguments a{};
  INTERNEVO_RETURN_IF_ERROR(argumentsOf(kCall, &s, &a));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(
      kCall, {{"q", q}, {"k", k}, {"v", v}, {"o", o}, {"gO", gO}, {"gQ", gQ}, {"gK", gK}, {"gV", gV}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"logSumExp", logSumExp}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, attentionWorkspaceBytes(s)));
  // The library takes what it only reads through pointers that are not const.
  const auto read = [](ConstView view) { return View{const_cast<void*>(view.data), view.type}; };
  const LibraryAttention views{q, k, v, read(o), read(logSumExp), gO, gQ, gK, gV, workspace};
  if (libraryTakes(a, {q, k, v, o, gO, gQ, gK, gV})) {
    const AttentionProblem problem = problemOf(a, device_.deterministic);
    bool served = false;
    INTERNEVO_RETURN_IF_ERROR(servedByLibrary(problem, AttentionPass::backward, workspace, &served));
    if (served) return device_.attentionLibrary->compute(queue(), problem, AttentionPass::backward, views);
  }
  return ownBackward(a, views);
}

Status CudaBackend::ownBackward(const AttentionArguments& a, const LibraryAttention& x) {
  return Backward{queue(),
                  memory(),
                  warpgroupBlocks(),
                  a,
                  x.q,
                  x.k,
                  x.v,
                  x.o,
                  x.gO,
                  x.logSumExp.as<float>(),
                  x.scratch,
                  x.gQ,
                  x.gK,
                  x.gV,
                  "attentionBackward"}
      .run<false>();
}

Status CudaBackend::prepareAttention(const AttentionShape& given, const AttentionOperands& x,
                                     const LargestOfRanks& largest) {
  constexpr const char* kCall = "prepareAttention";
  AttentionBlockShape s = wholeAttention(given);
  AttentionArguments a{};
  AttentionTimes times;
  std::array<std::string, 2> refusals;
  const auto own = [&]() -> Status {
    INTERNEVO_RETURN_IF_ERROR(argumentsOf(kCall, &s, &a));
    INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"q", x.q}, {"k", x.k}, {"v", x.v}, {"o", x.o}}));
    INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"logSumExp", x.logSumExp}}));
    INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, x.scratch, attentionWorkspaceBytes(s)));
    if (!libraryTakes(a, {x.q, x.k, x.v, x.o})) return Status::success();
    if (!x.gO.empty() && !libraryTakes(a, {x.gO, x.gQ, x.gK, x.gV})) {
      refusals[0] = refusals[1] = "rows of gradients do not begin at multiples of 16 bytes";
      return Status::success();
    }
    return tryLibrary(a, {x.q, x.k, x.v, x.o, x.logSumExp, x.gO, x.gQ, x.gK, x.gV, x.scratch}, &times,
                      &refusals);
  };
  const Status status = own();
  // Whatever happened here, the others wait for these words.
  if (!status.ok()) times = {};
  INTERNEVO_RETURN_IF_ERROR(largest(times.words.data(), AttentionTimes::kWords));
  INTERNEVO_RETURN_IF_ERROR(status);
  if (!libraryTakes(a, {x.q, x.k, x.v, x.o})) return Status::success();
  const AttentionProblem problem = problemOf(a, device_.deterministic);
  served_[problem] = chosenBy(times);
  tellAttention(problem, times, refusals);
  return Status::success();
}

Status CudaBackend::attentionBlockForward(const AttentionBlockShape& given, ConstView q, ConstView k,
                                          ConstView v, bool merge, View o, View logSumExp,
                                          Workspace workspace) {
  constexpr const char* kCall = "attentionBlockForward";
  AttentionBlockShape s = given;
  AttentionArguments a{};
  INTERNEVO_RETURN_IF_ERROR(argumentsOf(kCall, &s, &a));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"q", q}, {"k", k}, {"v", v}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"o", o}, {"logSumExp", logSumExp}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, attentionBlockWorkspaceBytes(s)));
  return Forward{queue(), memory(), warpgroupBlocks(),     a,     q,         k,
                 v,       o,        logSumExp.as<float>(), merge, workspace, kCall}
      .run();
}

Status CudaBackend::attentionBlockBackward(const AttentionBlockShape& given, ConstView q, ConstView k,
                                           ConstView v, ConstView o, ConstView logSumExp, ConstView gO,
                                           View gQ, View gK, View gV, Workspace workspace) {
  constexpr const char* kCall = "attentionBlockBackward";
  AttentionBlockShape s = given;
  AttentionArguments a{};
  INTERNEVO_RETURN_IF_ERROR(argumentsOf(kCall, &s, &a));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"q", q}, {"k", k}, {"v", v}, {"o", o}, {"gO", gO}}));
  INTERNEVO_RETURN_IF_ERROR(
      requireFloat32(kCall, {{"logSumExp", logSumExp}, {"gQ", gQ}, {"gK", gK}, {"gV", gV}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, attentionBlockWorkspaceBytes(s)));
  return Backward{queue(), memory(), warpgroupBlocks(),     a,         q,  k,  v,
                  o,       gO,       logSumExp.as<float>(), workspace, gQ, gK, gV,
                  kCall}
      .run<true>();
}

}  // namespace internevo::cuda
