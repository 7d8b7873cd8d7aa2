#include "backend/cpu/gemm_bfloat16.h"

#include "backend/cpu/bfloat16_tiles.h"

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

// A block of C is summed as squares that lie one behind the other, and stays in the second cache with the block of B.
constexpr std::int64_t kRowsOfC = 704;
constexpr std::int64_t kColumnsOfC = 512;
constexpr std::int64_t kRowsOfA = 64;   // packed at a time: they and the columns of a square stay in the first cache
constexpr std::int64_t kDepth = 256;
constexpr std::int64_t kSquareElements = kSquare * kSquare;
constexpr std::int64_t kPackedAWords = kRowsOfA * kDepth / 2;
constexpr std::int64_t kPackedBWords = kColumnsOfC * kDepth / 2;
static_assert(kRowsOfC % kRowsOfA == 0 && kRowsOfA % kSquare == 0 && kColumnsOfC % kSquare == 0 && kDepth % kTileDepth == 0);
static_assert(kRowsOfC * kColumnsOfC + kPackedAWords + kPackedBWords <= kBfloat16ProductWords);

/// Calls step(numbers of the square row, column of C, how many) for every row of a block and every square that it crosses.
template <typename Step>
void forSquares(float* squares, std::int64_t m, std::int64_t n, Step step) {
  const std::int64_t across = (n + kSquare - 1) / kSquare * kSquareElements;
  for (std::int64_t i = 0; i < m; ++i) {
    float* square = squares + i / kSquare * across + i % kSquare * kSquare;
    for (std::int64_t j = 0; j < n; j += kSquare, square += kSquareElements) step(square, i, j, std::min(kSquare, n - j));
  }
}

void loadSquares(const float* c, std::int64_t cStride, std::int64_t m, std::int64_t n, float* squares) {
  forSquares(squares, m, n, [&](float* square, std::int64_t i, std::int64_t j, std::int64_t count) {
    const float* const source = c + i * cStride + j;
    _mm512_store_ps(square, _mm512_maskz_loadu_ps(firstOf16(count), source));
    _mm512_store_ps(square + kLanes, _mm512_maskz_loadu_ps(firstOf16(count - kLanes), source + kLanes));
  });
}

void storeSquares(float* squares, std::int64_t m, std::int64_t n, float* c, std::int64_t cStride) {
  forSquares(squares, m, n, [&](const float* square, std::int64_t i, std::int64_t j, std::int64_t count) {
    float* const target = c + i * cStride + j;
    _mm512_mask_storeu_ps(target, firstOf16(count), _mm512_load_ps(square));
    _mm512_mask_storeu_ps(target + kLanes, firstOf16(count - kLanes), _mm512_load_ps(square + kLanes));
  });
}

/// C (+)= the squares, rounded.
void storeSquares(float* squares, std::int64_t m, std::int64_t n, Bfloat16* c, std::int64_t cStride, bool accumulate) {
  forSquares(squares, m, n, [&](const float* square, std::int64_t i, std::int64_t j, std::int64_t count) {
    Bfloat16* const target = c + i * cStride + j;
    Vec low = load(square), high = load(square + kLanes);
    const __mmask32 wanted = firstOf32(count);
    if (accumulate) {
      const __m512i before = _mm512_maskz_loadu_epi16(wanted, target);
      low = widened(_mm512_castsi512_si256(before)) + low;
      high = widened(_mm512_extracti64x4_epi64(before, 1)) + high;
    }
    _mm512_mask_storeu_epi16(target, wanted, narrowed(low, high));
  });
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

void bfloat16Part(Bfloat16Product by, const Gemm& g, std::int64_t rowBegin, std::int64_t rowEnd, std::int64_t columnBegin,
                  std::int64_t columnEnd, float* scratch) {
  const bool tiles = by == Bfloat16Product::tiles, sumsInC = g.c.type == DataType::float32 && g.accumulate;
  float* const squares = scratch;
  auto* const packedA = reinterpret_cast<std::uint32_t*>(scratch + kRowsOfC * kColumnsOfC);
  std::uint32_t* const packedB = packedA + kPackedAWords;
  for (std::int64_t i = rowBegin; i < rowEnd; i += kRowsOfC) {
    const std::int64_t m = std::min(kRowsOfC, rowEnd - i);
    for (std::int64_t j = columnBegin; j < columnEnd; j += kColumnsOfC) {
      const std::int64_t n = std::min(kColumnsOfC, columnEnd - j), across = (n + kSquare - 1) / kSquare;
      if (sumsInC) loadSquares(g.c.as<float>() + i * g.cStride + j, g.cStride, m, n, squares);
      for (std::int64_t p = 0; p < g.k; p += kDepth) {
        const std::int64_t depth = std::min(kDepth, g.k - p), depthTiles = (depth + kTileDepth - 1) / kTileDepth;
        const std::int64_t lanesWords = depthTiles * kPairs;  // of one lane of A or B
        packTiles<Order::byPair>(g.b.as<Bfloat16>() + p * g.bRowStride + j * g.bColumnStride, g.bColumnStride, g.bRowStride, n, depth, packedB);
        for (std::int64_t first = 0; first < m; first += kRowsOfA) {
          const std::int64_t rows = std::min(kRowsOfA, m - first);
          packTiles<Order::byLane>(g.a.as<Bfloat16>() + (i + first) * g.aRowStride + p * g.aColumnStride, g.aRowStride, g.aColumnStride, rows, depth, packedA);
          for (std::int64_t column = 0; column < across; ++column) {
            for (std::int64_t row = 0; row < rows; row += kSquare) {
              float* const square = squares + ((first + row) / kSquare * across + column) * kSquareElements;
              multiplySquare(tiles, rows - row, n - column * kSquare,
                             {packedA + row * lanesWords, packedB + column * kSquare * lanesWords, kLanes * lanesWords,
                              kLanes * lanesWords, depthTiles, square, kSquare, sumsInC || p > 0});
            }
          }
        }
      }
      if (g.c.type == DataType::float32) {
        storeSquares(squares, m, n, g.c.as<float>() + i * g.cStride + j, g.cStride);
      } else {
        storeSquares(squares, m, n, g.c.as<Bfloat16>() + i * g.cStride + j, g.cStride, g.accumulate);
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
void bfloat16Part(Bfloat16Product, const Gemm&, std::int64_t, std::int64_t, std::int64_t, std::int64_t, float*) {}

}  // namespace internevo::cpu

#endif
