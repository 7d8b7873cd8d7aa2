#include "backend/cpu/gemm_bfloat16.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__AVX512BF16__)

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace internevo::cpu {

namespace {

/// A packed tile: 16 lanes (rows of A or columns of B) by 32 numbers of k, two of them in a word.
constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kPairs = 16;
constexpr std::int64_t kTileDepth = 2 * kPairs;
constexpr std::int64_t kTileWords = kLanes * kPairs;
static_assert(kBlockDepth % kTileDepth == 0);

bool hasTiles() {
#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
  // Linux gives a process the state of tiles when it asks for it (ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA).
  static const bool granted = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return granted;
#else
  return false;
#endif
}

// ---- packing -------------------------------------------------------------------------------------------------------

__mmask16 firstOf16(std::int64_t count) { return static_cast<__mmask16>((1u << std::clamp<std::int64_t>(count, 0, 16)) - 1); }
__mmask32 firstOf32(std::int64_t count) {
  return static_cast<__mmask32>((std::uint64_t{1} << std::clamp<std::int64_t>(count, 0, 32)) - 1);
}

void transpose(__m512i (&v)[16]) {
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
    const __m512i a = _mm512_shuffle_i32x4(v[c], v[4 + c], 0x88), b = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(v[c], v[4 + c], 0xdd), e = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0xdd);
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
void packTile(const Bfloat16* source, std::int64_t laneStride, std::int64_t depthStride, std::int64_t lanes,
              std::int64_t depth, std::uint32_t* tile) {
  __m512i v[16];
  if (depthStride == 1) {
    const __mmask32 there = firstOf32(depth);
    for (int lane = 0; lane < kLanes; ++lane) {
      v[lane] = lane < lanes ? _mm512_maskz_loadu_epi16(there, source + lane * laneStride) : _mm512_setzero_si512();
    }
    if (order == Order::byPair) transpose(v);
  } else {
    const __mmask16 there = firstOf16(lanes);
    const auto row = [&](std::int64_t p) {
      if (p >= depth) return _mm512_setzero_si512();
      return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, source + p * depthStride));
    };
    for (int pair = 0; pair < kPairs; ++pair) v[pair] = _mm512_or_si512(row(2 * pair), _mm512_slli_epi32(row(2 * pair + 1), 16));
    if (order == Order::byLane) transpose(v);
  }
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(tile + 16 * i, v[i]);
}

/// Tiles along the depth lie together, those of the next lanes behind them.
template <Order order>
void packTiles(const Bfloat16* source, std::int64_t laneStride, std::int64_t depthStride, std::int64_t lanes,
               std::int64_t depth, std::uint32_t* packed) {
  for (std::int64_t lane = 0; lane < lanes; lane += kLanes) {
    for (std::int64_t p = 0; p < depth; p += kTileDepth, packed += kTileWords) {
      packTile<order>(source + lane * laneStride + p * depthStride, laneStride, depthStride, lanes - lane, depth - p, packed);
    }
  }
}

// ---- products of tiles ---------------------------------------------------------------------------------------------

constexpr std::int64_t kSquare = 2 * kLanes;  // two by two tiles of C are computed at once

/// out[Rows · 16][32] = A · B over so many tiles of depth; the second tiles of A and B are `depthTiles` behind the first.
template <int Rows, int Columns>
void multiplyByVectors(const std::uint32_t* a, const std::uint32_t* b, std::int64_t depthTiles, float* out) {
  constexpr int kRowsAtOnce = 8;
  const std::uint32_t* const nextB = b + (Columns - 1) * depthTiles * kTileWords;
  for (int first = 0; first < Rows * kLanes; first += kRowsAtOnce) {
    const std::uint32_t* aRow = a + first / kLanes * depthTiles * kTileWords + first % kLanes * kPairs;
    __m512 left[kRowsAtOnce], right[kRowsAtOnce];
    for (int i = 0; i < kRowsAtOnce; ++i) left[i] = right[i] = _mm512_setzero_ps();
    for (std::int64_t d = 0; d < depthTiles * kTileWords; d += kTileWords) {
      for (int pair = 0; pair < kPairs; ++pair) {
        const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b + d + pair * kLanes);
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
      _mm512_storeu_ps(out + (first + i) * kSquare, left[i]);
      if (Columns > 1) _mm512_storeu_ps(out + (first + i) * kSquare + kLanes, right[i]);
    }
  }
}

