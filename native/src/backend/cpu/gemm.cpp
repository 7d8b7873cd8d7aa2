#include "backend/cpu/gemm.h"

#include <algorithm>
#include <type_traits>

#include "backend/cpu/gemm_bfloat16.h"
#include "backend/cpu/parallel.h"

namespace internevo::cpu {

namespace {

constexpr std::int64_t kBlockRows = 240;       // A block: kBlockRows × kBlockDepth floats stay in the L2 cache
constexpr std::int64_t kBlockColumns = 1024;   // B block: kBlockDepth × kBlockColumns floats stay in the L3 cache
constexpr std::int64_t kStagedRows = 720;      // rows of a narrow C that are summed in float32 at one time
constexpr std::int64_t kPackedAElements = alignUp(kBlockRows, kTileRows) * kBlockDepth + 64;
constexpr std::int64_t kPackedBElements = kBlockColumns * kBlockDepth + 64;
constexpr std::int64_t kStagedElements = kStagedRows * kBlockColumns;
static_assert(kBfloat16ProductWords <= kPackedAElements + kPackedBElements + kStagedElements);

static_assert(kBlockRows % kTileRows == 0 && kStagedRows % kBlockRows == 0);
static_assert(kBlockColumns % kTileColumns == 0);

// ---- tile kernel ---------------------------------------------------------------------------------------------------

/// Accumulates a tile of `Rows` × kTileColumns over k. `bTile` is a packed sliver.
template <int Rows>
inline void tile(std::int64_t k, const float* a, std::int64_t aRowStride, std::int64_t aColumnStride,
                 const float* bTile, float* c, std::int64_t cStride, std::int64_t columns, bool accumulate) {
  Vec low[Rows], high[Rows];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    low[i] = high[i] = broadcast(0.f);
    __builtin_prefetch(c + i * cStride, 1);
    __builtin_prefetch(c + i * cStride + kTileColumns - 1, 1);
  }
#pragma GCC unroll 8
  for (std::int64_t p = 0; p < k; ++p) {
    const Vec b0 = load(bTile), b1 = load(bTile + Vec::width);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vec x = broadcast(a[i * aRowStride]);
      low[i] = fma(x, b0, low[i]);
      high[i] = fma(x, b1, high[i]);
    }
    a += aColumnStride;
    bTile += kTileColumns;
  }
  if (columns == kTileColumns) {
    if (accumulate) {
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) {
        low[i] = load(c + i * cStride) + low[i];
        high[i] = load(c + i * cStride + Vec::width) + high[i];
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      store(c + i * cStride, low[i]);
      store(c + i * cStride + Vec::width, high[i]);
    }
    return;
  }
  float edge[Rows][kTileColumns];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    store(edge[i], low[i]);
    store(edge[i] + Vec::width, high[i]);
  }
  for (int i = 0; i < Rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      float* const target = c + i * cStride + j;
      *target = accumulate ? *target + edge[i][j] : edge[i][j];
    }
  }
}

template <int Rows>
void tileOfRows(std::int64_t rows, std::int64_t k, const float* a, std::int64_t aRowStride,
                std::int64_t aColumnStride, const float* bTile, float* c, std::int64_t cStride, std::int64_t columns,
                bool accumulate) {
  if constexpr (Rows > 0) {
    if (rows == Rows) {
      tile<Rows>(k, a, aRowStride, aColumnStride, bTile, c, cStride, columns, accumulate);
    } else {
      tileOfRows<Rows - 1>(rows, k, a, aRowStride, aColumnStride, bTile, c, cStride, columns, accumulate);
    }
  }
}

/// A whole tile out of a packed panel has constant strides.
inline void panelTile(std::int64_t rows, std::int64_t k, const float* panel, const float* bTile, float* c,
                      std::int64_t cStride, std::int64_t columns, bool accumulate) {
  if (rows == kTileRows) {
    tile<kTileRows>(k, panel, 1, kTileRows, bTile, c, cStride, columns, accumulate);
  } else {
    tileOfRows<kTileRows - 1>(rows, k, panel, 1, kTileRows, bTile, c, cStride, columns, accumulate);
  }
}

