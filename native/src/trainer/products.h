// Who computes the matrix products of a run, on a device that has several ways to: chosen before the first step, and taken again when
// a run goes on from a checkpoint.
#pragma once

#include "trainer/config.h"
#include "trainer/memory_plan.h"

namespace internevo::trainer {

/// Every product of a layer and of the head, the same list on all ranks. `chunkRows`: rows of which logits exist at one time.
ProductUses productsOf(const Config& config, const LocalShape& shape, std::int64_t chunkRows);

/// What INTERNEVO_CUDA_PRODUCTS asks for: "timed" (also where it is not set), "first", or the path of a file of recorded choices, which
/// is then read. A run that goes on from its checkpoints takes what it recorded there, unless a path is given.
/// Errors: Failure badConfig naming the file.
ProductRequest productRequest(const Config& config);

/// Beside the checkpoints of a run, where it has some.
constexpr const char* kProductsFile = "products.json";
/// By one rank, when the directory exists. Errors: Failure checkpointError naming the file.
void recordProducts(const Config& config, const ProductChoices& choices);

}  // namespace internevo::trainer
