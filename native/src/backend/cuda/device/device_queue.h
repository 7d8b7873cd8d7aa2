// A stream of a GPU, and what calls of the CUDA runtime answer. Any C++ compiler takes this: nothing but kernels needs nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "internevo/status.h"

namespace internevo::cuda {

/// Where calls go: the stream of the lane that the host thread is at.
struct Queue {
  cudaStream_t stream = nullptr;
};

/// As libraries take it.
inline void* streamOf(const Queue& queue) { return queue.stream; }

inline Status cudaStatus(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return Status::success();
  const StatusCode kind = code == cudaErrorMemoryAllocation ? StatusCode::outOfMemory : StatusCode::internal;
  return {kind, std::string(call) + ": " + cudaGetErrorString(code)};
}

}  // namespace internevo::cuda
