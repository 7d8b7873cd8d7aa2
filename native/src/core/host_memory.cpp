#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "internevo/host_copies.h"
#include "internevo/memory_space.h"

namespace internevo {

namespace {

class HostMemory final : public MemorySpace {
 public:
  bool hostReads() const noexcept override { return true; }

  /// Maps pages of its own and writes each once: the first touch of fresh memory is far slower than rewriting it. Asks for
  /// huge pages, where the machine has them: rows of a matrix lie in many small ones, whose addresses take long to look up.
  Status allocate(std::int64_t bytes, void** result) override {
    void* const memory = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      return {StatusCode::outOfMemory, "cannot map an arena of " + std::to_string(bytes) +
                                           " bytes; use a plan that needs less memory"};
    }
    madvise(memory, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // where it fails the pages are small
    std::memset(memory, 0, static_cast<std::size_t>(bytes));
    *result = memory;
    return Status::success();
  }
  void release(void* data, std::int64_t bytes) noexcept override {
    munmap(data, static_cast<std::size_t>(bytes));
  }

  Status copy(void* target, const void* source, std::int64_t bytes) override {
    std::memcpy(target, source, static_cast<std::size_t>(bytes));
    return Status::success();
  }
  Status copyRows(void* target, std::int64_t targetStride, const void* source, std::int64_t sourceStride,
                  std::int64_t rowBytes, std::int64_t rows) override {
    auto* to = static_cast<std::byte*>(target);
    const auto* from = static_cast<const std::byte*>(source);
    for (std::int64_t row = 0; row < rows; ++row, to += targetStride, from += sourceStride) {
      std::memcpy(to, from, static_cast<std::size_t>(rowBytes));
    }
    return Status::success();
  }
  Status zero(void* target, std::int64_t bytes) override {
    std::memset(target, 0, static_cast<std::size_t>(bytes));
    return Status::success();
  }
  Status zeroRows(void* target, std::int64_t stride, std::int64_t rowBytes, std::int64_t rows) override {
    auto* at = static_cast<std::byte*>(target);
    for (std::int64_t row = 0; row < rows; ++row, at += stride)
      std::memset(at, 0, static_cast<std::size_t>(rowBytes));
    return Status::success();
  }
  Status upload(void* target, const void* host, std::int64_t bytes) override {
    return copy(target, host, bytes);
  }
  Status download(void* host, const void* source, std::int64_t bytes) override {
    return copy(host, source, bytes);
  }
};

class PlainHostCopies final : public HostCopies {
 public:
  PlainHostCopies() = default;
  ~PlainHostCopies() override {
    for (const auto& [data, bytes] : taken_) hostMemory().release(data, bytes);
  }

  Status allocate(std::int64_t bytes, void** result) override {
    INTERNEVO_RETURN_IF_ERROR(hostMemory().allocate(bytes, result));
    taken_.emplace_back(*result, bytes);
    return Status::success();
  }
  Status toHost(void* host, const void* source, std::int64_t bytes) override {
    return hostMemory().copy(host, source, bytes);
  }
  Status toDevice(void* target, const void* host, std::int64_t bytes) override {
    return hostMemory().copy(target, host, bytes);
  }

 private:
  std::vector<std::pair<void*, std::int64_t>> taken_;
};

}  // namespace

MemorySpace& hostMemory() noexcept {
  static HostMemory memory;
  return memory;
}

std::unique_ptr<HostCopies> createPlainHostCopies() { return std::make_unique<PlainHostCopies>(); }

}  // namespace internevo
