#include <cmath>

#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"

namespace internevo::cpu {

namespace {

/// (a, b) -> (a·cos − b·sin, b·cos + a·sin) on the two halves of one head.
template <typename T>
void rotateHead(std::int64_t half, const float* cosines, const float* sines, float direction, T* head) {
  const Vec sign = broadcast(direction);
  forVectors(half, [&](std::int64_t i, std::int64_t count) {
    const Vec c = loadUpTo(cosines + i, count), s = loadUpTo(sines + i, count) * sign;
    const Vec a = loadUpTo(head + i, count), b = loadUpTo(head + half + i, count);
    storeUpTo(head + i, a * c - b * s, count);
    storeUpTo(head + half + i, b * c + a * s, count);
  });
}

Status rotate(const char* call, RopeShape s, ConstView cosines, ConstView sines, View x, float direction,
              int threads) {
  INTERNEVO_RETURN_IF_ERROR(requirePositive(
      call, {{"rows", s.rows}, {"heads", s.heads}, {"headSize", s.headSize}, {"sequence", s.sequence}}));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "stride", s.heads * s.headSize, &s.stride));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(call, {{"cosines", cosines}, {"sines", sines}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(call, {{"x", x}}));
  if (s.headSize % 2 != 0) return badArgument(call, "headSize", "is odd; rotary positions need pairs");
  if (s.positionOffset < 0) return badArgument(call, "positionOffset", "must not be negative");
  const std::int32_t* const positions = s.positions.as<std::int32_t>();
  if (positions != nullptr) {
    INTERNEVO_RETURN_IF_ERROR(requireType(call, DataType::int32, "int32", {{"positions", s.positions}}));
    if (s.positionOffset != 0)
      return badArgument(call, "positionOffset", "must be 0 where positions are given");
    for (std::int64_t row = 0; row < s.rows; ++row) {
      if (positions[row] < 0 || positions[row] >= s.sequence) {
        return badArgument(call, "positions",
                           "has " + std::to_string(positions[row]) + " in row " + std::to_string(row) +
                               "; must be in [0, " + std::to_string(s.sequence) + ")");
      }
    }
  }
  const std::int64_t half = s.headSize / 2;
  withElementType(x.type, [&](auto tag) {
    using T = decltype(tag);
    parallelRanges(threads, s.rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t position =
            positions != nullptr ? positions[row] : s.positionOffset + row % s.sequence;
        const std::int64_t at = position * half;
        T* const start = x.as<T>() + row * s.stride;
        for (std::int64_t head = 0; head < s.heads; ++head) {
          rotateHead(half, cosines.as<float>() + at, sines.as<float>() + at, direction,
                     start + head * s.headSize);
        }
      }
    });
  });
  return Status::success();
}

}  // namespace

Status CpuBackend::ropeTable(std::int64_t positions, std::int64_t headSize, double theta, View cosines,
                             View sines) {
  constexpr const char* kCall = "ropeTable";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"positions", positions}, {"headSize", headSize}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"cosines", cosines}, {"sines", sines}}));
  if (headSize % 2 != 0) return badArgument(kCall, "headSize", "is odd; rotary positions need pairs");
  if (!(theta > 0)) return badArgument(kCall, "theta", "must be positive");
  const std::int64_t half = headSize / 2;
  for (std::int64_t position = 0; position < positions; ++position) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(headSize));
      const double angle = static_cast<double>(position) * frequency;
      cosines.as<float>()[position * half + i] = static_cast<float>(std::cos(angle));
      sines.as<float>()[position * half + i] = static_cast<float>(std::sin(angle));
    }
  }
  return Status::success();
}

Status CpuBackend::ropeForward(const RopeShape& s, ConstView cosines, ConstView sines, View x) {
  return rotate("ropeForward", s, cosines, sines, x, 1.f, threads_);
}

Status CpuBackend::ropeBackward(const RopeShape& s, ConstView cosines, ConstView sines, View gX) {
  return rotate("ropeBackward", s, cosines, sines, gX, -1.f, threads_);
}

}  // namespace internevo::cpu
