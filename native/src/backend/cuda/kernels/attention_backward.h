// Attention's backward pass with matrix instructions: one kernel for the gradients of keys and values, one for those of
// queries. The scores are computed in both, seven products instead of five, and nothing is added by two blocks: no atomics, no
// float32 copy of gQ, and the same bits every time.
#pragma once

#include "backend/cuda/kernels/attention_tensor.h"

namespace internevo::cuda {

/// gK and gV of 64 keys of one key/value head, 16 a warp. Products are transposed (keys down, queries across), so that their
/// results are the left side of the products with gO and q. Of wide heads twice as many warps have half of the columns each, since
/// one thread has no registers for both gradients of a whole row; both compute the scores.
template <int kHead, typename G, bool kAdd>
struct AttentionKeyGradientKernel {
  static constexpr int kParts = kHead > 128 ? 2 : 1, kColumns = kHead / kParts;
  static constexpr int kThreads = 128 * kParts, kTile = 64, kQueries = kStreamedRows<kHead>;
  static constexpr int kSharedBytes =
      2 * Tile<kHead>::bytes(kTile) + 2 * Tile<kHead>::bytes(kQueries) + 2 * kQueries * 4;
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
    constexpr int kOwn = kTile * kHead, kPassing = kQueries * kHead;
    const Tile<kHead> keys{memory}, values{memory + kOwn}, queries{memory + 2 * kOwn};
    const Tile<kHead> gradients{memory + 2 * kOwn + kPassing};
    auto* const statistics =
        reinterpret_cast<float*>(memory + 2 * (kOwn + kPassing));  // log-sum-exp, then delta, of the queries
    loadTile<kHead, kTile, kThreads>(t, k + s.key(b, 0, kvHead), s.keyStride, key, s.keySequence, s.headSize,
                                     keys);
    loadTile<kHead, kTile, kThreads>(t, v + s.value(b, 0, kvHead), s.valueStride, key, s.keySequence,
                                     s.headSize, values);
    t.commitCopies();
    const int warp = t.x() / kWarp, warpRow = 16 * (warp % 4), part = warp / 4;
    float gKeys[kColumns / 8][4], gValues[kColumns / 8][4];
    clearFragments(gKeys), clearFragments(gValues);
    const std::int64_t group = s.heads / s.kvHeads, tiles = (s.sequence + kQueries - 1) / kQueries;
    for (std::int64_t head = kvHead * group; head < (kvHead + 1) * group; ++head) {
      for (std::int64_t tile = s.beginQueryTile(key, kQueries); tile < tiles; ++tile) {
        const std::int64_t first = tile * kQueries;
        if (s.past(b, first, key + kTile)) break;
        t.sync();
        loadTile<kHead, kQueries, kThreads>(t, q + s.query(b, 0, head), s.queryStride, first, s.sequence,
                                            s.headSize, queries);
        loadTile<kHead, kQueries, kThreads>(t, gO + s.output(b, 0, head), s.outputStride, first, s.sequence,
                                            s.headSize, gradients);
        t.commitCopies();
        loadStatistics(t, b, head, first, statistics);
        t.template waitCopies<0>();
        t.sync();
        float p[kQueries / 8][4], gScores[kQueries / 8][4];
        clearFragments(p), clearFragments(gScores);
        multiplyByRows<kHead, kQueries>(t, keys, warpRow, queries, p);
        probabilities(t, b, key + warpRow, first, statistics, p);
        multiplyResults<kHead, kQueries, kColumns>(t, p, gradients, part * (kColumns / 16), gValues);
        multiplyByRows<kHead, kQueries>(t, values, warpRow, gradients, gScores);
        scoreGradients(t, statistics + kQueries, p, gScores);
        multiplyResults<kHead, kQueries, kColumns>(t, gScores, queries, part * (kColumns / 16), gKeys);
      }
    }
    t.template waitCopies<0>();
    store(t, b, kvHead, key + warpRow, part * kColumns, gKeys, gValues);
  }

  template <class Thread>
  INTERNEVO_DEVICE void loadStatistics(Thread& t, std::int64_t b, std::int64_t head, std::int64_t first,
                                       float* statistics) const {
    static_assert(kThreads >= 2 * kQueries);
    const std::int64_t row = first + t.x() % kQueries;
    const bool valid = row < s.sequence;
    if (t.x() < kQueries) {
      statistics[t.x()] = valid ? logSumExp[s.statistic(b, row, head)] * kLog2E : 0.f;
    } else if (t.x() < 2 * kQueries) {
      statistics[t.x()] = valid ? delta[s.delta(b, row, head)] : 0.f;
    }
  }

