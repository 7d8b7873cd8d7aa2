// What cuBLASLt's arguments mean, on the model of a device.
#pragma once

#include <memory>
#include <vector>

#include "backend/cuda/product_library.h"

namespace internevo::cuda {

/// An answer of the model's library. What a call of it takes is added to the device's clock. Every answer but the first adds a product's terms
/// in an order of its own, so that its bits tell who computed.
struct ModelAnswer {
  std::int64_t microseconds = 0;
  bool computes = true;  ///< else the check says that this device lacks it
  bool fails = false;    ///< its call does, though the check says nothing
  std::int64_t scratchBytes = 0;
};

/// INTERNEVO_LT_MODEL: microseconds of each answer, as "40,20,30", "40:20,…" with those of the next ranks behind colons; an "x" before one:
/// the device lacks it, a "!": its call fails. Unset: one answer that takes no time. With INTERNEVO_LT_MODEL_CHOSEN a product that was not
/// chosen before is an error.
std::vector<ModelAnswer> modelAnswersAsked(int rank);

std::unique_ptr<ProductLibrary> createModelProducts(std::vector<ModelAnswer> answers);

}  // namespace internevo::cuda
