#include "backend/cuda/device/architecture.h"

#include <string>

#include "backend/cuda/attention_choice.h"
#include "backend/cuda/launch.h"

namespace internevo::cuda {

namespace {

struct EmptyKernel {
  static constexpr int kThreads = kWarp;
  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread&) const {}
};

/// Says whether the code that this GPU got is that of sm_90a: kernels of warpgroups are empty in any other.
struct ArchitectureKernel {
  static constexpr int kThreads = kWarp;
  [[maybe_unused]] static constexpr int kWarpgroups = 0;  // OnWarpgroups asks for its name alone
  int* found;
  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    if (t.x() == 0) *found = 1;
  }
};

Status hasWarpgroupCode(const Queue& queue, bool* result) {
  int* found = nullptr;
  int value = 0;
  INTERNEVO_RETURN_IF_ERROR(cudaStatus(cudaMalloc(&found, sizeof(int)), "cudaMalloc"));
  Status status = cudaStatus(cudaMemsetAsync(found, 0, sizeof(int), queue.stream), "cudaMemsetAsync");
  if (status.ok()) status = launch(queue, {}, ArchitectureKernel{found}, "architecture");
  if (status.ok()) {
    status = cudaStatus(cudaMemcpyAsync(&value, found, sizeof(int), cudaMemcpyDeviceToHost, queue.stream),
                        "cudaMemcpyAsync");
  }
  if (status.ok()) status = cudaStatus(cudaStreamSynchronize(queue.stream), "cudaStreamSynchronize");
  static_cast<void>(cudaFree(found));
  *result = value == 1;
  return status;
}

}  // namespace

Status checkKernels(const cudaDeviceProp& properties) {
  cudaFuncAttributes attributes{};
  const cudaError_t code = cudaFuncGetAttributes(&attributes, runKernel<EmptyKernel>);
  if (code == cudaSuccess) return Status::success();
  return {StatusCode::badConfig, std::string("the kernels cannot be loaded on ") + properties.name +
                                     " (compute capability " + std::to_string(properties.major) + "." +
                                     std::to_string(properties.minor) + "): " + cudaGetErrorString(code) +
                                     "; build with its architecture in INTERNEVO_CUDA_ARCHITECTURES"};
}

Status findWarpgroups(const Queue& queue, const cudaDeviceProp& properties, int* blocks) {
  *blocks = 0;
  AttentionChoice choice{};
  INTERNEVO_RETURN_IF_ERROR(attentionAsked(&choice));
  if (choice == AttentionChoice::warp) return Status::success();
  bool has = false;
  if (properties.major == 9 && properties.minor == 0)
    INTERNEVO_RETURN_IF_ERROR(hasWarpgroupCode(queue, &has));
  if (has) *blocks = properties.multiProcessorCount;
  if (has || choice != AttentionChoice::warpgroup) return Status::success();
  return {StatusCode::badConfig,
          "INTERNEVO_CUDA_ATTENTION is \"warpgroup\", which needs a GPU of compute capability 9.0 and "
          "90a-real in INTERNEVO_CUDA_ARCHITECTURES of the build; " +
              std::string(properties.name) + " has " + std::to_string(properties.major) + "." +
              std::to_string(properties.minor)};
}

}  // namespace internevo::cuda
