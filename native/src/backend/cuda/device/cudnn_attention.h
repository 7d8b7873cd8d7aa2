// Attention by cuDNN, through cudnn-frontend.
#pragma once

#include <memory>

#include "backend/cuda/attention_library.h"

namespace internevo::cuda {

/// Opens libcudnn.so.9 and makes a handle on the current device. Errors: why there is none, and what to do for one.
Status openCudnnAttention(std::unique_ptr<AttentionLibrary>* result);

}  // namespace internevo::cuda
