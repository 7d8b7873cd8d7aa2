#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/gradient_sums.h"
#include "backend/cpu/parallel.h"

namespace internevo::cpu {

namespace {

Status prepare(const char* call, LinearShape* shape) {
  INTERNEVO_RETURN_IF_ERROR(
      requirePositive(call, {{"rows", shape->rows}, {"inputs", shape->inputs}, {"outputs", shape->outputs}}));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "inputStride", shape->inputs, &shape->inputStride));
  return resolveStride(call, "outputStride", shape->outputs, &shape->outputStride);
}

}  // namespace

std::int64_t CpuBackend::linearWorkspaceBytes() const { return gemmWorkspaceBytesPerThread() * threads_; }

Status CpuBackend::linearForward(const LinearShape& given, ConstView x, ConstView w, View y,
                                 Workspace workspace) {
  constexpr const char* kCall = "linearForward";
  LinearShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"x", x}, {"w", w}, {"y", y}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, linearWorkspaceBytes()));
  gemm({s.rows, s.outputs, s.inputs, x, s.inputStride, 1, w, 1, s.inputs, y, s.outputStride, false}, threads_,
       workspace.data);
  return Status::success();
}

Status CpuBackend::linearGradInput(const LinearShape& given, ConstView gY, ConstView w, View gX,
                                   bool accumulate, Workspace workspace) {
  constexpr const char* kCall = "linearGradInput";
  LinearShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gY", gY}, {"w", w}, {"gX", gX}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, linearWorkspaceBytes()));
  gemm({s.rows, s.inputs, s.outputs, gY, s.outputStride, 1, w, s.inputs, 1, gX, s.inputStride, accumulate},
       threads_, workspace.data);
  return Status::success();
}

Status CpuBackend::linearGradWeight(const LinearShape& given, ConstView x, ConstView gY, View gW,
                                    Workspace workspace) {
  constexpr const char* kCall = "linearGradWeight";
  LinearShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"x", x}, {"gY", gY}, {"gW", gW}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, linearWorkspaceBytes()));
  gemm({s.outputs, s.inputs, s.rows, gY, 1, s.outputStride, x, s.inputStride, 1, gW, s.inputs, true},
       threads_, workspace.data);
  return Status::success();
}

Status CpuBackend::biasAdd(const BiasShape& given, ConstView bias, View y) {
  constexpr const char* kCall = "biasAdd";
  BiasShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepareBias(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"bias", bias}, {"y", y}}));
  withElementType(y.type, [&](auto tag) {
    using T = decltype(tag);
    parallelRanges(threads_, s.rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* const target = y.as<T>() + row * s.outputStride;
        forVectors(s.outputs, [&](std::int64_t i, std::int64_t count) {
          storeUpTo(target + i, loadUpTo(target + i, count) + loadUpTo(bias.as<T>() + i, count), count);
        });
      }
    });
  });
  return Status::success();
}

Status CpuBackend::biasGradient(const BiasShape& given, ConstView gY, View gBias, Workspace) {
  constexpr const char* kCall = "biasGradient";
  BiasShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepareBias(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gY", gY}, {"gBias", gBias}}));
  withElementType(gY.type, [&](auto tag) {
    using T = decltype(tag);
    // Rows in order; threads take columns, so that the order never changes.
    parallelRanges(threads_, s.outputs, 64, [&](std::int64_t begin, std::int64_t end, int) {
      addToGradient(gBias, begin, end, [&](std::int64_t first, std::int64_t columns, float* sums) {
        for (std::int64_t row = 0; row < s.rows; ++row) {
          const T* const source = gY.as<T>() + row * s.outputStride + first;
          forVectors(columns, [&](std::int64_t i, std::int64_t count) {
            storeUpTo(sums + i, loadUpTo(sums + i, count) + loadUpTo(source + i, count), count);
          });
        }
      });
    });
  });
  return Status::success();
}

}  // namespace internevo::cpu
