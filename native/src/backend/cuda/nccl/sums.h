// Starts the kernel that adds what several ranks computed (kernels/sum_copies.h, which says what the arguments are).
#pragma once

#include "backend/cuda/queue.h"
#include "internevo/status.h"
#include "internevo/tensor.h"

namespace internevo::cuda {

/// All of one type, float32 or bfloat16; `own` −1: every copy is at `copies`, and ownCopy is empty.
struct SumOfCopies {
  std::int64_t rows = 0, rowElements = 0, targetStride = 0;
  int count = 0, own = -1;
  ConstView copies;
  std::int64_t copyStride = 0;
  ConstView ownCopy;
  View target;
};
Status startSumOfCopies(const Queue& queue, const SumOfCopies& sum, const char* name);

}  // namespace internevo::cuda
