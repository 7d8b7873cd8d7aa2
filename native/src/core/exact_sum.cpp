#include "internevo/exact_sum.h"

#include <cmath>
#include <limits>

namespace internevo {

namespace {
constexpr int kLowestExponent = -96;
}

void ExactSum::add(double value) noexcept {
  if (value == 0) return;
  if (!(std::fabs(value) < 0x1p63)) {  // also catches NaN
    ++words[kLimbs];
    return;
  }
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);
  auto mantissa =
      static_cast<std::uint64_t>(std::ldexp(fraction, 53));  // value = mantissa · 2^(exponent − 53)
  int shift = exponent - 53 - kLowestExponent;
  if (shift < 0) {
    if (shift <= -53) return;
    mantissa >>= -shift;
    shift = 0;
  }
  const unsigned __int128 wide = static_cast<unsigned __int128>(mantissa) << (shift % 32);
  const std::int64_t sign = value < 0 ? -1 : 1;
  for (int piece = 0, limb = shift / 32; piece < 3 && limb < kLimbs; ++piece, ++limb) {
    words[limb] += sign * static_cast<std::int64_t>(static_cast<std::uint32_t>(wide >> (32 * piece)));
  }
}

void ExactSum::add(const ExactSum& other) noexcept {
  for (int i = 0; i < kWords; ++i) words[i] += other.words[i];
}

double ExactSum::value() const noexcept {
  if (words[kLimbs] != 0) return std::numeric_limits<double>::quiet_NaN();
  // Carries are resolved first, so that equal sums give equal doubles however they were put together.
  std::array<std::int64_t, kLimbs> limbs{};
  std::int64_t carry = 0;
  for (int i = 0; i < kLimbs; ++i) {
    const std::int64_t total = words[i] + carry;
    if (i + 1 == kLimbs) {
      limbs[i] = total;
    } else {
      carry = total >> 32;
      limbs[i] = total - (carry << 32);
    }
  }
  double result = 0;
  for (int i = kLimbs - 1; i >= 0; --i) {
    result += std::ldexp(static_cast<double>(limbs[i]), 32 * i + kLowestExponent);
  }
  return result;
}

}  // namespace internevo
