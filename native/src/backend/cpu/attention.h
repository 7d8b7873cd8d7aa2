// Tiles and scratch layout shared by attention's forward and backward.
#pragma once

#include "backend/cpu/gemm.h"
#include "internevo/backend.h"

namespace internevo::cpu {

/// Queries and keys are cut at multiples of kAttentionTile, so only the tiles on the diagonal are masked and those
/// above it are never computed.
constexpr std::int64_t kAttentionTile = 96;
/// Packed columns are counted as if slivers were this wide, so that a plan's bytes do not depend on the build.
constexpr std::int64_t kAttentionPad = 32;
static_assert(kAttentionTile % kTileColumns == 0 && kAttentionPad % kTileColumns == 0);

constexpr std::int64_t attentionTiles(std::int64_t sequence) {
  return (sequence + kAttentionTile - 1) / kAttentionTile;
}

/// Floats per thread: packed Kᵀ and V of one key/value head; tiles of scores, q and o; two rows of state.
constexpr std::int64_t attentionForwardElements(std::int64_t sequence, std::int64_t headSize) {
  const std::int64_t padded = alignUp(headSize, kAttentionPad);
  return alignUp(attentionTiles(sequence) * kAttentionTile * (headSize + padded) + kAttentionTile * kAttentionTile +
                     2 * kAttentionTile * headSize + 2 * kAttentionTile,
                 16);
}

/// Floats per thread: packed Kᵀ, Vᵀ and K of one key/value head; gK and gV; tiles of p and gP; q, gO, gQ; packed q
/// and gO; one row of state.
constexpr std::int64_t attentionBackwardElements(std::int64_t sequence, std::int64_t headSize) {
  const std::int64_t padded = alignUp(headSize, kAttentionPad);
  return alignUp(attentionTiles(sequence) * kAttentionTile * (2 * headSize + padded) + 2 * sequence * headSize +
                     2 * kAttentionTile * kAttentionTile + 3 * kAttentionTile * headSize +
                     2 * kAttentionTile * padded + kAttentionTile,
                 16);
}

/// Checks sizes and replaces strides of 0.
Status prepareAttention(const char* call, AttentionShape* shape);

}  // namespace internevo::cpu
