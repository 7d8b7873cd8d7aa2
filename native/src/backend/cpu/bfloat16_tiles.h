// Tiles of bfloat16 and their products, for the kernels that multiply bfloat16 in the instruction set's own arithmetic.
// Include it only where the build has AVX512-BF16 (INTERNEVO_BFLOAT16_TILES).
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/gemm_bfloat16.h"
#include "backend/cpu/simd.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && \
    defined(__AVX512BF16__)
#define INTERNEVO_BFLOAT16_TILES 1

namespace internevo::cpu {

/// A packed tile: 16 lanes (rows of A or columns of B) by 32 numbers of k, two of them in a word. Tiles of A are words by
/// lane, tiles of B words by pair.
constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kPairs = 16;
constexpr std::int64_t kTileDepth = 2 * kPairs;
constexpr std::int64_t kTileWords = kLanes * kPairs;
/// Two by two tiles of C are computed at once.
constexpr std::int64_t kSquare = 2 * kLanes;

inline Vec widened(__m256i half) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
/// low's lanes and then high's, rounded to the nearest bfloat16 (even on ties).
inline __m512i narrowed(Vec low, Vec high) { return (__m512i)_mm512_cvtne2ps_pbh(high.v, low.v); }

// ---- packing -------------------------------------------------------------------------------------------------------

inline __mmask16 firstOf16(std::int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<std::int64_t>(count, 0, 16)) - 1);
}
inline __mmask32 firstOf32(std::int64_t count) {
  return static_cast<__mmask32>((std::uint64_t{1} << std::clamp<std::int64_t>(count, 0, 32)) - 1);
}

/// 16 × 16 words.
inline void transpose(__m512i (&v)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now v[4g + c] has, in its quarter q, column 4q + c of rows 4g to 4g + 3.
  for (int c = 0; c < 4; ++c) {
    const __m512i a = _mm512_shuffle_i32x4(v[c], v[4 + c], 0x88),
                  b = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(v[c], v[4 + c], 0xdd),
                  e = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0xdd);
    t[c] = _mm512_shuffle_i32x4(a, b, 0x88);
    t[8 + c] = _mm512_shuffle_i32x4(a, b, 0xdd);
    t[4 + c] = _mm512_shuffle_i32x4(d, e, 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(d, e, 0xdd);
  }
  for (int i = 0; i < 16; ++i) v[i] = t[i];
}

enum class Order { byLane, byPair };

/// One tile of source(lane, p), in words by lane (A) or by pair (B); zeros behind `lanes` and `depth`.
template <Order order>
inline void packTile(const Bfloat16* source, std::int64_t laneStride, std::int64_t depthStride,
                     std::int64_t lanes, std::int64_t depth, std::uint32_t* tile) {
  __m512i v[16];
  if (depthStride == 1) {
    const __mmask32 there = firstOf32(depth);
    for (int lane = 0; lane < kLanes; ++lane) {
      v[lane] =
          lane < lanes ? _mm512_maskz_loadu_epi16(there, source + lane * laneStride) : _mm512_setzero_si512();
    }
    if (order == Order::byPair) transpose(v);
  } else {
    const __mmask16 there = firstOf16(lanes);
    const auto row = [&](std::int64_t p) {
      if (p >= depth) return _mm512_setzero_si512();
      return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, source + p * depthStride));
    };
    for (int pair = 0; pair < kPairs; ++pair)
      v[pair] = _mm512_or_si512(row(2 * pair), _mm512_slli_epi32(row(2 * pair + 1), 16));
    if (order == Order::byLane) transpose(v);
  }
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(tile + 16 * i, v[i]);
}

/// Every tile of paddedLanes × paddedDepth; zeros behind `lanes` and `depth`. Tiles along the depth lie together, those of the
/// next lanes behind them.
template <Order order>
inline void packPadded(const Bfloat16* source, std::int64_t laneStride, std::int64_t depthStride,
                       std::int64_t lanes, std::int64_t depth, std::int64_t paddedLanes,
                       std::int64_t paddedDepth, std::uint32_t* packed) {
  for (std::int64_t lane = 0; lane < paddedLanes; lane += kLanes) {
    for (std::int64_t p = 0; p < paddedDepth; p += kTileDepth, packed += kTileWords) {
      packTile<order>(source + lane * laneStride + p * depthStride, laneStride, depthStride, lanes - lane,
                      depth - p, packed);
    }
  }
}
/// No more tiles than lanes and depth need.
template <Order order>
inline void packTiles(const Bfloat16* source, std::int64_t laneStride, std::int64_t depthStride,
                      std::int64_t lanes, std::int64_t depth, std::uint32_t* packed) {
  packPadded<order>(source, laneStride, depthStride, lanes, depth, lanes, depth, packed);
}

// ---- products of tiles ---------------------------------------------------------------------------------------------

/// What a product of up to two by two tiles reads: A and B from their first tiles along so many tiles of depth, the second
/// tiles so many words behind. C begins with what it holds when `add`.
struct TileProduct {
  const std::uint32_t *a, *b;
  std::int64_t nextA, nextB, depthTiles;
  float* c;
  std::int64_t cStride;
  bool add;
};

