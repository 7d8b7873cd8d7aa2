#include "backend/cuda/device/device_memory.h"

#include <algorithm>
#include <string>
#include <vector>

#include "backend/cuda/staged_uploads.h"

namespace internevo::cuda {

namespace {

class DeviceMemory final : public MemorySpace {
 public:
  DeviceMemory(Streams& streams, const Current& current, const Allocation& allocation, PinnedMemory& pinned)
      : streams_(streams), current_(current), allocation_(allocation), uploads_(streams, pinned) {}

  bool hostReads() const noexcept override { return false; }
  MemoryOccupancy occupancy() const noexcept override {
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess)
      return static_cast<void>(cudaGetLastError()), MemoryOccupancy{};
    return {static_cast<std::int64_t>(total - free), static_cast<std::int64_t>(total)};
  }

  Status allocate(std::int64_t bytes, void** result) override {
    *result = nullptr;
    if (bytes <= 0)
      return {StatusCode::internal, "an allocation of " + std::to_string(bytes) + " bytes was asked for"};
    if (allocation_.allocate != nullptr) {
      if (allocation_.allocate(result, static_cast<std::size_t>(bytes)) != 0) {
        static_cast<void>(cudaGetLastError());
        return {StatusCode::outOfMemory,
                std::to_string(bytes) + " bytes of the GPU's memory cannot be had from NCCL (ncclMemAlloc)" +
                    left()};
      }
      ofLibrary_.push_back(*result);
    } else if (const cudaError_t code = cudaMalloc(result, static_cast<std::size_t>(bytes));
               code != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // else the next call would tell this failure again
      return {code == cudaErrorMemoryAllocation ? StatusCode::outOfMemory : StatusCode::internal,
              std::to_string(bytes) +
                  " bytes of the GPU's memory cannot be had: " + cudaGetErrorString(code) + left()};
    }
    INTERNEVO_RETURN_IF_ERROR(zero(*result, bytes));
    return streams_.synchronize(current_.queue);
  }
  void release(void* data, std::int64_t) noexcept override {
    const auto found = std::find(ofLibrary_.begin(), ofLibrary_.end(), data);
    if (found == ofLibrary_.end()) return static_cast<void>(cudaFree(data));
    ofLibrary_.erase(found);
    static_cast<void>(cudaDeviceSynchronize());  // as cudaFree does
    static_cast<void>(allocation_.release(data));
  }

  Status copy(void* target, const void* source, std::int64_t bytes) override {
    return transfer(target, source, bytes, cudaMemcpyDeviceToDevice);
  }
  Status copyRows(void* target, std::int64_t targetStride, const void* source, std::int64_t sourceStride,
                  std::int64_t rowBytes, std::int64_t rows) override {
    if (rowBytes == 0 || rows == 0) return Status::success();
    return cudaStatus(
        cudaMemcpy2DAsync(target, static_cast<std::size_t>(targetStride), source,
                          static_cast<std::size_t>(sourceStride), static_cast<std::size_t>(rowBytes),
                          static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice, stream()),
        "cudaMemcpy2DAsync");
  }
  Status zero(void* target, std::int64_t bytes) override {
    return cudaStatus(cudaMemsetAsync(target, 0, static_cast<std::size_t>(bytes), stream()),
                      "cudaMemsetAsync");
  }

  Status zeroRows(void* target, std::int64_t stride, std::int64_t rowBytes, std::int64_t rows) override {
    if (rowBytes == 0 || rows == 0) return Status::success();
    return cudaStatus(
        cudaMemset2DAsync(target, static_cast<std::size_t>(stride), 0, static_cast<std::size_t>(rowBytes),
                          static_cast<std::size_t>(rows), stream()),
        "cudaMemset2DAsync");
  }

  /// Waits for what is large: its copy would else still be under way when the caller changes it.
  Status upload(void* target, const void* host, std::int64_t bytes) override {
    if (bytes <= StagedUploads::kLargestBytes) return uploads_.upload(target, host, bytes, current_.queue);
    INTERNEVO_RETURN_IF_ERROR(transfer(target, host, bytes, cudaMemcpyHostToDevice));
    return streams_.synchronize(current_.queue);
  }
  Status download(void* host, const void* source, std::int64_t bytes) override {
    INTERNEVO_RETURN_IF_ERROR(transfer(host, source, bytes, cudaMemcpyDeviceToHost));
    return streams_.synchronize(current_.queue);
  }

 private:
  Status transfer(void* target, const void* source, std::int64_t bytes, cudaMemcpyKind kind) {
    return cudaStatus(cudaMemcpyAsync(target, source, static_cast<std::size_t>(bytes), kind, stream()),
                      "cudaMemcpyAsync");
  }

  std::string left() const {
    const MemoryOccupancy now = occupancy();
    if (now.totalBytes == 0) return "";
    return "; " + std::to_string(now.totalBytes - now.takenBytes) + " of " + std::to_string(now.totalBytes) +
           " bytes are free";
  }
  cudaStream_t stream() const { return current_.queue.stream; }

  Streams& streams_;
  const Current& current_;
  const Allocation& allocation_;
  std::vector<void*> ofLibrary_;  ///< what the library gave out
  StagedUploads uploads_;
};

class DevicePinnedMemory final : public PinnedMemory {
 public:
  Status allocate(std::int64_t bytes, void** result) override {
    *result = nullptr;
    const cudaError_t code = cudaHostAlloc(result, static_cast<std::size_t>(bytes), cudaHostAllocDefault);
    if (code == cudaSuccess) return Status::success();
    static_cast<void>(cudaGetLastError());
    return {StatusCode::outOfMemory,
            std::to_string(bytes) + " bytes of the host's memory cannot be pinned: " +
                cudaGetErrorString(code) + "; free memory of this host, or run fewer ranks on it"};
  }
  void release(void* data, std::int64_t) noexcept override { static_cast<void>(cudaFreeHost(data)); }
  Status copy(void* host, const void* source, std::int64_t bytes, const Queue& on) override {
    return cudaStatus(
        cudaMemcpyAsync(host, source, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, on.stream),
        "cudaMemcpyAsync");
  }
  Status upload(void* target, const void* host, std::int64_t bytes, const Queue& on) override {
    return cudaStatus(
        cudaMemcpyAsync(target, host, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, on.stream),
        "cudaMemcpyAsync");
  }
};

}  // namespace

std::unique_ptr<MemorySpace> createDeviceMemory(Streams& streams, const Current& current,
                                                const Allocation& allocation, PinnedMemory& pinned) {
  return std::make_unique<DeviceMemory>(streams, current, allocation, pinned);
}

std::unique_ptr<PinnedMemory> createPinnedMemory() { return std::make_unique<DevicePinnedMemory>(); }

}  // namespace internevo::cuda
