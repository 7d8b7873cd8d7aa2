// Tiles of bfloat16 in shared memory as bulk copies put them there and wgmma reads them, and the products between them.
//
// A tile [rows, kHead] is kHead / 64 halves; a half is rows of 128 bytes with the 128-byte swizzle: patterns of eight rows, 1024
// bytes, in which the groups of 16 bytes are exchanged by the row (PTX ISA 8.8, 9.7.15.5.1.2; tensor maps 5.5.7).
#pragma once

#include "backend/cuda/kernels/attention_tensor.h"

namespace internevo::cuda {

constexpr int kWarpgroup = 128;
constexpr int kHalfColumns = 64, kHalfRowBytes = 128, kPatternBytes = 1024;
constexpr int kStepK = 16;  ///< of one wgmma

/// PTX ISA 8.8, 9.7.15.5.1.2.2: bits 0–13 start, 16–29 leading offset, 32–45 stride offset, each / 16; 62–63 swizzle, 1 = 128 bytes.
/// Patterns begin at multiples of 1024, so the base offset (49–51) is 0.
INTERNEVO_BOTH std::uint64_t matrixDescriptor(std::uint32_t address, std::uint32_t leadingBytes,
                                              std::uint32_t strideBytes) {
  return static_cast<std::uint64_t>((address & 0x3ffff) >> 4) |
         static_cast<std::uint64_t>(leadingBytes >> 4) << 16 |
         static_cast<std::uint64_t>(strideBytes >> 4) << 32 | std::uint64_t{1} << 62;
}

template <int kHead, int kRows>
struct BulkTile {
  static_assert(kHead % kHalfColumns == 0 && kRows % 8 == 0);
  static constexpr int kHalves = kHead / kHalfColumns, kHalfBytes = kRows * kHalfRowBytes,
                       kBytes = kHalves * kHalfBytes;
  std::uint32_t address;  ///< in shared memory

  /// Rows row… down, 16 columns from 16·step on: the sum runs over columns.
  INTERNEVO_DEVICE std::uint64_t byRows(int row, int step) const {
    const int half = step / 4, inside = step % 4;
    const auto at = static_cast<std::uint32_t>(half * kHalfBytes + row * kHalfRowBytes + inside * kStepK * 2);
    return matrixDescriptor(address + at, kStepK, kPatternBytes);  // the leading offset has no meaning here
  }
  /// Columns column… down, 16 rows from 16·step on: the sum runs over rows.
  INTERNEVO_DEVICE std::uint64_t byColumns(int column, int step) const {
    const int half = column / kHalfColumns, inside = column % kHalfColumns;
    const auto at =
        static_cast<std::uint32_t>(half * kHalfBytes + step * kStepK * kHalfRowBytes + inside * 2);
    return matrixDescriptor(address + at, kHalfBytes, kPatternBytes);
  }
};

/// Starts d[N / 8] (results [64, N]) = left rows leftRow… · (right rows 0…N)ᵀ over the whole head.
template <int kHead, int kLeftRows, int kRightRows, int kCount, class Thread>
INTERNEVO_DEVICE void startRowsByRows(Thread& t, BulkTile<kHead, kLeftRows> left, int leftRow,
                                      BulkTile<kHead, kRightRows> right, float (&d)[kCount][4]) {
  static_assert(8 * kCount == kRightRows);
#pragma unroll
  for (int step = 0; step < kHead / kStepK; ++step) {
    t.template multiplyShared<false, false>(d, left.byRows(leftRow, step), right.byRows(0, step), step > 0);
  }
}

/// Starts d[kHead / 8] (results [64, kHead]) += p · right, p [64, kRows] in registers.
template <int kHead, int kRows, int kSteps, int kCount, class Thread>
INTERNEVO_DEVICE void startResultsByTile(Thread& t, const std::uint32_t (&p)[kSteps][4],
                                         BulkTile<kHead, kRows> right, float (&d)[kCount][4]) {
  static_assert(8 * kCount == kHead && kStepK * kSteps == kRows);
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    t.template multiplyRegisters<true>(d, p[step], right.byColumns(0, step), true);
}

/// Results [64, 8 · 2 · kSteps] as the left side of the next product: rounded, in the same registers' order.
template <int kSteps>
INTERNEVO_DEVICE void roundResults(const float (&d)[2 * kSteps][4], std::uint32_t (&p)[kSteps][4]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    p[step][0] = packBfloat16(d[2 * step][0], d[2 * step][1]),
    p[step][1] = packBfloat16(d[2 * step][2], d[2 * step][3]);
    p[step][2] = packBfloat16(d[2 * step + 1][0], d[2 * step + 1][1]);
    p[step][3] = packBfloat16(d[2 * step + 1][2], d[2 * step + 1][3]);
  }
}

/// Copies rows [row, row + kRows) of head `head` of sequence b: one box a half.
template <int kHead, int kRows, class Thread>
INTERNEVO_DEVICE void startTileCopy(Thread& t, unsigned char* target, const TensorMap* map,
                                    MemoryBarrier* barrier, int row, int head, int b) {
#pragma unroll
  for (int half = 0; half < kHead / kHalfColumns; ++half) {
    t.copyTile(target + half * BulkTile<kHead, kRows>::kHalfBytes, map, barrier, half * kHalfColumns, row,
               head, b);
  }
}

/// Where a ring of kStages buffers stands, and the parity of the phase that fills its buffer (PTX ISA 8.8, 9.7.13.15.9).
template <int kStages>
struct RingPlace {
  int stage = 0, parity = 0;
  INTERNEVO_DEVICE void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

}  // namespace internevo::cuda
