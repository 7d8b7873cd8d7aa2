// The gradient of the logits and the products with it.
#pragma once

#include <algorithm>
#include <atomic>

#include "backend/cpu/gemm.h"

namespace internevo::cpu {

/// As the gradient of the logits is stored: bfloat16 where both of its products are with that, as on GPUs.
inline DataType headGradientType(ConstView x, ConstView w) {
  return x.type == DataType::bfloat16 && w.type == DataType::bfloat16 ? DataType::bfloat16
                                                                      : DataType::float32;
}

/// One row: its exponentials times `scale`, minus `gradientScale` at `target` (−1: none there) -> the gradient, from where the
/// row begins. What is stored never lies ahead of what is read.
template <typename T>
void gradientOfRow(std::int64_t vocabulary, std::int64_t target, float gradientScale, float scale,
                   float* exponentials) {
  T* const gradient = reinterpret_cast<T*>(exponentials);
  const float ofTarget = target < 0 ? 0.f : exponentials[target] * scale - gradientScale;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // numbers of another type take the place of these
  forVectors(vocabulary, [&](std::int64_t i, std::int64_t count) {
    storeUpTo(gradient + i, loadUpTo(exponentials + i, count) * broadcast(scale), count);
  });
  if (target >= 0) storeFloat(gradient + target, ofTarget);
}
/// The gradient of a row that is not counted.
template <typename T>
void zeroGradientOfRow(std::int64_t vocabulary, float* logits) {
  std::fill_n(reinterpret_cast<T*>(logits), vocabulary, T{});
}

/// gW += gradientᵀ · x and gX = gradient · w. A row of the gradient begins where the row of `vocabulary` float32 logits did.
inline void headGradients(std::int64_t rows, std::int64_t width, std::int64_t vocabulary, ConstView x,
                          ConstView w, ConstView gradient, View gX, View gW, int threads, void* scratch) {
  const std::int64_t stride = vocabulary * 4 / bytesPerElement(gradient.type);
  // The weight's gradient first: gX may be stored over x.
  gemm({vocabulary, width, rows, gradient, 1, stride, x, width, 1, gW, width, true}, threads, scratch);
  gemm({rows, width, vocabulary, gradient, stride, 1, w, width, 1, gX, width, false}, threads, scratch);
}

}  // namespace internevo::cpu
