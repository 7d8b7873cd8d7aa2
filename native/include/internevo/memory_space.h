// The memory that a backend's operators work on, and the ways in and out of it: a process's own, or that of a device.
//
// Calls that stay inside the memory are in order with the operators' calls of the same thread and may still be under way when
// they return. The bytes are the same whatever the kind.
#pragma once

#include <cstdint>

#include "internevo/status.h"

namespace internevo {

/// What a device's memory holds: of everybody who uses it, the driver's context and the libraries too.
struct MemoryOccupancy {
  std::int64_t takenBytes = 0, totalBytes = 0;
};

class MemorySpace {
 public:
  virtual ~MemorySpace() = default;

  /// The program may read and write it through its pointers.
  virtual bool hostReads() const noexcept = 0;

  /// Zeros for the process's own memory, of which the system tells.
  virtual MemoryOccupancy occupancy() const noexcept { return {}; }

  /// Zero-filled, aligned to at least 256 bytes, and really there: a shortage appears here and not in a step.
  /// Errors: outOfMemory with the size asked for.
  virtual Status allocate(std::int64_t bytes, void** result) = 0;
  virtual void release(void* data, std::int64_t bytes) noexcept = 0;

  /// Between ranges of this memory that do not overlap.
  virtual Status copy(void* target, const void* source, std::int64_t bytes) = 0;
  /// `rows` rows of rowBytes; strides in bytes from row to row.
  virtual Status copyRows(void* target, std::int64_t targetStride, const void* source,
                          std::int64_t sourceStride, std::int64_t rowBytes, std::int64_t rows) = 0;
  virtual Status zero(void* target, std::int64_t bytes) = 0;
  /// `rows` rows of rowBytes.
  virtual Status zeroRows(void* target, std::int64_t stride, std::int64_t rowBytes, std::int64_t rows) = 0;

  /// From the program's memory, which may be changed again on return.
  virtual Status upload(void* target, const void* host, std::int64_t bytes) = 0;
  /// Into the program's memory, behind all calls before; complete on return.
  virtual Status download(void* host, const void* source, std::int64_t bytes) = 0;
};

/// The process's own memory.
MemorySpace& hostMemory() noexcept;

}  // namespace internevo
