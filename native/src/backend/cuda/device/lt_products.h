// Matrix products by cuBLASLt.
#pragma once

#include <memory>

#include "backend/cuda/matrix.h"

namespace internevo::cuda {

/// Of the current device. An algorithm is chosen by cuBLASLt's heuristics at the first call of a shape and kept: a call's bits
/// do not change in a run. Float32 is computed as float32, not as TF32. Errors: internal.
Status createLtProducts(std::unique_ptr<MatrixProducts>* result);

}  // namespace internevo::cuda
