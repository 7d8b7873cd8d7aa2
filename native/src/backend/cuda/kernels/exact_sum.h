// ExactSum on a device: the same words, added by atomics, which for integers keep no order and need none.
#pragma once

#include "backend/cuda/portable.h"
#include "internevo/exact_sum.h"

namespace internevo::cuda {

constexpr int kSumLimbs = ExactSum::kLimbs, kSumWords = ExactSum::kWords;

/// The words that one value adds, as ExactSum::add has them.
struct SumWords {
  std::int64_t words[kSumWords];

  INTERNEVO_BOTH void clear() {
    for (int i = 0; i < kSumWords; ++i) words[i] = 0;
  }

  INTERNEVO_BOTH void add(double value) {
    std::uint64_t bits;
#ifdef __CUDA_ARCH__
    bits = static_cast<std::uint64_t>(__double_as_longlong(value));
#else
    __builtin_memcpy(&bits, &value, 8);
#endif
    const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
    if (exponent >= 1023 + 63) {  // |value| ≥ 2^63, infinite or NaN
      ++words[kSumLimbs];
      return;
    }
    if (exponent == 0) return;  // zero, or far below the lowest bit that is kept
    std::uint64_t mantissa = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
    int shift = exponent - 1023 - 52 + 96;  // value = mantissa · 2^(shift − 96)
    if (shift < 0) {
      if (shift <= -53) return;
      mantissa >>= -shift;
      shift = 0;
    }
    const int offset = shift % 32, first = shift / 32;
    const std::uint64_t low = mantissa << offset, high = offset == 0 ? 0 : mantissa >> (64 - offset);
    const std::int64_t pieces[3] = {static_cast<std::int64_t>(low & 0xffffffffu),
                                    static_cast<std::int64_t>(low >> 32), static_cast<std::int64_t>(high)};
    const bool negative = bits >> 63 != 0;
    for (int limb = 0; limb < kSumLimbs; ++limb) {
      for (int piece = 0; piece < 3; ++piece) {
        if (limb == first + piece) words[limb] += negative ? -pieces[piece] : pieces[piece];
      }
    }
  }

  template <class Thread>
  INTERNEVO_DEVICE void addTo(Thread& t, std::int64_t* target) const {
    for (int i = 0; i < kSumWords; ++i) {
      if (words[i] != 0) t.atomicAdd(target + i, words[i]);
    }
  }
};

}  // namespace internevo::cuda
