// Attention on the kernels of sm_90a: bfloat16, heads of kWarpgroupHeads (sizes_attention.h) and smaller ones.
#pragma once

#include "backend/cuda/backend.h"
#include "backend/cuda/kernels/attention_arguments.h"
#include "backend/cuda/sizes_attention.h"

namespace internevo::cuda {

/// Views as Backend's calls have them; `scratch` of Sizes' bytes. Their addresses are multiples of 16, strides of 8 elements.
struct WarpgroupAttention {
  const Queue& queue;
  MemorySpace& memory;
  int blocks;  ///< that the GPU runs at one time; 0: it has no warpgroups
  const AttentionArguments& a;
  ConstView q, k, v;
  Workspace scratch;
  const char* call;
  std::int64_t sumsBytes = AttentionScratch::kSumsBytes;  ///< for the sums of gQ, of what scratch has

  /// Where there are warpgroups and batch, heads and tiles can be counted in 32 bits.
  bool fits() const;
  Status forward(View o, float* logSumExp, bool merge) const;
  /// kAdd: gradients are float32 and added to.
  Status backward(ConstView o, ConstView gO, const float* logSumExp, View gQ, View gK, View gV,
                  bool add) const;
};

}  // namespace internevo::cuda
