// Learning rate of a step: linear warm-up, then cosine decay to the minimum at decaySteps.
#pragma once

#include <cmath>
#include <cstdint>

#include "trainer/config.h"

namespace internevo::trainer {

/// `step` is 1-based. The peak is reached at warmupSteps, the minimum at decaySteps and kept after it.
inline double learningRateAt(const OptimizerConfig& o, std::int64_t step) {
  if (step <= o.warmupSteps) {
    return o.peakLearningRate * static_cast<double>(step) / static_cast<double>(o.warmupSteps);
  }
  if (step >= o.decaySteps) return o.minLearningRate;
  const double progress =
      static_cast<double>(step - o.warmupSteps) / static_cast<double>(o.decaySteps - o.warmupSteps);
  return o.minLearningRate +
         0.5 * (1 + std::cos(3.141592653589793 * progress)) * (o.peakLearningRate - o.minLearningRate);
}

}  // namespace internevo::trainer
