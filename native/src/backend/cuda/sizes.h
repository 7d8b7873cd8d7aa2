// Scratch memory of the CUDA backend's operators: host code without CUDA, so that a plan can be made where no GPU is.
#pragma once

#include "executor_sizes/executor_sizes.h"
#include "internevo/backend.h"

namespace internevo::cuda {

/// What cuBLASLt is given (its advice for Hopper).
constexpr std::int64_t kMatrixWorkspaceBytes = sizes::gpuProductScratchBytes;

/// Of a norm's rows, as many sums for the gradient of its gain are made side by side: three or four blocks a multiprocessor.
constexpr std::int64_t kNormParts = 512;
/// Fewer where there are fewer rows, or so wide ones that the sums would not go into the products' scratch.
std::int64_t normParts(const NormShape&);

class Sizes : public BackendSizes {
 public:
  std::int64_t linearWorkspaceBytes() const override { return kMatrixWorkspaceBytes; }
  /// Backward: Σ o·gO of every query and head, float32; with heads of multiples of 8 what the kernels of sm_90a
  /// need (sizes_attention.h), or would if heads were smaller, whatever the GPU: a plan does not know it.
  std::int64_t attentionWorkspaceBytes(const AttentionShape&) const override;
  std::int64_t attentionBlockWorkspaceBytes(const AttentionBlockShape&) const override;
  /// Backward: float32 [normParts, width].
  std::int64_t normWorkspaceBytes(const NormShape&) const override;
  /// So many that the three products of a chunk occupy every multiprocessor.
  std::int64_t lossChunkRows() const override { return sizes::gpuLossChunkRows; }
  /// Logits of a chunk, float32; their gradient takes their place.
  std::int64_t headLossWorkspaceBytes(const HeadLossShape&) const override;
};

/// Bytes of the logits of a chunk, where the scratch of the products begins.
std::int64_t logitsBytes(const HeadLossShape&);

}  // namespace internevo::cuda
