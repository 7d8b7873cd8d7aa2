// Attention without matrix instructions: any head size up to 256, any type. float32 runs here; bfloat16 only where
// attention_tensor.h does not take the head's size or where rows do not begin at multiples of 16 bytes. Tiles of 32 queries and 32 keys; four threads a row.
#pragma once

#include "backend/cuda/kernels/attention_arguments.h"

namespace internevo::cuda {

constexpr int kPlainTile = 32, kPlainThreads = 4 * kPlainTile;
constexpr int kPlainScoreStride = kPlainTile + 1;  // rows in different banks

/// Bytes of `tiles` tiles [32, headSize] and `scores` tiles [32, 32].
constexpr int plainSharedBytes(std::int64_t headSize, int tiles, int scores) {
  return static_cast<int>(4 * kPlainTile * (tiles * (headSize + 1) + scores * kPlainScoreStride));
}

/// rows [first, first + 32) of `source` as float32 · scale; zeros from `end` on. Rows of headSize + 1.
template <typename T, class Thread>
INTERNEVO_DEVICE void loadPlainTile(Thread& t, const T* source, std::int64_t stride, std::int64_t first,
                                    std::int64_t end, std::int64_t headSize, float scale, float* tile) {
  for (std::int64_t at = t.x(); at < kPlainTile * headSize; at += kPlainThreads) {
    const std::int64_t row = at / headSize, column = at % headSize;
    const bool valid = first + row < end;
    tile[row * (headSize + 1) + column] =
        valid ? toFloat(source[(first + row) * stride + column]) * scale : 0.f;
  }
}

INTERNEVO_DEVICE float plainDot(const float* a, const float* b, std::int64_t headSize) {
  float sum = 0;
  for (std::int64_t i = 0; i < headSize; ++i) sum = fmaf(a[i], b[i], sum);
  return sum;
}

template <typename T, typename O, int kMaximumHead>
struct AttentionPlainKernel {
  static constexpr int kThreads = kPlainThreads, kColumns = kMaximumHead / 4;
  AttentionArguments s;
  const T* q;
  const T* k;
  const T* v;
  O* o;
  float* logSumExp;
  bool merge;
  TileOrder order;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const TileOrder::Place place = order.at(static_cast<int>(t.blockX()));
    const std::int64_t width = s.headSize + 1,
                       first = std::int64_t{order.tiles - 1 - place.rank} * kPlainTile;
    const std::int64_t head = place.head % s.heads, b = place.head / s.heads,
                       kvHead = head / (s.heads / s.kvHeads);
    auto* const queries = reinterpret_cast<float*>(t.shared());
    float *const keys = queries + kPlainTile * width, *const values = keys + kPlainTile * width;
    float* const p = values + kPlainTile * width;
    const int r = t.x() / 4, c = t.x() % 4;
    const std::int64_t row = first + r;
    const bool valid = row < s.sequence;
    const std::int64_t low = valid ? s.low(b, row) : 0, high = valid ? s.high(row) : 0;
    float largest = minusInfinity(), total = 0, sums[kColumns] = {};
    loadPlainTile(t, q + s.query(b, 0, head), s.queryStride, first, s.sequence, s.headSize, s.scale, queries);
    const std::int64_t endTile = s.endTile(first, kPlainTile, kPlainTile);
    for (std::int64_t tile = s.beginTile(b, first, kPlainTile); tile < endTile; ++tile) {
      const std::int64_t key = tile * kPlainTile;
      t.sync();
      loadPlainTile(t, k + s.key(b, 0, kvHead), s.keyStride, key, s.keySequence, s.headSize, 1.f, keys);
      loadPlainTile(t, v + s.value(b, 0, kvHead), s.valueStride, key, s.keySequence, s.headSize, 1.f, values);
      t.sync();
      float scores[kPlainTile / 4], top = largest;
      for (int j = 0; j < kPlainTile / 4; ++j) {
        const std::int64_t at = c + 4 * j;
        scores[j] = key + at >= low && key + at < high
                        ? plainDot(queries + r * width, keys + at * width, s.headSize)
                        : minusInfinity();
        top = larger(top, scores[j]);
      }
      for (int mask = 1; mask < 4; mask *= 2) top = larger(top, t.shuffleXor(top, mask));
      const float shift = top == minusInfinity() ? 0.f : top, rescale = expf(largest - shift);
      largest = top, total *= rescale;
      for (int j = 0; j < kPlainTile / 4; ++j) {
        const float e = expf(scores[j] - shift);
        p[r * kPlainScoreStride + c + 4 * j] = e;
        total += e;
      }
      t.sync();
      for (int i = 0; i < kColumns; ++i) {
        const int column = c + 4 * i;
        if (column >= s.headSize) break;
        float sum = sums[i] * rescale;
        for (int j = 0; j < kPlainTile; ++j)
          sum = fmaf(p[r * kPlainScoreStride + j], values[j * width + column], sum);
        sums[i] = sum;
      }
    }
    float* const statistic = logSumExp + s.statistic(b, valid ? row : 0, head);
    const float before = *statistic;  // by all four threads of the row before one of them writes it
    for (int mask = 1; mask < 4; mask *= 2) total += t.shuffleXor(total, mask);
    if (!valid) return;
    const RowMerge m = mergeRow(largest, total, merge, before);
    if (!m.store) return;
    O* const target = o + s.output(b, row, head);
    for (int i = 0; i < kColumns; ++i) {
      const int column = c + 4 * i;
      if (column >= s.headSize) break;
      storeFloat(target + column, m.keep == 0.f ? sums[i] * m.factor
                                                : fmaf(sums[i], m.factor, toFloat(target[column]) * m.keep));
    }
    if (c == 0) *statistic = m.logSumExp;
  }
};

