// The matrix product where both operands are bfloat16 and the instruction set multiplies that: tiles of 16 × 16 (AMX), or
// vectors of pairs (AVX512-BF16). Products are added two by two in float32, in ascending order of k, and what is too small
// for a normal number counts as zero. Each element of C is a function of its row of A and its column of B only, and a sum
// over k that is continued in C by another call is the same as one call's where the first's k is a multiple of 32.
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

/// Floats of scratch per thread.
constexpr std::int64_t kBfloat16ProductWords = 1 << 19;
/// Rows [rowBegin, rowEnd) and columns [columnBegin, columnEnd) of C; the calling thread has a Bfloat16Tiles. `by` is not
/// none, and not more than bfloat16Product(). `scratch` is aligned to 64 bytes.
void bfloat16Part(Bfloat16Product by, const Gemm&, std::int64_t rowBegin, std::int64_t rowEnd,
                  std::int64_t columnBegin, std::int64_t columnEnd, float* scratch);

}  // namespace internevo::cpu
