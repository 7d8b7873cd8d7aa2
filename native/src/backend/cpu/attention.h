// Tiles, masks and scratch layout shared by attention's forward and backward.
#pragma once

#include <algorithm>
#include <type_traits>

#include "backend/cpu/gemm.h"
#include "backend/cpu/gemm_bfloat16.h"
#include "executor_sizes/executor_sizes.h"
#include "internevo/backend.h"

namespace internevo::cpu {

/// Queries and keys are cut at multiples of kAttentionTile, so only the tiles on the diagonal and at the borders of
/// documents are masked, and those that no query of a tile sees are never computed.
constexpr std::int64_t kAttentionTile = sizes::attentionTile;
/// Packed columns are counted as if slivers were this wide, so that a plan's bytes do not depend on the build.
constexpr std::int64_t kAttentionPad = sizes::attentionPad;
static_assert(kAttentionTile == kLeftStride && kAttentionTile % kTileRows == 0);
static_assert(kAttentionTile % kTileColumns == 0 && kAttentionPad % kTileColumns == 0);

constexpr std::int64_t attentionTiles(std::int64_t sequence) {
  return (sequence + kAttentionTile - 1) / kAttentionTile;
}

/// Floats per thread: packed Kᵀ and V of one key/value head; tiles of scores, q and o; two rows of state.
constexpr std::int64_t attentionForwardElements(std::int64_t keys, std::int64_t headSize) {
  const std::int64_t padded = alignUp(headSize, kAttentionPad);
  return alignUp(attentionTiles(keys) * kAttentionTile * (headSize + padded) +
                     kAttentionTile * kAttentionTile + 2 * kAttentionTile * headSize + 2 * kAttentionTile,
                 16);
}

/// Floats per thread: packed Kᵀ, Vᵀ and K of one key/value head; gK and gV; tiles of p and gP; q, gO, gQ; packed q
/// and gO; one row of state.
constexpr std::int64_t attentionBackwardElements(std::int64_t keys, std::int64_t headSize) {
  const std::int64_t padded = alignUp(headSize, kAttentionPad);
  return alignUp(attentionTiles(keys) * kAttentionTile * (2 * headSize + padded) + 2 * keys * headSize +
                     2 * kAttentionTile * kAttentionTile + 3 * kAttentionTile * headSize +
                     2 * kAttentionTile * padded + kAttentionTile,
                 16);
}

/// Asks for the rows of the tile that begins at row `first`, of which `elements` are wanted: one head's part of a row is
/// far from the next one's, which hardware does not foresee.
template <typename T>
inline void prefetchRows(const T* rows, std::int64_t first, std::int64_t sequence, std::int64_t stride,
                         std::int64_t elements) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t r = first; r < std::min(first + kAttentionTile, sequence); ++r) {
    for (std::int64_t i = 0; i < elements; i += kLine) __builtin_prefetch(rows + r * stride + i);
  }
}

template <typename T>
constexpr DataType kTypeOf = std::is_same_v<T, Bfloat16> ? DataType::bfloat16 : DataType::float32;

/// `count` floats times `factor`, in whole vectors: what is behind them is written too.
inline void scaleFloats(Vec factor, std::int64_t count, float* values) {
  for (std::int64_t i = 0; i < count; i += Vec::width) store(values + i, load(values + i) * factor);
}

/// Tiles of keys, [begin, end).
struct TileRange {
  std::int64_t begin, end;
};

/// Which keys the queries of one sequence see. `firstKeys` begins at the sequence's first query (or is null).
class AttentionMask {
 public:
  AttentionMask(const AttentionBlockShape& s, std::int64_t batch)
      : firstKeys_(s.firstKeys.empty() ? nullptr : s.firstKeys.as<std::int32_t>() + batch * s.queryBatchRows),
        keys_(s.keySequence),
        ahead_(s.queryPosition - s.keyPosition),
        keyPosition_(s.keyPosition),
        // How far before a query its first key is, where a window ends before the sequence does.
        reach_(s.window > 0 ? s.window - 1 : s.queryPosition + s.sequence) {}

  /// Tiles of keys of which queries [first, first + rows) see anything.
  TileRange tiles(std::int64_t first, std::int64_t rows) const {
    const std::int64_t begin = firstKey(first) / kAttentionTile;
    const std::int64_t last = std::min(ahead_ + first + rows, keys_);  // one past the last key seen
    return {begin, last <= firstKey(first) ? begin : attentionTiles(last)};
  }
  /// Keys [low, high) of those beginning at `key` that a query sees; low = high = 0 when there are none.
  void visible(std::int64_t query, std::int64_t key, std::int64_t columns, std::int64_t* low,
               std::int64_t* high) const {
    *low = std::max<std::int64_t>(firstKey(query) - key, 0);
    *high = std::min(ahead_ + query + 1 - key, columns);
    if (*low >= *high) *low = *high = 0;
  }
  /// All queries of [first, first + rows) see all of kAttentionTile keys from `key` on.
  bool seeWhole(std::int64_t first, std::int64_t rows, std::int64_t key, std::int64_t columns) const {
    return columns == kAttentionTile && firstKey(first + rows - 1) <= key &&
           ahead_ + first + 1 - key >= columns;
  }
  /// As visible, within [0, kAttentionTile] and [0, columns], where low and high never fall from a query to the next.
  void limits(std::int64_t query, std::int64_t key, std::int64_t columns, std::int32_t* low,
              std::int32_t* high) const {
    *low = static_cast<std::int32_t>(std::clamp<std::int64_t>(firstKey(query) - key, 0, kAttentionTile));
    *high = static_cast<std::int32_t>(std::clamp<std::int64_t>(ahead_ + query + 1 - key, 0, columns));
  }
  /// The tile's diagonal is that of the mask: key i is the last that query i sees.
  bool onDiagonal(std::int64_t firstQuery, std::int64_t key) const { return ahead_ + firstQuery == key; }

 private:
  /// First key that a query sees, counted from the block's first; beyond the end when it sees none for its document or window.
  std::int64_t firstKey(std::int64_t query) const {
    const std::int64_t ofDocument = firstKeys_ == nullptr ? 0 : firstKeys_[query] - keyPosition_;
    return std::max<std::int64_t>({ofDocument, ahead_ + query - reach_, 0});
  }

  const std::int32_t* firstKeys_;
  std::int64_t keys_, ahead_, keyPosition_, reach_;
};

/// o and logSumExp of a piece. o: the type of q (a whole, `merge` false) or float32.
struct AttentionForward {
  ConstView q, k, v;
  View o;
  float* logSumExp;
  bool merge;
};
void attentionForwardKernel(const AttentionBlockShape&, const AttentionForward&, int threads, Workspace);
/// In the instruction set's own bfloat16 arithmetic, in the same workspace. False, and nothing done, where that cannot be:
/// other types, an instruction set without, heads that its tiles do not fit.
bool attentionForwardBfloat16(Bfloat16Product by, const AttentionBlockShape&, const AttentionForward&,
                              int threads, Workspace);

/// Gradients of a piece: overwritten in the type of q, or added to in float32.
struct AttentionBackward {
  ConstView q, k, v, o, gO;
  const float* logSumExp;
  View gQ, gK, gV;
  bool add;
};
void attentionBackwardKernel(const AttentionBlockShape&, const AttentionBackward&, int threads, Workspace);
bool attentionBackwardBfloat16(Bfloat16Product by, const AttentionBlockShape&, const AttentionBackward&,
                               int threads, Workspace);

}  // namespace internevo::cpu
