// Checks of the arguments of operators, for every backend.
#pragma once

#include <initializer_list>
#include <string>

#include "internevo/backend.h"
#include "internevo/status.h"
#include "internevo/tensor.h"

namespace internevo {

inline Status badArgument(const char* call, const char* argument, const std::string& what) {
  return {StatusCode::badConfig, std::string(call) + ": " + argument + " " + what};
}

struct NamedSize {
  const char* name;
  std::int64_t value;
};
inline Status requirePositive(const char* call, std::initializer_list<NamedSize> sizes) {
  for (const NamedSize& size : sizes) {
    if (size.value <= 0)
      return badArgument(call, size.name, "is " + std::to_string(size.value) + "; must be positive");
  }
  return Status::success();
}

struct NamedView {
  const char* name;
  ConstView view;
};
/// Present and float32 or bfloat16.
inline Status requireFloats(const char* call, std::initializer_list<NamedView> views) {
  for (const NamedView& v : views) {
    if (v.view.empty()) return badArgument(call, v.name, "is missing");
    if (v.view.type != DataType::float32 && v.view.type != DataType::bfloat16) {
      return badArgument(call, v.name, "must be float32 or bfloat16");
    }
  }
  return Status::success();
}
/// All of one type, float32 or bfloat16.
inline Status requireSameFloats(const char* call, std::initializer_list<NamedView> views) {
  const Status status = requireFloats(call, views);
  if (!status.ok()) return status;
  const NamedView& first = *views.begin();
  for (const NamedView& v : views) {
    if (v.view.type != first.view.type) {
      return badArgument(call, v.name, std::string("must have the type of ") + first.name);
    }
  }
  return Status::success();
}
inline Status requireType(const char* call, DataType type, const char* typeName,
                          std::initializer_list<NamedView> views) {
  for (const NamedView& v : views) {
    if (v.view.empty()) return badArgument(call, v.name, "is missing");
    if (v.view.type != type) return badArgument(call, v.name, std::string("must be ") + typeName);
  }
  return Status::success();
}
inline Status requireFloat32(const char* call, std::initializer_list<NamedView> views) {
  return requireType(call, DataType::float32, "float32", views);
}
inline Status requireWorkspace(const char* call, const Workspace& workspace, std::int64_t bytes) {
  if (workspace.data == nullptr || workspace.bytes < bytes) {
    return badArgument(call, "workspace",
                       "has " + std::to_string(workspace.bytes) + " bytes; needs " + std::to_string(bytes));
  }
  if (reinterpret_cast<std::uintptr_t>(workspace.data) % kAlignmentBytes != 0) {
    return badArgument(call, "workspace", "must be aligned to 64 bytes");
  }
  return Status::success();
}
/// Replaces a stride of 0 by the dense one; errors when rows would overlap.
inline Status resolveStride(const char* call, const char* name, std::int64_t dense, std::int64_t* stride) {
  if (*stride == 0) *stride = dense;
  if (*stride < dense) {
    return badArgument(call, name,
                       "is " + std::to_string(*stride) + "; must be 0 or at least " + std::to_string(dense));
  }
  return Status::success();
}

/// Replaces a stride left at 0, and checks what both calls for biases are given.
inline Status prepareBias(const char* call, BiasShape* s) {
  INTERNEVO_RETURN_IF_ERROR(requirePositive(call, {{"rows", s->rows}, {"outputs", s->outputs}}));
  return resolveStride(call, "outputStride", s->outputs, &s->outputStride);
}

/// The same for the norm of heads.
inline Status prepareHeadNorm(const char* call, HeadNormShape* s) {
  INTERNEVO_RETURN_IF_ERROR(
      requirePositive(call, {{"rows", s->rows}, {"heads", s->heads}, {"headSize", s->headSize}}));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "inputStride", s->heads * s->headSize, &s->inputStride));
  return resolveStride(call, "outputStride", s->heads * s->headSize, &s->outputStride);
}

/// Replaces what is left at 0, and checks sizes of a rotation.
inline Status prepareRope(const char* call, RopeShape* s) {
  INTERNEVO_RETURN_IF_ERROR(requirePositive(
      call, {{"rows", s->rows}, {"heads", s->heads}, {"headSize", s->headSize}, {"sequence", s->sequence}}));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "stride", s->heads * s->headSize, &s->stride));
  const char* const named = s->rotarySize == 0 ? "headSize" : "rotarySize";
  if (s->rotarySize == 0) s->rotarySize = s->headSize;
  if (s->rotarySize % 2 != 0) return badArgument(call, named, "is odd; rotary positions need pairs");
  if (s->rotarySize < 0 || s->rotarySize > s->headSize) {
    return badArgument(call, named,
                       "is " + std::to_string(s->rotarySize) + "; must be 0 or at most headSize " +
                           std::to_string(s->headSize));
  }
  if (s->positionOffset < 0) return badArgument(call, "positionOffset", "must not be negative");
  if (s->positions.empty()) return Status::success();
  INTERNEVO_RETURN_IF_ERROR(requireType(call, DataType::int32, "int32", {{"positions", s->positions}}));
  if (s->positionOffset == 0) return Status::success();
  return badArgument(call, "positionOffset", "must be 0 where positions are given");
}

inline Status checkRopeTable(const char* call, std::int64_t positions, const RopeFrequencies& frequencies,
                             View cosines, View sines) {
  INTERNEVO_RETURN_IF_ERROR(
      requirePositive(call, {{"positions", positions}, {"frequencies", frequencies.pairs()}}));
  return requireFloat32(call, {{"cosines", cosines}, {"sines", sines}});
}

}  // namespace internevo
