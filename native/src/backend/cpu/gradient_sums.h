// Sums of many rows that are added to a gradient of a parameter.
#pragma once

#include <algorithm>

#include "backend/cpu/simd.h"
#include "internevo/tensor.h"

namespace internevo::cpu {

/// Columns of a bfloat16 gradient that are summed at a time, on the stack of a thread.
constexpr std::int64_t kGradientSumColumns = 1024;

/// Elements [begin, end) of `gradient`, piece by piece: add(first, columns, sums) adds to float32 sums[columns], which begin as
/// what the gradient holds from element `first` on. A float32 gradient holds the sums itself, in one piece; into a bfloat16 one
/// each is rounded once, when `add` is done with it.
template <typename Add>
void addToGradient(View gradient, std::int64_t begin, std::int64_t end, const Add& add) {
  if (gradient.type == DataType::float32) return add(begin, end - begin, gradient.as<float>() + begin);
  alignas(kAlignmentBytes) float sums[kGradientSumColumns];
  for (std::int64_t first = begin; first < end; first += kGradientSumColumns) {
    const std::int64_t columns = std::min(kGradientSumColumns, end - first);
    Bfloat16* const target = gradient.as<Bfloat16>() + first;
    forVectors(columns, [&](std::int64_t i, std::int64_t count) {
      storeUpTo(sums + i, loadUpTo(target + i, count), count);
    });
    add(first, columns, static_cast<float*>(sums));
    forVectors(columns, [&](std::int64_t i, std::int64_t count) {
      storeUpTo(target + i, loadUpTo(sums + i, count), count);
    });
  }
}

}  // namespace internevo::cpu