/// Probability and gradient of the score of one pair of tiles; both kernels of the backward pass have it so.
struct PlainPair {
  float p, gScore;
};
INTERNEVO_DEVICE PlainPair plainPair(bool visible, const float* query, const float* key,
                                     const float* gradient, const float* value, std::int64_t headSize,
                                     float logSumExp, float delta) {
  if (!visible) return {0.f, 0.f};
  const float p = expf(plainDot(query, key, headSize) - logSumExp);
  return {p, p * (plainDot(gradient, value, headSize) - delta)};
}

/// gK, gV of 32 keys: all query heads that read them, and all queries, in order.
template <typename T, typename G, bool kAdd, int kMaximumHead>
struct AttentionPlainKeyGradientKernel {
  static constexpr int kThreads = kPlainThreads, kColumns = kMaximumHead / 4;
  AttentionArguments s;
  const T* q;
  const T* k;
  const T* v;
  const T* gO;
  const float* logSumExp;
  const float* delta;
  G* gK;
  G* gV;
  TileOrder order;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const TileOrder::Place place = order.at(static_cast<int>(t.blockX()));
    const std::int64_t width = s.headSize + 1, key = std::int64_t{place.rank} * kPlainTile;
    const std::int64_t kvHead = place.head % s.kvHeads, b = place.head / s.kvHeads;
    auto* const keys = reinterpret_cast<float*>(t.shared());
    float *const values = keys + kPlainTile * width, *const queries = values + kPlainTile * width;
    float *const gradients = queries + kPlainTile * width, *const p = gradients + kPlainTile * width;
    float* const gScores = p + kPlainTile * kPlainScoreStride;
    const int r = t.x() / 4, c = t.x() % 4;
    float gKeys[kColumns] = {}, gValues[kColumns] = {};
    loadPlainTile(t, k + s.key(b, 0, kvHead), s.keyStride, key, s.keySequence, s.headSize, 1.f, keys);
    loadPlainTile(t, v + s.value(b, 0, kvHead), s.valueStride, key, s.keySequence, s.headSize, 1.f, values);
    const std::int64_t group = s.heads / s.kvHeads, tiles = (s.sequence + kPlainTile - 1) / kPlainTile;
    for (std::int64_t head = kvHead * group; head < (kvHead + 1) * group; ++head) {
      for (std::int64_t tile = s.beginQueryTile(key, kPlainTile); tile < tiles; ++tile) {
        const std::int64_t first = tile * kPlainTile, row = first + r;
        if (s.past(b, first, key + kPlainTile)) break;
        t.sync();
        loadPlainTile(t, q + s.query(b, 0, head), s.queryStride, first, s.sequence, s.headSize, s.scale,
                      queries);
        loadPlainTile(t, gO + s.output(b, 0, head), s.outputStride, first, s.sequence, s.headSize, 1.f,
                      gradients);
        t.sync();
        const bool valid = row < s.sequence;
        const std::int64_t low = valid ? s.low(b, row) : 0, high = valid ? s.high(row) : 0;
        const float statistic = valid ? logSumExp[s.statistic(b, row, head)] : 0.f;
        const float shift = valid ? delta[s.delta(b, row, head)] : 0.f;
        for (int j = 0; j < kPlainTile / 4; ++j) {
          const std::int64_t at = c + 4 * j;
          const PlainPair pair =
              plainPair(key + at >= low && key + at < high, queries + r * width, keys + at * width,
                        gradients + r * width, values + at * width, s.headSize, statistic, shift);
          p[r * kPlainScoreStride + at] = pair.p, gScores[r * kPlainScoreStride + at] = pair.gScore;
        }
        t.sync();
        for (int i = 0; i < kColumns; ++i) {
          const int column = c + 4 * i;
          if (column >= s.headSize) break;
          for (int j = 0; j < kPlainTile; ++j) {
            gValues[i] = fmaf(p[j * kPlainScoreStride + r], gradients[j * width + column], gValues[i]);
            gKeys[i] = fmaf(gScores[j * kPlainScoreStride + r], queries[j * width + column], gKeys[i]);
          }
        }
      }
    }
    if (key + r >= s.keySequence) return;
    G* const keyTarget = gK + s.key(b, key + r, kvHead);
    G* const valueTarget = gV + s.value(b, key + r, kvHead);
    for (int i = 0; i < kColumns; ++i) {
      const int column = c + 4 * i;
      if (column >= s.headSize) break;
      storeFloat(keyTarget + column, kAdd ? toFloat(keyTarget[column]) + gKeys[i] : gKeys[i]);
      storeFloat(valueTarget + column, kAdd ? toFloat(valueTarget[column]) + gValues[i] : gValues[i]);
    }
  }
};

