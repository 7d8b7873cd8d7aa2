// Sum of doubles whose result does not depend on the order or the grouping of the additions, so that
// losses and gradient norms are the same bits under every sharding of the same numbers.
#pragma once

#include <array>
#include <cstdint>

namespace internevo {

/// Fixed point: limb i counts units of 2^(32·i − 96); the last word counts values that are not finite or
/// do not fit (|x| ≥ 2^63). Bits below 2^-96 are dropped from each addend. Add across ranks by an all-reduce
/// (sum) of `words` as kWords int64; good for 2^30 additions in all.
struct ExactSum {
  static constexpr int kLimbs = 5;
  static constexpr int kWords = kLimbs + 1;
  std::array<std::int64_t, kWords> words{};

  void add(double value) noexcept;
  void add(const ExactSum& other) noexcept;
  /// The sum rounded to double; NaN when any addend was not representable.
  double value() const noexcept;
};

}  // namespace internevo
