#include <cmath>

#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"

namespace internevo::cpu {

namespace {

/// One row: h = x + residual as stored, returns 1 / rms(h).
template <typename T>
float sumRow(std::int64_t width, const T* x, const T* residual, T* sum, float epsilon) {
  Vec squares = broadcast(0.f);
  forVectors(width, [&](std::int64_t i, std::int64_t count) {
    Vec h = loadUpTo(x + i, count);
    if (residual != nullptr) h = h + loadUpTo(residual + i, count);
    if (sum != nullptr) {
      storeUpTo(sum + i, h, count);
      h = loadUpTo(sum + i, count);
    }
    squares = fma(h, h, squares);
  });
  return 1.f / std::sqrt(sumOf(squares) / static_cast<float>(width) + epsilon);
}

template <typename T>
void normRow(std::int64_t width, const T* h, const T* gain, float inverseRms, T* y) {
  const Vec scale = broadcast(inverseRms);
  forVectors(width, [&](std::int64_t i, std::int64_t count) {
    storeUpTo(y + i, loadUpTo(h + i, count) * scale * loadUpTo(gain + i, count), count);
  });
}

/// gH = r·(gY·gain − h·r²·mean(gY·gain·h)) + gSum, with r = 1 / rms(h).
template <typename T>
void gradRow(std::int64_t width, const T* h, const T* gain, float inverseRms, const T* gY, const T* gSum,
             T* gH) {
  Vec dot = broadcast(0.f);
  forVectors(width, [&](std::int64_t i, std::int64_t count) {
    dot = fma(loadUpTo(gY + i, count) * loadUpTo(gain + i, count), loadUpTo(h + i, count), dot);
  });
  const Vec r = broadcast(inverseRms);
  const Vec shrink = broadcast(sumOf(dot) / static_cast<float>(width) * inverseRms * inverseRms);
  forVectors(width, [&](std::int64_t i, std::int64_t count) {
    const Vec g = loadUpTo(gY + i, count) * loadUpTo(gain + i, count);
    Vec result = r * (g - loadUpTo(h + i, count) * shrink);
    if (gSum != nullptr) result = result + loadUpTo(gSum + i, count);
    storeUpTo(gH + i, result, count);
  });
}

}  // namespace

Status CpuBackend::rmsNormForward(const NormShape& s, ConstView x, ConstView residual, ConstView gain,
                                  float epsilon, View sum, View y, View inverseRms) {
  constexpr const char* kCall = "rmsNormForward";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"rows", s.rows}, {"width", s.width}}));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"x", x}, {"gain", gain}, {"y", y}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"inverseRms", inverseRms}}));
  if (!residual.empty() && (residual.type != x.type || sum.empty())) {
    return badArgument(kCall, "residual", "needs the type of x, and a sum to go to");
  }
  if (!sum.empty() && sum.type != x.type) return badArgument(kCall, "sum", "must have the type of x");
  withElementType(x.type, [&](auto tag) {
    using T = decltype(tag);
    parallelRanges(threads_, s.rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t at = row * s.width;
        const T* const source = x.as<T>() + at;
        T* const h = sum.empty() ? nullptr : sum.as<T>() + at;
        const float r =
            sumRow(s.width, source, residual.empty() ? nullptr : residual.as<T>() + at, h, epsilon);
        inverseRms.as<float>()[row] = r;
        normRow(s.width, h == nullptr ? source : h, gain.as<T>(), r, y.as<T>() + at);
      }
    });
  });
  return Status::success();
}

Status CpuBackend::rmsNormBackward(const NormShape& s, ConstView h, ConstView gain, ConstView inverseRms,
                                   ConstView gY, ConstView gSum, View gH, View gGain, Workspace) {
  constexpr const char* kCall = "rmsNormBackward";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"rows", s.rows}, {"width", s.width}}));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"h", h}, {"gain", gain}, {"gY", gY}, {"gH", gH}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"inverseRms", inverseRms}, {"gGain", gGain}}));
  if (!gSum.empty() && gSum.type != h.type) return badArgument(kCall, "gSum", "must have the type of h");
  if (gH.data == gY.data || gH.data == h.data) return badArgument(kCall, "gH", "may alias only gSum");
  const float* const r = inverseRms.as<float>();
  withElementType(h.type, [&](auto tag) {
    using T = decltype(tag);
    // The gain's gradient sums over rows in order; threads take columns, so that the order never changes.
    parallelRanges(threads_, s.width, 64, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = 0; row < s.rows; ++row) {
        const Vec scale = broadcast(r[row]);
        const T* const gYRow = gY.as<T>() + row * s.width + begin;
        const T* const hRow = h.as<T>() + row * s.width + begin;
        float* const target = gGain.as<float>() + begin;
        forVectors(end - begin, [&](std::int64_t i, std::int64_t count) {
          const Vec term = loadUpTo(gYRow + i, count) * (loadUpTo(hRow + i, count) * scale);
          storeUpTo(target + i, loadUpTo(target + i, count) + term, count);
        });
      }
    });
    parallelRanges(threads_, s.rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t at = row * s.width;
        gradRow(s.width, h.as<T>() + at, gain.as<T>(), r[row], gY.as<T>() + at,
                gSum.empty() ? nullptr : gSum.as<T>() + at, gH.as<T>() + at);
      }
    });
  });
  return Status::success();
}

Status CpuBackend::add(std::int64_t elements, ConstView a, ConstView b, View y) {
  INTERNEVO_RETURN_IF_ERROR(requirePositive("add", {{"elements", elements}}));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats("add", {{"a", a}, {"b", b}, {"y", y}}));
  withElementType(a.type, [&](auto tag) {
    using T = decltype(tag);
    parallelRanges(threads_, elements, 4096, [&](std::int64_t begin, std::int64_t end, int) {
      forVectors(end - begin, [&](std::int64_t i, std::int64_t count) {
        const std::int64_t at = begin + i;
        storeUpTo(y.as<T>() + at, loadUpTo(a.as<T>() + at, count) + loadUpTo(b.as<T>() + at, count), count);
      });
    });
  });
  return Status::success();
}

}  // namespace internevo::cpu
