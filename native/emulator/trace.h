// What a backend on the model gave to its streams, in the order of its calls, and which bytes of the device's memory each of it
// touched. From this launch_order.h says whether events order whatever must be.
//
// Kernels are not asked what they touch: a build of the model for this (tests/cuda) has the compiler tell every access of theirs
// (trace_hooks.cpp). Copies and the model of NCCL say it themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace internevo::cuda::model {

struct ByteRange {
  std::uintptr_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

struct LaunchStep {
  enum class Kind : std::int8_t { work, record, wait, hostWait };
  Kind kind = Kind::work;
  int stream = 0;  ///< in the order in which streams were made; hostWait: that the host waited for
  std::int64_t recorded = -1;  ///< wait: the step that recorded what it waits for; −1: nothing was
  std::string name;            ///< of the work
  std::vector<ByteRange> reads, writes;  ///< of the device's memory; an allocation may come more than once
};

class LaunchTrace {
 public:
  /// Accesses elsewhere (shared memory, the program's own) are not kept.
  void addMemory(const void* data, std::int64_t bytes);
  void removeMemory(const void* data);

  /// A step of the calling program; its number.
  std::int64_t add(LaunchStep step);
  /// What work touches while this lives, on the thread that does it, belongs to its step. Nothing with a null trace.
  class Doing {
   public:
    Doing(LaunchTrace* trace, std::int64_t step);
    ~Doing();
    Doing(const Doing&) = delete;
    Doing& operator=(const Doing&) = delete;

   private:
    LaunchTrace* const before_;
    LaunchTrace* const trace_;
    const std::int64_t step_;
  };
  /// To be called when all work is done.
  std::vector<LaunchStep> steps() const;

  void touch(std::uintptr_t begin, std::int64_t bytes, bool writes);
  static LaunchTrace* current() { return current_; }

 private:
  struct Memory {
    std::uintptr_t begin;
    std::vector<unsigned char> touched;  ///< of the step that is being done: bit 0 read, bit 1 written
    std::vector<bool> marked;            ///< blocks of it that are not all zero
    std::vector<std::size_t> blocks;     ///< the same as a list
  };
  void collect(std::int64_t step);

  static inline thread_local LaunchTrace* current_ = nullptr;
  mutable std::recursive_mutex mutex_;
  std::vector<Memory> memories_;
  std::vector<LaunchStep> steps_;
};

/// Bytes that a step touches; for what the compiler does not see.
inline void noteAccess(const void* data, std::int64_t bytes, bool writes) {
  if (LaunchTrace* const trace = LaunchTrace::current(); trace != nullptr) {
    trace->touch(reinterpret_cast<std::uintptr_t>(data), bytes, writes);
  }
}

}  // namespace internevo::cuda::model
