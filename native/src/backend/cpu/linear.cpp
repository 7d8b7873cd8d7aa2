#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm.h"

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
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"x", x}, {"gY", gY}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"gW", gW}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, linearWorkspaceBytes()));
  gemm({s.outputs, s.inputs, s.rows, gY, 1, s.outputStride, x, s.inputStride, 1, gW, s.inputs, true},
       threads_, workspace.data);
  return Status::success();
}

}  // namespace internevo::cpu
