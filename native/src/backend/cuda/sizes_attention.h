// Which heads attention's kernels with matrix instructions take, and where those of sm_90a have their scratch memory. Host code
// without CUDA.
#pragma once

#include <algorithm>

#include "executor_sizes/executor_sizes.h"
#include "internevo/backend.h"

namespace internevo::cuda {

/// Offsets in bytes. gQ is summed in float32, of `pairs` (sequence, key/value head) in one launch: of all of them where that
/// fits into kSumsBytes. A library that sums so has room for its own then.
struct AttentionScratch {
  static constexpr std::int64_t kTickets = 0, kTicketBytes = sizes::gpuTicketBytes;
  static constexpr std::int64_t kSumsBytes =
      sizes::gpuQuerySumsBytes;                                    ///< as many pairs as fit, at least one
  static constexpr std::int64_t kQueries = sizes::gpuTileQueries;  ///< of a tile of the backward pass

  std::int64_t tiles = 0;  ///< of a sequence's queries
  std::int64_t pairs = 0;  ///< of one launch
  std::int64_t statistics =
      0;  ///< of kernels/attention_backward_sums.h: 12 bytes a query of a tile [batch · heads, tiles]
  std::int64_t counts = 0;  ///< int32 [pairs · group, tiles]
  std::int64_t countsBytes = 0;
  std::int64_t sums = 0;  ///< float32 [pairs · group, tiles, kQueries · summedColumns]
  std::int64_t bytes = 0;
};

/// Head sizes that the kernels with matrix instructions take: any multiple of kHeadStep up to the largest. Rows then begin at
/// multiples of 16 bytes, as copies want them.
constexpr std::int64_t kHeadStep = sizes::gpuHeadStep, kLargestHead = sizes::gpuLargestHead;
inline bool hasTensorKernels(std::int64_t headSize) {
  return headSize > 0 && headSize % kHeadStep == 0 && headSize <= kLargestHead;
}
/// Widths of tiles that the kernels of a warp (mma.sync) are compiled for; a head takes the smallest that it fits into.
constexpr std::int64_t kWarpHeads[] = {64, 96, 128, 192, 256};
/// The same of the kernels of warpgroups (sm_90a), whose tiles are halves of 64 columns. A wider head's gradients of 128 keys and
/// values have no room in the registers of two warpgroups, nor its tiles in shared memory: the kernels of a warp serve there.
constexpr std::int64_t kWarpgroupHeads[] = {64, 128};
inline bool hasWarpgroupKernels(std::int64_t headSize) {
  return hasTensorKernels(headSize) && headSize <= 128;
}
/// Columns of the sums of gQ: those of the tiles of warpgroups, and of wider heads as many as a library would have.
inline std::int64_t summedColumns(std::int64_t headSize) { return alignUp(headSize, sizes::gpuTileColumns); }

inline AttentionScratch attentionScratch(std::int64_t batch, std::int64_t sequence, std::int64_t heads,
                                         std::int64_t kvHeads, std::int64_t headSize,
                                         std::int64_t sumsBytes = AttentionScratch::kSumsBytes) {
  AttentionScratch s;
  const std::int64_t group = heads / kvHeads;
  s.tiles = (sequence + AttentionScratch::kQueries - 1) / AttentionScratch::kQueries;
  const std::int64_t pairBytes =
      std::max<std::int64_t>(group * s.tiles * AttentionScratch::kQueries * summedColumns(headSize) * 4, 1);
  s.pairs = std::clamp<std::int64_t>(sumsBytes / pairBytes, 1, std::max<std::int64_t>(batch * kvHeads, 1));
  s.statistics = AttentionScratch::kTickets + AttentionScratch::kTicketBytes;
  s.counts =
      alignUp(s.statistics + batch * heads * s.tiles * AttentionScratch::kQueries * 12, kAlignmentBytes);
  s.countsBytes = s.pairs * group * s.tiles * 4;
  s.sums = alignUp(s.counts + s.countsBytes, kAlignmentBytes);
  s.bytes = alignUp(s.sums + s.pairs * pairBytes, kAlignmentBytes);
  return s;
}

}  // namespace internevo::cuda
