// Head and loss: logits of a chunk of rows in float32; their gradient takes their place, in the type of the weights, so that
// the products behind it run on matrix instructions.
#include <string>

#include "backend/checks.h"
#include "backend/cuda/backend.h"
#include "backend/cuda/kernels/loss.h"
#include "backend/cuda/launch.h"

namespace internevo::cuda {

namespace {

Status checkSlice(const char* call, const HeadSliceShape& s, ConstView x, ConstView w, ConstView targets,
                  ConstView logits, ConstView statistics) {
  INTERNEVO_RETURN_IF_ERROR(requirePositive(call, {{"rows", s.rows},
                                                   {"width", s.width},
                                                   {"vocabulary", s.vocabulary},
                                                   {"wholeVocabulary", s.wholeVocabulary}}));
  if (s.first < 0 || s.first + s.vocabulary > s.wholeVocabulary) {
    return badArgument(call, "first",
                       "is " + std::to_string(s.first) + "; the slice must be inside the vocabulary of " +
                           std::to_string(s.wholeVocabulary));
  }
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(call, {{"x", x}, {"w", w}}));
  INTERNEVO_RETURN_IF_ERROR(requireType(call, DataType::int32, "int32", {{"targets", targets}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(call, {{"logits", logits}}));
  return requireType(call, DataType::float64, "float64", {{"statistics", statistics}});
}

}  // namespace

/// gW first: gX may be stored over x.
Status CudaBackend::gradientsOfHead(std::int64_t rows, std::int64_t width, std::int64_t vocabulary,
                                    ConstView x, ConstView w, const float* logits, View gX, View gW,
                                    Workspace workspace) {
  LinearShape s;
  s.rows = rows, s.inputs = width, s.outputs = vocabulary, s.inputStride = width;
  s.outputStride = headGradientStride(x.type, vocabulary);
  const ConstView gradient{logits, x.type};
  INTERNEVO_RETURN_IF_ERROR(multiply(weightGradientProduct(s, x, gradient, gW), workspace));
  return multiply(inputGradientProduct(s, gradient, w, gX, false), workspace);
}

Status CudaBackend::headLoss(const HeadLossShape& s, ConstView x, ConstView w, ConstView targets,
                             float gradientScale, ExactSum* lossSum, View gX, View gW, Workspace workspace) {
  constexpr const char* kCall = "headLoss";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(
      kCall,
      {{"rows", s.rows}, {"width", s.width}, {"vocabulary", s.vocabulary}, {"chunkRows", s.chunkRows}}));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"x", x}, {"w", w}}));
  INTERNEVO_RETURN_IF_ERROR(requireType(kCall, DataType::int32, "int32", {{"targets", targets}}));
  if (lossSum == nullptr) return badArgument(kCall, "lossSum", "is missing");
  const bool wantGradient = !gX.empty();
  if (wantGradient) {
    INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gX", gX}, {"gW", gW}}));
  }
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, headLossWorkspaceBytes(s)));
  std::int64_t* loss = nullptr;
  INTERNEVO_RETURN_IF_ERROR(sumOf(lossSum, &loss));
  auto* const logits = static_cast<float*>(workspace.data);
  const Workspace scratch{static_cast<std::byte*>(workspace.data) + logitsBytes(s),
                          workspace.bytes - logitsBytes(s)};
  for (std::int64_t first = 0; first < s.rows; first += s.chunkRows) {
    const std::int64_t rows = smaller(s.chunkRows, s.rows - first);
    const ConstView chunk = x.offset(first * s.width);
    const LinearShape linear{rows, s.width, s.vocabulary, s.width, s.vocabulary};
    INTERNEVO_RETURN_IF_ERROR(
        multiply(forwardProduct(linear, chunk, w, {logits, DataType::float32}), scratch));
    const auto* const own = targets.as<std::int32_t>() + first;
    const Grid grid{blocksFor(rows, 1), 1, 1, kLossSharedBytes};
    if (!wantGradient) {
      const LossKernel<float, false> kernel{rows, s.vocabulary, own, gradientScale, logits, loss, errors()};
      INTERNEVO_RETURN_IF_ERROR(launch(queue(), grid, kernel, kCall));
      continue;
    }
    INTERNEVO_RETURN_IF_ERROR(withElementType(x.type, [&](auto tag) {
      const LossKernel<decltype(tag), true> kernel{rows,   s.vocabulary, own,     gradientScale,
                                                   logits, loss,         errors()};
      return launch(queue(), grid, kernel, kCall);
    }));
    INTERNEVO_RETURN_IF_ERROR(gradientsOfHead(rows, s.width, s.vocabulary, chunk, w, logits,
                                              gX.offset(first * s.width), gW, scratch));
  }
  return Status::success();
}

Status CudaBackend::headSliceForward(const HeadSliceShape& s, ConstView x, ConstView w, ConstView targets,
                                     View logits, View statistics, Workspace workspace) {
  constexpr const char* kCall = "headSliceForward";
  INTERNEVO_RETURN_IF_ERROR(checkSlice(kCall, s, x, w, targets, logits, statistics));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, linearWorkspaceBytes()));
  const LinearShape linear{s.rows, s.width, s.vocabulary, s.width, s.vocabulary};
  INTERNEVO_RETURN_IF_ERROR(multiply(forwardProduct(linear, x, w, logits), workspace));
  return launch(
      queue(), {blocksFor(s.rows, 1), 1, 1, kLossSharedBytes},
      SliceForwardKernel{s.rows, s.vocabulary, s.first, s.wholeVocabulary, targets.as<std::int32_t>(),
                         logits.as<float>(), statistics.as<double>(), errors()},
      kCall);
}

Status CudaBackend::headSliceBackward(const HeadSliceShape& s, int slices, int own, ConstView x, ConstView w,
                                      ConstView targets, ConstView statistics, float gradientScale,
                                      ExactSum* lossSum, View logits, View gX, View gW, Workspace workspace) {
  constexpr const char* kCall = "headSliceBackward";
  INTERNEVO_RETURN_IF_ERROR(checkSlice(kCall, s, x, w, targets, logits, statistics));
  const bool wantGradient = !gX.empty();
  if (wantGradient) {
    INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gX", gX}, {"gW", gW}}));
  }
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, linearWorkspaceBytes()));
  if (own < 0 || own >= slices)
    return badArgument(kCall, "own", "is " + std::to_string(own) + "; must be a slice");
  std::int64_t* loss = nullptr;
  if (lossSum != nullptr) INTERNEVO_RETURN_IF_ERROR(sumOf(lossSum, &loss));
  // Without a gradient the kernel's takes the logits' place all the same: it is scratch, and a pass over it is short.
  INTERNEVO_RETURN_IF_ERROR(withElementType(x.type, [&](auto tag) {
    const SliceBackwardKernel<decltype(tag)> kernel{s.rows,
                                                    s.vocabulary,
                                                    s.first,
                                                    slices,
                                                    own,
                                                    targets.as<std::int32_t>(),
                                                    statistics.as<double>(),
                                                    gradientScale,
                                                    logits.as<float>(),
                                                    loss};
    return launch(queue(), {blocksFor(s.rows, 1), 1, 1, kLossSharedBytes}, kernel, kCall);
  }));
  if (!wantGradient) return Status::success();
  return gradientsOfHead(s.rows, s.width, s.vocabulary, x, w, logits.as<float>(), gX, gW, workspace);
}

}  // namespace internevo::cuda
