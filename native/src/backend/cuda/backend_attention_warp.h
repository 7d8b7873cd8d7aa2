// Attention on mma.sync, for every GPU: bfloat16, heads of hasTensorKernels (sizes_attention.h).
#pragma once

#include "backend/cuda/kernels/attention_arguments.h"
#include "backend/cuda/queue.h"
#include "internevo/tensor.h"

namespace internevo::cuda {

/// Views as Backend's calls have them. Their addresses are multiples of 16, strides of 8 elements.
struct WarpAttention {
  const Queue& queue;
  const AttentionArguments& a;
  ConstView q, k, v;
  const char* call;

  Status forward(View o, float* logSumExp, bool merge) const;
  /// delta: Σ o · gO, as AttentionDeltaKernel made it. kAdd: gradients are float32 and added to.
  Status backward(ConstView gO, const float* logSumExp, const float* delta, View gQ, View gK, View gV,
                  bool add) const;
};

}  // namespace internevo::cuda
