// Attention's backward pass with matrix instructions: one kernel for the gradients of keys and values, one for those of
// queries. The scores are computed in both, seven products instead of five, and nothing is added by two blocks: no atomics, no
// float32 copy of gQ, and the same bits every time.
#pragma once

#include "backend/cuda/kernels/attention_tensor.h"

namespace internevo::cuda {

/// gK and gV of 64 keys of one key/value head, 16 a warp. Products are transposed (keys down, queries across), so that their
/// results are the left side of the products with gO and q.
template <int kHead, typename G, bool kAdd>
struct AttentionKeyGradientKernel {
  static constexpr int kThreads = 128, kTile = 64;
  static constexpr int kSharedBytes = 4 * Tile<kHead>::bytes(kTile) + 2 * kTile * 4;
  AttentionArguments s;
  const Bfloat16* q;
  const Bfloat16* k;
  const Bfloat16* v;
  const Bfloat16* gO;
  const float* logSumExp;
  const float* delta;
  G* gK;
  G* gV;
  TileOrder order;  ///< of (sequence, key/value head)

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const TileOrder::Place place = order.at(static_cast<int>(t.blockX()));
    const std::int64_t key = std::int64_t{place.rank} * kTile;  // more queries see earlier keys
    const std::int64_t kvHead = place.head % s.kvHeads, b = place.head / s.kvHeads;
    auto* const memory = reinterpret_cast<Bfloat16*>(t.shared());
    constexpr int kElements = kTile * kHead;
    const Tile<kHead> keys{memory}, values{memory + kElements}, queries{memory + 2 * kElements};
    const Tile<kHead> gradients{memory + 3 * kElements};
    auto* const statistics =
        reinterpret_cast<float*>(memory + 4 * kElements);  // log-sum-exp, then delta, of the queries
    loadTile<kHead, kTile, kThreads>(t, k + s.key(b, 0, kvHead), s.keyStride, key, s.keySequence, keys);
    loadTile<kHead, kTile, kThreads>(t, v + s.value(b, 0, kvHead), s.valueStride, key, s.keySequence, values);
    t.commitCopies();
    const int warpRow = 16 * (t.x() / kWarp);
    float gKeys[kHead / 8][4], gValues[kHead / 8][4];
    clearFragments(gKeys), clearFragments(gValues);
    const std::int64_t group = s.heads / s.kvHeads, tiles = (s.sequence + kTile - 1) / kTile;
    for (std::int64_t head = kvHead * group; head < (kvHead + 1) * group; ++head) {
      for (std::int64_t tile = s.beginQueryTile(key, kTile); tile < tiles; ++tile) {
        const std::int64_t first = tile * kTile;
        if (s.past(b, first, key + kTile)) break;
        t.sync();
        loadTile<kHead, kTile, kThreads>(t, q + s.query(b, 0, head), s.queryStride, first, s.sequence,
                                         queries);
        loadTile<kHead, kTile, kThreads>(t, gO + s.output(b, 0, head), s.outputStride, first, s.sequence,
                                         gradients);
        t.commitCopies();
        loadStatistics(t, b, head, first, statistics);
        t.template waitCopies<0>();
        t.sync();
        float p[kTile / 8][4], gScores[kTile / 8][4];
        clearFragments(p), clearFragments(gScores);
        multiplyByRows<kHead, kTile>(t, keys, warpRow, queries, p);
        probabilities(t, b, key + warpRow, first, statistics, p);
        multiplyResults<kHead, kTile>(t, p, gradients, gValues);
        multiplyByRows<kHead, kTile>(t, values, warpRow, gradients, gScores);
        scoreGradients(t, statistics + kTile, p, gScores);
        multiplyResults<kHead, kTile>(t, gScores, queries, gKeys);
      }
    }
    t.template waitCopies<0>();
    store(t, b, kvHead, key + warpRow, gKeys, gValues);
  }

  template <class Thread>
  INTERNEVO_DEVICE void loadStatistics(Thread& t, std::int64_t b, std::int64_t head, std::int64_t first,
                                       float* statistics) const {
    static_assert(kThreads == 2 * kTile);
    const std::int64_t row = first + t.x() % kTile;
    const bool valid = row < s.sequence;
    if (t.x() < kTile) {
      statistics[t.x()] = valid ? logSumExp[s.statistic(b, row, head)] * kLog2E : 0.f;
    } else {
      statistics[t.x()] = valid ? delta[s.delta(b, row, head)] : 0.f;
    }
  }

  /// Scores, keys down from keyRow and queries across from `first` -> probabilities; zeros where a query does not see a key.
  template <class Thread>
  INTERNEVO_DEVICE void probabilities(Thread& t, std::int64_t b, std::int64_t keyRow, std::int64_t first,
                                      const float* statistics, float (&p)[kTile / 8][4]) const {
    const float factor = s.scale * kLog2E;
    const int down = t.x() % kWarp / 4, across = t.x() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int at = 8 * n + across + j;
        const std::int64_t row = first + at;
        const bool valid = row < s.sequence;
        const std::int64_t low = valid ? s.low(b, row) : 0, high = valid ? s.high(row) : 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::int64_t which = keyRow + down + 8 * half;
          float& score = p[n][2 * half + j];
          score = which >= low && which < high ? t.exponential2(fmaf(score, factor, -statistics[at])) : 0.f;
        }
      }
    }
  }

  /// gP -> p · (gP − delta).
  template <class Thread>
  INTERNEVO_DEVICE void scoreGradients(Thread& t, const float* deltas, const float (&p)[kTile / 8][4],
                                       float (&gScores)[kTile / 8][4]) const {
    const int across = t.x() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) gScores[n][j] = p[n][j] * (gScores[n][j] - deltas[8 * n + across + j % 2]);
    }
  }

  template <class Thread>
  INTERNEVO_DEVICE void store(Thread& t, std::int64_t b, std::int64_t kvHead, std::int64_t keyRow,
                              const float (&gKeys)[kHead / 8][4],
                              const float (&gValues)[kHead / 8][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = keyRow + t.x() % kWarp / 4 + 8 * half;
      if (row >= s.keySequence) continue;
      G* const keyTarget = gK + s.key(b, row, kvHead) + t.x() % 4 * 2;
      G* const valueTarget = gV + s.value(b, row, kvHead) + t.x() % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
        storePair<kAdd>(keyTarget + 8 * n, gKeys[n][2 * half] * s.scale, gKeys[n][2 * half + 1] * s.scale);
        storePair<kAdd>(valueTarget + 8 * n, gValues[n][2 * half], gValues[n][2 * half + 1]);
      }
    }
  }
};

