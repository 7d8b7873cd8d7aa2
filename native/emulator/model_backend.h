// The CUDA backend on the model of a device.
#pragma once

#include <memory>

#include "backend/cuda/backend_attention_library.h"
#include "emulator/trace.h"
#include "internevo/device_library.h"

namespace internevo::cuda {

/// As many as an H100 says that it has.
constexpr int kModelMultiprocessors = 132;

/// Kernels run on the CPU, thread by thread. With `guarded` the memory can be touched only inside the backend's calls, as that
/// of a GPU: a program that reads it through its pointer ends with a segmentation fault; and calls return before their work is done.
/// Never null. Attention runs on the kernels of sm_90a when INTERNEVO_CUDA_ATTENTION (attention_choice.h) asks for them, with
/// "cudnn" on the model of cuDNN, which is not there otherwise; or on what `library` opens, as on a GPU with cuDNN.
/// Products are computed as INTERNEVO_LT_MODEL says (model_products.h). `trace`, where there is one, is told what is given to the device and outlives the backend.
std::unique_ptr<Backend> createModelBackend(bool guarded, const DeviceRequest& request = {},
                                            model::LaunchTrace* trace = nullptr,
                                            const OpenAttentionLibrary& library = {});

}  // namespace internevo::cuda
