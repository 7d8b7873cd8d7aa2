#include <cmath>

#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gradient_sums.h"
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

/// gGain += gY · h · inverseRms, one row of it.
template <typename T>
void addGainTerms(std::int64_t width, const T* h, float inverseRms, const T* gY, float* gGain) {
  const Vec scale = broadcast(inverseRms);
  forVectors(width, [&](std::int64_t i, std::int64_t count) {
    const Vec term = loadUpTo(gY + i, count) * (loadUpTo(h + i, count) * scale);
    storeUpTo(gGain + i, loadUpTo(gGain + i, count) + term, count);
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
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"inverseRms", inverseRms}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gGain", gGain}}));
  if (!gSum.empty() && gSum.type != h.type) return badArgument(kCall, "gSum", "must have the type of h");
  if (gH.data == gY.data || gH.data == h.data) return badArgument(kCall, "gH", "may alias only gSum");
  const float* const r = inverseRms.as<float>();
  withElementType(h.type, [&](auto tag) {
    using T = decltype(tag);
    // The gain's gradient sums over rows in order; threads take columns, so that the order never changes.
    parallelRanges(threads_, s.width, 64, [&](std::int64_t begin, std::int64_t end, int) {
      addToGradient(gGain, begin, end, [&](std::int64_t first, std::int64_t columns, float* sums) {
        for (std::int64_t row = 0; row < s.rows; ++row) {
          const std::int64_t at = row * s.width + first;
          addGainTerms(columns, h.as<T>() + at, r[row], gY.as<T>() + at, sums);
        }
      });
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

Status CpuBackend::headNormForward(const HeadNormShape& given, ConstView x, ConstView gain, float epsilon,
                                   View y, View inverseRms) {
  constexpr const char* kCall = "headNormForward";
  HeadNormShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepareHeadNorm(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"x", x}, {"gain", gain}, {"y", y}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"inverseRms", inverseRms}}));
  if (y.data == x.data && s.inputStride != s.outputStride) {
    return badArgument(kCall, "y", "is x, so inputStride and outputStride must be equal");
  }
  withElementType(x.type, [&](auto tag) {
    using T = decltype(tag);
    parallelRanges(threads_, s.rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t at = begin * s.heads; at < end * s.heads; ++at) {
        const std::int64_t row = at / s.heads, head = at % s.heads * s.headSize;
        const T* const source = x.as<T>() + row * s.inputStride + head;
        const float r = sumRow<T>(s.headSize, source, nullptr, nullptr, epsilon);
        inverseRms.as<float>()[at] = r;
        normRow(s.headSize, source, gain.as<T>(), r, y.as<T>() + row * s.outputStride + head);
      }
    });
  });
  return Status::success();
}

Status CpuBackend::headNormBackward(const HeadNormShape& given, ConstView x, ConstView gain,
                                    ConstView inverseRms, ConstView gY, View gX, View gGain, Workspace) {
  constexpr const char* kCall = "headNormBackward";
  HeadNormShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepareHeadNorm(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"x", x}, {"gain", gain}, {"gY", gY}, {"gX", gX}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"inverseRms", inverseRms}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gGain", gGain}}));
  if (gX.data == x.data) return badArgument(kCall, "gX", "may alias only gY");
  const float* const r = inverseRms.as<float>();
  withElementType(x.type, [&](auto tag) {
    using T = decltype(tag);
    const auto input = [&](std::int64_t row, std::int64_t head) {
      return x.as<T>() + row * s.inputStride + head * s.headSize;
    };
    const auto gradient = [&](std::int64_t row, std::int64_t head) {
      return gY.as<T>() + row * s.outputStride + head * s.headSize;
    };
    // Rows in order, and a row's heads in order; threads take columns, so that the order never changes.
    parallelRanges(threads_, s.headSize, 16, [&](std::int64_t begin, std::int64_t end, int) {
      addToGradient(gGain, begin, end, [&](std::int64_t first, std::int64_t columns, float* sums) {
        for (std::int64_t at = 0; at < s.rows * s.heads; ++at) {
          const std::int64_t row = at / s.heads, head = at % s.heads;
          addGainTerms(columns, input(row, head) + first, r[at], gradient(row, head) + first, sums);
        }
      });
    });
    parallelRanges(threads_, s.rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t at = begin * s.heads; at < end * s.heads; ++at) {
        const std::int64_t row = at / s.heads, head = at % s.heads;
        gradRow<T>(s.headSize, input(row, head), gain.as<T>(), r[at], gradient(row, head), nullptr,
                   gX.as<T>() + row * s.outputStride + head * s.headSize);
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