  /// Scores, keys down from keyRow and queries across from `first` -> probabilities; zeros where a query does not see a key.
  template <class Thread>
  INTERNEVO_DEVICE void probabilities(Thread& t, std::int64_t b, std::int64_t keyRow, std::int64_t first,
                                      const float* statistics, float (&p)[kQueries / 8][4]) const {
    const float factor = s.scale * kLog2E;
    const int down = t.x() % kWarp / 4, across = t.x() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
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
  INTERNEVO_DEVICE void scoreGradients(Thread& t, const float* deltas, const float (&p)[kQueries / 8][4],
                                       float (&gScores)[kQueries / 8][4]) const {
    const int across = t.x() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) gScores[n][j] = p[n][j] * (gScores[n][j] - deltas[8 * n + across + j % 2]);
    }
  }

  template <class Thread>
  INTERNEVO_DEVICE void store(Thread& t, std::int64_t b, std::int64_t kvHead, std::int64_t keyRow,
                              int firstColumn, const float (&gKeys)[kColumns / 8][4],
                              const float (&gValues)[kColumns / 8][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = keyRow + t.x() % kWarp / 4 + 8 * half;
      if (row >= s.keySequence) continue;
      G* const keyTarget = gK + s.key(b, row, kvHead) + firstColumn + t.x() % 4 * 2;
      G* const valueTarget = gV + s.value(b, row, kvHead) + firstColumn + t.x() % 4 * 2;
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        if (firstColumn + 8 * n >= s.headSize) break;
        storePair<kAdd>(keyTarget + 8 * n, gKeys[n][2 * half] * s.scale, gKeys[n][2 * half + 1] * s.scale);
        storePair<kAdd>(valueTarget + 8 * n, gValues[n][2 * half], gValues[n][2 * half + 1]);
      }
    }
  }
};

/// gQ of 64 queries of one head, 16 a warp.
template <int kHead, typename G, bool kAdd>
struct AttentionQueryGradientKernel {
  static constexpr int kThreads = 128, kTile = 64, kKeys = kStreamedRows<kHead>;
  static constexpr int kSharedBytes = 2 * Tile<kHead>::bytes(kTile) + 2 * Tile<kHead>::bytes(kKeys);
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
    constexpr int kOwn = kTile * kHead, kPassing = kKeys * kHead;
    const Tile<kHead> queries{memory}, gradients{memory + kOwn}, keys{memory + 2 * kOwn};
    const Tile<kHead> values{memory + 2 * kOwn + kPassing};
    loadTile<kHead, kTile, kThreads>(t, q + s.query(b, 0, head), s.queryStride, first, s.sequence, s.headSize,
                                     queries);
    loadTile<kHead, kTile, kThreads>(t, gO + s.output(b, 0, head), s.outputStride, first, s.sequence,
                                     s.headSize, gradients);
    t.commitCopies();
    const int warpRow = 16 * (t.x() / kWarp);
    const Rows rows = rowsOf(t, b, head, first + warpRow);
    float sums[kHead / 8][4];
    clearFragments(sums);
    const std::int64_t end = s.endTile(first, kTile, kKeys);
    for (std::int64_t tile = s.beginTile(b, first, kKeys); tile < end; ++tile) {
      const std::int64_t key = tile * kKeys;
      t.sync();
      loadTile<kHead, kKeys, kThreads>(t, k + s.key(b, 0, kvHead), s.keyStride, key, s.keySequence,
                                       s.headSize, keys);
      loadTile<kHead, kKeys, kThreads>(t, v + s.value(b, 0, kvHead), s.valueStride, key, s.keySequence,
                                       s.headSize, values);
      t.commitCopies();
      t.template waitCopies<0>();
      t.sync();
      float scores[kKeys / 8][4], gScores[kKeys / 8][4];
      clearFragments(scores), clearFragments(gScores);
      multiplyByRows<kHead, kKeys>(t, queries, warpRow, keys, scores);
      multiplyByRows<kHead, kKeys>(t, gradients, warpRow, values, gScores);
      scoreGradients(t, key, rows, scores, gScores);
      multiplyResults<kHead, kKeys, kHead>(t, gScores, keys, 0, sums);
    }
    t.template waitCopies<0>();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (rows.row[half] >= s.sequence) continue;
      G* const target = gQ + s.queryGradient(b, rows.row[half], head) + t.x() % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
        if (8 * n >= s.headSize) break;
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
                                       const float (&scores)[kKeys / 8][4],
                                       float (&gScores)[kKeys / 8][4]) const {
    const float factor = s.scale * kLog2E;
    const int across = t.x() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
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
