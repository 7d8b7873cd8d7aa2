// The backend's attention calls: checks, then the kernels of attention_forward.cpp and attention_backward.cpp.
#include "backend/cpu/attention.h"

#include "backend/attention_shape.h"
#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend.h"

namespace internevo::cpu {

namespace {

/// firstKeys never falls inside a sequence and is never behind the query itself.
Status checkFirstKeys(const char* call, const AttentionBlockShape& s) {
  if (s.firstKeys.empty()) return Status::success();
  INTERNEVO_RETURN_IF_ERROR(requireType(call, DataType::int32, "int32", {{"firstKeys", s.firstKeys}}));
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    const std::int32_t* const first = s.firstKeys.as<std::int32_t>() + batch * s.queryBatchRows;
    for (std::int64_t row = 0; row < s.sequence; ++row) {
      const std::int64_t lowest = row == 0 ? 0 : first[row - 1], highest = s.queryPosition + row;
      if (first[row] < lowest || first[row] > highest) {
        return badArgument(call, "firstKeys",
                           "has " + std::to_string(first[row]) + " in row " + std::to_string(row) +
                               " of sequence " + std::to_string(batch) + "; must be in [" +
                               std::to_string(lowest) + ", " + std::to_string(highest) + "]");
      }
    }
  }
  return Status::success();
}

Status prepare(const char* call, AttentionBlockShape* s) {
  INTERNEVO_RETURN_IF_ERROR(prepareAttention(call, s));
  return checkFirstKeys(call, *s);
}

}  // namespace

std::int64_t CpuBackend::attentionWorkspaceBytes(const AttentionShape& s) const {
  return attentionBlockWorkspaceBytes(wholeAttention(s));
}

std::int64_t CpuBackend::attentionBlockWorkspaceBytes(const AttentionBlockShape& s) const {
  return 4 * threads_ *
         std::max(attentionForwardElements(s.keySequence, s.headSize),
                  attentionBackwardElements(s.keySequence, s.headSize));
}

Status CpuBackend::attentionForward(const AttentionShape& given, ConstView q, ConstView k, ConstView v,
                                    View o, View logSumExp, Workspace workspace) {
  constexpr const char* kCall = "attentionForward";
  AttentionBlockShape s = wholeAttention(given);
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"q", q}, {"k", k}, {"v", v}, {"o", o}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"logSumExp", logSumExp}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, attentionWorkspaceBytes(s)));
  attentionForwardKernel(s, {q, k, v, o, logSumExp.as<float>(), false}, threads_, workspace);
  return Status::success();
}

Status CpuBackend::attentionBackward(const AttentionShape& given, ConstView q, ConstView k, ConstView v,
                                     ConstView o, ConstView logSumExp, ConstView gO, View gQ, View gK,
                                     View gV, Workspace workspace) {
  constexpr const char* kCall = "attentionBackward";
  AttentionBlockShape s = wholeAttention(given);
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(
      kCall, {{"q", q}, {"k", k}, {"v", v}, {"o", o}, {"gO", gO}, {"gQ", gQ}, {"gK", gK}, {"gV", gV}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"logSumExp", logSumExp}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, attentionWorkspaceBytes(s)));
  attentionBackwardKernel(s, {q, k, v, o, gO, logSumExp.as<float>(), gQ, gK, gV, false}, threads_, workspace);
  return Status::success();
}

Status CpuBackend::attentionBlockForward(const AttentionBlockShape& given, ConstView q, ConstView k,
                                         ConstView v, bool merge, View o, View logSumExp,
                                         Workspace workspace) {
  constexpr const char* kCall = "attentionBlockForward";
  AttentionBlockShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"q", q}, {"k", k}, {"v", v}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"o", o}, {"logSumExp", logSumExp}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, attentionBlockWorkspaceBytes(s)));
  attentionForwardKernel(s, {q, k, v, o, logSumExp.as<float>(), merge}, threads_, workspace);
  return Status::success();
}

Status CpuBackend::attentionBlockBackward(const AttentionBlockShape& given, ConstView q, ConstView k,
                                          ConstView v, ConstView o, ConstView logSumExp, ConstView gO,
                                          View gQ, View gK, View gV, Workspace workspace) {
  constexpr const char* kCall = "attentionBlockBackward";
  AttentionBlockShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"q", q}, {"k", k}, {"v", v}, {"o", o}, {"gO", gO}}));
  INTERNEVO_RETURN_IF_ERROR(
      requireFloat32(kCall, {{"logSumExp", logSumExp}, {"gQ", gQ}, {"gK", gK}, {"gV", gV}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, attentionBlockWorkspaceBytes(s)));
  attentionBackwardKernel(s, {q, k, v, o, gO, logSumExp.as<float>(), gQ, gK, gV, true}, threads_, workspace);
  return Status::success();
}

}  // namespace internevo::cpu
