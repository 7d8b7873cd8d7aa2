#include "backend/cuda/nccl/sums.h"

#include "backend/cuda/kernels/sum_copies.h"
#include "backend/cuda/launch.h"

namespace internevo::cuda {

namespace {

template <typename T>
Status start(const Queue& queue, const SumOfCopies& s, const char* name) {
  using Kernel = SumCopiesKernel<T>;
  return launch(queue, {blocksFor(s.rows * s.rowElements, Kernel::kThreads)},
                Kernel{s.rows, s.rowElements, s.targetStride, s.count, s.own, s.copies.as<T>(), s.copyStride,
                       s.ownCopy.as<T>(), s.target.as<T>()},
                name);
}

}  // namespace

Status startSumOfCopies(const Queue& queue, const SumOfCopies& sum, const char* name) {
  return sum.copies.type == DataType::float32 ? start<float>(queue, sum, name)
                                              : start<Bfloat16>(queue, sum, name);
}

}  // namespace internevo::cuda
