// How much of a GPU collectives may take. Host code without CUDA.
#pragma once

#include <algorithm>

#include "executor_sizes/executor_sizes.h"

namespace internevo::cuda {

/// Blocks of a collective, and channels of a communicator, at most: each block has a multiprocessor. A channel moves some 20 GB/s, so 16 come near
/// to what NVLink gives a GPU (some 370 GB/s of a ring); on 132 multiprocessors they are an eighth. A power of two, as NCCL's messages want it.
/// Half of the channels that NCCL takes by itself are also half of the memory (native/MEMORY.md).
constexpr int kCommunicationBlocks = static_cast<int>(sizes::communicationBlocks);

/// What is left to kernels that would fill the device, beside collectives. A slice of a GPU keeps half of its own.
constexpr int blocksBesideCommunication(int multiprocessors) {
  return multiprocessors == 0 ? 0
                              : std::max(multiprocessors - kCommunicationBlocks, (multiprocessors + 1) / 2);
}

}  // namespace internevo::cuda
