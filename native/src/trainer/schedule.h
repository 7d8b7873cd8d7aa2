// Learning rate of a step: linear warm-up to the peak, then what the schedule says.
#pragma once

#include <cmath>
#include <cstdint>

#include "trainer/config.h"

namespace internevo::trainer {

/// `step` is 1-based. Every schedule reaches the peak at warmupSteps. Of those that decay, each reaches the minimum at decaySteps and
/// keeps it: cosine by half a wave and linear by a line from the end of warm-up on, warm-up-stable-decay by a line over the last
/// annealingSteps, before which it keeps the peak.
inline double learningRateAt(const OptimizerConfig& o, std::int64_t step) {
  if (step <= o.warmupSteps) {
    return o.peakLearningRate * static_cast<double>(step) / static_cast<double>(o.warmupSteps);
  }
  if (o.schedule == LearningRateSchedule::constant) return o.peakLearningRate;
  if (step >= o.decaySteps) return o.minLearningRate;
  const bool stable = o.schedule == LearningRateSchedule::warmupStableDecay;
  const std::int64_t begin = stable ? o.decaySteps - o.annealingSteps : o.warmupSteps;
  if (step <= begin) return o.peakLearningRate;
  const double progress = static_cast<double>(step - begin) / static_cast<double>(o.decaySteps - begin);
  const double range = o.peakLearningRate - o.minLearningRate;
  if (o.schedule != LearningRateSchedule::cosine) return o.minLearningRate + (1 - progress) * range;
  return o.minLearningRate + 0.5 * (1 + std::cos(3.141592653589793 * progress)) * range;
}

}  // namespace internevo::trainer
