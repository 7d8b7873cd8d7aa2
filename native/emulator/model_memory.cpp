#include "emulator/model_memory.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "backend/cuda/allocation.h"
#include "backend/cuda/staged_uploads.h"
#include "emulator/model_streams.h"
#include "emulator/trace.h"

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

/// Of what is above. Held as long as memory is open: the program's thread and the device's take turns.
std::recursive_mutex& openingMutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

class ModelMemory final : public MemorySpace {
 public:
  ModelMemory(bool guarded, Streams& streams, const Current& current, const Allocation& allocation,
              PinnedMemory& pinned, LaunchTrace* trace)
      : guarded_(guarded),
        streams_(streams),
        current_(current),
        allocation_(allocation),
        trace_(trace),
        uploads_(streams, pinned) {}

  bool hostReads() const noexcept override { return !guarded_; }
  Status allocate(std::int64_t bytes, void** result) override {
    if (allocation_.allocate == nullptr) {
      INTERNEVO_RETURN_IF_ERROR(hostMemory().allocate(bytes, result));
    } else if (allocation_.allocate(result, static_cast<std::size_t>(bytes)) != 0) {
      return {StatusCode::outOfMemory, "the model of NCCL gives no memory"};
    } else {
      ofLibrary_.push_back(*result);
    }
    if (trace_ != nullptr) trace_->addMemory(*result, bytes);
    if (!guarded_) return Status::success();
    const std::lock_guard lock(openingMutex());
    guardedRanges().push_back({*result, static_cast<std::size_t>(bytes)});
    if (openings == 0) mprotect(*result, static_cast<std::size_t>(bytes), PROT_NONE);
    return Status::success();
  }
  void release(void* data, std::int64_t bytes) noexcept override {
    endWhereRegistered(data, bytes);
    finishAll(streams_);  // as cudaFree does
    if (trace_ != nullptr) trace_->removeMemory(data);
    const std::lock_guard lock(openingMutex());
    auto& ranges = guardedRanges();
    ranges.erase(std::remove_if(ranges.begin(), ranges.end(), [&](const Range& r) { return r.data == data; }),
                 ranges.end());
    const auto found = std::find(ofLibrary_.begin(), ofLibrary_.end(), data);
    if (found == ofLibrary_.end()) return hostMemory().release(data, bytes);
    ofLibrary_.erase(found);
    static_cast<void>(allocation_.release(data));
  }
  Status copy(void* target, const void* source, std::int64_t bytes) override {
    return run("copy", [=] {
      noteAccess(source, bytes, false), noteAccess(target, bytes, true);
      return hostMemory().copy(target, source, bytes);
    });
  }
  Status copyRows(void* target, std::int64_t targetStride, const void* source, std::int64_t sourceStride,
                  std::int64_t rowBytes, std::int64_t rows) override {
    return run("copy of rows", [=] {
      noteRows(source, sourceStride, rowBytes, rows, false),
          noteRows(target, targetStride, rowBytes, rows, true);
      return hostMemory().copyRows(target, targetStride, source, sourceStride, rowBytes, rows);
    });
  }
  Status zero(void* target, std::int64_t bytes) override {
    return run("zero", [=] {
      noteAccess(target, bytes, true);
      return hostMemory().zero(target, bytes);
    });
  }
  Status zeroRows(void* target, std::int64_t stride, std::int64_t rowBytes, std::int64_t rows) override {
    return run("zero rows", [=] {
      noteRows(target, stride, rowBytes, rows, true);
      return hostMemory().zeroRows(target, stride, rowBytes, rows);
    });
  }
  Status upload(void* target, const void* host, std::int64_t bytes) override {
    if (bytes <= StagedUploads::kLargestBytes) return uploads_.upload(target, host, bytes, current_.queue);
    return copyAndWait(target, host, bytes);
  }
  Status download(void* host, const void* source, std::int64_t bytes) override {
    return copyAndWait(host, source, bytes);
  }

 private:
  Status copyAndWait(void* target, const void* source, std::int64_t bytes) {
    INTERNEVO_RETURN_IF_ERROR(copy(target, source, bytes));
    return streams_.synchronize(current_.queue);
  }
  /// What a library has registered may not go: whoever does that ends as such a program may.
  static void endWhereRegistered(const void* data, std::int64_t bytes) {
    const char* const file = std::getenv("INTERNEVO_NCCL_LIBRARY");
    void* const library = file == nullptr ? nullptr : dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return;
    using Registered = int (*)(const void*, std::size_t);
    const auto registered = reinterpret_cast<Registered>(dlsym(library, "internevoNcclModelRegistered"));
    if (registered != nullptr && registered(data, static_cast<std::size_t>(bytes)) != 0) {
      std::fputs("model of a device: memory is released that is registered with NCCL\n", stderr);
      std::abort();
    }
    dlclose(library);
  }
  static void noteRows(const void* data, std::int64_t stride, std::int64_t rowBytes, std::int64_t rows,
                       bool writes) {
    if (LaunchTrace::current() == nullptr) return;
    for (std::int64_t r = 0; r < rows; ++r)
      noteAccess(static_cast<const std::byte*>(data) + r * stride, rowBytes, writes);
  }
  template <typename Body>
  Status run(const char* name, Body body) {
    return runOn(current_.queue, name, [body] {
      const OpenMemory open;
      return body();
    });
  }

  bool guarded_;
  Streams& streams_;
  const Current& current_;
  const Allocation& allocation_;
  LaunchTrace* const trace_;
  std::vector<void*> ofLibrary_;  ///< what the library gave out
  StagedUploads uploads_;
};

class ModelPinnedMemory final : public PinnedMemory {
 public:
  Status allocate(std::int64_t bytes, void** result) override { return hostMemory().allocate(bytes, result); }
  void release(void* data, std::int64_t bytes) noexcept override { hostMemory().release(data, bytes); }
  Status copy(void* host, const void* source, std::int64_t bytes, const Queue& on) override {
    return runOn(on, "copy to the host", [=] {
      const OpenMemory open;
      noteAccess(source, bytes, false);
      return hostMemory().copy(host, source, bytes);
    });
  }
  Status upload(void* target, const void* host, std::int64_t bytes, const Queue& on) override {
    return runOn(on, "copy from the host", [=] {
      const OpenMemory open;
      noteAccess(target, bytes, true);
      return hostMemory().copy(target, host, bytes);
    });
  }
};

}  // namespace

OpenMemory::OpenMemory() {
  openingMutex().lock();
  if (openings++ == 0) protect(PROT_READ | PROT_WRITE);
}

OpenMemory::~OpenMemory() {
  if (--openings == 0) protect(PROT_NONE);
  openingMutex().unlock();
}

std::unique_ptr<MemorySpace> createModelMemory(bool guarded, Streams& streams, const Current& current,
                                               const Allocation& allocation, PinnedMemory& pinned,
                                               LaunchTrace* trace) {
  return std::make_unique<ModelMemory>(guarded, streams, current, allocation, pinned, trace);
}

std::unique_ptr<PinnedMemory> createModelPinnedMemory() { return std::make_unique<ModelPinnedMemory>(); }

}  // namespace internevo::cuda::model
