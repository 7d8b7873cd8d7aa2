// What attention's kernels share: strides, the mask, and the order of tiles.
#pragma once

#include <algorithm>

#include "backend/cuda/portable.h"

namespace internevo::cuda {

/// AttentionBlockShape with every stride resolved; sizes in elements.
struct AttentionArguments {
  std::int64_t batch, sequence, keySequence, heads, kvHeads, headSize;
  std::int64_t queryStride, keyStride, valueStride, outputStride, queryGradientStride;
  std::int64_t queryBatchRows, keyBatchRows;
  std::int64_t ahead, keyPosition;  ///< ahead: position of query 0 minus that of key 0
  const std::int32_t* firstKeys;    ///< or null
  float scale;
  std::int64_t window = 0;  ///< keys that a query sees at most, its own among them; 0: all before it

  /// Query `row` of a sequence sees the keys [low, high) of the block; none where low ≥ high.
  INTERNEVO_BOTH std::int64_t low(std::int64_t batchIndex, std::int64_t row) const {
    std::int64_t first = window > 0 ? ahead + row + 1 - window : 0;
    if (firstKeys != nullptr) {
      const std::int64_t document = firstKeys[batchIndex * queryBatchRows + row] - keyPosition;
      first = document > first ? document : first;
    }
    return first > 0 ? first : 0;
  }
  /// Later queries may see no key of a tile that earlier ones see.
  INTERNEVO_BOTH bool hasFirstKeys() const { return firstKeys != nullptr || window > 0; }
  INTERNEVO_BOTH std::int64_t high(std::int64_t row) const {
    const std::int64_t end = ahead + row + 1;
    return end < 0 ? 0 : smaller(end, keySequence);
  }
  /// Tiles of `size` keys of which queries [first, first + rows) see anything: neither firstKeys nor the
  /// begin of a window falls, so the first query has
  /// the lowest first key and the last query the highest end.
  INTERNEVO_BOTH std::int64_t beginTile(std::int64_t batchIndex, std::int64_t first,
                                        std::int64_t size) const {
    return low(batchIndex, first) / size;
  }
  INTERNEVO_BOTH std::int64_t endTile(std::int64_t first, std::int64_t rows, std::int64_t size) const {
    return (high(smaller(first + rows, sequence) - 1) + size - 1) / size;
  }
  /// First tile of `size` queries of which one can see a key of [key, …).
  INTERNEVO_BOTH std::int64_t beginQueryTile(std::int64_t key, std::int64_t size) const {
    const std::int64_t query = key - ahead;
    return query > 0 ? query / size : 0;
  }
  /// No query from `first` on sees a key before `end`.
  INTERNEVO_BOTH bool past(std::int64_t batchIndex, std::int64_t first, std::int64_t end) const {
    return low(batchIndex, first) >= end;
  }

  INTERNEVO_BOTH std::int64_t query(std::int64_t b, std::int64_t row, std::int64_t head) const {
    return (b * queryBatchRows + row) * queryStride + head * headSize;
  }
  INTERNEVO_BOTH std::int64_t key(std::int64_t b, std::int64_t row, std::int64_t kvHead) const {
    return (b * keyBatchRows + row) * keyStride + kvHead * headSize;
  }
  INTERNEVO_BOTH std::int64_t value(std::int64_t b, std::int64_t row, std::int64_t kvHead) const {
    return (b * keyBatchRows + row) * valueStride + kvHead * headSize;
  }
  INTERNEVO_BOTH std::int64_t output(std::int64_t b, std::int64_t row, std::int64_t head) const {
    return (b * queryBatchRows + row) * outputStride + head * headSize;
  }
  INTERNEVO_BOTH std::int64_t queryGradient(std::int64_t b, std::int64_t row, std::int64_t head) const {
    return (b * queryBatchRows + row) * queryGradientStride + head * headSize;
  }
  INTERNEVO_BOTH std::int64_t statistic(std::int64_t b, std::int64_t row, std::int64_t head) const {
    return (b * heads + head) * queryBatchRows + row;
  }
  INTERNEVO_BOTH std::int64_t delta(std::int64_t b, std::int64_t row, std::int64_t head) const {
    return (b * heads + head) * sequence + row;
  }
};

/// Which tile a block takes: of a section of heads the longest tiles first, so that short ones fill the end, when multiprocessors
/// would otherwise wait for the last long one. Heads of a section run side by side, so what they read again must stay in the cache.
struct TileOrder {
  int heads;    ///< or pairs (sequence, key/value head): of all sequences
  int tiles;    ///< of each
  int section;  ///< heads; the last section may have fewer

