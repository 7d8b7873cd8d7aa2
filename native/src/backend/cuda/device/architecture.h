// What of the kernels this GPU can run. The one file of device/ with kernels in it, and so for nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/device/device_queue.h"

namespace internevo::cuda {

/// Says before the first step that the library was built without this GPU's architecture. Errors: badConfig.
Status checkKernels(const cudaDeviceProp& properties);

/// blocks: those that the GPU runs at one time, one a multiprocessor; 0: the kernels of sm_80 are to serve. Waits for the queue.
/// Errors: badConfig when INTERNEVO_CUDA_ATTENTION asks for what this GPU or this build does not have.
Status findWarpgroups(const Queue& queue, const cudaDeviceProp& properties, int* blocks);

}  // namespace internevo::cuda
