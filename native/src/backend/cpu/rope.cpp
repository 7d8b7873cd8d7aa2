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
  INTERNEVO_RETURN_IF_ERROR(prepareRope(call, &s));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(call, {{"cosines", cosines}, {"sines", sines}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(call, {{"x", x}}));
  const std::int32_t* const positions = s.positions.as<std::int32_t>();
  if (positions != nullptr) {
    for (std::int64_t row = 0; row < s.rows; ++row) {
      if (positions[row] < 0 || positions[row] >= s.sequence) {
        return badArgument(call, "positions",
                           "has " + std::to_string(positions[row]) + " in row " + std::to_string(row) +
                               "; must be in [0, " + std::to_string(s.sequence) + ")");
      }
    }
  }
  const std::int64_t half = s.rotarySize / 2;
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

Status CpuBackend::ropeTable(std::int64_t positions, const RopeFrequencies& frequencies, View cosines,
                             View sines) {
  INTERNEVO_RETURN_IF_ERROR(checkRopeTable("ropeTable", positions, frequencies, cosines, sines));
  const std::int64_t pairs = frequencies.pairs();
  for (std::int64_t position = 0; position < positions; ++position) {
    frequencies.row(position, cosines.as<float>() + position * pairs, sines.as<float>() + position * pairs);
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