/// gQ of 32 queries of one head.
template <typename T, typename G, bool kAdd, int kMaximumHead>
struct AttentionPlainQueryGradientKernel {
  static constexpr int kThreads = kPlainThreads, kColumns = kMaximumHead / 4;
  AttentionArguments s;
  const T* q;
  const T* k;
  const T* v;
  const T* gO;
  const float* logSumExp;
  const float* delta;
  G* gQ;
  TileOrder order;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const TileOrder::Place place = order.at(static_cast<int>(t.blockX()));
    const std::int64_t width = s.headSize + 1,
                       first = std::int64_t{order.tiles - 1 - place.rank} * kPlainTile;
    const std::int64_t head = place.head % s.heads, b = place.head / s.heads,
                       kvHead = head / (s.heads / s.kvHeads);
    auto* const keys = reinterpret_cast<float*>(t.shared());
    float *const values = keys + kPlainTile * width, *const queries = values + kPlainTile * width;
    float *const gradients = queries + kPlainTile * width, *const gScores = gradients + kPlainTile * width;
    const int r = t.x() / 4, c = t.x() % 4;
    const std::int64_t row = first + r;
    const bool valid = row < s.sequence;
    const std::int64_t low = valid ? s.low(b, row) : 0, high = valid ? s.high(row) : 0;
    const float statistic = valid ? logSumExp[s.statistic(b, row, head)] : 0.f;
    const float shift = valid ? delta[s.delta(b, row, head)] : 0.f;
    float sums[kColumns] = {};
    loadPlainTile(t, q + s.query(b, 0, head), s.queryStride, first, s.sequence, s.headSize, s.scale, queries);
    loadPlainTile(t, gO + s.output(b, 0, head), s.outputStride, first, s.sequence, s.headSize, 1.f,
                  gradients);
    const std::int64_t endTile = s.endTile(first, kPlainTile, kPlainTile);
    for (std::int64_t tile = s.beginTile(b, first, kPlainTile); tile < endTile; ++tile) {
      const std::int64_t key = tile * kPlainTile;
      t.sync();
      loadPlainTile(t, k + s.key(b, 0, kvHead), s.keyStride, key, s.keySequence, s.headSize, 1.f, keys);
      loadPlainTile(t, v + s.value(b, 0, kvHead), s.valueStride, key, s.keySequence, s.headSize, 1.f, values);
      t.sync();
      for (int j = 0; j < kPlainTile / 4; ++j) {
        const std::int64_t at = c + 4 * j;
        gScores[r * kPlainScoreStride + at] =
            plainPair(key + at >= low && key + at < high, queries + r * width, keys + at * width,
                      gradients + r * width, values + at * width, s.headSize, statistic, shift)
                .gScore;
      }
      t.sync();
      for (int i = 0; i < kColumns; ++i) {
        const int column = c + 4 * i;
        if (column >= s.headSize) break;
        for (int j = 0; j < kPlainTile; ++j) {
          sums[i] = fmaf(gScores[r * kPlainScoreStride + j], keys[j * width + column], sums[i]);
        }
      }
    }
    if (!valid) return;
    G* const target = gQ + s.queryGradient(b, row, head);
    for (int i = 0; i < kColumns; ++i) {
      const int column = c + 4 * i;
      if (column >= s.headSize) break;
      storeFloat(target + column, kAdd ? toFloat(target[column]) + sums[i] * s.scale : sums[i] * s.scale);
    }
  }
};

}  // namespace internevo::cuda
