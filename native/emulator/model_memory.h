// Memory of the model of a device: pages that nobody may touch but the backend's calls.
#pragma once

#include <memory>

#include "internevo/memory_space.h"

namespace internevo::cuda {
class PinnedMemory;
class Streams;
struct Allocation;
struct Current;
}  // namespace internevo::cuda

namespace internevo::cuda::model {

class LaunchTrace;

/// While one lives, guarded memory is open. Cheap when none is guarded.
class OpenMemory {
 public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};

/// Calls go to the current stream. `trace`, where there is one, is told what they touch.
std::unique_ptr<MemorySpace> createModelMemory(bool guarded, Streams& streams, const Current& current,
                                               const Allocation& allocation, PinnedMemory& pinned,
                                               LaunchTrace* trace = nullptr);

std::unique_ptr<PinnedMemory> createModelPinnedMemory();

}  // namespace internevo::cuda::model
