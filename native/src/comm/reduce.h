// The sums of collectives.
#pragma once

#include <cstdint>

#include "internevo/device_groups.h"
#include "internevo/tensor.h"

namespace internevo {

/// output[0, elements) = tree sum (or maximum) of inputs[0, count) at element `offset` of each.
/// output may be one of the inputs at that offset.
void reduceTree(DataType type, ReduceOperation operation, const void* const* inputs, int count,
                std::int64_t offset, std::int64_t elements, void* output);

namespace cpu {

/// The same, in the compilation that it is called from.
void reduceTree(DataType type, ReduceOperation operation, const void* const* inputs, int count,
                std::int64_t offset, std::int64_t elements, void* output);

}  // namespace cpu

}  // namespace internevo