#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
/// As multiplyByVectors. Tiles 0 to 3 sum, 4 and 5 are of A, 6 and 7 of B.
template <int Rows, int Columns>
void multiplyByTiles(const std::uint32_t* a, const std::uint32_t* b, std::int64_t depthTiles, float* out) {
  const std::int64_t next = depthTiles * kTileWords;
  asm volatile("" ::: "memory");  // what was packed is in memory: GCC 12 does not know that a tile is read from there
  _tile_zero(0);
  if (Columns > 1) _tile_zero(1);
  if (Rows > 1) _tile_zero(2);
  if (Rows > 1 && Columns > 1) _tile_zero(3);
  for (std::int64_t d = 0; d < depthTiles; ++d, a += kTileWords, b += kTileWords) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (Columns > 1) {
      _tile_loadd(7, b + next, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (Rows > 1) {
      _tile_loadd(5, a + next, 64);
      _tile_dpbf16ps(2, 5, 6);
    }
    if (Rows > 1 && Columns > 1) _tile_dpbf16ps(3, 5, 7);
  }
  constexpr int kStride = kSquare * sizeof(float);
  _tile_stored(0, out, kStride);
  if (Columns > 1) _tile_stored(1, out + kLanes, kStride);
  if (Rows > 1) _tile_stored(2, out + kLanes * kSquare, kStride);
  if (Rows > 1 && Columns > 1) _tile_stored(3, out + kLanes * kSquare + kLanes, kStride);
}
#endif

template <int Rows, int Columns>
void multiplyTiles([[maybe_unused]] bool tiles, const std::uint32_t* a, const std::uint32_t* b, std::int64_t depthTiles, float* out) {
#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
  if (tiles) return multiplyByTiles<Rows, Columns>(a, b, depthTiles, out);
#endif
  multiplyByVectors<Rows, Columns>(a, b, depthTiles, out);
}

void multiplySquare(bool tiles, std::int64_t rows, std::int64_t columns, const std::uint32_t* a, const std::uint32_t* b,
                    std::int64_t depthTiles, float* out) {
  if (rows > kLanes) {
    columns > kLanes ? multiplyTiles<2, 2>(tiles, a, b, depthTiles, out) : multiplyTiles<2, 1>(tiles, a, b, depthTiles, out);
  } else {
    columns > kLanes ? multiplyTiles<1, 2>(tiles, a, b, depthTiles, out) : multiplyTiles<1, 1>(tiles, a, b, depthTiles, out);
  }
}

/// C (+)= the rows × columns of a square that are wanted.
void putSquare(const float* square, std::int64_t rows, std::int64_t columns, float* c, std::int64_t cStride, bool accumulate) {
  for (std::int64_t i = 0; i < rows; ++i, square += kSquare, c += cStride) {
    for (std::int64_t j = 0; j < columns; j += kLanes) {
      const __mmask16 wanted = firstOf16(columns - j);
      __m512 value = _mm512_load_ps(square + j);
      if (accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(wanted, c + j), value);
      _mm512_mask_storeu_ps(c + j, wanted, value);
    }
  }
}

}  // namespace

Bfloat16Product bfloat16Product() { return hasTiles() ? Bfloat16Product::tiles : Bfloat16Product::vectors; }

Bfloat16Tiles::Bfloat16Tiles(Bfloat16Product by) : loaded_(by == Bfloat16Product::tiles) {
#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
  if (!loaded_) return;
  // A constant: GCC 12 does not know that the instruction reads more than the first word.
  struct alignas(64) Shape {
    std::uint8_t palette = 1, startRow = 0, reserved[14] = {};
    std::uint16_t bytesPerRow[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Shape shape;
  _tile_loadconfig(&shape);
#endif
}

Bfloat16Tiles::~Bfloat16Tiles() {
#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
  if (loaded_) _tile_release();
#endif
}

void bfloat16ColumnBlock(Bfloat16Product by, const Gemm& g, std::int64_t firstRow, std::int64_t m, std::int64_t firstColumn,
                         std::int64_t n, float* c, std::int64_t cStride, bool accumulate, std::int64_t blockRows,
                         void* packedA, void* packedB) {
  const bool tiles = by == Bfloat16Product::tiles;
  auto* const a = static_cast<std::uint32_t*>(packedA);
  auto* const b = static_cast<std::uint32_t*>(packedB);
  const std::int64_t rowsAtOnce = std::max(blockRows / kSquare * kSquare, kSquare);
  alignas(64) float square[kSquare * kSquare];
  for (std::int64_t p = 0; p < g.k; p += kBlockDepth) {
    const std::int64_t depth = std::min(kBlockDepth, g.k - p);
    const std::int64_t depthTiles = (depth + kTileDepth - 1) / kTileDepth;
    packTiles<Order::byPair>(g.b.as<Bfloat16>() + p * g.bRowStride + firstColumn * g.bColumnStride, g.bColumnStride, g.bRowStride, n, depth, b);
    for (std::int64_t i = 0; i < m; i += rowsAtOnce) {
      const std::int64_t rows = std::min(rowsAtOnce, m - i);
      packTiles<Order::byLane>(g.a.as<Bfloat16>() + (firstRow + i) * g.aRowStride + p * g.aColumnStride, g.aRowStride, g.aColumnStride, rows, depth, a);
      for (std::int64_t column = 0; column < n; column += kSquare) {
        for (std::int64_t row = 0; row < rows; row += kSquare) {
          multiplySquare(tiles, rows - row, n - column, a + row * depthTiles * kPairs, b + column * depthTiles * kPairs, depthTiles, square);
          putSquare(square, std::min(kSquare, rows - row), std::min(kSquare, n - column), c + (i + row) * cStride + column, cStride, accumulate || p > 0);
        }
      }
    }
  }
}

}  // namespace internevo::cpu

#else

namespace internevo::cpu {

Bfloat16Product bfloat16Product() { return Bfloat16Product::none; }
Bfloat16Tiles::Bfloat16Tiles(Bfloat16Product) : loaded_(false) {}
Bfloat16Tiles::~Bfloat16Tiles() = default;
void bfloat16ColumnBlock(Bfloat16Product, const Gemm&, std::int64_t, std::int64_t, std::int64_t, std::int64_t, float*,
                         std::int64_t, bool, std::int64_t, void*, void*) {}

}  // namespace internevo::cpu

#endif
