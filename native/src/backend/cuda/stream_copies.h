// Copies to the program's memory on a stream of their own.
#pragma once

#include <utility>
#include <vector>

#include "backend/cuda/pinned_memory.h"
#include "backend/cuda/streams.h"
#include "internevo/background_copies.h"

namespace internevo::cuda {

/// Everything given outlives it.
class StreamCopies final : public BackgroundCopies {
 public:
  StreamCopies(Streams& streams, const Current& current, PinnedMemory& memory)
      : streams_(streams), current_(current), memory_(memory) {}
  /// The stream must be done with memory that goes; where it never will be, the run was abandoned and the process ends.
  ~StreamCopies() override {
    if (sealed_) static_cast<void>(wait());
    for (const auto& [data, bytes] : taken_) memory_.release(data, bytes);
  }

  Status allocate(std::int64_t bytes, void** result) override {
    INTERNEVO_RETURN_IF_ERROR(memory_.allocate(bytes, result));
    taken_.emplace_back(*result, bytes);
    return Status::success();
  }
  Status copy(void* host, const void* source, std::int64_t bytes) override {
    if (!started_) {
      INTERNEVO_RETURN_IF_ERROR(streams_.create(&own_));
      INTERNEVO_RETURN_IF_ERROR(streams_.createEvent(&before_));
      INTERNEVO_RETURN_IF_ERROR(streams_.createEvent(&after_));
      started_ = true;
    }
    INTERNEVO_RETURN_IF_ERROR(streams_.record(before_, current_.queue));
    INTERNEVO_RETURN_IF_ERROR(streams_.wait(own_, before_));
    return memory_.copy(host, source, bytes, own_);
  }
  Status seal() override {
    if (!started_) return Status::success();
    sealed_ = true;
    return streams_.record(after_, own_);
  }
  Status settle() override { return sealed_ ? streams_.wait(current_.queue, after_) : Status::success(); }
  Status wait() override { return sealed_ ? streams_.synchronize(after_) : Status::success(); }

 private:
  Streams& streams_;
  const Current& current_;
  PinnedMemory& memory_;
  Queue own_;
  Streams::Event before_ = nullptr, after_ = nullptr;
  bool started_ = false, sealed_ = false;
  std::vector<std::pair<void*, std::int64_t>> taken_;
};

}  // namespace internevo::cuda
