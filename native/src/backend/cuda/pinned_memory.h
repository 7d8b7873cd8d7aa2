// The host's memory that a device copies to and from by itself.
#pragma once

#include <cstdint>

#include "backend/cuda/queue.h"

namespace internevo::cuda {

/// What of it differs between a device and the model of one.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
  virtual Status allocate(std::int64_t bytes, void** result) = 0;
  virtual void release(void* data, std::int64_t bytes) noexcept = 0;
  /// From the device.
  virtual Status copy(void* host, const void* source, std::int64_t bytes, const Queue& on) = 0;
  /// To the device.
  virtual Status upload(void* target, const void* host, std::int64_t bytes, const Queue& on) = 0;
};

}  // namespace internevo::cuda
