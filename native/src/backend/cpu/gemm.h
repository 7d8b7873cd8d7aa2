// Matrix product for every operator. Own code, because the libraries' blocking makes a row's bits depend on how many
// rows the call has, and plans that split rows differently could then not be compared bit by bit. Where the instruction set
// multiplies bfloat16 itself, products of two such operands are those of gemm_bfloat16.h; else they are converted while packing.
//
// Each element of C is the sum over k in ascending order, fused multiply-adds from zero inside blocks of
// kBlockDepth, blocks added in order: a function of its row of A and its column of B only, as in gemm_bfloat16.h.
#pragma once

#include <cstdint>

#include "backend/cpu/simd.h"
#include "internevo/backend.h"
#include "internevo/tensor.h"

namespace internevo::cpu {

constexpr std::int64_t kBlockDepth = kSumBlockRows;  // k
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
constexpr std::int64_t kTileRows = 12;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr std::int64_t kTileRows = 6;
#else
constexpr std::int64_t kTileRows = 4;
#endif
constexpr std::int64_t kTileColumns = 2 * Vec::width;

/// C[m, n] (+)= A[m, k] · B[k, n]. Element (i, p) of A is at a + i·aRowStride + p·aColumnStride, one of the two
/// strides is 1; B likewise. C is row-major.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  ConstView a;
  std::int64_t aRowStride = 0, aColumnStride = 0;
  ConstView b;
  std::int64_t bRowStride = 0, bColumnStride = 0;
  View c;
  std::int64_t cStride = 0;
  bool accumulate = false;
};

/// Scratch per thread, for any shape.
std::int64_t gemmWorkspaceBytesPerThread();
void gemm(const Gemm&, int threads, void* workspace);

// ---- pieces for the attention kernels ------------------------------------------------------------------------------

/// Floats of B[k, n] packed into column slivers of kTileColumns, zero-padded.
constexpr std::int64_t packedSliversElements(std::int64_t k, std::int64_t n) {
  return k * alignUp(n, kTileColumns);
}
/// Packs B[k, n] (float32 or bfloat16): sliver s holds columns [s·kTileColumns, …), row after row of kTileColumns.
void packSlivers(ConstView b, std::int64_t rowStride, std::int64_t columnStride, std::int64_t k,
                 std::int64_t n, float* packed);
/// What is known to be zero, or not wanted, in a product on the diagonal of a causal mask. The product's first row is row
/// `firstRow` of the mask's triangle (result and left).
enum class Triangle {
  none,
  result,  ///< only C[i, j] with j ≤ i + firstRow is wanted (some of the others are computed, the rest is left alone)
  left,            ///< A[i, p] is zero where p > i + firstRow
  leftTransposed,  ///< A[i, p] is zero where p < i
};
/// How A[m, k] lies in memory. Its strides are known to the compiler: addresses of a tile's rows need no registers then, which
/// the sums need.
enum class Left {
  panels,   ///< packed by packLeft
  rows,     ///< row after row, kLeftStride apart
  columns,  ///< column after column, kLeftStride apart
};
constexpr std::int64_t kLeftStride = 96;
/// Packs A[m, k] (float32 or bfloat16) into panels of kTileRows rows, zero-padded: alignUp(m, kTileRows) × k floats, behind which up
/// to 7 more may be written.
void packLeft(ConstView a, std::int64_t rowStride, std::int64_t columnStride, std::int64_t m, std::int64_t k,
              float* packed);
/// C[m, n] (+)= A[m, k] · packed B, all float32, no blocking over k.
void gemmPacked(Left left, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                const float* packedB, float* c, std::int64_t cStride, bool accumulate,
                Triangle triangle = Triangle::none, std::int64_t firstRow = 0);

}  // namespace internevo::cpu
