// Copies between the device and pinned memory, on the stream of the caller's lane.
#pragma once

#include <utility>
#include <vector>

#include "backend/cuda/pinned_memory.h"
#include "backend/cuda/streams.h"
#include "internevo/host_copies.h"

namespace internevo::cuda {

/// Everything given outlives it.
class StreamHostCopies final : public HostCopies {
 public:
  StreamHostCopies(Streams& streams, const Current& current, PinnedMemory& memory)
      : streams_(streams), current_(current), memory_(memory) {}
  StreamHostCopies(const StreamHostCopies&) = delete;
  StreamHostCopies& operator=(const StreamHostCopies&) = delete;
  /// No stream may still copy to or from memory that goes. Where one never ends, the run was abandoned and the process ends.
  ~StreamHostCopies() override {
    if (!taken_.empty()) static_cast<void>(streams_.synchronizeAll());
    for (const auto& [data, bytes] : taken_) memory_.release(data, bytes);
  }

  Status allocate(std::int64_t bytes, void** result) override {
    INTERNEVO_RETURN_IF_ERROR(memory_.allocate(bytes, result));
    taken_.emplace_back(*result, bytes);
    return Status::success();
  }
  Status toHost(void* host, const void* source, std::int64_t bytes) override {
    return memory_.copy(host, source, bytes, current_.queue);
  }
  Status toDevice(void* target, const void* host, std::int64_t bytes) override {
    return memory_.upload(target, host, bytes, current_.queue);
  }

 private:
  Streams& streams_;
  const Current& current_;
  PinnedMemory& memory_;
  std::vector<std::pair<void*, std::int64_t>> taken_;
};

}  // namespace internevo::cuda
