// The one allocation of a rank. Offsets are planned by the caller; nothing is allocated after create().
#pragma once

#include <cstdint>

#include "internevo/memory_space.h"
#include "internevo/status.h"
#include "internevo/tensor.h"

namespace internevo {

class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Takes `bytes` of the memory, zero-filled; a shortage appears here and not in a step. `memory` outlives the arena.
  /// Errors: outOfMemory with the size asked for; internal when created twice.
  Status create(std::int64_t bytes, MemorySpace& memory = hostMemory());

  /// Memory at a planned offset (64-byte aligned). Counts towards the high-water mark.
  /// Errors: outOfMemory when [offset, offset + bytes) is not inside the arena or is misaligned.
  Status at(std::int64_t offsetBytes, std::int64_t bytes, void** result);

  /// All of it, as long as nothing was handed out: for trials, which leave zeros. Counts towards no mark.
  void* whole() const noexcept { return base_; }

  std::int64_t capacityBytes() const noexcept { return capacityBytes_; }
  /// Largest end of any range handed out so far.
  std::int64_t highWaterBytes() const noexcept { return highWaterBytes_; }

 private:
  MemorySpace* memory_ = nullptr;
  void* base_ = nullptr;
  std::int64_t capacityBytes_ = 0;
  std::int64_t highWaterBytes_ = 0;
};

}  // namespace internevo
