#include "backend/cpu/gemm.h"

#include <algorithm>
#include <type_traits>

#include "backend/cpu/gemm_bfloat16.h"
#include "backend/cpu/gemm_packing.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/prefetch_ahead.h"
#include "executor_sizes/executor_sizes.h"

namespace internevo::cpu {

namespace {

/// With vectors of 16 a panel of A stays in the first cache while slivers of B stream past it out of the second, which must
/// hold a block of B and what is asked for ahead (2 MiB on the processors that have such vectors). Else a sliver of B stays in
/// the first cache, and a block of A in the second.
constexpr bool kSliversStream = Vec::width == 16;
constexpr std::int64_t kBlockRows = kSliversStream ? 48 : 240;  // A block: kBlockRows × kBlockDepth floats
constexpr std::int64_t kBlockColumns =
    kSliversStream ? 768 : 1024;           // B block: kBlockDepth × kBlockColumns floats
constexpr std::int64_t kStagedRows = 720;  // rows of a narrow C that are summed in float32 at one time
// Scratch of the largest blocks, so that a plan's bytes do not depend on the build.
constexpr std::int64_t kPackedAElements = 240 * kBlockDepth + 64;
constexpr std::int64_t kPackedBElements = 1024 * kBlockDepth + 64;
constexpr std::int64_t kStagedElements = kStagedRows * 1024;
static_assert(alignUp((kPackedAElements + kPackedBElements + kStagedElements) * 4, kAlignmentBytes) ==
              sizes::productScratchBytes);
static_assert(kBfloat16ProductWords <= kPackedAElements + kPackedBElements + kStagedElements);

static_assert(kBlockRows % kTileRows == 0 && kStagedRows % kBlockRows == 0 && kBlockRows <= 240);
static_assert(kBlockColumns % kTileColumns == 0 && kBlockColumns <= 1024);

// ---- tile kernel ---------------------------------------------------------------------------------------------------

struct Nothing {
  void operator()() const {}
};

constexpr std::int64_t rowStrideOf(Left left) { return left == Left::rows ? kLeftStride : 1; }
constexpr std::int64_t columnStrideOf(Left left) {
  return left == Left::rows ? 1 : left == Left::columns ? kLeftStride : kTileRows;
}

/// Accumulates a tile of `Rows` × kTileColumns over k. `bTile` is a packed sliver. Calls between() every eight steps of k.
template <int Rows, Left left, typename Between>
void tile(std::int64_t k, const float* a, const float* bTile, float* c, std::int64_t cStride,
          std::int64_t columns, bool accumulate, const Between& between) {
  Vec low[Rows], high[Rows];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) low[i] = high[i] = broadcast(0.f);
  const auto step = [&] {
    const Vec b0 = load(bTile), b1 = load(bTile + Vec::width);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vec x = broadcast(a[i * rowStrideOf(left)]);
      low[i] = fma(x, b0, low[i]);
      high[i] = fma(x, b1, high[i]);
    }
    a += columnStrideOf(left);
    bTile += kTileColumns;
  };
  std::int64_t p = 0;
  for (; p + 8 <= k; p += 8) {
    between();
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) step();
  }
  for (; p < k; ++p) step();
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

template <int Rows, Left left, typename Between>
void tileOfRows(std::int64_t rows, std::int64_t k, const float* a, const float* bTile, float* c,
                std::int64_t cStride, std::int64_t columns, bool accumulate, const Between& between) {
  if constexpr (Rows > 0) {
    if (rows == Rows) {
      tile<Rows, left>(k, a, bTile, c, cStride, columns, accumulate, between);
    } else {
      tileOfRows<Rows - 1, left>(rows, k, a, bTile, c, cStride, columns, accumulate, between);
    }
  }
}

// ---- blocking ------------------------------------------------------------------------------------------------------

/// What is read next, for the products to ask for.
struct AheadOfProduct {
  Ahead<For::reading> a, b;
};

Ahead<For::reading> aheadOf(ConstView source, std::int64_t laneStride, std::int64_t depthStride,
                            std::int64_t lanes, std::int64_t depth) {
  const std::int64_t size = bytesPerElement(source.type);
  if (depthStride == 1) return {source.data, lanes, laneStride * size, depth * size};
  return {source.data, depth, depthStride * size, lanes * size};
}

constexpr std::int64_t kFloatBytes = sizeof(float);