/// gQ of 64 queries of one head, 16 a warp.
template <int kHead, typename G, bool kAdd>
struct AttentionQueryGradientKernel {
  static constexpr int kThreads = 128, kTile = 64;
  static constexpr int kSharedBytes = 4 * Tile<kHead>::bytes(kTile);
  AttentionArguments s;
  const Bfloat16* q;
  const Bfloat16* k;
  const Bfloat16* v;
  const Bfloat16* gO;
  const float* logSumExp;
  const float* delta;
  G* gQ;
  TileOrder order;

  /// Of a thread's two rows.
  struct Rows {
    std::int64_t row[2], low[2], high[2];
    float logSumExp[2], delta[2];
  };

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const TileOrder::Place place = order.at(static_cast<int>(t.blockX()));
    const std::int64_t first =
        std::int64_t{order.tiles - 1 - place.rank} * kTile;  // later queries see more keys
    const std::int64_t head = place.head % s.heads, b = place.head / s.heads,
                       kvHead = head / (s.heads / s.kvHeads);
    auto* const memory = reinterpret_cast<Bfloat16*>(t.shared());
    constexpr int kElements = kTile * kHead;
    const Tile<kHead> keys{memory}, values{memory + kElements}, queries{memory + 2 * kElements};
    const Tile<kHead> gradients{memory + 3 * kElements};
    loadTile<kHead, kTile, kThreads>(t, q + s.query(b, 0, head), s.queryStride, first, s.sequence, queries);
    loadTile<kHead, kTile, kThreads>(t, gO + s.output(b, 0, head), s.outputStride, first, s.sequence,
                                     gradients);
    t.commitCopies();
    const int warpRow = 16 * (t.x() / kWarp);
    const Rows rows = rowsOf(t, b, head, first + warpRow);
    float sums[kHead / 8][4];
    clearFragments(sums);
    const std::int64_t end = s.endTile(first, kTile, kTile);
    for (std::int64_t tile = s.beginTile(b, first, kTile); tile < end; ++tile) {
      const std::int64_t key = tile * kTile;
      t.sync();
      loadTile<kHead, kTile, kThreads>(t, k + s.key(b, 0, kvHead), s.keyStride, key, s.keySequence, keys);
      loadTile<kHead, kTile, kThreads>(t, v + s.value(b, 0, kvHead), s.valueStride, key, s.keySequence,
                                       values);
      t.commitCopies();
      t.template waitCopies<0>();
      t.sync();
      float scores[kTile / 8][4], gScores[kTile / 8][4];
      clearFragments(scores), clearFragments(gScores);
      multiplyByRows<kHead, kTile>(t, queries, warpRow, keys, scores);
      multiplyByRows<kHead, kTile>(t, gradients, warpRow, values, gScores);
      scoreGradients(t, key, rows, scores, gScores);
      multiplyResults<kHead, kTile>(t, gScores, keys, sums);
    }
    t.template waitCopies<0>();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (rows.row[half] >= s.sequence) continue;
      G* const target = gQ + s.queryGradient(b, rows.row[half], head) + t.x() % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
        storePair<kAdd>(target + 8 * n, sums[n][2 * half] * s.scale, sums[n][2 * half + 1] * s.scale);
      }
    }
  }

  template <class Thread>
  INTERNEVO_DEVICE Rows rowsOf(Thread& t, std::int64_t b, std::int64_t head, std::int64_t firstRow) const {
    Rows rows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = firstRow + t.x() % kWarp / 4 + 8 * half;
      const bool valid = row < s.sequence;
      rows.row[half] = row;
      rows.low[half] = valid ? s.low(b, row) : 0, rows.high[half] = valid ? s.high(row) : 0;
      rows.logSumExp[half] = valid ? logSumExp[s.statistic(b, row, head)] * kLog2E : 0.f;
      rows.delta[half] = valid ? delta[s.delta(b, row, head)] : 0.f;
    }
    return rows;
  }

  /// gP -> p · (gP − delta), p out of the scores; zeros where a query does not see a key.
  template <class Thread>
  INTERNEVO_DEVICE void scoreGradients(Thread& t, std::int64_t key, const Rows& rows,
                                       const float (&scores)[kTile / 8][4],
                                       float (&gScores)[kTile / 8][4]) const {
    const float factor = s.scale * kLog2E;
    const int across = t.x() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int half = j / 2;
        const std::int64_t which = key + 8 * n + across + j % 2;
        const bool visible = which >= rows.low[half] && which < rows.high[half];
        const float p = visible ? t.exponential2(fmaf(scores[n][j], factor, -rows.logSumExp[half])) : 0.f;
        gScores[n][j] = p * (gScores[n][j] - rows.delta[half]);
      }
    }
  }
};

}  // namespace internevo::cuda
