// Memory of a GPU.
#pragma once

#include <memory>

#include "backend/cuda/launch.h"
#include "internevo/memory_space.h"

namespace internevo::cuda {

/// Calls go to the queue's stream, which outlives the object, as does the device that it is of.
std::unique_ptr<MemorySpace> createDeviceMemory(const Queue& queue);

}  // namespace internevo::cuda
