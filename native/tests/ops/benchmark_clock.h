// What the operator benchmarks share: processor time of one thread, medians, and what its multiply-adds reach.
#pragma once

#include <algorithm>
#include <ctime>
#include <vector>

#include "backend/cpu/simd.h"

namespace internevo::test {

inline double processorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <typename Body>
double secondsOf(const Body& body) {
  const double start = processorSeconds();
  body();
  return processorSeconds() - start;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// What a call takes when nothing else disturbs the caches.
inline double least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

/// FLOP/s of independent fused multiply-adds that never leave the registers.
inline double peakFlopsPerSecond() {
  using cpu::Vec;
  constexpr int kChains = 12, kSteps = 2000000;
  Vec sum[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sum[i] = cpu::broadcast(static_cast<float>(i));
  const Vec factor = cpu::broadcast(0.999f), term = cpu::broadcast(1e-3f);
  const double start = processorSeconds();
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sum[i] = fma(sum[i], factor, term);
  }
  volatile float sink = 0;
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sink = sink + cpu::sumOf(sum[i]);
  return 2.0 * kChains * Vec::width * kSteps / (processorSeconds() - start);
}

}  // namespace internevo::test
