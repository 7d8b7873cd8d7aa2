// Where a backend gets its library for attention from.
#pragma once

#include <functional>

#include "backend/cuda/backend.h"

namespace internevo::cuda {

using OpenAttentionLibrary = std::function<Status(std::unique_ptr<AttentionLibrary>*)>;

/// Opens one unless kernels of ours are asked for; a device that has none keeps the reason. Errors: badConfig where the library is
/// asked for and is missing.
Status findAttentionLibrary(const OpenAttentionLibrary& open, Device* device);

}  // namespace internevo::cuda
