// Attention's forward pass with matrix instructions.
#pragma once

#include "backend/cuda/kernels/attention_tensor.h"

namespace internevo::cuda {

/// 64 queries of one head a block, 16 a warp; keys in tiles of 64, of the widest heads 32.
/// The next tile of keys is on its way while a tile's
/// probabilities are multiplied with its values, and those values while the scores are computed.
template <int kHead, typename O>
struct AttentionForwardKernel {
  static constexpr int kThreads = 128, kTile = 64, kKeys = kStreamedRows<kHead>;
  static constexpr int kSharedBytes = Tile<kHead>::bytes(kTile) + 2 * Tile<kHead>::bytes(kKeys);
  AttentionArguments s;
  const Bfloat16* q;
  const Bfloat16* k;
  const Bfloat16* v;
  O* o;
  float* logSumExp;
  bool merge;
  TileOrder order;

  /// What a thread knows of its two rows, lane / 4 and that + 8 of its warp's 16.
  struct Rows {
    std::int64_t row[2], low[2], high[2];
    float largest[2], total[2];
  };

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const TileOrder::Place place = order.at(static_cast<int>(t.blockX()));
    const std::int64_t first =
        std::int64_t{order.tiles - 1 - place.rank} * kTile;  // later queries see more keys
    const std::int64_t head = place.head % s.heads, b = place.head / s.heads,
                       kvHead = head / (s.heads / s.kvHeads);
    auto* const memory = reinterpret_cast<Bfloat16*>(t.shared());
    const Tile<kHead> queries{memory}, keys{memory + kTile * kHead}, values{memory + (kTile + kKeys) * kHead};
    const Bfloat16 *const keySource = k + s.key(b, 0, kvHead), *const valueSource = v + s.value(b, 0, kvHead);
    const std::int64_t begin = s.beginTile(b, first, kKeys), end = s.endTile(first, kTile, kKeys);

    loadTile<kHead, kTile, kThreads>(t, q + s.query(b, 0, head), s.queryStride, first, s.sequence, s.headSize,
                                     queries);
    if (begin < end)
      loadTile<kHead, kKeys, kThreads>(t, keySource, s.keyStride, begin * kKeys, s.keySequence, s.headSize,
                                       keys);
    t.commitCopies();
    Rows rows = rowsOf(t, b, first);
    float sums[kHead / 8][4];
    clearFragments(sums);
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t key = tile * kKeys;
      loadTile<kHead, kKeys, kThreads>(t, valueSource, s.valueStride, key, s.keySequence, s.headSize, values);
      t.commitCopies();
      t.template waitCopies<1>();
      t.sync();
      float scores[kKeys / 8][4];
      clearFragments(scores);
      multiplyByRows<kHead, kKeys>(t, queries, 16 * (t.x() / kWarp), keys, scores);
      t.sync();
      if (tile + 1 < end)
        loadTile<kHead, kKeys, kThreads>(t, keySource, s.keyStride, key + kKeys, s.keySequence, s.headSize,
                                         keys);
      t.commitCopies();
      softmax(t, key, rows, scores, sums);
      t.template waitCopies<1>();
      t.sync();
      multiplyResults<kHead, kKeys, kHead>(t, scores, values, 0, sums);
      t.sync();
    }
    t.template waitCopies<0>();
    store(t, b, head, rows, sums);
  }

  template <class Thread>
  INTERNEVO_DEVICE Rows rowsOf(Thread& t, std::int64_t b, std::int64_t first) const {
    Rows rows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first + 16 * (t.x() / kWarp) + t.x() % kWarp / 4 + 8 * half;
      const bool valid = row < s.sequence;
      rows.row[half] = row;
      rows.low[half] = valid ? s.low(b, row) : 0, rows.high[half] = valid ? s.high(row) : 0;
      rows.largest[half] = minusInfinity(), rows.total[half] = 0.f;
    }
    return rows;
  }

  /// Scores [16, kKeys] -> exp(scale · (score − largest)); rescales what was summed under a smaller largest.
  template <class Thread>
  INTERNEVO_DEVICE void softmax(Thread& t, std::int64_t key, Rows& rows, float (&scores)[kKeys / 8][4],
                                float (&sums)[kHead / 8][4]) const {
    const int column = t.x() % 4 * 2;
    const float factor = s.scale * kLog2E;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t low = rows.low[half] - key, high = rows.high[half] - key;
      float top = rows.largest[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int at = 8 * n + column + j;
          float& score = scores[n][2 * half + j];
          if (at < low || at >= high) score = minusInfinity();
          top = larger(top, score);
        }
      }
      top = larger(top, t.shuffleXor(top, 1));
      top = larger(top, t.shuffleXor(top, 2));
      const float shift = top == minusInfinity() ? 0.f : top * factor;
      const float rescale = t.exponential2(fmaf(rows.largest[half], factor, -shift));
      rows.largest[half] = top;
      float total = rows.total[half] * rescale;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = scores[n][2 * half + j];
          score = t.exponential2(fmaf(score, factor, -shift));
          total += score;
        }
      }
      rows.total[half] = total;
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) sums[n][2 * half + j] *= rescale;
      }
    }
  }

  template <class Thread>
  INTERNEVO_DEVICE void store(Thread& t, std::int64_t b, std::int64_t head, const Rows& rows,
                              const float (&sums)[kHead / 8][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool valid = rows.row[half] < s.sequence;
      float* const statistic = logSumExp + s.statistic(b, valid ? rows.row[half] : 0, head);
      const float before = *statistic;  // by all four threads of the row before one of them writes it
      float total = rows.total[half];
      total += t.shuffleXor(total, 1);
      total += t.shuffleXor(total, 2);
      if (!valid) continue;
      const RowMerge m = mergeRow(rows.largest[half] * s.scale, total, merge, before);
      if (!m.store) continue;
      O* const target = o + s.output(b, rows.row[half], head) + t.x() % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
        if (8 * n >= s.headSize) break;
        float pair[2] = {sums[n][2 * half] * m.factor, sums[n][2 * half + 1] * m.factor};
        if (m.keep != 0.f) {
          for (int j = 0; j < 2; ++j) pair[j] = fmaf(toFloat(target[8 * n + j]), m.keep, pair[j]);
        }
        storePair<false>(target + 8 * n, pair[0], pair[1]);
      }
      if (t.x() % 4 == 0) *statistic = m.logSumExp;
    }
  }
};

}  // namespace internevo::cuda