  struct Place {
    int head, rank;  ///< rank 0: the longest tile
  };
  INTERNEVO_BOTH int items() const { return heads * tiles; }
  INTERNEVO_BOTH Place at(int index) const {
    const int blocks = section * tiles, first = index / blocks * section,
              count = smaller(section, heads - first);
    const int within = index % blocks;
    return {first + within % count, within / count};
  }
};

/// Room for what heads of a section read again: three fifths of an H100's second-level cache, four fifths of an A100's.
constexpr std::int64_t kSectionBytes = std::int64_t{32} << 20;

inline std::int64_t tilesOf(std::int64_t rows, std::int64_t tile) { return (rows + tile - 1) / tile; }

/// Of tiles of queries, which read the keys and values of their head; heads of a group read the same.
inline TileOrder forwardOrder(const AttentionArguments& a, std::int64_t tile, std::int64_t elementBytes = 2) {
  const std::int64_t read = 2 * a.keySequence * a.headSize * elementBytes, heads = a.batch * a.heads;
  const std::int64_t section = std::max<std::int64_t>(kSectionBytes / read, 1) * (a.heads / a.kvHeads);
  return {static_cast<int>(heads), static_cast<int>(tilesOf(a.sequence, tile)),
          static_cast<int>(smaller(section, heads))};
}
/// Of tiles of keys of `pairs`, which read the queries and output gradients of their group, and add to sums of `sumBytes` an element.
inline TileOrder keyOrder(const AttentionArguments& a, std::int64_t tile, std::int64_t pairs,
                          std::int64_t sumBytes, std::int64_t elementBytes = 2) {
  const std::int64_t read = a.heads / a.kvHeads * a.sequence * a.headSize * (2 * elementBytes + sumBytes);
  const std::int64_t section = smaller(std::max<std::int64_t>(kSectionBytes / read, 1), pairs);
  return {static_cast<int>(pairs), static_cast<int>(tilesOf(a.keySequence, tile)), static_cast<int>(section)};
}

/// How a row's result goes together with what o and logSumExp hold: o = o · keep + own · factor.
struct RowMerge {
  bool store;  ///< false: they stay as they are
  float keep, factor, logSumExp;
};

/// `largest`, `total`: of the row's own keys (largest in units of the natural exponent). total 0: it saw none.
INTERNEVO_BOTH RowMerge mergeRow(float largest, float total, bool merge, float before) {
  if (total == 0.f) return {!merge, 0.f, 0.f, minusInfinity()};
  const float inverse = 1.f / total, own = largest + logf(total);
  if (!merge || before == minusInfinity()) return {true, 0.f, inverse, own};
  const float top = larger(own, before);
  const float keep = expf(before - top), here = expf(own - top), both = keep + here;
  return {true, keep / both, inverse * (here / both), top + logf(both)};
}

/// delta[batch, heads, sequence] = Σ o · gO. One warp a row and head.
template <typename T>
struct AttentionDeltaKernel {
  static constexpr int kThreads = 128;
  AttentionArguments s;
  const T* o;
  const T* gO;
  float* delta;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const int warps = kThreads / kWarp;
    const std::int64_t all = s.batch * s.heads * s.sequence;
    for (std::int64_t first = t.blockX() * warps; first < all; first += t.gridX() * warps) {
      const std::int64_t which = first + t.x() / kWarp;
      const bool valid = which < all;
      const std::int64_t row = which % s.sequence, head = which / s.sequence % s.heads,
                         b = which / s.sequence / s.heads;
      float sum = 0;
      for (std::int64_t i = t.x() % kWarp; i < s.headSize && valid; i += kWarp) {
        const std::int64_t at = s.output(b, row, head) + i;
        sum = fmaf(toFloat(o[at]), toFloat(gO[at]), sum);
      }
      for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += t.shuffleXor(sum, mask);
      if (valid && t.x() % kWarp == 0) delta[which] = sum;
    }
  }
};

}  // namespace internevo::cuda
