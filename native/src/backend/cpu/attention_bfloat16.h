// What attention's kernels for bfloat16 share: scratch, the softmax's exponential, and tiles with zeros at their borders.
// They compute scores by keys × queries, so that a query's maximum and sum run down the lanes of vectors.
// Include it only where the build has AVX512-BF16 (INTERNEVO_BFLOAT16_TILES).
#pragma once

#include "backend/cpu/attention.h"
#include "backend/cpu/bfloat16_tiles.h"

#if defined(INTERNEVO_BFLOAT16_TILES)

namespace internevo::cpu {

constexpr std::int64_t kSquaresOfTile = kAttentionTile / kSquare;
constexpr std::int64_t kDepthsOfTile = kAttentionTile / kTileDepth;
static_assert(kAttentionTile % kSquare == 0 && kAttentionTile % kTileDepth == 0 && kSquare == kTileDepth);

/// Numbers of a head as the tiles hold them.
constexpr std::int64_t paddedHead(std::int64_t headSize) { return alignUp(headSize, kTileDepth); }

/// 2^x for x ≤ 127, relative error below 4e-6, which is far below what is left of it in bfloat16; exactly 1 at 0, 0 at −infinity.
inline __m512 exponential2Short(__m512 x) {
  const __m512 r = _mm512_reduce_ps(x, 0x09);  // x − floor(x)
  const __m512 square = _mm512_mul_ps(r, r);
  const __m512 low = _mm512_fmadd_ps(r, _mm512_set1_ps(0.6930321455001831f), _mm512_set1_ps(1.f));
  const __m512 high =
      _mm512_fmadd_ps(r, _mm512_set1_ps(0.05203237012028694f), _mm512_set1_ps(0.2413797676563263f));
  const __m512 top = _mm512_fmadd_ps(square, _mm512_set1_ps(0.013555746525526047f), high);
  return _mm512_scalef_ps(_mm512_fmadd_ps(top, square, low), x);
}

/// Which keys of a tile each of some queries sees, [low, high), both from 0 to kAttentionTile and neither falling from a
/// query to the next; none for queries behind the last.
struct Limits {
  std::int32_t *low, *high;

  void set(const AttentionMask& mask, std::int64_t first, std::int64_t rows, std::int64_t padded,
           std::int64_t key, std::int64_t columns) const {
    for (std::int64_t r = 0; r < rows; ++r) mask.limits(first + r, key, columns, low + r, high + r);
    for (std::int64_t r = rows; r < padded; ++r)
      low[r] = static_cast<std::int32_t>(kAttentionTile), high[r] = 0;
  }
};

/// Whether key `key` is seen by the 16 queries whose limits these are.
inline __mmask16 seen(__m512i low, __m512i high, std::int64_t key) {
  const __m512i k = _mm512_set1_epi32(static_cast<int>(key));
  return _mm512_mask_cmp_epi32_mask(_mm512_cmp_epi32_mask(low, k, _MM_CMPINT_LE), high, k, _MM_CMPINT_NLE);
}

/// Words of a pair of keys: the lanes of `first` below, those of `second` above.
inline __m512i pairOf(__m512 first, __m512 second) {
  alignas(64) static constexpr auto kOrder = [] {
    struct {
      std::uint16_t at[32];
    } order{};
    for (int i = 0; i < 32; ++i) order.at[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * 16);
    return order;
  }();
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder.at), (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

/// target[lane][d] = source[d][lane], both float32; `depth` and `lanes` are multiples of 16.
inline void transposeFloats(const float* source, std::int64_t sourceStride, std::int64_t depth,
                            std::int64_t lanes, float* target, std::int64_t targetStride) {
  for (std::int64_t lane = 0; lane < lanes; lane += 16) {
    for (std::int64_t d = 0; d < depth; d += 16) {
      __m512i v[16];
      for (int i = 0; i < 16; ++i) v[i] = _mm512_loadu_si512(source + (d + i) * sourceStride + lane);
      transpose(v);
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(target + (lane + i) * targetStride + d, v[i]);
    }
  }
}

// ---- scratch, in words ---------------------------------------------------------------------------------------------

/// Gives pieces one behind the other where there is a base, and counts their words.
struct ScratchPieces {
  float* base;
  std::int64_t used = 0;

  template <typename T>
  constexpr void operator()(T*& piece, std::int64_t words) {
    if (base != nullptr) piece = reinterpret_cast<T*>(base + used);
    used += words;
  }
};

/// Queries that forward computes together.
constexpr std::int64_t kForwardQueries = kSquare;

struct Bfloat16ForwardScratch {
  std::uint32_t *packedK, *packedVT, *query, *p;
  float *scores, *output, *rows, *largest, *total;
  Limits limits;

  /// Sets the pieces where `base` is given; the words that they take.
  constexpr std::int64_t place(float* base, std::int64_t keys, std::int64_t headSize) {
    const std::int64_t size = paddedHead(headSize), allKeys = attentionTiles(keys) * kAttentionTile;
    ScratchPieces take{base};
    take(packedK, allKeys * size / 2);
    take(packedVT, allKeys * size / 2);
    take(query, kForwardQueries * size / 2);
    take(p, kAttentionTile * kForwardQueries / 2);
    take(scores, kAttentionTile * kForwardQueries);
    take(output, size * kForwardQueries);
    take(rows, size * kForwardQueries);
    take(largest, kForwardQueries);
    take(total, kForwardQueries);
    take(limits.low, kForwardQueries);
    take(limits.high, kForwardQueries);
    return take.used;
  }
};

struct Bfloat16BackwardScratch {
  std::uint32_t *packedK, *packedV, *packedKT, *query, *gO, *queryAcross, *gOAcross, *p, *gS, *gSPairs;
  float *gK, *gV, *scores, *gP, *gQ, *rows, *logSumExp, *delta;
  Limits limits;

  constexpr std::int64_t place(float* base, std::int64_t keys, std::int64_t headSize) {
    const std::int64_t size = paddedHead(headSize), allKeys = attentionTiles(keys) * kAttentionTile;
    ScratchPieces take{base};
    for (std::uint32_t** piece : {&packedK, &packedV, &packedKT}) take(*piece, allKeys * size / 2);
    for (std::uint32_t** piece : {&query, &gO, &queryAcross, &gOAcross})
      take(*piece, kAttentionTile * size / 2);
    for (std::uint32_t** piece : {&p, &gS, &gSPairs}) take(*piece, kAttentionTile * kAttentionTile / 2);
    for (float** piece : {&gK, &gV}) take(*piece, alignUp(keys, kSquare) * size);
    for (float** piece : {&scores, &gP}) take(*piece, kSquare * kSquare);
    for (float** piece : {&gQ, &rows}) take(*piece, kAttentionTile * size);
    for (float** piece : {&logSumExp, &delta}) take(*piece, kAttentionTile);
    for (std::int32_t** piece : {&limits.low, &limits.high}) take(*piece, kAttentionTile);
    return take.used;
  }
};

/// Heads so small that padding them costs more than a third are left to the kernels for float32: they, and no others, would
/// also need more scratch than those.
constexpr bool fitsBfloat16Tiles(std::int64_t headSize) { return 3 * paddedHead(headSize) <= 4 * headSize; }

}  // namespace internevo::cpu

#endif
