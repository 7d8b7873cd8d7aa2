// Memory of a GPU.
#pragma once

#include <memory>

#include "backend/cuda/allocation.h"
#include "backend/cuda/stream_copies.h"
#include "internevo/memory_space.h"

namespace internevo::cuda {

/// Calls go to the current stream. What is given outlives the object, as does the device that it is of.
std::unique_ptr<MemorySpace> createDeviceMemory(Streams& streams, const Current& current,
                                                const Allocation& allocation, PinnedMemory& pinned);

/// Memory of the program's that the GPU's copy engines write to while it computes.
std::unique_ptr<PinnedMemory> createPinnedMemory();

}  // namespace internevo::cuda
