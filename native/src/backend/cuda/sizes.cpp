#include "backend/cuda/sizes.h"

#include <algorithm>

namespace internevo::cuda {

std::int64_t Sizes::attentionWorkspaceBytes(const AttentionShape& s) const {
  return alignUp(4 * s.batch * s.heads * s.sequence, kAlignmentBytes);
}

std::int64_t Sizes::attentionBlockWorkspaceBytes(const AttentionBlockShape& s) const {
  return attentionWorkspaceBytes(s);
}

std::int64_t logitsBytes(const HeadLossShape& s) {
  return alignUp(std::min(s.chunkRows, s.rows) * s.vocabulary * 4, kAlignmentBytes);
}

std::int64_t Sizes::headLossWorkspaceBytes(const HeadLossShape& s) const {
  return logitsBytes(s) + kMatrixWorkspaceBytes;
}

}  // namespace internevo::cuda
