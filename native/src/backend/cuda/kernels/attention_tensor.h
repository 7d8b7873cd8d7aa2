// What attention's kernels with matrix instructions share: tiles in shared memory and the fragments read from them.
//
// bfloat16, tiles as wide as kWarpHeads says (sizes_attention.h): columns behind a smaller head are zeros and are not stored.
// FlashAttention-2's way of working: scores stay in registers, where the fragments of a product's result are those of the next
// product's left side.
#pragma once

#include "backend/cuda/kernels/attention_arguments.h"

namespace internevo::cuda {

constexpr float kLog2E = 1.4426950408889634f;

/// A tile [rows, kHead] of bfloat16 in shared memory. A row's groups of 8 elements are exchanged by the row's number, so that
/// the eight rows of a matrix, at any column, lie in different banks: by all of its last three bits where rows are a multiple of
/// 128 bytes apart, by two of them where they are 64 bytes more, which tells even and odd rows apart already.
template <int kHead>
struct Tile {
  static constexpr int kChunks = kHead / 8;
  static_assert(kChunks % 4 == 0);
  Bfloat16* base;

  static constexpr int bytes(int rows) { return rows * kHead * 2; }
  INTERNEVO_DEVICE Bfloat16* at(int row, int chunk) const {
    const int exchange = kChunks % 8 == 0 ? row & 7 : row >> 1 & 3;
    return base + row * kHead + ((chunk ^ exchange) * 8);
  }
};

/// Starts copies of rows [first, first + kRows) of `source`; rows from `end` on and columns from headSize on become zeros.
template <int kHead, int kRows, int kThreads, class Thread>
INTERNEVO_DEVICE void loadTile(Thread& t, const Bfloat16* source, std::int64_t stride, std::int64_t first,
                               std::int64_t end, std::int64_t headSize, Tile<kHead> tile) {
  constexpr int kChunks = Tile<kHead>::kChunks;
  static_assert(kRows * kChunks % kThreads == 0);
  for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
    const int which = i * kThreads + t.x(), row = which / kChunks, chunk = which % kChunks;
    const bool valid = first + row < end && chunk * 8 < headSize;
    t.copyAsync(tile.at(row, chunk), source + (valid ? (first + row) * stride + chunk * 8 : 0), valid);
  }
}

/// Left side [16, 16]: rows row…, columns 16·step….
template <int kHead, class Thread>
INTERNEVO_DEVICE void leftFragment(Thread& t, Tile<kHead> tile, int row, int step, std::uint32_t (&a)[4]) {
  const int lane = t.x() % kWarp;
  t.loadMatrices(a, tile.at(row + lane % 16, 2 * step + lane / 16));
}

/// Right sides of two products [16, 8] whose columns are the tile's rows: rows row…, row + 8…; the sum runs over columns
/// 16·step…. b[0], b[1] are of the first, b[2], b[3] of the second.
template <int kHead, class Thread>
INTERNEVO_DEVICE void rowsAsColumns(Thread& t, Tile<kHead> tile, int row, int step, std::uint32_t (&b)[4]) {
  const int lane = t.x() % kWarp, matrix = lane / 8;
  t.loadMatrices(b, tile.at(row + lane % 8 + 8 * (matrix / 2), 2 * step + matrix % 2));
}

/// Right sides of two products [16, 8] whose columns are the tile's columns 16·pair…, 16·pair + 8…; the sum runs over the
/// tile's rows row….
template <int kHead, class Thread>
INTERNEVO_DEVICE void columnsAsColumns(Thread& t, Tile<kHead> tile, int row, int pair,
                                       std::uint32_t (&b)[4]) {
  const int lane = t.x() % kWarp, matrix = lane / 8;
  t.loadMatricesTransposed(b, tile.at(row + lane % 8 + 8 * (matrix % 2), 2 * pair + matrix / 2));
}

/// d[kRows / 8] (results [16, kRows]) += left rows of `left` · (rows of `right`)ᵀ over the whole head.
template <int kHead, int kRows, class Thread>
INTERNEVO_DEVICE void multiplyByRows(Thread& t, Tile<kHead> left, int leftRow, Tile<kHead> right,
                                     float (&d)[kRows / 8][4]) {
#pragma unroll
  for (int step = 0; step < kHead / 16; ++step) {
    std::uint32_t a[4];
    leftFragment(t, left, leftRow, step, a);
#pragma unroll
    for (int pair = 0; pair < kRows / 16; ++pair) {
      std::uint32_t b[4];
      rowsAsColumns(t, right, 16 * pair, step, b);
      t.multiply(d[2 * pair], a, b[0], b[1]);
      t.multiply(d[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

/// d[kColumns / 8] (results [16, kColumns]) += p · columns 16·firstPair… of `right`, p [16, kRows] the rounded results of a product.
template <int kHead, int kRows, int kColumns, class Thread>
INTERNEVO_DEVICE void multiplyResults(Thread& t, const float (&p)[kRows / 8][4], Tile<kHead> right,
                                      int firstPair, float (&d)[kColumns / 8][4]) {
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step) {
    const std::uint32_t a[4] = {packBfloat16(p[2 * step][0], p[2 * step][1]),
                                packBfloat16(p[2 * step][2], p[2 * step][3]),
                                packBfloat16(p[2 * step + 1][0], p[2 * step + 1][1]),
                                packBfloat16(p[2 * step + 1][2], p[2 * step + 1][3])};
#pragma unroll
    for (int pair = 0; pair < kColumns / 16; ++pair) {
      std::uint32_t b[4];
      columnsAsColumns(t, right, 16 * step, firstPair + pair, b);
      t.multiply(d[2 * pair], a, b[0], b[1]);
      t.multiply(d[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

/// Rows of the side that goes by a block's own 64, at one time: the four tiles of the backward pass then fit into the 99 KiB that
/// the smallest GPU gives a block, and their scores into the registers that the widest results leave.
template <int kHead>
constexpr int kStreamedRows = kHead > 192 ? 32 : 64;

template <int kCount>
INTERNEVO_DEVICE void clearFragments(float (&d)[kCount][4]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) d[i][j] = 0.f;
  }
}

/// Two neighbouring elements, added to what stands there where kAdd.
template <bool kAdd, typename G>
INTERNEVO_DEVICE void storePair(G* target, float low, float high) {
  if constexpr (kAdd) low = toFloat(target[0]) + low, high = toFloat(target[1]) + high;
  if constexpr (sizeof(G) == 2) {
    *reinterpret_cast<std::uint32_t*>(target) = packBfloat16(low, high);
  } else {
    target[0] = low, target[1] = high;
  }
}

}  // namespace internevo::cuda