/// C[m, n] (+)= packed A · packed B, k ≤ kBlockDepth.
void multiplyBlock(std::int64_t m, std::int64_t n, std::int64_t k, const float* packedA, const float* packedB,
                   float* c, std::int64_t cStride, bool accumulate, AheadOfProduct& ahead) {
  const auto each = [&](std::int64_t i, std::int64_t j, const auto& between) {
    tileOfRows<kTileRows, Left::panels>(std::min(kTileRows, m - i), k, packedA + i * k, packedB + j * k,
                                        c + i * cStride + j, cStride, std::min(kTileColumns, n - j),
                                        accumulate, between);
  };
  const auto aheadOfC = [&](std::int64_t i, std::int64_t j) -> Ahead<For::writing> {
    if (i >= m) return {};
    return {c + i * cStride + j, std::min(kTileRows, m - i), cStride * kFloatBytes,
            std::min(kTileColumns, n - j) * kFloatBytes};
  };
  if constexpr (kSliversStream) {
    for (std::int64_t i = 0; i < m; i += kTileRows) {
      for (std::int64_t j = 0; j < n; j += kTileColumns) {
        auto nextC = j + kTileColumns < n ? aheadOfC(i, j + kTileColumns) : aheadOfC(i + kTileRows, 0);
        each(i, j, [&] { ahead.a.ask(1), ahead.b.ask(1), nextC.ask(2); });
      }
    }
  } else {
    for (std::int64_t j = 0; j < n; j += kTileColumns) {
      for (std::int64_t i = 0; i < m; i += kTileRows) {
        float* const own = c + i * cStride + j;
        for (std::int64_t row = 0; row < std::min(kTileRows, m - i); ++row) {
          __builtin_prefetch(own + row * cStride, 1);
          __builtin_prefetch(own + row * cStride + kTileColumns - 1, 1);
        }
        each(i, j, Nothing{});
      }
    }
  }
}

struct Scratch {
  float *packedA, *packedB, *staged;
};

/// Rows [0, m) of one block of columns into float32 C, which holds m × n. `nextColumns`: of the block behind it.
void columnBlock(const Gemm& g, std::int64_t firstRow, std::int64_t m, std::int64_t firstColumn,
                 std::int64_t n, std::int64_t nextColumns, float* c, std::int64_t cStride, bool accumulate,
                 const Scratch& scratch) {
  const auto ofA = [&](std::int64_t i, std::int64_t p) {
    return g.a.offset((firstRow + i) * g.aRowStride + p * g.aColumnStride);
  };
  const auto ofB = [&](std::int64_t p, std::int64_t j) {
    return g.b.offset(p * g.bRowStride + (firstColumn + j) * g.bColumnStride);
  };
  const auto depthAt = [&](std::int64_t p) { return std::min(kBlockDepth, g.k - p); };
  // Blocks of equal height: every one reads the whole block of B.
  const std::int64_t blocks = (m + kBlockRows - 1) / kBlockRows;
  const std::int64_t blockRows = alignUp((m + blocks - 1) / blocks, kTileRows);
  for (std::int64_t p = 0; p < g.k; p += kBlockDepth) {
    const std::int64_t depth = depthAt(p), nextP = p + depth;
    packAny<kTileColumns>(ofB(p, 0), g.bColumnStride, g.bRowStride, n, depth, scratch.packedB);
    AheadOfProduct ahead;
    if (nextP < g.k) {
      ahead.b = aheadOf(ofB(nextP, 0), g.bColumnStride, g.bRowStride, n, depthAt(nextP));
    } else if (nextColumns > 0) {
      ahead.b = aheadOf(ofB(0, n), g.bColumnStride, g.bRowStride, nextColumns, depthAt(0));
    }
    for (std::int64_t i = 0; i < m; i += blockRows) {
      const std::int64_t rows = std::min(blockRows, m - i), next = i + rows;
      packAny<kTileRows>(ofA(i, p), g.aRowStride, g.aColumnStride, rows, depth, scratch.packedA);
      ahead.a = next < m ? aheadOf(ofA(next, p), g.aRowStride, g.aColumnStride, std::min(blockRows, m - next),
                                   depth)
                         : Ahead<For::reading>();
      multiplyBlock(rows, n, depth, scratch.packedA, scratch.packedB, c + i * cStride, cStride,
                    accumulate || p > 0, ahead);
    }
  }
}

