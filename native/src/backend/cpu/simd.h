// One vector of floats of the widest kind that the build's instruction set has, with a portable fallback.
// fma() is fused in every version, so a build differs from another only in the width of its partial sums.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) && defined(__FMA__)
// GCC 12 takes an operand that its own intrinsics leave undefined for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#include "internevo/tensor.h"

namespace internevo::cpu {

/// Storage type of a bfloat16 element.
struct Bfloat16 {
  std::uint16_t bits;
};

inline float toFloat(float value) { return value; }
inline float toFloat(Bfloat16 value) { return floatFromBfloat16(value.bits); }
inline void storeFloat(float* target, float value) { *target = value; }
inline void storeFloat(Bfloat16* target, float value) { target->bits = bfloat16FromFloat(value); }

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)

struct Vec {
  static constexpr int width = 16;
  __m512 v;
};
inline Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Vec load(const Bfloat16* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
inline void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
inline void store(Bfloat16* p, Vec a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i nan = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  rounded = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q), rounded, nan);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(rounded));
}
inline Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Vec squareRoot(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
/// value · 2^n, where n is the integer that `shifted` = n + kRounder holds in its lowest bits; no overflow or underflow.
inline Vec scaleByPowerOfTwo(Vec value, Vec shifted) {
  return {_mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(value.v), _mm512_slli_epi32(_mm512_castps_si512(shifted.v), 23)))};
}
/// value where x is not below the limit (or not a number), else 0.
inline Vec zeroBelow(Vec x, Vec limit, Vec value) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_NLT_UQ), value.v)};
}
/// Lanes [0, count) of a, the others of b.
inline Vec firstLanes(std::int64_t count, Vec a, Vec b) {
  return {_mm512_mask_blend_ps(static_cast<__mmask16>((1u << count) - 1), b.v, a.v)};
}

#elif defined(__AVX2__) && defined(__FMA__)

struct Vec {
  static constexpr int width = 8;
  __m256 v;
};
inline Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
inline Vec load(const Bfloat16* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
}
inline void store(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }
inline void store(Bfloat16* p, Vec a) {
  const __m256i bits = _mm256_castps_si256(a.v);
  const __m256i high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i isNan = _mm256_castps_si256(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q));
  const __m256i wide = _mm256_blendv_epi8(rounded, nan, isNan);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(wide, wide), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}
inline Vec broadcast(float x) { return {_mm256_set1_ps(x)}; }
inline Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
inline Vec squareRoot(Vec a) { return {_mm256_sqrt_ps(a.v)}; }
inline Vec scaleByPowerOfTwo(Vec value, Vec shifted) {
  return {_mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(value.v), _mm256_slli_epi32(_mm256_castps_si256(shifted.v), 23)))};
}
inline Vec zeroBelow(Vec x, Vec limit, Vec value) {
  return {_mm256_and_ps(_mm256_cmp_ps(x.v, limit.v, _CMP_NLT_UQ), value.v)};
}
inline Vec firstLanes(std::int64_t count, Vec a, Vec b) {
  alignas(32) static constexpr std::int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                          0,  0,  0,  0,  0,  0,  0,  0};
  return {_mm256_blendv_ps(b.v, a.v, _mm256_loadu_ps(reinterpret_cast<const float*>(kMasks + 8 - count)))};
}

#else

