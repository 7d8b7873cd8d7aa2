// Packing of the operands of float32 products into panels, as gemm.cpp's tiles read them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/simd.h"
#include "internevo/tensor.h"

namespace internevo::cpu {

#if defined(__AVX2__) && defined(__FMA__)
inline __m256 loadEight(const float* p) { return _mm256_loadu_ps(p); }
inline __m256 loadEight(const Bfloat16* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/// target[column · targetStride + row] = source[row · sourceStride + column] for 8 columns and `rows` ≤ 8 rows;
/// writes 8 floats a column, zeros where there is no row.
template <typename T>
inline void transposeEight(const T* source, std::int64_t sourceStride, std::int64_t rows, float* target,
                           std::int64_t targetStride) {
  __m256 r[8];
  for (int i = 0; i < 8; ++i) r[i] = i < rows ? loadEight(source + i * sourceStride) : _mm256_setzero_ps();
  __m256 t[8], u[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(target + i * targetStride, _mm256_permute2f128_ps(u[i], u[i + 4], 0x20));
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(target + (i + 4) * targetStride, _mm256_permute2f128_ps(u[i], u[i + 4], 0x31));
  }
}
#endif

/// packed[p · Lanes + lane] = source(lane, p), where p is contiguous in the source; lanes ≥ `lanes` become 0.
/// May write up to 7 floats past the end of the panel, which the next panel or the buffer's slack takes.
template <int Lanes, typename T>
void packTransposed(const T* source, std::int64_t laneStride, std::int64_t lanes, std::int64_t k,
                    float* packed) {
  std::int64_t p = 0;
#if defined(__AVX2__) && defined(__FMA__)
  for (; p + 8 <= k; p += 8) {
    // The last group first: a group that is narrower than 8 spills into the lanes that the first one then writes.
    for (int group = (Lanes - 1) / 8 * 8; group >= 0; group -= 8) {
      const std::int64_t valid = std::clamp<std::int64_t>(lanes - group, 0, 8);
      transposeEight(source + group * laneStride + p, laneStride, valid, packed + p * Lanes + group, Lanes);
    }
  }
#endif
  for (; p < k; ++p) {
    for (int lane = 0; lane < Lanes; ++lane) {
      packed[p * Lanes + lane] = lane < lanes ? toFloat(source[lane * laneStride + p]) : 0.f;
    }
  }
}

/// The same where lanes are contiguous in the source.
template <int Lanes, typename T>
void packStraight(const T* source, std::int64_t depthStride, std::int64_t lanes, std::int64_t k,
                  float* packed) {
  for (std::int64_t p = 0; p < k; ++p) {
    for (int lane = 0; lane < Lanes; ++lane) {
      packed[p * Lanes + lane] = lane < lanes ? toFloat(source[p * depthStride + lane]) : 0.f;
    }
  }
}

/// `Panels` whole panels side by side, so that a row of the source is read in one piece. Where a panel is not a multiple
/// of a vector wide the last vector of a row spills into the next row, which is written after it, and at last into the
/// panel behind, whose first row is then written again.
template <int Lanes, int Panels, typename T>
void packStraightPanels(const T* source, std::int64_t depthStride, std::int64_t k, float* packed) {
  constexpr int kVectors = (Lanes + Vec::width - 1) / Vec::width;
  constexpr int kSpill = kVectors * Vec::width - Lanes;
  for (std::int64_t p = 0; p + (kSpill > 0) < k; ++p, source += depthStride) {
#pragma GCC unroll 16
    for (int panel = 0; panel < Panels; ++panel) {
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) {
        store(packed + panel * Lanes * k + p * Lanes + i * Vec::width,
              load(source + panel * Lanes + i * Vec::width));
      }
    }
  }
  if constexpr (kSpill > 0) {
    for (int panel = 0; panel < Panels; ++panel)
      packStraight<Lanes>(source + panel * Lanes, 0, Lanes, 1, packed + panel * Lanes * k + (k - 1) * Lanes);
  }
}

/// Asks for `lanes` × k elements, of which runs of `runElements` lie together: their loads then overlap instead of
/// waiting for one another.
template <typename T>
inline void prefetchSource(const T* source, std::int64_t runs, std::int64_t runStride,
                           std::int64_t runElements) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t run = 0; run < runs; ++run) {
    for (std::int64_t i = 0; i < runElements; i += kLine) __builtin_prefetch(source + run * runStride + i);
  }
}

/// Panels that are packed side by side: some lines of the cache of each row.
template <int Lanes>
constexpr int kPackedTogether = std::max(1, 48 / Lanes);

/// Panels of `Lanes` along the first index of source(lane, p).
template <int Lanes, typename T>
void packPanels(const T* source, std::int64_t laneStride, std::int64_t depthStride, std::int64_t lanes,
                std::int64_t k, float* packed) {
  constexpr int kTogether = kPackedTogether<Lanes>;
  std::int64_t first = 0;
  if (depthStride != 1) {
    // The last vector of a group may reach past its lanes, so one lane more than the vectors need stays behind it.
    for (; first + kTogether * Lanes + Vec::width <= lanes;
         first += kTogether * Lanes, packed += kTogether * Lanes * k) {
      const std::int64_t next = first + kTogether * Lanes;
      prefetchSource(source + next * laneStride, k, depthStride,
                     std::min<std::int64_t>(kTogether * Lanes, lanes - next));
      packStraightPanels<Lanes, kTogether>(source + first * laneStride, depthStride, k, packed);
    }
  }
  for (; first < lanes; first += Lanes, packed += Lanes * k) {
    const std::int64_t count = std::min<std::int64_t>(Lanes, lanes - first);
    if (depthStride == 1)
      prefetchSource(source + (first + count) * laneStride,
                     std::min<std::int64_t>(Lanes, lanes - first - count), laneStride, k);
    const T* const start = source + first * laneStride;
    if (depthStride == 1) {
      packTransposed<Lanes>(start, laneStride, count, k, packed);
    } else {
      packStraight<Lanes>(start, depthStride, count, k, packed);
    }
  }
}

template <int Lanes>
void packAny(ConstView source, std::int64_t laneStride, std::int64_t depthStride, std::int64_t lanes,
             std::int64_t k, float* packed) {
  if (source.type == DataType::float32) {
    packPanels<Lanes>(source.as<float>(), laneStride, depthStride, lanes, k, packed);
  } else {
    packPanels<Lanes>(source.as<Bfloat16>(), laneStride, depthStride, lanes, k, packed);
  }
}

}  // namespace internevo::cpu