// ---- packing -------------------------------------------------------------------------------------------------------

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
void packTransposed(const T* source, std::int64_t laneStride, std::int64_t lanes, std::int64_t k, float* packed) {
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
void packStraight(const T* source, std::int64_t depthStride, std::int64_t lanes, std::int64_t k, float* packed) {
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
        store(packed + panel * Lanes * k + p * Lanes + i * Vec::width, load(source + panel * Lanes + i * Vec::width));
      }
    }
  }
  if constexpr (kSpill > 0) {
    for (int panel = 0; panel < Panels; ++panel) packStraight<Lanes>(source + panel * Lanes, 0, Lanes, 1, packed + panel * Lanes * k + (k - 1) * Lanes);
  }
}

/// Asks for `lanes` × k elements, of which runs of `runElements` lie together: their loads then overlap instead of
/// waiting for one another.
template <typename T>
inline void prefetchSource(const T* source, std::int64_t runs, std::int64_t runStride, std::int64_t runElements) {
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
    for (; first + kTogether * Lanes + Vec::width <= lanes; first += kTogether * Lanes, packed += kTogether * Lanes * k) {
      const std::int64_t next = first + kTogether * Lanes;
      prefetchSource(source + next * laneStride, k, depthStride, std::min<std::int64_t>(kTogether * Lanes, lanes - next));
      packStraightPanels<Lanes, kTogether>(source + first * laneStride, depthStride, k, packed);
    }
  }
  for (; first < lanes; first += Lanes, packed += Lanes * k) {
    const std::int64_t count = std::min<std::int64_t>(Lanes, lanes - first);
    if (depthStride == 1) prefetchSource(source + (first + count) * laneStride, std::min<std::int64_t>(Lanes, lanes - first - count), laneStride, k);
    const T* const start = source + first * laneStride;
    if (depthStride == 1) {
      packTransposed<Lanes>(start, laneStride, count, k, packed);
    } else {
      packStraight<Lanes>(start, depthStride, count, k, packed);
    }
  }
}

template <int Lanes>
void packAny(ConstView source, std::int64_t laneStride, std::int64_t depthStride, std::int64_t lanes, std::int64_t k,
             float* packed) {
  if (source.type == DataType::float32) {
    packPanels<Lanes>(source.as<float>(), laneStride, depthStride, lanes, k, packed);
  } else {
    packPanels<Lanes>(source.as<Bfloat16>(), laneStride, depthStride, lanes, k, packed);
  }
}

// ---- blocking ------------------------------------------------------------------------------------------------------

void multiplyBlock(std::int64_t m, std::int64_t n, std::int64_t k, const float* packedA, const float* packedB,
                   float* c, std::int64_t cStride, bool accumulate) {
  for (std::int64_t j = 0; j < n; j += kTileColumns) {
    const std::int64_t columns = std::min(kTileColumns, n - j);
    for (std::int64_t i = 0; i < m; i += kTileRows) {
      const std::int64_t rows = std::min(kTileRows, m - i);
      panelTile(rows, k, packedA + i * k, packedB + j * k, c + i * cStride + j, cStride, columns, accumulate);
    }
  }
}

struct Scratch {
  float *packedA, *packedB, *staged;
};

/// Rows [0, m) of one block of columns into float32 C, which holds m × n.
void columnBlock(const Gemm& g, std::int64_t firstRow, std::int64_t m, std::int64_t firstColumn, std::int64_t n,
                 float* c, std::int64_t cStride, bool accumulate, const Scratch& scratch) {
  // Blocks of equal height: every one reads the whole block of B.
  const std::int64_t blocks = (m + kBlockRows - 1) / kBlockRows;
  const std::int64_t blockRows = alignUp((m + blocks - 1) / blocks, kTileRows);
  for (std::int64_t p = 0; p < g.k; p += kBlockDepth) {
    const std::int64_t depth = std::min(kBlockDepth, g.k - p);
    packAny<kTileColumns>(g.b.offset(p * g.bRowStride + firstColumn * g.bColumnStride), g.bColumnStride,
                          g.bRowStride, n, depth, scratch.packedB);
    for (std::int64_t i = 0; i < m; i += blockRows) {
      const std::int64_t rows = std::min(blockRows, m - i);
      packAny<kTileRows>(g.a.offset((firstRow + i) * g.aRowStride + p * g.aColumnStride), g.aRowStride,
                         g.aColumnStride, rows, depth, scratch.packedA);
      multiplyBlock(rows, n, depth, scratch.packedA, scratch.packedB, c + i * cStride, cStride,
                    accumulate || p > 0);
    }
  }
}

