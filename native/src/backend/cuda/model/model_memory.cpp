#include "backend/cuda/model/model_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace internevo::cuda::model {

namespace {

struct Range {
  void* data;
  std::size_t bytes;
};
std::vector<Range>& guardedRanges() {
  static std::vector<Range> ranges;
  return ranges;
}
int openings = 0;

void protect(int protection) {
  for (const Range& range : guardedRanges()) mprotect(range.data, range.bytes, protection);
}

class ModelMemory final : public MemorySpace {
 public:
  explicit ModelMemory(bool guarded) : guarded_(guarded) {}

  bool hostReads() const noexcept override { return !guarded_; }
  Status allocate(std::int64_t bytes, void** result) override {
    INTERNEVO_RETURN_IF_ERROR(hostMemory().allocate(bytes, result));
    if (!guarded_) return Status::success();
    guardedRanges().push_back({*result, static_cast<std::size_t>(bytes)});
    if (openings == 0) mprotect(*result, static_cast<std::size_t>(bytes), PROT_NONE);
    return Status::success();
  }
  void release(void* data, std::int64_t bytes) noexcept override {
    auto& ranges = guardedRanges();
    ranges.erase(std::remove_if(ranges.begin(), ranges.end(), [&](const Range& r) { return r.data == data; }), ranges.end());
    hostMemory().release(data, bytes);
  }
  Status copy(void* target, const void* source, std::int64_t bytes) override {
    const OpenMemory open;
    return hostMemory().copy(target, source, bytes);
  }
  Status copyRows(void* target, std::int64_t targetStride, const void* source, std::int64_t sourceStride,
                  std::int64_t rowBytes, std::int64_t rows) override {
    const OpenMemory open;
    return hostMemory().copyRows(target, targetStride, source, sourceStride, rowBytes, rows);
  }
  Status zero(void* target, std::int64_t bytes) override {
    const OpenMemory open;
    return hostMemory().zero(target, bytes);
  }
  Status upload(void* target, const void* host, std::int64_t bytes) override { return copy(target, host, bytes); }
  Status download(void* host, const void* source, std::int64_t bytes) override { return copy(host, source, bytes); }

 private:
  bool guarded_;
};

}  // namespace

OpenMemory::OpenMemory() {
  if (openings++ == 0) protect(PROT_READ | PROT_WRITE);
}

OpenMemory::~OpenMemory() {
  if (--openings == 0) protect(PROT_NONE);
}

std::unique_ptr<MemorySpace> createModelMemory(bool guarded) { return std::make_unique<ModelMemory>(guarded); }

}  // namespace internevo::cuda::model
