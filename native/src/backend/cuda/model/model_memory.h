// Memory of the model of a device: pages that nobody may touch but the backend's calls.
#pragma once

#include <memory>

#include "internevo/memory_space.h"

namespace internevo::cuda::model {

/// While one lives, this thread's guarded memory is open. Cheap when none is guarded.
class OpenMemory {
 public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};

std::unique_ptr<MemorySpace> createModelMemory(bool guarded);

}  // namespace internevo::cuda::model
