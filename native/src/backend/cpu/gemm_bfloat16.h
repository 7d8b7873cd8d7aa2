// The matrix product where both operands are bfloat16 and the instruction set multiplies that: tiles of 16 × 16 (AMX), or
// vectors of pairs (AVX512-BF16). Each element of C is the sum in gemm.h's order of blocks; inside a block products are
// added two by two in float32, and what is too small for a normal number counts as zero. It is a function of its row of A
// and its column of B only, as there.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm.h"

namespace internevo::cpu {

enum class Bfloat16Product {
  none,     ///< products of bfloat16 are computed in float32
  vectors,  ///< AVX512-BF16
  tiles,    ///< AMX
};
/// The fastest that the build has and this machine grants.
Bfloat16Product bfloat16Product();

/// Holds the state of the calling thread's tiles while it lives; nothing where `by` needs none.
class Bfloat16Tiles {
 public:
  explicit Bfloat16Tiles(Bfloat16Product by);
  ~Bfloat16Tiles();
  Bfloat16Tiles(const Bfloat16Tiles&) = delete;
  Bfloat16Tiles& operator=(const Bfloat16Tiles&) = delete;

 private:
  bool loaded_;
};

/// Rows [firstRow, firstRow + m) and columns [firstColumn, firstColumn + n) into float32 C, which holds m × n.
/// `packedA` has room for blockRows × kBlockDepth numbers, `packedB` for n × kBlockDepth, both rounded up to tiles; the
/// calling thread has a Bfloat16Tiles. `by` is not none, and not more than bfloat16Product().
void bfloat16ColumnBlock(Bfloat16Product by, const Gemm&, std::int64_t firstRow, std::int64_t m, std::int64_t firstColumn,
                         std::int64_t n, float* c, std::int64_t cStride, bool accumulate, std::int64_t blockRows,
                         void* packedA, void* packedB);

}  // namespace internevo::cpu
