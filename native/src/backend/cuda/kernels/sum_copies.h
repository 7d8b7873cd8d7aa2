// The sum of what several ranks computed, in the tree of internevo/collectives.h.
#pragma once

#include "backend/cuda/portable.h"

namespace internevo::cuda {

/// target[r·targetStride + i] = tree over c of copy c at r·rowElements + i, added in float32 and rounded once. Copy c is
/// copies + c·copyStride, but copy `own` (−1: none) is `ownCopy`, which may be the target.
///
/// tree(first, n) = tree(first, half) + tree(first + half, n − half), half the largest power of two below n: whole subtrees of equal
/// size are added as soon as they are there, like the digits of a binary counter, and what remains from the smallest upwards.
template <typename T>
struct SumCopiesKernel {
  static constexpr int kThreads = 256;
  static constexpr int kDepth = 13;  // 4096 copies
  std::int64_t rows, rowElements, targetStride;
  int count, own;
  const T* copies;
  std::int64_t copyStride;
  const T* ownCopy;
  T* target;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const std::int64_t elements = rows * rowElements;
    for (std::int64_t e = t.blockX() * kThreads + t.x(); e < elements; e += t.gridX() * kThreads) {
      float sums[kDepth];
      int depth = 0;
      for (int c = 0; c < count; ++c) {
        sums[depth++] = toFloat((c == own ? ownCopy : copies + c * copyStride)[e]);
        for (int done = c + 1; done % 2 == 0; done /= 2, --depth) sums[depth - 2] += sums[depth - 1];
      }
      for (; depth > 1; --depth) sums[depth - 2] += sums[depth - 1];
      storeFloat(target + e / rowElements * targetStride + e % rowElements, sums[0]);
    }
  }
};

}  // namespace internevo::cuda
