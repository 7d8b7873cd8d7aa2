#include <algorithm>
#include <cmath>

#include "backend/cpu/attention.h"
#include "backend/cpu/attention_rows.h"
#include "backend/cpu/parallel.h"

namespace internevo::cpu {

namespace {

struct BackwardScratch {
  float *packedKT, *packedVT, *packedK, *gK, *gV, *p, *gP, *query, *gO, *gQ, *packedQuery, *packedGO, *delta;

  BackwardScratch(float* base, const AttentionBlockShape& s) {
    const std::int64_t size = s.headSize, padded = alignUp(size, kAttentionPad);
    const std::int64_t rows = attentionTiles(s.keySequence) * kAttentionTile;
    const auto take = [&base](std::int64_t elements) {
      float* const result = base;
      base += elements;
      return result;
    };
    packedKT = take(rows * size);
    packedVT = take(rows * size);
    packedK = take(rows * padded);
    gK = take(s.keySequence * size);
    gV = take(s.keySequence * size);
    p = take(kAttentionTile * kAttentionTile);
    gP = take(kAttentionTile * kAttentionTile);
    query = take(kAttentionTile * size);
    gO = take(kAttentionTile * size);
    gQ = take(kAttentionTile * size);
    packedQuery = take(kAttentionTile * padded);
    packedGO = take(kAttentionTile * padded);
    delta = take(kAttentionTile);
  }
};

/// Packs one tile of q (scaled, and so is gK in the end) and gO as float32, both ways; delta = Σ o·gO of each row.
template <typename T>
void loadTile(const AttentionBlockShape& s, std::int64_t first, std::int64_t rows, float scale, const T* q,
              const T* o, const T* gO, const BackwardScratch& m) {
  const std::int64_t size = s.headSize;
  const ConstView ownQ{q + first * s.queryStride, kTypeOf<T>}, ownGO{gO + first * s.outputStride, kTypeOf<T>};
  packLeft(ownQ, s.queryStride, 1, rows, size, m.query);
  packLeft(ownGO, s.outputStride, 1, rows, size, m.gO);
  packSlivers(ownQ, s.queryStride, 1, rows, size, m.packedQuery);
  packSlivers(ownGO, s.outputStride, 1, rows, size, m.packedGO);
  scaleFloats(broadcast(scale), alignUp(rows, kTileRows) * size, m.query);
  scaleFloats(broadcast(scale), packedSliversElements(rows, size), m.packedQuery);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* const oRow = o + (first + r) * s.outputStride;
    const T* const gORow = gO + (first + r) * s.outputStride;
    Vec dot = broadcast(0.f);
    forVectors(size, [&](std::int64_t i, std::int64_t count) {
      dot = fma(loadUpTo(oRow + i, count), loadUpTo(gORow + i, count), dot);
    });
    m.delta[r] = sumOf(dot);
  }
}

/// One row: scores -> p = 2^(score − logSumExp), and gP -> p·(gP − delta); zeros in the rest of [0, columns). All in
/// units of log2(e); writes whole vectors.
inline void softmaxGradient(std::int64_t low, std::int64_t high, std::int64_t columns, float logSumExp,
                            float deltaOfRow, float* p, float* gP) {
  const std::int64_t begin = low / Vec::width * Vec::width, end = alignUp(high, Vec::width);
  const Vec shift = broadcast(logSumExp), delta = broadcast(deltaOfRow), none = broadcast(0.f);
  for (std::int64_t c = begin; c < end; c += Vec::width) {
    const Vec e = exponential2(load(p + c) - shift);
    store(gP + c, e * (load(gP + c) - delta));
    store(p + c, e);
  }
  for (float* const each : {p, gP}) {
    for (std::int64_t c = 0; c < begin; c += Vec::width) store(each + c, none);
    for (std::int64_t c = end; c < columns; c += Vec::width) store(each + c, none);
    if (low > begin) store(each + begin, firstLanes(low - begin, none, load(each + begin)));
    if (high < end) {
      float* const last = each + end - Vec::width;
      store(last, firstLanes(high - (end - Vec::width), load(last), none));
    }
  }
}

/// Queries [tile·kAttentionTile, …) of one head: adds to gK and gV, writes or adds to gQ.
template <typename T, typename G>
void backwardTile(const AttentionBlockShape& s, const AttentionMask& mask, std::int64_t tile, const T* q,
                  const T* o, const T* gO, bool add, G* gQ, const float* logSumExp,
                  const BackwardScratch& m) {
  const std::int64_t first = tile * kAttentionTile, size = s.headSize, padded = alignUp(size, kAttentionPad);
  const std::int64_t rows = std::min(kAttentionTile, s.sequence - first);
  const TileRange range = mask.tiles(first, rows);
  const bool seesNothing = range.begin >= range.end;
  if (seesNothing && add) return;
  const float scale = 1.f / std::sqrt(static_cast<float>(size));
  if (seesNothing) {
    std::fill_n(m.gQ, rows * size, 0.f);
  } else {
    loadTile(s, first, rows, scale * kLog2E, q, o, gO, m);
  }
  prefetchRows(q, first + kAttentionTile, s.sequence, s.queryStride, size);
  prefetchRows(o, first + kAttentionTile, s.sequence, s.outputStride, size);
  prefetchRows(gO, first + kAttentionTile, s.sequence, s.outputStride, size);

  for (std::int64_t j = range.begin; j < range.end; ++j) {
    const std::int64_t key = j * kAttentionTile, columns = std::min(kAttentionTile, s.keySequence - key);
    const bool diagonal = mask.onDiagonal(first, key);
    const Triangle result = diagonal ? Triangle::result : Triangle::none;
    const Triangle left = diagonal ? Triangle::left : Triangle::none;
    const Triangle transposed = diagonal ? Triangle::leftTransposed : Triangle::none;
    gemmPacked(Left::panels, rows, columns, size, m.query, m.packedKT + key * size, m.p, kAttentionTile,
               false, result);
    gemmPacked(Left::panels, rows, columns, size, m.gO, m.packedVT + key * size, m.gP, kAttentionTile, false,
               result);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::int64_t low, high;
      mask.visible(first + r, key, columns, &low, &high);
      softmaxGradient(low, high, columns, logSumExp[first + r] * kLog2E, m.delta[r], m.p + r * kAttentionTile,
                      m.gP + r * kAttentionTile);
    }
    gemmPacked(Left::columns, columns, size, rows, m.p, m.packedGO, m.gV + key * size, size, true,
               transposed);
    gemmPacked(Left::columns, columns, size, rows, m.gP, m.packedQuery, m.gK + key * size, size, true,
               transposed);
    gemmPacked(Left::rows, rows, size, columns, m.gP, m.packedK + key * padded, m.gQ, size, j > range.begin,
               left);
  }