template <int Rows, int Columns>
inline void multiplyByVectors(const TileProduct& t) {
  constexpr int kRowsAtOnce = 8;
  const std::uint32_t* const nextB = t.b + (Columns > 1 ? t.nextB : 0);
  for (int first = 0; first < Rows * kLanes; first += kRowsAtOnce) {
    const std::uint32_t* aRow = t.a + first / kLanes * t.nextA + first % kLanes * kPairs;
    float* const c = t.c + first * t.cStride;
    __m512 left[kRowsAtOnce], right[kRowsAtOnce];
    for (int i = 0; i < kRowsAtOnce; ++i) {
      left[i] = t.add ? _mm512_loadu_ps(c + i * t.cStride) : _mm512_setzero_ps();
      right[i] = t.add && Columns > 1 ? _mm512_loadu_ps(c + i * t.cStride + kLanes) : _mm512_setzero_ps();
    }
    for (std::int64_t d = 0; d < t.depthTiles * kTileWords; d += kTileWords) {
      for (int pair = 0; pair < kPairs; ++pair) {
        const __m512bh b0 = (__m512bh)_mm512_loadu_si512(t.b + d + pair * kLanes);
        const __m512bh b1 = (__m512bh)_mm512_loadu_si512(nextB + d + pair * kLanes);
#pragma GCC unroll 8
        for (int i = 0; i < kRowsAtOnce; ++i) {
          const __m512bh x = (__m512bh)_mm512_set1_epi32(static_cast<int>(aRow[d + i * kPairs + pair]));
          left[i] = _mm512_dpbf16_ps(left[i], x, b0);
          if (Columns > 1) right[i] = _mm512_dpbf16_ps(right[i], x, b1);
        }
      }
    }
    for (int i = 0; i < kRowsAtOnce; ++i) {
      _mm512_storeu_ps(c + i * t.cStride, left[i]);
      if (Columns > 1) _mm512_storeu_ps(c + i * t.cStride + kLanes, right[i]);
    }
  }
}

#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
/// As multiplyByVectors. Tiles 0 to 3 sum, 4 and 5 are of A, 6 and 7 of B.
template <int Rows, int Columns, typename Between>
inline void multiplyByTiles(const TileProduct& t, Between& between) {
  constexpr bool kBoth = Rows > 1 && Columns > 1;
  const std::int64_t stride = t.cStride * static_cast<std::int64_t>(sizeof(float));
  float* const lower = t.c + kLanes * t.cStride;
  asm volatile(
      "" ::
          : "memory");  // what was packed is in memory: GCC 12 does not know that a tile is read from there
  if (t.add) {
    _tile_loadd(0, t.c, stride);
    if (Columns > 1) _tile_loadd(1, t.c + kLanes, stride);
    if (Rows > 1) _tile_loadd(2, lower, stride);
    if (kBoth) _tile_loadd(3, lower + kLanes, stride);
  } else {
    _tile_zero(0);
    if (Columns > 1) _tile_zero(1);
    if (Rows > 1) _tile_zero(2);
    if (kBoth) _tile_zero(3);
  }
  const std::uint32_t *a = t.a, *b = t.b;
  for (std::int64_t d = 0; d < t.depthTiles; ++d, a += kTileWords, b += kTileWords) {
    between();
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (Columns > 1) {
      _tile_loadd(7, b + t.nextB, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (Rows > 1) {
      _tile_loadd(5, a + t.nextA, 64);
      _tile_dpbf16ps(2, 5, 6);
    }
    if (kBoth) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, t.c, stride);
  if (Columns > 1) _tile_stored(1, t.c + kLanes, stride);
  if (Rows > 1) _tile_stored(2, lower, stride);
  if (kBoth) _tile_stored(3, lower + kLanes, stride);
  asm volatile("" ::: "memory");
}
#endif

struct Nothing {
  void operator()() const {}
};

/// `between` is called between the products of tiles, which leave the rest of the core time for more.
template <int Rows, int Columns, typename Between = Nothing>
inline void multiplyTiles([[maybe_unused]] bool tiles, const TileProduct& t,
                          [[maybe_unused]] Between&& between = {}) {
#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
  if (tiles) return multiplyByTiles<Rows, Columns>(t, between);
#endif
  multiplyByVectors<Rows, Columns>(t);
}

/// C's rows × columns, rounded up to tiles, at most two by two: it must have room for them.
template <typename Between = Nothing>
inline void multiplySquare(bool tiles, std::int64_t rows, std::int64_t columns, const TileProduct& t,
                           Between&& between = {}) {
  if (rows > kLanes) {
    columns > kLanes ? multiplyTiles<2, 2>(tiles, t, between) : multiplyTiles<2, 1>(tiles, t, between);
  } else {
    columns > kLanes ? multiplyTiles<1, 2>(tiles, t, between) : multiplyTiles<1, 1>(tiles, t, between);
  }
}

}  // namespace internevo::cpu

#endif