void storeStaged(const Gemm& g, std::int64_t firstRow, std::int64_t rows, std::int64_t firstColumn,
                 std::int64_t n, const float* staged) {
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
  const std::int64_t blocks = (columnEnd - columnBegin + kBlockColumns - 1) / kBlockColumns;
  const std::int64_t blockColumns = alignUp((columnEnd - columnBegin + blocks - 1) / blocks, kTileColumns);
  const std::int64_t rowStep = narrow ? kStagedRows : rowEnd - rowBegin;
  for (std::int64_t i = rowBegin; i < rowEnd; i += rowStep) {
    const std::int64_t rows = std::min(rowStep, rowEnd - i);
    for (std::int64_t j = columnBegin; j < columnEnd; j += blockColumns) {
      const std::int64_t columns = std::min(blockColumns, columnEnd - j);
      const std::int64_t nextColumns = std::min(blockColumns, columnEnd - j - columns);
      if (narrow) {
        columnBlock(g, i, rows, j, columns, nextColumns, scratch.staged, kBlockColumns, false, scratch);
        storeStaged(g, i, rows, j, columns, scratch.staged);
      } else {
        columnBlock(g, i, rows, j, columns, nextColumns, g.c.as<float>() + i * g.cStride + j, g.cStride,
                    g.accumulate, scratch);
      }
    }
  }
}

template <Left left>
void multiplyPacked(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* packedB,
                    float* c, std::int64_t cStride, bool accumulate, Triangle triangle,
                    std::int64_t firstRow) {
  for (std::int64_t j = 0; j < n; j += kTileColumns) {
    const std::int64_t columns = std::min(kTileColumns, n - j);
    const std::int64_t top =
        triangle == Triangle::result ? std::max<std::int64_t>(j - firstRow, 0) / kTileRows * kTileRows : 0;
    for (std::int64_t i = top; i < m; i += kTileRows) {
      const std::int64_t rows = std::min(kTileRows, m - i);
      const std::int64_t begin = triangle == Triangle::leftTransposed ? std::min(i, k) : 0;
      const std::int64_t end = triangle == Triangle::left ? std::min(k, firstRow + i + rows) : k;
      const std::int64_t ofRow = left == Left::panels ? i * k : i * rowStrideOf(left);
      tileOfRows<kTileRows, left>(rows, end - begin, a + ofRow + begin * columnStrideOf(left),
                                  packedB + j * k + begin * kTileColumns, c + i * cStride + j, cStride,
                                  columns, accumulate, Nothing{});
    }
  }
}

}  // namespace

std::int64_t gemmWorkspaceBytesPerThread() { return sizes::productScratchBytes; }

void gemm(const Gemm& g, int threads, void* workspace) {
  const bool splitRows = g.m >= g.n;
  const bool areNarrow = g.a.type == DataType::bfloat16 && g.b.type == DataType::bfloat16;
  const Bfloat16Product product = areNarrow ? bfloat16Product() : Bfloat16Product::none;
  parallelRanges(threads, splitRows ? g.m : g.n, splitRows ? kTileRows : kTileColumns,
                 [&](std::int64_t begin, std::int64_t end, int thread) {
                   float* const base =
                       static_cast<float*>(workspace) + thread * (gemmWorkspaceBytesPerThread() / 4);
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

void packSlivers(ConstView b, std::int64_t rowStride, std::int64_t columnStride, std::int64_t k,
                 std::int64_t n, float* packed) {
  packAny<kTileColumns>(b, columnStride, rowStride, n, k, packed);
}

void packLeft(ConstView a, std::int64_t rowStride, std::int64_t columnStride, std::int64_t m, std::int64_t k,
              float* packed) {
  packAny<kTileRows>(a, rowStride, columnStride, m, k, packed);
}

void gemmPacked(Left left, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                const float* packedB, float* c, std::int64_t cStride, bool accumulate, Triangle triangle,
                std::int64_t firstRow) {
  switch (left) {
    case Left::panels:
      return multiplyPacked<Left::panels>(m, n, k, a, packedB, c, cStride, accumulate, triangle, firstRow);
    case Left::rows:
      return multiplyPacked<Left::rows>(m, n, k, a, packedB, c, cStride, accumulate, triangle, firstRow);
    case Left::columns:
      return multiplyPacked<Left::columns>(m, n, k, a, packedB, c, cStride, accumulate, triangle, firstRow);
  }
}

}  // namespace internevo::cpu
