#include "backend/cuda/sizes.h"

#include <algorithm>

#include "backend/cuda/sizes_attention.h"

namespace internevo::cuda {

std::int64_t Sizes::attentionWorkspaceBytes(const AttentionShape& s) const {
  const std::int64_t deltas = alignUp(4 * s.batch * s.heads * s.sequence, kAlignmentBytes);
  if (!hasTensorKernels(s.headSize) || s.kvHeads < 1 || s.heads % s.kvHeads != 0) return deltas;
  return std::max(deltas, attentionScratch(s.batch, s.sequence, s.heads, s.kvHeads, s.headSize).bytes);
}

std::int64_t Sizes::attentionBlockWorkspaceBytes(const AttentionBlockShape& s) const {
  return attentionWorkspaceBytes(s);
}

std::int64_t normParts(const NormShape& s) {
  const std::int64_t most = std::max<std::int64_t>(kMatrixWorkspaceBytes / (4 * s.width), 1);
  return std::min({s.rows, kNormParts, most});
}

std::int64_t Sizes::normWorkspaceBytes(const NormShape& s) const {
  return alignUp(normParts(s) * s.width * 4, kAlignmentBytes);
}

std::int64_t logitsBytes(const HeadLossShape& s) {
  return alignUp(std::min(s.chunkRows, s.rows) * s.vocabulary * 4, kAlignmentBytes);
}

std::int64_t Sizes::headLossWorkspaceBytes(const HeadLossShape& s) const {
  return logitsBytes(s) + kMatrixWorkspaceBytes;
}

}  // namespace internevo::cuda
