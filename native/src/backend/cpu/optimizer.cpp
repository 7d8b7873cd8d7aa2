#include <algorithm>
#include <cmath>

#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "backend/initial_weights.h"

namespace internevo::cpu {

namespace {

constexpr std::int64_t kGrain = 4096;
constexpr std::int64_t kNormBlock = 64;

/// Loshchilov & Hutter's AdamW, with the corrections of the moments folded into two factors.
struct AdamwFactors {
  Vec beta1, oneMinusBeta1, beta2, oneMinusBeta2, gradientScale, correction1, correction2, epsilon,
      learningRate, decay;

  explicit AdamwFactors(const AdamwSettings& s)
      : beta1(broadcast(s.beta1)),
        oneMinusBeta1(broadcast(static_cast<float>(1.0 - static_cast<double>(s.beta1)))),
        beta2(broadcast(s.beta2)),
        oneMinusBeta2(broadcast(static_cast<float>(1.0 - static_cast<double>(s.beta2)))),
        gradientScale(broadcast(s.gradientScale)),
        correction1(
            broadcast(static_cast<float>(1.0 / (1.0 - std::pow(s.beta1, static_cast<double>(s.step)))))),
        correction2(
            broadcast(static_cast<float>(1.0 / (1.0 - std::pow(s.beta2, static_cast<double>(s.step)))))),
        epsilon(broadcast(s.epsilon)),
        learningRate(broadcast(s.learningRate)),
        decay(broadcast(s.weightDecay)) {}
};

/// One vector of weights: updates the moments in place and returns the new weights.
Vec update(const AdamwFactors& f, Vec w, Vec gradient, float* m, float* v, std::int64_t count) {
  const Vec g = gradient * f.gradientScale;
  const Vec first = f.beta1 * loadUpTo(m, count) + f.oneMinusBeta1 * g;
  const Vec second = f.beta2 * loadUpTo(v, count) + f.oneMinusBeta2 * (g * g);
  storeUpTo(m, first, count);
  storeUpTo(v, second, count);
  const Vec step = first * f.correction1 / (squareRoot(second * f.correction2) + f.epsilon);
  return w - f.learningRate * (step + f.decay * w);
}

double wide(float x) { return static_cast<double>(x); }
double wide(Bfloat16 x) { return static_cast<double>(floatFromBfloat16(x.bits)); }

template <typename T>
double sumOfSquares(const T* x, std::int64_t count) {
  double lane[4] = {0, 0, 0, 0};
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int j = 0; j < 4; ++j) lane[j] += wide(x[i + j]) * wide(x[i + j]);
  }
  for (; i < count; ++i) lane[i % 4] += wide(x[i]) * wide(x[i]);
  return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

}  // namespace

Status CpuBackend::adamw(std::int64_t elements, const AdamwSettings& settings, View parameters, View master,
                         ConstView gradient, View firstMoment, View secondMoment) {
  constexpr const char* kCall = "adamw";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"elements", elements}, {"step", settings.step}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"parameters", parameters}, {"gradient", gradient}}));
  INTERNEVO_RETURN_IF_ERROR(
      requireFloat32(kCall, {{"firstMoment", firstMoment}, {"secondMoment", secondMoment}}));
  const bool narrow = parameters.type == DataType::bfloat16;
  if (narrow) {
    INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"master", master}}));
  } else if (!master.empty()) {
    return badArgument(kCall, "master", "must be empty: float32 parameters are their own master");
  }
  const AdamwFactors factors(settings);
  float* const weights = narrow ? master.as<float>() : parameters.as<float>();
  withElementType(gradient.type, [&](auto tag) {
    using G = decltype(tag);
    parallelRanges(threads_, elements, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      forVectors(end - begin, [&](std::int64_t i, std::int64_t count) {
        const std::int64_t at = begin + i;
        const Vec w = update(factors, loadUpTo(weights + at, count), loadUpTo(gradient.as<G>() + at, count),
                             firstMoment.as<float>() + at, secondMoment.as<float>() + at, count);
        storeUpTo(weights + at, w, count);
        if (narrow) storeUpTo(parameters.as<Bfloat16>() + at, w, count);
      });
    });
  });
  return Status::success();
}

Status CpuBackend::squaredNorm(std::int64_t elements, ConstView x, ExactSum* sum) {
  constexpr const char* kCall = "squaredNorm";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"elements", elements}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"x", x}}));
  if (sum == nullptr) return badArgument(kCall, "sum", "is missing");
  withElementType(x.type, [&](auto tag) {
    using T = decltype(tag);
    parallelRanges(threads_, elements, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      ExactSum part;
      for (std::int64_t i = begin; i < end; i += kNormBlock) {
        part.add(sumOfSquares(x.as<T>() + i, std::min(kNormBlock, end - i)));
      }
#pragma omp critical(internevo_squared_norm)
      sum->add(part);
    });
  });
  return Status::success();
}

Status CpuBackend::accumulate(std::int64_t elements, ConstView source, View target) {
  constexpr const char* kCall = "accumulate";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"elements", elements}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"source", source}, {"target", target}}));
  withElementType(source.type, [&](auto from) {
    withElementType(target.type, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      parallelRanges(threads_, elements, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
        forVectors(end - begin, [&](std::int64_t i, std::int64_t count) {
          To* const t = target.as<To>() + begin + i;
          storeUpTo(t, loadUpTo(t, count) + loadUpTo(source.as<From>() + begin + i, count), count);
        });
      });
    });
  });
  return Status::success();
}

Status CpuBackend::convert(std::int64_t elements, ConstView source, View target) {
  constexpr const char* kCall = "convert";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"elements", elements}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"source", source}, {"target", target}}));
  withElementType(source.type, [&](auto from) {
    withElementType(target.type, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      parallelRanges(threads_, elements, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
        forVectors(end - begin, [&](std::int64_t i, std::int64_t count) {
          storeUpTo(target.as<To>() + begin + i, loadUpTo(source.as<From>() + begin + i, count), count);
        });
      });
    });
  });
  return Status::success();
}

Status CpuBackend::initialNormal(const InitialShape& s, std::uint64_t key, double standardDeviation,
                                 View target) {
  INTERNEVO_RETURN_IF_ERROR(checkInitial(s, target));
  parallelRanges(threads_, s.elements, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto index = static_cast<std::uint64_t>(placeInWhole(s, s.first + i));
      target.as<float>()[i] = static_cast<float>(standardDeviation * randomNormal(key, index));
    }
  });
  return Status::success();
}

Status CpuBackend::convertRows(std::int64_t rows, std::int64_t width, ConstView source,
                               std::int64_t sourceStride, View target, std::int64_t targetStride) {
  if (sourceStride == width && targetStride == width) return convert(rows * width, source, target);
  for (std::int64_t r = 0; r < rows; ++r) {
    INTERNEVO_RETURN_IF_ERROR(
        convert(width, source.offset(r * sourceStride), target.offset(r * targetStride)));
  }
  return Status::success();
}

}  // namespace internevo::cpu
