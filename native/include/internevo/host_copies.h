// Copies between a device's memory and memory of the host that is kept for it.
#pragma once

#include <cstdint>
#include <memory>

#include "internevo/status.h"

namespace internevo {

/// As a job of a Lane a copy goes on beside what is computed; where it is called else, it is in order with the operators' calls.
class HostCopies {
 public:
  virtual ~HostCopies() = default;

  /// Memory of the host that the device copies to and from by itself: pinned, where there is a device. Lives as long as the object,
  /// which must outlive the copies. Errors: outOfMemory with the size asked for.
  virtual Status allocate(std::int64_t bytes, void** result) = 0;
  /// From the backend's memory into the host's. May return before it is done.
  virtual Status toHost(void* host, const void* source, std::int64_t bytes) = 0;
  /// Back. May return before it is done.
  virtual Status toDevice(void* target, const void* host, std::int64_t bytes) = 0;
};

/// Where the backend's memory is the process's own: copies that are done on return.
std::unique_ptr<HostCopies> createPlainHostCopies();

}  // namespace internevo
