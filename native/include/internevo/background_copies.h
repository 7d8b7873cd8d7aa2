// Copies out of a device's memory that go on beside what is computed, for checkpoints.
#pragma once

#include <cstdint>

#include "internevo/status.h"

namespace internevo {

/// Order of use: copy as often as needed, seal; then settle before what was read is overwritten, and wait, from any thread, before what
/// was written is read. Only then the next copies.
class BackgroundCopies {
 public:
  virtual ~BackgroundCopies() = default;

  /// Memory of the program's that the device writes to by itself; lives as long as the object. Errors: outOfMemory.
  virtual Status allocate(std::int64_t bytes, void** result) = 0;
  /// Behind all that the caller has called before. Returns at once.
  virtual Status copy(void* host, const void* source, std::int64_t bytes) = 0;
  virtual Status seal() = 0;
  /// What the caller calls from here on comes after what was sealed.
  virtual Status settle() = 0;
  /// Blocks until what was sealed has arrived. Errors: of the device, and communicationError when the run was abandoned meanwhile.
  virtual Status wait() = 0;
};

}  // namespace internevo
