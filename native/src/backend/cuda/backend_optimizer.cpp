#include <cmath>

#include "backend/checks.h"
#include "backend/cuda/backend.h"
#include "backend/cuda/kernels/initial_weights.h"
#include "backend/cuda/kernels/optimizer.h"
#include "backend/cuda/launch.h"

namespace internevo::cuda {

namespace {

float correctionOf(float beta, std::int64_t step) {
  return static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(step))));
}

AdamwFactors factorsOf(const AdamwSettings& s) {
  return {s.beta1,
          static_cast<float>(1.0 - static_cast<double>(s.beta1)),
          s.beta2,
          static_cast<float>(1.0 - static_cast<double>(s.beta2)),
          s.gradientScale,
          correctionOf(s.beta1, s.step),
          correctionOf(s.beta2, s.step),
          s.epsilon,
          s.learningRate,
          s.weightDecay};
}

}  // namespace

Status CudaBackend::adamw(std::int64_t elements, const AdamwSettings& settings, View parameters, View master,
                          ConstView gradient, View firstMoment, View secondMoment) {
  constexpr const char* kCall = "adamw";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"elements", elements}, {"step", settings.step}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"parameters", parameters}, {"gradient", gradient}}));
  INTERNEVO_RETURN_IF_ERROR(
      requireFloat32(kCall, {{"firstMoment", firstMoment}, {"secondMoment", secondMoment}}));
  const bool narrow = parameters.type == DataType::bfloat16;
  if (narrow) INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"master", master}}));
  if (!narrow && !master.empty())
    return badArgument(kCall, "master", "must be empty with float32 parameters");
  float* const weights = narrow ? master.as<float>() : parameters.as<float>();
  Bfloat16* const rounded = narrow ? parameters.as<Bfloat16>() : nullptr;
  return withElementType(gradient.type, [&](auto tag) {
    using G = decltype(tag);
    return withPieces(
        {elements}, {weights, rounded, gradient.data, firstMoment.data, secondMoment.data}, [&](auto piece) {
          constexpr int N = decltype(piece)::value;
          using Kernel = AdamwKernel<N, G>;
          return launch(queue(), {blocksFor(elements / N, Kernel::kThreads)},
                        Kernel{elements / N, factorsOf(settings), weights, rounded, gradient.as<G>(),
                               firstMoment.as<float>(), secondMoment.as<float>()},
                        kCall);
        });
  });
}

Status CudaBackend::initialNormal(const InitialShape& s, std::uint64_t key, double standardDeviation,
                                  View target) {
  INTERNEVO_RETURN_IF_ERROR(checkInitial(s, target));
  return launch(queue(), {blocksFor(s.elements, InitialNormalKernel::kThreads)},
                InitialNormalKernel{s, key, standardDeviation, target.as<float>()}, "initialNormal");
}

Status CudaBackend::squaredNorm(std::int64_t elements, ConstView x, ExactSum* sum) {
  constexpr const char* kCall = "squaredNorm";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"elements", elements}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"x", x}}));
  if (sum == nullptr) return badArgument(kCall, "sum", "is missing");
  std::int64_t* words = nullptr;
  INTERNEVO_RETURN_IF_ERROR(sumOf(sum, &words));
  return withElementType(x.type, [&](auto tag) {
    using T = decltype(tag);
    using Kernel = SquaredNormKernel<T>;
    return launch(queue(), {blocksFor(elements, Kernel::kThreads / 4 * Kernel::kNormBlock)},
                  Kernel{elements, x.as<T>(), words}, kCall);
  });
}

}  // namespace internevo::cuda
