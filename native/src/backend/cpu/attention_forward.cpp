#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/attention.h"
#include "backend/cpu/attention_rows.h"
#include "backend/cpu/parallel.h"

namespace internevo::cpu {

namespace {

/// Queries whose scores are computed, exponentiated and used while they are in the first cache.
constexpr std::int64_t kRowsTogether = 48;
static_assert(kAttentionTile % kRowsTogether == 0 && kRowsTogether % kTileRows == 0 &&
              kRowsTogether % Vec::width == 0);

struct ForwardScratch {
  float *packedK, *packedV, *scores, *query, *output, *largest, *total;

  ForwardScratch(float* base, const AttentionBlockShape& s) {
    const std::int64_t rows = attentionTiles(s.keySequence) * kAttentionTile;
    const auto take = [&base](std::int64_t elements) {
      float* const result = base;
      base += elements;
      return result;
    };
    packedK = take(rows * s.headSize);
    packedV = take(rows * alignUp(s.headSize, kAttentionPad));
    scores = take(kAttentionTile * kAttentionTile);
    query = take(kAttentionTile * s.headSize);
    output = take(kAttentionTile * s.headSize);
    largest = take(kAttentionTile);
    total = take(kAttentionTile);
  }
};

/// Largest of a row's scores [low, high), or `largest` when that is larger. Those of the first and the last vector that are
/// outside become −infinity, so that whole vectors are read from then on.
inline float largestOf(std::int64_t low, std::int64_t high, float largest, float* scores) {
  if (low == high) return largest;
  const std::int64_t begin = low / Vec::width * Vec::width, end = alignUp(high, Vec::width);
  const Vec hidden = broadcast(-std::numeric_limits<float>::infinity());
  if (low > begin) store(scores + begin, firstLanes(low - begin, hidden, load(scores + begin)));
  if (high < end) {
    float* const last = scores + end - Vec::width;
    store(last, firstLanes(high - (end - Vec::width), load(last), hidden));
  }
  Vec top = load(scores + begin);
#pragma GCC unroll 12
  for (std::int64_t c = begin + Vec::width; c < end; c += Vec::width) top = max(top, load(scores + c));
  return std::max(largest, maxOf(top));
}

/// One row of scores: [low, high) -> 2^(score − largest), zeros in the rest of [0, columns). The sum of the row.
inline float exponentialRow(std::int64_t low, std::int64_t high, std::int64_t columns, float largest,
                            float* scores) {
  const std::int64_t begin = low / Vec::width * Vec::width, end = alignUp(high, Vec::width);
  const Vec shift = broadcast(largest), none = broadcast(0.f);
  Vec sum = none;
#pragma GCC unroll 12
  for (std::int64_t c = begin; c < end; c += Vec::width) {
    const Vec e = exponential2(load(scores + c) - shift);
    store(scores + c, e);
    sum = sum + e;
  }
  for (std::int64_t c = 0; c < begin; c += Vec::width) store(scores + c, none);
  for (std::int64_t c = end; c < columns; c += Vec::width) store(scores + c, none);
  return sumOf(sum);
}

/// Scores of queries [part, part + rows) of a tile and a tile of keys -> 2^(score − running maximum of the row); rescales
/// the rows' state. In passes over all rows, so that no row waits for another's maximum. `output` holds nothing yet when
/// `begins`.
void softmaxPart(const AttentionMask& mask, std::int64_t firstQuery, std::int64_t part, std::int64_t rows,
                 std::int64_t key, std::int64_t columns, std::int64_t headSize, bool begins,
                 const ForwardScratch& m) {
  std::int64_t low[kRowsTogether], high[kRowsTogether];
  alignas(64) float newLargest[kRowsTogether], factor[kRowsTogether];
  float* const largest = m.largest + part;
  float* const total = m.total + part;
  // Whole rows have a length that the compiler knows.
  const bool whole = mask.seeWhole(firstQuery + part, rows, key, columns);
  for (std::int64_t r = 0; r < rows && whole; ++r) {
    newLargest[r] = largestOf(0, kAttentionTile, largest[r], m.scores + r * kAttentionTile);
  }
  for (std::int64_t r = 0; r < rows && !whole; ++r) {
    mask.visible(firstQuery + part + r, key, columns, low + r, high + r);
    newLargest[r] = largestOf(low[r], high[r], largest[r], m.scores + r * kAttentionTile);
  }
  for (std::int64_t r = rows; r < alignUp(rows, Vec::width); ++r) newLargest[r] = largest[r] = total[r] = 0.f;
  for (std::int64_t r = 0; r < rows; r += Vec::width) {
    const Vec change = exponential2(load(largest + r) - load(newLargest + r));
    store(factor + r, change);
    store(largest + r, load(newLargest + r));
    store(total + r, load(total + r) * change);
  }
  for (std::int64_t r = 0; r < rows && whole; ++r) {
    total[r] +=
        exponentialRow(0, kAttentionTile, kAttentionTile, newLargest[r], m.scores + r * kAttentionTile);
  }
  for (std::int64_t r = 0; r < rows && !whole; ++r) {
    total[r] += exponentialRow(low[r], high[r], columns, newLargest[r], m.scores + r * kAttentionTile);
  }
  if (begins) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (factor[r] == 1.f) continue;
    const Vec change = broadcast(factor[r]);
    float* const output = m.output + (part + r) * headSize;
    forVectors(headSize, [&](std::int64_t i, std::int64_t count) {
      storeUpTo(output + i, loadUpTo(output + i, count) * change, count);
    });
  }
}

/// Queries [tile·kAttentionTile, …) of one head. q, o: first row of the sequence at this head.
template <typename T, typename O>
void forwardTile(const AttentionBlockShape& s, const AttentionMask& mask, std::int64_t tile, const T* q,
                 bool merge, O* o, float* logSumExp, const ForwardScratch& m) {
  const std::int64_t first = tile * kAttentionTile, size = s.headSize;
  const std::int64_t rows = std::min(kAttentionTile, s.sequence - first);
  const TileRange range = mask.tiles(first, rows);
  if (merge && range.begin >= range.end) return;
  packLeft({q + first * s.queryStride, kTypeOf<T>}, s.queryStride, 1, rows, size, m.query);
  scaleFloats(broadcast(kLog2E / std::sqrt(static_cast<float>(size))), alignUp(rows, kTileRows) * size,
              m.query);
  std::fill_n(m.largest, rows, kNothingSeen);
  std::fill_n(m.total, rows, 0.f);
  prefetchRows(q, first + kAttentionTile, s.sequence, s.queryStride, size);

  for (std::int64_t j = range.begin; j < range.end; ++j) {
    const std::int64_t key = j * kAttentionTile, columns = std::min(kAttentionTile, s.keySequence - key);
    const bool diagonal = mask.onDiagonal(first, key);
    for (std::int64_t part = 0; part < rows; part += kRowsTogether) {
      const std::int64_t partRows = std::min(kRowsTogether, rows - part);
      gemmPacked(Left::panels, partRows, columns, size, m.query + part * size, m.packedK + key * size,
                 m.scores, kAttentionTile, false, diagonal ? Triangle::result : Triangle::none, part);
      softmaxPart(mask, first, part, partRows, key, columns, size, j == range.begin, m);
      gemmPacked(Left::rows, partRows, size, columns, m.scores,
                 m.packedV + key * alignUp(size, kAttentionPad), m.output + part * size, size,
                 j > range.begin, diagonal ? Triangle::left : Triangle::none, part);
    }
  }

  for (std::int64_t r = 0; r < rows; ++r) {
    storeRow(size, m.output + r * size, m.largest[r], m.total[r], merge, o + (first + r) * s.outputStride,
             logSumExp + first + r);
  }
}

/// All query heads that read one key/value head of one sequence.
template <typename T, typename O>
void forwardHead(const AttentionBlockShape& s, std::int64_t batch, std::int64_t kvHead,
                 const AttentionForward& t, const ForwardScratch& m) {
  const std::int64_t size = s.headSize, group = s.heads / s.kvHeads;
  const std::int64_t row = batch * s.queryBatchRows, keyRow = batch * s.keyBatchRows;
  const AttentionMask mask(s, batch);
  const TileRange range = mask.tiles(0, s.sequence);
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    const std::int64_t first = j * kAttentionTile, columns = std::min(kAttentionTile, s.keySequence - first);
    packSlivers(t.k.offset((keyRow + first) * s.keyStride + kvHead * size), 1, s.keyStride, size, columns,
                m.packedK + first * size);
    packSlivers(t.v.offset((keyRow + first) * s.valueStride + kvHead * size), s.valueStride, 1, columns, size,
                m.packedV + first * alignUp(size, kAttentionPad));
  }
  for (std::int64_t head = kvHead * group; head < (kvHead + 1) * group; ++head) {
    for (std::int64_t tile = 0; tile < attentionTiles(s.sequence); ++tile) {
      forwardTile(s, mask, tile, t.q.as<T>() + row * s.queryStride + head * size, t.merge,
                  t.o.as<O>() + row * s.outputStride + head * size,
                  t.logSumExp + (batch * s.heads + head) * s.queryBatchRows, m);
    }
  }
}

template <typename T, typename O>
void forwardAll(const AttentionBlockShape& s, const AttentionForward& t, int threads, Workspace workspace) {
  const std::int64_t perThread = attentionForwardElements(s.keySequence, s.headSize);
  parallelRanges(threads, s.batch * s.kvHeads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    const ForwardScratch scratch(static_cast<float*>(workspace.data) + thread * perThread, s);
    for (std::int64_t i = begin; i < end; ++i) forwardHead<T, O>(s, i / s.kvHeads, i % s.kvHeads, t, scratch);
  });
}

}  // namespace

void attentionForwardKernel(const AttentionBlockShape& s, const AttentionForward& t, int threads,
                            Workspace workspace) {
  if (attentionForwardBfloat16(bfloat16Product(), s, t, threads, workspace)) return;
  if (t.q.type == DataType::float32) {
    forwardAll<float, float>(s, t, threads, workspace);
  } else if (t.o.type == DataType::float32) {
    forwardAll<Bfloat16, float>(s, t, threads, workspace);
  } else {
    forwardAll<Bfloat16, Bfloat16>(s, t, threads, workspace);
  }
}

}  // namespace internevo::cpu
