// How attention's kernels store their rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/simd.h"

namespace internevo::cpu {

/// The largest score of a query that has seen nothing; finite, so that a difference of two is a number.
constexpr float kNothingSeen = -std::numeric_limits<float>::max();
/// Scores are kept in units of log2(e): 2^x costs less than e^x.
constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2 = 0.693147180559945309f;

/// One row's result, alone or put together with what is in o and logSumExp.
template <typename O>
inline void storeRow(std::int64_t size, const float* output, float largest, float total, bool merge, O* o,
                     float* logSumExp) {
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  if (total == 0.f) {  // nothing was seen
    if (merge) return;
    for (std::int64_t i = 0; i < size; ++i) storeFloat(o + i, 0.f);
    *logSumExp = kMinusInfinity;
    return;
  }
  const float inverse = 1.f / total, own = largest * kLn2 + std::log(total);
  if (!merge || *logSumExp == kMinusInfinity) {
    const Vec factor = broadcast(inverse);
    forVectors(size, [&](std::int64_t i, std::int64_t count) {
      storeUpTo(o + i, loadUpTo(output + i, count) * factor, count);
    });
    *logSumExp = own;
    return;
  }
  const float top = std::max(own, *logSumExp);
  const float before = std::exp(*logSumExp - top), here = std::exp(own - top), both = before + here;
  const Vec keep = broadcast(before / both), factor = broadcast(inverse * (here / both));
  forVectors(size, [&](std::int64_t i, std::int64_t count) {
    storeUpTo(o + i, fma(loadUpTo(output + i, count), factor, loadUpTo(o + i, count) * keep), count);
  });
  *logSumExp = top + std::log(both);
}

/// target[0, size) = source · scale, or += where `add`.
template <typename G>
inline void storeGradient(std::int64_t size, const float* source, Vec scale, bool add, G* target) {
  forVectors(size, [&](std::int64_t i, std::int64_t count) {
    const Vec value = loadUpTo(source + i, count) * scale;
    storeUpTo(target + i, add ? loadUpTo(target + i, count) + value : value, count);
  });
}

}  // namespace internevo::cpu
