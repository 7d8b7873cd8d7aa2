#include "backend/cpu/gemm_bfloat16.h"

#include "backend/cpu/bfloat16_tiles.h"
#include "backend/cpu/prefetch_ahead.h"

#if defined(INTERNEVO_BFLOAT16_TILES)

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace internevo::cpu {

namespace {

bool hasTiles() {
#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
  // Linux gives a process the state of tiles when it asks for it (ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA).
  static const bool granted = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return granted;
#else
  return false;
#endif
}

// ---- blocking ------------------------------------------------------------------------------------------------------

/// What is packed at a time: rows of A by k stay in the first cache, k by columns of B in the second.
struct Blocking {
  std::int64_t rowsOfA, depth;
};
/// All of k at once: then sums are needed for one square at a time, and A and B are packed once for all columns or rows.
constexpr Blocking kWhole = {32, 512};
/// Blocks of k: sums stay in the second cache too, as squares that lie one behind the other, for so many rows of C.
constexpr Blocking kInBlocks = {64, 256};
constexpr std::int64_t kRowsOfC = 512;
constexpr std::int64_t kColumnsOfC = 512;
constexpr std::int64_t kSquareElements = kSquare * kSquare;
constexpr std::int64_t kPackedAWords =
    std::max(kWhole.rowsOfA * kWhole.depth, kInBlocks.rowsOfA* kInBlocks.depth) / 2;
constexpr std::int64_t kPackedBWords = kColumnsOfC * std::max(kWhole.depth, kInBlocks.depth) / 2;
static_assert(kRowsOfC % kInBlocks.rowsOfA == 0 && kColumnsOfC % kSquare == 0);
static_assert(kWhole.rowsOfA % kSquare == 0 && kInBlocks.rowsOfA % kSquare == 0);
static_assert(kWhole.depth % kTileDepth == 0 && kInBlocks.depth % kTileDepth == 0);
static_assert(kRowsOfC * kColumnsOfC + kPackedAWords + kPackedBWords <= kBfloat16ProductWords);

void loadSquare(const float* c, std::int64_t cStride, std::int64_t m, std::int64_t n, float* square) {
  const __mmask16 left = firstOf16(n), right = firstOf16(n - kLanes);
  for (std::int64_t i = 0; i < m; ++i, c += cStride, square += kSquare) {
    _mm512_store_ps(square, _mm512_maskz_loadu_ps(left, c));
    _mm512_store_ps(square + kLanes, _mm512_maskz_loadu_ps(right, c + kLanes));
  }
}

void storeSquare(const float* square, std::int64_t m, std::int64_t n, float* c, std::int64_t cStride) {
  const __mmask16 left = firstOf16(n), right = firstOf16(n - kLanes);
  for (std::int64_t i = 0; i < m; ++i, c += cStride, square += kSquare) {
    _mm512_mask_storeu_ps(c, left, _mm512_load_ps(square));
    _mm512_mask_storeu_ps(c + kLanes, right, _mm512_load_ps(square + kLanes));
  }
}

/// C (+)= the square, rounded.
void storeSquare(const float* square, std::int64_t m, std::int64_t n, Bfloat16* c, std::int64_t cStride,
                 bool accumulate) {
  const __mmask32 wanted = firstOf32(n);
  for (std::int64_t i = 0; i < m; ++i, c += cStride, square += kSquare) {
    Vec low = load(square), high = load(square + kLanes);
    if (accumulate) {
      const __m512i before = _mm512_maskz_loadu_epi16(wanted, c);
      low = widened(_mm512_castsi512_si256(before)) + low;
      high = widened(_mm512_extracti64x4_epi64(before, 1)) + high;
    }
    _mm512_mask_storeu_epi16(c, wanted, narrowed(low, high));
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

void bfloat16Part(Bfloat16Product by, const Gemm& g, std::int64_t rowBegin, std::int64_t rowEnd,
                  std::int64_t columnBegin, std::int64_t columnEnd, float* scratch) {
  const bool tiles = by == Bfloat16Product::tiles, isFloat = g.c.type == DataType::float32,
             sumsInC = isFloat && g.accumulate;
  const bool whole = g.k <= kWhole.depth;
  const Blocking block = whole ? kWhole : kInBlocks;
  const std::int64_t rowsOfC = whole ? rowEnd - rowBegin : kRowsOfC;
  float* const squares = scratch;
  auto* const packedA = reinterpret_cast<std::uint32_t*>(scratch + kRowsOfC * kColumnsOfC);
  std::uint32_t* const packedB = packedA + kPackedAWords;
  const std::int64_t elementBytes = isFloat ? sizeof(float) : sizeof(Bfloat16);
  const auto ofA = [&](std::int64_t i, std::int64_t p) {
    return g.a.as<Bfloat16>() + i * g.aRowStride + p * g.aColumnStride;
  };
  const auto ofC = [&](std::int64_t i, std::int64_t j) {
    return static_cast<char*>(g.c.data) + (i * g.cStride + j) * elementBytes;
  };
  const auto aheadOfA = [&](std::int64_t i, std::int64_t rows, std::int64_t p,
                            std::int64_t depth) -> Ahead<For::reading> {
    constexpr std::int64_t kBytes = sizeof(Bfloat16);
    if (rows <= 0) return {nullptr, 0, 0, 0};
    if (g.aColumnStride == 1) return {ofA(i, p), rows, g.aRowStride * kBytes, depth * kBytes};
    return {ofA(i, p), depth, g.aColumnStride * kBytes, rows * kBytes};
  };
  for (std::int64_t i = rowBegin; i < rowEnd; i += rowsOfC) {
    const std::int64_t iEnd = std::min(i + rowsOfC, rowEnd);
    for (std::int64_t j = columnBegin; j < columnEnd; j += kColumnsOfC) {
      const std::int64_t n = std::min(kColumnsOfC, columnEnd - j), across = (n + kSquare - 1) / kSquare;
      for (std::int64_t p = 0; p < g.k; p += block.depth) {
        const std::int64_t depth = std::min(block.depth, g.k - p),
                           depthTiles = (depth + kTileDepth - 1) / kTileDepth;
        const std::int64_t lanesWords = depthTiles * kPairs;  // of one lane of A or B
        const bool isFirst = p == 0, isLast = p + depth == g.k, needsC = (isFirst && sumsInC) || isLast;
        packTiles<Order::byPair>(g.b.as<Bfloat16>() + p * g.bRowStride + j * g.bColumnStride, g.bColumnStride,
                                 g.bRowStride, n, depth, packedB);
        for (std::int64_t top = i; top < iEnd; top += block.rowsOfA) {
          const std::int64_t rows = std::min(block.rowsOfA, iEnd - top), next = top + block.rowsOfA;
          packTiles<Order::byLane>(ofA(top, p), g.aRowStride, g.aColumnStride, rows, depth, packedA);
          auto nextA = aheadOfA(next, std::min(block.rowsOfA, iEnd - next), p, depth);
          for (std::int64_t column = 0; column < n; column += kSquare) {
            const std::int64_t wide = std::min(kSquare, n - column);
            for (std::int64_t row = 0; row < rows; row += kSquare) {
              const std::int64_t high = std::min(kSquare, rows - row);
              float* const square =
                  whole ? squares
                        : squares + ((top - i + row) / kSquare * across + column / kSquare) * kSquareElements;
              char* const c = ofC(top + row, j + column);
              if (isFirst && sumsInC)
                loadSquare(reinterpret_cast<const float*>(c), g.cStride, high, wide, square);
              Ahead<For::writing> nextC(c + kSquare * elementBytes, needsC && wide < n - column ? high : 0,
                                        g.cStride * elementBytes, kSquare * elementBytes);
              multiplySquare(tiles, high, wide,
                             {packedA + row * lanesWords, packedB + column * lanesWords, kLanes * lanesWords,
                              kLanes * lanesWords, depthTiles, square, kSquare, sumsInC || !isFirst},
                             [&] { nextA.ask(4), nextC.ask(4); });
              if (!isLast) continue;
              if (isFloat) {
                storeSquare(square, high, wide, reinterpret_cast<float*>(c), g.cStride);
              } else {
                storeSquare(square, high, wide, reinterpret_cast<Bfloat16*>(c), g.cStride, g.accumulate);
              }
            }
          }
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
void bfloat16Part(Bfloat16Product, const Gemm&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                  float*) {}

}  // namespace internevo::cpu

#endif
