#include "backend/cuda/device/device_memory.h"

#include <string>

namespace internevo::cuda {

namespace {

class DeviceMemory final : public MemorySpace {
 public:
  explicit DeviceMemory(const Queue& queue) : stream_(queue.stream) {}

  bool hostReads() const noexcept override { return false; }

  Status allocate(std::int64_t bytes, void** result) override {
    *result = nullptr;
    if (bytes <= 0) return {StatusCode::internal, "an allocation of " + std::to_string(bytes) + " bytes was asked for"};
    if (const cudaError_t code = cudaMalloc(result, static_cast<std::size_t>(bytes)); code != cudaSuccess) {
      std::size_t free = 0, total = 0;
      const bool known = cudaMemGetInfo(&free, &total) == cudaSuccess;
      static_cast<void>(cudaGetLastError());  // else the next call would tell this failure again
      return {code == cudaErrorMemoryAllocation ? StatusCode::outOfMemory : StatusCode::internal,
              std::to_string(bytes) + " bytes of the GPU's memory cannot be had: " + cudaGetErrorString(code) +
                  (known ? "; " + std::to_string(free) + " of " + std::to_string(total) + " bytes are free" : "")};
    }
    INTERNEVO_RETURN_IF_ERROR(zero(*result, bytes));
    return cudaStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  void release(void* data, std::int64_t) noexcept override { static_cast<void>(cudaFree(data)); }

  Status copy(void* target, const void* source, std::int64_t bytes) override {
    return transfer(target, source, bytes, cudaMemcpyDeviceToDevice);
  }
  Status copyRows(void* target, std::int64_t targetStride, const void* source, std::int64_t sourceStride,
                  std::int64_t rowBytes, std::int64_t rows) override {
    if (rowBytes == 0 || rows == 0) return Status::success();
    return cudaStatus(cudaMemcpy2DAsync(target, static_cast<std::size_t>(targetStride), source,
                                        static_cast<std::size_t>(sourceStride), static_cast<std::size_t>(rowBytes),
                                        static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice, stream_),
                      "cudaMemcpy2DAsync");
  }
  Status zero(void* target, std::int64_t bytes) override {
    return cudaStatus(cudaMemsetAsync(target, 0, static_cast<std::size_t>(bytes), stream_), "cudaMemsetAsync");
  }

  /// Waits: from pinned memory the copy would else still be under way when the caller changes it.
  Status upload(void* target, const void* host, std::int64_t bytes) override {
    INTERNEVO_RETURN_IF_ERROR(transfer(target, host, bytes, cudaMemcpyHostToDevice));
    return cudaStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  Status download(void* host, const void* source, std::int64_t bytes) override {
    INTERNEVO_RETURN_IF_ERROR(transfer(host, source, bytes, cudaMemcpyDeviceToHost));
    return cudaStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  Status transfer(void* target, const void* source, std::int64_t bytes, cudaMemcpyKind kind) {
    return cudaStatus(cudaMemcpyAsync(target, source, static_cast<std::size_t>(bytes), kind, stream_), "cudaMemcpyAsync");
  }

  const cudaStream_t stream_;
};

}  // namespace

std::unique_ptr<MemorySpace> createDeviceMemory(const Queue& queue) { return std::make_unique<DeviceMemory>(queue); }

}  // namespace internevo::cuda