struct Vec {
  static constexpr int width = 8;
  float v[8];
};
template <typename F>
inline Vec lanes(F f) {
  Vec r;
  for (int i = 0; i < Vec::width; ++i) r.v[i] = f(i);
  return r;
}
inline Vec load(const float* p) {
  return lanes([&](int i) { return p[i]; });
}
inline Vec load(const Bfloat16* p) {
  return lanes([&](int i) { return toFloat(p[i]); });
}
template <typename T>
inline void store(T* p, Vec a) {
  for (int i = 0; i < Vec::width; ++i) storeFloat(p + i, a.v[i]);
}
inline Vec broadcast(float x) {
  return lanes([&](int) { return x; });
}
inline Vec operator+(Vec a, Vec b) {
  return lanes([&](int i) { return a.v[i] + b.v[i]; });
}
inline Vec operator-(Vec a, Vec b) {
  return lanes([&](int i) { return a.v[i] - b.v[i]; });
}
inline Vec operator*(Vec a, Vec b) {
  return lanes([&](int i) { return a.v[i] * b.v[i]; });
}
inline Vec operator/(Vec a, Vec b) {
  return lanes([&](int i) { return a.v[i] / b.v[i]; });
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return lanes([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
inline Vec max(Vec a, Vec b) {
  return lanes([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec min(Vec a, Vec b) {
  return lanes([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec squareRoot(Vec a) {
  return lanes([&](int i) { return std::sqrt(a.v[i]); });
}
inline Vec scaleByPowerOfTwo(Vec value, Vec shifted) {
  return lanes([&](int i) {
    std::uint32_t bits, power;
    std::memcpy(&bits, &value.v[i], 4);
    std::memcpy(&power, &shifted.v[i], 4);
    bits += power << 23;
    float result;
    std::memcpy(&result, &bits, 4);
    return result;
  });
}
inline Vec zeroBelow(Vec x, Vec limit, Vec value) {
  return lanes([&](int i) { return x.v[i] < limit.v[i] ? 0.f : value.v[i]; });
}
inline Vec firstLanes(std::int64_t count, Vec a, Vec b) {
  return lanes([&](int i) { return i < count ? a.v[i] : b.v[i]; });
}

#endif

/// The first `count` elements; the other lanes hold `fill`.
template <typename T>
inline Vec loadPartial(const T* p, std::int64_t count, float fill = 0.f) {
  float lane[Vec::width];
  for (int i = 0; i < Vec::width; ++i) lane[i] = i < count ? toFloat(p[i]) : fill;
  return load(lane);
}
template <typename T>
inline void storePartial(T* p, Vec a, std::int64_t count) {
  float lane[Vec::width];
  store(lane, a);
  for (int i = 0; i < count && i < Vec::width; ++i) storeFloat(p + i, lane[i]);
}

/// Sum: the upper half of the lanes is added to the lower one until one is left. The same in every version.
#if defined(__AVX2__) && defined(__FMA__)
inline float sumOf(__m256 a) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
inline float maxOf(__m256 a) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
inline float sumOf(Vec a) {
  return sumOf(_mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1)));
}
inline float maxOf(Vec a) {
  return maxOf(_mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1)));
}
#else
inline float sumOf(Vec a) { return sumOf(a.v); }
inline float maxOf(Vec a) { return maxOf(a.v); }
#endif
#else
inline float sumOf(Vec a) {
  for (int half = Vec::width / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
  }
  return a.v[0];
}
inline float maxOf(Vec a) {
  float result = a.v[0];
  for (int i = 1; i < Vec::width; ++i) result = a.v[i] > result ? a.v[i] : result;
  return result;
}
#endif

inline float firstOf(Vec a) {
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
  return _mm512_cvtss_f32(a.v);
#elif defined(__AVX2__) && defined(__FMA__)
  return _mm256_cvtss_f32(a.v);
#else
  return a.v[0];
#endif
}

/// Added to a number below 2^22 it leaves the nearest integer in the lowest bits.
constexpr float kRounder = 12582912.f;

/// e^x to about 1 unit in the last place; exactly 1 at 0, exactly 0 below −87.3 (also at −infinity), e^88 above 88.
inline Vec exponential(Vec x) {
  const Vec clamped = min(broadcast(88.02969f), x);
  const Vec shifted = fma(clamped, broadcast(1.44269504088896341f), broadcast(kRounder));
  const Vec n = shifted - broadcast(kRounder);
  Vec r = fma(n, broadcast(-0.693359375f), clamped);
  r = fma(n, broadcast(2.12194440e-4f), r);
  Vec p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  p = fma(p, r * r, r + broadcast(1.f));
  return zeroBelow(x, broadcast(-87.33654f), scaleByPowerOfTwo(p, shifted));
}

/// 2^x for x ≤ 127 to about 1 unit in the last place; exactly 1 at 0 and exactly 0 below −126 (also at −infinity).
/// The polynomial (of least relative error) is summed in pairs: a chain of multiply-adds would be twice as long.
inline Vec exponential2(Vec x) {
  const Vec shifted = x + broadcast(kRounder);
  const Vec r = x - (shifted - broadcast(kRounder));
  const Vec square = r * r;
  const Vec low = fma(r, broadcast(0.6931471824645996f), broadcast(1.f));
  const Vec middle = fma(r, broadcast(0.055503323674201965f), broadcast(0.24022647738456726f));
  Vec high = fma(r, broadcast(0.0013398875016719103f), broadcast(0.00961843691766262f));
  high = fma(square, broadcast(0.00015353361959569156f), high);
  const Vec p = fma(fma(high, square, middle), square, low);
  return zeroBelow(x, broadcast(-126.f), scaleByPowerOfTwo(p, shifted));
}

/// Calls step(offset, count) for consecutive vectors of [0, elements); count is Vec::width except at the end.
template <typename Step>
inline void forVectors(std::int64_t elements, Step step) {
  std::int64_t i = 0;
  for (; i + Vec::width <= elements; i += Vec::width) step(i, std::int64_t{Vec::width});
  if (i < elements) step(i, elements - i);
}
template <typename T>
inline Vec loadUpTo(const T* p, std::int64_t count, float fill = 0.f) {
  return count == Vec::width ? load(p) : loadPartial(p, count, fill);
}
template <typename T>
inline void storeUpTo(T* p, Vec a, std::int64_t count) {
  if (count == Vec::width) {
    store(p, a);
  } else {
    storePartial(p, a, count);
  }
}

}  // namespace internevo::cpu
