// Matrix products by cuBLASLt.
#pragma once

#include <memory>
#include <string>

#include "backend/cuda/product_library.h"

namespace internevo::cuda {

/// "12.8.4"
std::string ltVersion();

/// Of the current device, whose name is given. Float32 is computed as float32, not as TF32; parts of a sum are added in float32, in an
/// order of the algorithm's own. Errors: internal.
Status createLtProducts(const std::string& device, std::unique_ptr<ProductLibrary>* result);

}  // namespace internevo::cuda
