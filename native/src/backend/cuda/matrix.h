// Matrix products as cuBLASLt takes them: column-major.
#pragma once

#include "internevo/backend.h"

namespace internevo::cuda {

/// C[m, n] = op(A)[m, k] · op(B)[k, n] + beta · C, all column-major: element (row, column) at column · ld + row.
/// Sums are float32, rounded once. The types of A and B are equal.
struct MatrixProduct {
  std::int64_t m = 0, n = 0, k = 0;
  bool transposeA = false, transposeB = false;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  ConstView a, b;
  View c;
  bool accumulate = false;  ///< beta = 1
};

/// y[rows, outputs] = x[rows, inputs] · wᵀ: read column-major, a row-major matrix is its transpose, so this is yᵀ = w · xᵀ.
inline MatrixProduct forwardProduct(const LinearShape& s, ConstView x, ConstView w, View y) {
  return {s.outputs, s.rows, s.inputs, true, false, s.inputs, s.inputStride, s.outputStride, w, x, y, false};
}
/// gX[rows, inputs] = gY[rows, outputs] · w.
inline MatrixProduct inputGradientProduct(const LinearShape& s, ConstView gY, ConstView w, View gX,
                                          bool accumulate) {
  return {s.inputs,       s.rows,        s.outputs, false, false, s.inputs,
          s.outputStride, s.inputStride, w,         gY,    gX,    accumulate};
}
/// gW[outputs, inputs] += gYᵀ · x.
inline MatrixProduct weightGradientProduct(const LinearShape& s, ConstView x, ConstView gY, View gW) {
  return {s.inputs, s.outputs, s.rows, false, true, s.inputStride, s.outputStride, s.inputs, x, gY, gW, true};
}

/// Of the gradient of a head's logits, whose rows stay where the logits stood, in float32.
constexpr std::int64_t headGradientStride(DataType type, std::int64_t vocabulary) {
  return type == DataType::float32 ? vocabulary : 2 * vocabulary;
}

}  // namespace internevo::cuda
