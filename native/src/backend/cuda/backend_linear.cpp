#include "backend/checks.h"
#include "backend/cuda/backend.h"
#include "backend/cuda/product_trial.h"

namespace internevo::cuda {

namespace {

Status prepare(const char* call, LinearShape* shape) {
  INTERNEVO_RETURN_IF_ERROR(
      requirePositive(call, {{"rows", shape->rows}, {"inputs", shape->inputs}, {"outputs", shape->outputs}}));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "inputStride", shape->inputs, &shape->inputStride));
  return resolveStride(call, "outputStride", shape->outputs, &shape->outputStride);
}

}  // namespace

Status CudaBackend::linearForward(const LinearShape& given, ConstView x, ConstView w, View y,
                                  Workspace workspace) {
  constexpr const char* kCall = "linearForward";
  LinearShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"y", y}}));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"x", x}, {"w", w}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, linearWorkspaceBytes()));
  return multiply(forwardProduct(s, x, w, y), workspace);
}

Status CudaBackend::linearGradInput(const LinearShape& given, ConstView gY, ConstView w, View gX,
                                    bool accumulate, Workspace workspace) {
  constexpr const char* kCall = "linearGradInput";
  LinearShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gX", gX}}));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"gY", gY}, {"w", w}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, linearWorkspaceBytes()));
  return multiply(inputGradientProduct(s, gY, w, gX, accumulate), workspace);
}

Status CudaBackend::linearGradWeight(const LinearShape& given, ConstView x, ConstView gY, View gW,
                                     Workspace workspace) {
  constexpr const char* kCall = "linearGradWeight";
  LinearShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"x", x}, {"gY", gY}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gW", gW}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, linearWorkspaceBytes()));
  return multiply(weightGradientProduct(s, x, gY, gW), workspace);
}

Status CudaBackend::chooseProducts(const ProductRequest& request, const LargestOfRanks& largest,
                                   ProductChoices* chosen) {
  const std::unique_ptr<Stopwatch> stopwatch = createStopwatch();
  return cuda::chooseProducts({*device_.products, memory(), *stopwatch, queue(), communication_.rank() == 0},
                              request, largest, chosen);
}

}  // namespace internevo::cuda
