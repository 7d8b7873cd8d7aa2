// What bulk copies take of a tensor.
#pragma once

#include "backend/cuda/portable.h"
#include "internevo/status.h"

namespace internevo::cuda {

/// A tensor of bfloat16 in the device's memory and the box that one bulk copy takes of it; innermost dimension first.
/// Rows of a box are 128 bytes and stand in shared memory with the 128-byte swizzle. Outside of the tensor a box is zeros.
struct TensorBox {
  const void* data = nullptr;
  std::int64_t extent[4] = {1, 1, 1, 1};    ///< elements
  std::int64_t strideBytes[3] = {0, 0, 0};  ///< of dimensions 1, 2, 3
  int box[4] = {64, 1, 1, 1};               ///< elements
};
/// Errors: badConfig for addresses, strides or sizes that the copy engine does not take.
Status makeTensorMap(const TensorBox& tensor, TensorMap* map);

}  // namespace internevo::cuda