  for (std::int64_t r = 0; r < rows; ++r) {
    storeGradient(size, m.gQ + r * size, broadcast(scale), add, gQ + (first + r) * s.queryGradientStride);
  }
}

/// One key/value head of one sequence and all query heads that read it, in order.
template <typename T, typename G>
void backwardHead(const AttentionBlockShape& s, std::int64_t batch, std::int64_t kvHead,
                  const AttentionBackward& t, const BackwardScratch& m) {
  const std::int64_t size = s.headSize, group = s.heads / s.kvHeads;
  const std::int64_t row = batch * s.queryBatchRows, keyRow = batch * s.keyBatchRows;
  const std::int64_t kAt = keyRow * s.keyStride + kvHead * size, vAt = keyRow * s.valueStride + kvHead * size;
  const AttentionMask mask(s, batch);
  const TileRange range = mask.tiles(0, s.sequence);
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    const std::int64_t first = j * kAttentionTile, columns = std::min(kAttentionTile, s.keySequence - first);
    const ConstView k = t.k.offset(kAt + first * s.keyStride), v = t.v.offset(vAt + first * s.valueStride);
    packSlivers(k, 1, s.keyStride, size, columns, m.packedKT + first * size);
    packSlivers(v, 1, s.valueStride, size, columns, m.packedVT + first * size);
    packSlivers(k, s.keyStride, 1, columns, size, m.packedK + first * alignUp(size, kAttentionPad));
  }
  // Keys that no query sees have zero gradients, or keep what they have.
  const std::int64_t begin = t.add ? std::min(range.begin * kAttentionTile, s.keySequence) : 0;
  const std::int64_t end =
      t.add ? std::max(begin, std::min(range.end * kAttentionTile, s.keySequence)) : s.keySequence;
  std::fill_n(m.gK + begin * size, (end - begin) * size, 0.f);
  std::fill_n(m.gV + begin * size, (end - begin) * size, 0.f);
  for (std::int64_t head = kvHead * group; head < (kvHead + 1) * group; ++head) {
    const std::int64_t qAt = row * s.queryStride + head * size, oAt = row * s.outputStride + head * size;
    for (std::int64_t tile = 0; tile < attentionTiles(s.sequence); ++tile) {
      backwardTile<T, G>(s, mask, tile, t.q.as<T>() + qAt, t.o.as<T>() + oAt, t.gO.as<T>() + oAt, t.add,
                         t.gQ.as<G>() + row * s.queryGradientStride + head * size,
                         t.logSumExp + (batch * s.heads + head) * s.queryBatchRows, m);
    }
  }
  for (std::int64_t key = begin; key < end; ++key) {
    storeGradient(size, m.gK + key * size, broadcast(kLn2), t.add, t.gK.as<G>() + kAt + key * s.keyStride);
    storeGradient(size, m.gV + key * size, broadcast(1.f), t.add, t.gV.as<G>() + vAt + key * s.valueStride);
  }
}

template <typename T, typename G>
void backwardAll(const AttentionBlockShape& s, const AttentionBackward& t, int threads, Workspace workspace) {
  const std::int64_t perThread = attentionBackwardElements(s.keySequence, s.headSize);
  parallelRanges(threads, s.batch * s.kvHeads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    const BackwardScratch scratch(static_cast<float*>(workspace.data) + thread * perThread, s);
    for (std::int64_t i = begin; i < end; ++i)
      backwardHead<T, G>(s, i / s.kvHeads, i % s.kvHeads, t, scratch);
  });
}

}  // namespace

void attentionBackwardKernel(const AttentionBlockShape& s, const AttentionBackward& t, int threads,
                             Workspace workspace) {
  if (attentionBackwardBfloat16(bfloat16Product(), s, t, threads, workspace)) return;
  if (t.q.type == DataType::float32) {
    backwardAll<float, float>(s, t, threads, workspace);
  } else if (t.gQ.type == DataType::float32) {
    backwardAll<Bfloat16, float>(s, t, threads, workspace);
  } else {
    backwardAll<Bfloat16, Bfloat16>(s, t, threads, workspace);
  }
}

}  // namespace internevo::cpu
