// Counter-based random numbers: the value at (key, index) is a function of both and of nothing else, and has the same bits wherever it
// is computed: by a processor or by a GPU. So logarithm and cosine are computed here, after fdlibm (Sun Microsystems, 1993), and
// every product that goes into a sum is a fused one: neither compiler has anything left to contract.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define INTERNEVO_ANYWHERE __host__ __device__ constexpr
#else
#define INTERNEVO_ANYWHERE constexpr
#endif

namespace internevo {

/// SplitMix64's output function (Steele, Lea, Flood 2014): a bijection of 64 bits.
INTERNEVO_ANYWHERE std::uint64_t mix64(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

INTERNEVO_ANYWHERE std::uint64_t randomBits(std::uint64_t key, std::uint64_t index) noexcept {
  return mix64(key ^ mix64(index));
}

namespace random {

#ifdef __CUDACC__
#define INTERNEVO_ANYWHERE_INLINE __host__ __device__ inline
#else
#define INTERNEVO_ANYWHERE_INLINE inline
#endif

/// Natural logarithm of a normal number in (0, 1), to 1 unit in the last place.
INTERNEVO_ANYWHERE_INLINE double logarithm(double u) noexcept {
  constexpr double kHigh = 6.93147180369123816490e-01, kLow = 1.90821492927058770002e-10;  // of ln 2
  constexpr std::uint64_t kFraction = (std::uint64_t{1} << 52) - 1, kOne = std::uint64_t{1023} << 52;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(u);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & kFraction) | kOne);
  if (m > 1.4142135623730951) m *= 0.5, ++exponent;
  const double f = m - 1, s = f / (2 + f), z = s * s, w = z * z, k = exponent;
  const double even =
      fma(w, fma(w, 1.531383769920937332e-01, 2.222219843214978396e-01), 3.999999999940941908e-01);
  const double odd =
      fma(w, fma(w, fma(w, 1.479819860511658591e-01, 1.818357216161805012e-01), 2.857142874366239149e-01),
          6.666666666666735130e-01);
  const double rest = fma(w, even, z * odd), half = 0.5 * f;
  const double correction = fma(s, fma(half, f, rest), k * kLow);
  return fma(k, kHigh, -(fma(half, f, -correction) - f));
}

/// cos(2π · turns / 2^32), to 2 units in the last place.
INTERNEVO_ANYWHERE_INLINE double cosineOfTurns(std::uint32_t turns) noexcept {
  // The nearest quarter of a turn, and what is left of [-π/4, π/4].
  const std::uint64_t quarter = (std::uint64_t{turns} + (1u << 29)) >> 30;
  const double x =
      static_cast<double>(static_cast<std::int64_t>(turns) - static_cast<std::int64_t>(quarter << 30)) *
      (6.283185307179586476925 * 0x1p-32);
  const double z = x * x;
  if (quarter % 2 == 1) {
    const double tail = fma(z,
                            fma(z,
                                fma(z, fma(z, 1.58969099521155010221e-10, -2.50507602534068634195e-08),
                                    2.75573137070700676789e-06),
                                -1.98412698298579493134e-04),
                            8.33333333332248946124e-03);
    const double sine = fma(z * x, fma(z, tail, -1.66666666666666324348e-01), x);
    return quarter % 4 == 1 ? -sine : sine;
  }
  const double tail = fma(z,
                          fma(z,
                              fma(z,
                                  fma(z, fma(z, -1.13596475577881948265e-11, 2.08757232129817482790e-09),
                                      -2.75573143513906633035e-07),
                                  2.48015872894767294178e-05),
                              -1.38888888888741095749e-03),
                          4.16666666666666019037e-02);
  const double half = 0.5 * z, most = 1 - half;
  const double cosine = most + fma(z, z * tail, (1 - most) - half);
  return quarter % 4 == 0 ? cosine : -cosine;
}

}  // namespace random

/// Standard normal (Box-Muller on two halves of 64 bits).
INTERNEVO_ANYWHERE_INLINE double randomNormal(std::uint64_t key, std::uint64_t index) noexcept {
  const std::uint64_t bits = randomBits(key, index);
  const double u = (static_cast<double>(bits >> 32) + 0.5) * 0x1p-32;  // (0, 1)
  return sqrt(-2 * random::logarithm(u)) * random::cosineOfTurns(static_cast<std::uint32_t>(bits));
}

}  // namespace internevo