void storeStaged(const Gemm& g, std::int64_t firstRow, std::int64_t rows, std::int64_t firstColumn, std::int64_t n,
                 const float* staged) {
  for (std::int64_t i = 0; i < rows; ++i) {
    Bfloat16* const target = g.c.as<Bfloat16>() + (firstRow + i) * g.cStride + firstColumn;
    const float* const source = staged + i * kBlockColumns;
    forVectors(n, [&](std::int64_t at, std::int64_t count) {
      Vec value = loadUpTo(source + at, count);
      if (g.accumulate) value = loadUpTo(target + at, count) + value;
      storeUpTo(target + at, value, count);
    });
  }
}

void gemmPart(const Gemm& g, std::int64_t rowBegin, std::int64_t rowEnd, std::int64_t columnBegin,
              std::int64_t columnEnd, const Scratch& scratch) {
  const bool narrow = g.c.type == DataType::bfloat16;
  const std::int64_t rowStep = narrow ? kStagedRows : rowEnd - rowBegin;
  for (std::int64_t i = rowBegin; i < rowEnd; i += rowStep) {
    const std::int64_t rows = std::min(rowStep, rowEnd - i);
    for (std::int64_t j = columnBegin; j < columnEnd; j += kBlockColumns) {
      const std::int64_t columns = std::min(kBlockColumns, columnEnd - j);
      if (narrow) {
        columnBlock(g, i, rows, j, columns, scratch.staged, kBlockColumns, false, scratch);
        storeStaged(g, i, rows, j, columns, scratch.staged);
      } else {
        columnBlock(g, i, rows, j, columns, g.c.as<float>() + i * g.cStride + j, g.cStride, g.accumulate, scratch);
      }
    }
  }
}

}  // namespace

std::int64_t gemmWorkspaceBytesPerThread() {
  return alignUp((kPackedAElements + kPackedBElements + kStagedElements) * 4, kAlignmentBytes);
}

void gemm(const Gemm& g, int threads, void* workspace) {
  const bool splitRows = g.m >= g.n;
  const bool areNarrow = g.a.type == DataType::bfloat16 && g.b.type == DataType::bfloat16;
  const Bfloat16Product product = areNarrow ? bfloat16Product() : Bfloat16Product::none;
  parallelRanges(threads, splitRows ? g.m : g.n, splitRows ? kTileRows : kTileColumns,
                 [&](std::int64_t begin, std::int64_t end, int thread) {
                   float* const base = static_cast<float*>(workspace) + thread * (gemmWorkspaceBytesPerThread() / 4);
                   const std::int64_t rows[] = {splitRows ? begin : 0, splitRows ? end : g.m};
                   const std::int64_t columns[] = {splitRows ? 0 : begin, splitRows ? g.n : end};
                   if (product != Bfloat16Product::none) {
                     const Bfloat16Tiles tiles(product);
                     bfloat16Part(product, g, rows[0], rows[1], columns[0], columns[1], base);
                   } else {
                     gemmPart(g, rows[0], rows[1], columns[0], columns[1],
                              {base, base + kPackedAElements, base + kPackedAElements + kPackedBElements});
                   }
                 });
}

void packSlivers(ConstView b, std::int64_t rowStride, std::int64_t columnStride, std::int64_t k, std::int64_t n,
                 float* packed) {
  packAny<kTileColumns>(b, columnStride, rowStride, n, k, packed);
}

void gemmPacked(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t aRowStride,
                std::int64_t aColumnStride, const float* packedB, float* c, std::int64_t cStride, bool accumulate,
                Triangle triangle, std::int64_t firstRow) {
  for (std::int64_t j = 0; j < n; j += kTileColumns) {
    const std::int64_t columns = std::min(kTileColumns, n - j);
    const std::int64_t top =
        triangle == Triangle::result ? std::max<std::int64_t>(j - firstRow, 0) / kTileRows * kTileRows : 0;
    for (std::int64_t i = top; i < m; i += kTileRows) {
      const std::int64_t rows = std::min(kTileRows, m - i);
      const std::int64_t begin = triangle == Triangle::leftTransposed ? std::min(i, k) : 0;
      const std::int64_t end = triangle == Triangle::left ? std::min(k, firstRow + i + rows) : k;
      tileOfRows<kTileRows>(rows, end - begin, a + i * aRowStride + begin * aColumnStride, aRowStride, aColumnStride,
                            packedB + j * k + begin * kTileColumns, c + i * cStride + j, cStride, columns, accumulate);
    }
  }
}

}  // namespace internevo::cpu
