// The CUDA backend on the model of a device.
#pragma once

#include <memory>

#include "internevo/backend.h"

namespace internevo::cuda {

/// Kernels run on the CPU, thread by thread. With `guarded` the memory can be touched only inside the backend's calls, as that
/// of a GPU: a program that reads it through its pointer ends with a segmentation fault. Never null.
std::unique_ptr<Backend> createModelBackend(bool guarded);

}  // namespace internevo::cuda
