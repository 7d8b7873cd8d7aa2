#include "backend/cpu/attention_bfloat16.h"

#include "backend/cpu/attention_rows.h"
#include "backend/cpu/parallel.h"

namespace internevo::cpu {

#if defined(INTERNEVO_BFLOAT16_TILES)

namespace {

constexpr bool fits(std::int64_t headSize) {
  for (const std::int64_t keys : {1, 31, 33, 96, 97, 1000, 100000}) {
    if (Bfloat16BackwardScratch{}.place(nullptr, keys, headSize) > attentionBackwardElements(keys, headSize))
      return false;
  }
  return true;
}
static_assert([] {
  for (std::int64_t size = 1; size <= 512; ++size)
    if (fitsBfloat16Tiles(size) && !fits(size)) return false;
  return true;
}());

constexpr std::int64_t kTileStep =
    kDepthsOfTile * kTileWords;  // from 16 lanes of a packed tile of keys or queries to the next

/// One query head's rows of a sequence.
struct Rows {
  const Bfloat16 *q, *o, *gO;
  const float* logSumExp;
};

/// Packs one tile of q and gO both ways; delta = Σ o·gO of each row; the rows' logSumExp in units of log2(e).
void loadQueries(const AttentionBlockShape& s, const Rows& t, std::int64_t first, std::int64_t rows,
                 const Bfloat16BackwardScratch& m) {
  const std::int64_t size = paddedHead(s.headSize);
  const Bfloat16 *const q = t.q + first * s.queryStride, *const gO = t.gO + first * s.outputStride;
  packPadded<Order::byPair>(q, s.queryStride, 1, rows, s.headSize, kAttentionTile, size, m.query);
  packPadded<Order::byPair>(gO, s.outputStride, 1, rows, s.headSize, kAttentionTile, size, m.gO);
  packPadded<Order::byPair>(q, 1, s.queryStride, s.headSize, rows, size, kAttentionTile, m.queryAcross);
  packPadded<Order::byPair>(gO, 1, s.outputStride, s.headSize, rows, size, kAttentionTile, m.gOAcross);
  for (std::int64_t r = 0; r < rows; ++r) {
    Vec dot = broadcast(0.f);
    forVectors(s.headSize, [&](std::int64_t i, std::int64_t count) {
      dot = fma(loadUpTo(t.o + (first + r) * s.outputStride + i, count),
                loadUpTo(gO + r * s.outputStride + i, count), dot);
    });
    m.delta[r] = sumOf(dot);
    m.logSumExp[r] = t.logSumExp[first + r] * kLog2E;
  }
  std::fill(m.delta + rows, m.delta + kAttentionTile, 0.f);
  std::fill(m.logSumExp + rows, m.logSumExp + kAttentionTile, 0.f);
}

/// A square of scores and gP, keys × queries from (key, query) of their tiles -> p = 2^(score − logSumExp) and
/// gS = p·(gP − delta): both as lanes of keys, and gS as pairs of keys too.
template <bool masked>
void softmaxGradient(std::int64_t key, std::int64_t query, __m512 scale, const Bfloat16BackwardScratch& m) {
  __m512i low[2], high[2];
  __m512 shift[2], delta[2];
  for (int i = 0; i < 2; ++i) {
    const std::int64_t lanes = query + i * kLanes;
    low[i] = _mm512_load_si512(m.limits.low + lanes), high[i] = _mm512_load_si512(m.limits.high + lanes);
    shift[i] = _mm512_load_ps(m.logSumExp + lanes), delta[i] = _mm512_load_ps(m.delta + lanes);
  }
  std::uint32_t* pairs = m.gSPairs + query / kLanes * kTileStep + key / kTileDepth * kTileWords;
  for (std::int64_t k = 0; k < kSquare; k += 2, pairs += kLanes) {
    __m512 gS[2][2];
    for (int row = 0; row < 2; ++row) {
      __m512 p[2];
      for (int i = 0; i < 2; ++i) {
        const std::int64_t at = (k + row) * kSquare + i * kLanes;
        p[i] = exponential2Short(_mm512_fmsub_ps(_mm512_load_ps(m.scores + at), scale, shift[i]));
        if (masked) p[i] = _mm512_maskz_mov_ps(seen(low[i], high[i], key + k + row), p[i]);
        gS[row][i] = _mm512_mul_ps(p[i], _mm512_sub_ps(_mm512_load_ps(m.gP + at), delta[i]));
      }
      const std::int64_t lane = key + k + row, at = lane / kLanes * kTileStep +
                                                    query / kTileDepth * kTileWords + lane % kLanes * kPairs;
      _mm512_store_si512(m.p + at, narrowed({p[0]}, {p[1]}));
      _mm512_store_si512(m.gS + at, narrowed({gS[row][0]}, {gS[row][1]}));
    }
    for (int i = 0; i < 2; ++i) _mm512_store_si512(pairs + i * kTileStep, pairOf(gS[0][i], gS[1][i]));
  }
}

/// Squares of keys that a square of queries sees, and the other way round: [begin, end) of each.
struct Squares {
  std::int64_t begin[kSquaresOfTile], end[kSquaresOfTile];
};

/// One tile of queries and one of keys, `tile` the first of these: adds to gK, gV and gQ.
void backwardTile(std::int64_t tile, std::int64_t size, float scale, bool tiles,
                  const Bfloat16BackwardScratch& m) {
  const std::int64_t headWords = kLanes * size / 2, headDepths = size / kTileDepth;
  Squares keys, queries;
  for (std::int64_t i = 0; i < kSquaresOfTile; ++i) {
    keys.begin[i] = m.limits.low[i * kSquare] / kSquare;
    // Queries behind the last see nothing: the last that sees something tells.
    keys.end[i] =
        (*std::max_element(m.limits.high + i * kSquare, m.limits.high + (i + 1) * kSquare) + kSquare - 1) /
        kSquare;
    queries.begin[i] = kSquaresOfTile, queries.end[i] = 0;
  }
  for (std::int64_t q = 0; q < kSquaresOfTile; ++q) {
    const std::int64_t query = q * kSquare;
    const std::uint32_t *const ofQ = m.query + query * size / 2, *const ofGO = m.gO + query * size / 2;
    for (std::int64_t k = keys.begin[q]; k < keys.end[q]; ++k) {
      const std::int64_t key = k * kSquare, words = (tile + key) * size / 2;
      multiplyTiles<2, 2>(
          tiles, {m.packedK + words, ofQ, headWords, headWords, headDepths, m.scores, kSquare, false});
      multiplyTiles<2, 2>(tiles,
                          {m.packedV + words, ofGO, headWords, headWords, headDepths, m.gP, kSquare, false});
      const bool whole = m.limits.low[query + kSquare - 1] <= key && m.limits.high[query] >= key + kSquare;
      whole ? softmaxGradient<false>(key, query, _mm512_set1_ps(scale), m)
            : softmaxGradient<true>(key, query, _mm512_set1_ps(scale), m);
      queries.begin[k] = std::min(queries.begin[k], q), queries.end[k] = q + 1;
    }
  }
  for (std::int64_t k = 0; k < kSquaresOfTile; ++k) {
    if (queries.begin[k] >= queries.end[k]) continue;
    const std::int64_t at = queries.begin[k] * kTileWords, depths = queries.end[k] - queries.begin[k],
                       key = k * kSquare;
    const std::int64_t own = key / kLanes * kTileStep + at;
    for (std::int64_t i = 0; i < size; i += kSquare) {
      const std::int64_t across = i / kLanes * kTileStep + at, target = (tile + key) * size + i;
      multiplyTiles<2, 2>(
          tiles, {m.p + own, m.gOAcross + across, kTileStep, kTileStep, depths, m.gV + target, size, true});
      multiplyTiles<2, 2>(tiles, {m.gS + own, m.queryAcross + across, kTileStep, kTileStep, depths,
                                  m.gK + target, size, true});
    }
  }
  for (std::int64_t q = 0; q < kSquaresOfTile; ++q) {
    if (keys.begin[q] >= keys.end[q]) continue;
    const std::int64_t at = keys.begin[q] * kTileWords, depths = keys.end[q] - keys.begin[q];
    for (std::int64_t i = 0; i < size; i += kSquare) {
      multiplyTiles<2, 2>(tiles, {m.packedKT + tile * size / 2 + i / kLanes * kTileStep + at,
                                  m.gSPairs + q * kSquare / kLanes * kTileStep + at, kTileStep, kTileStep,
                                  depths, m.gQ + i * kAttentionTile + q * kSquare, kAttentionTile, true});
    }
  }
}

/// Queries [tile·kAttentionTile, …) of one head: adds to gK and gV, writes or adds to gQ.
template <typename G>
void backwardQueries(const AttentionBlockShape& s, const AttentionMask& mask, std::int64_t first,
                     const Rows& t, bool add, G* gQ, bool tiles, const Bfloat16BackwardScratch& m) {
  const std::int64_t size = paddedHead(s.headSize), rows = std::min(kAttentionTile, s.sequence - first);
  const TileRange range = mask.tiles(first, rows);
  if (range.begin >= range.end && add) return;
  const float scale = 1.f / std::sqrt(static_cast<float>(s.headSize));
  loadQueries(s, t, first, rows, m);
  prefetchRows(t.q, first + kAttentionTile, s.sequence, s.queryStride, s.headSize);
  prefetchRows(t.o, first + kAttentionTile, s.sequence, s.outputStride, s.headSize);
  prefetchRows(t.gO, first + kAttentionTile, s.sequence, s.outputStride, s.headSize);
  std::fill_n(m.gQ, size * kAttentionTile, 0.f);  // squares of a tile that see nothing are left out
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    const std::int64_t tile = j * kAttentionTile;
    m.limits.set(mask, first, rows, kAttentionTile, tile, std::min(kAttentionTile, s.keySequence - tile));
    backwardTile(tile, size, scale * kLog2E, tiles, m);
  }
  transposeFloats(m.gQ, kAttentionTile, size, kAttentionTile, m.rows, size);
  for (std::int64_t r = 0; r < rows; ++r) {
    storeGradient(s.headSize, m.rows + r * size, broadcast(scale), add,
                  gQ + (first + r) * s.queryGradientStride);
  }
}

/// One key/value head of one sequence and all query heads that read it, in order.
template <typename G>
void backwardHead(const AttentionBlockShape& s, std::int64_t batch, std::int64_t kvHead,
                  const AttentionBackward& t, bool tiles, const Bfloat16BackwardScratch& m) {
  const std::int64_t size = paddedHead(s.headSize), group = s.heads / s.kvHeads;
  const std::int64_t row = batch * s.queryBatchRows, keyRow = batch * s.keyBatchRows;
  const std::int64_t kAt = keyRow * s.keyStride + kvHead * s.headSize,
                     vAt = keyRow * s.valueStride + kvHead * s.headSize;
  const AttentionMask mask(s, batch);
  const TileRange range = mask.tiles(0, s.sequence);
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    const std::int64_t first = j * kAttentionTile, columns = std::min(kAttentionTile, s.keySequence - first),
                       words = first * size / 2;
    const Bfloat16* const k = t.k.as<Bfloat16>() + kAt + first * s.keyStride;
    const Bfloat16* const v = t.v.as<Bfloat16>() + vAt + first * s.valueStride;
    packPadded<Order::byLane>(k, s.keyStride, 1, columns, s.headSize, kAttentionTile, size,
                              m.packedK + words);
    packPadded<Order::byLane>(v, s.valueStride, 1, columns, s.headSize, kAttentionTile, size,
                              m.packedV + words);
    packPadded<Order::byLane>(k, 1, s.keyStride, s.headSize, columns, size, kAttentionTile,
                              m.packedKT + words);
  }
  // Keys that no query sees have zero gradients, or keep what they have.
  const std::int64_t begin = t.add ? std::min(range.begin * kAttentionTile, s.keySequence) : 0;
  const std::int64_t end =
      t.add ? std::max(begin, std::min(range.end * kAttentionTile, s.keySequence)) : s.keySequence;
  std::fill(m.gK + begin * size, m.gK + alignUp(end, kSquare) * size, 0.f);
  std::fill(m.gV + begin * size, m.gV + alignUp(end, kSquare) * size, 0.f);
  for (std::int64_t head = kvHead * group; head < (kvHead + 1) * group; ++head) {
    const std::int64_t qAt = row * s.queryStride + head * s.headSize,
                       oAt = row * s.outputStride + head * s.headSize;
    const Rows rows{t.q.as<Bfloat16>() + qAt, t.o.as<Bfloat16>() + oAt, t.gO.as<Bfloat16>() + oAt,
                    t.logSumExp + (batch * s.heads + head) * s.queryBatchRows};
    for (std::int64_t first = 0; first < s.sequence; first += kAttentionTile) {
      backwardQueries<G>(s, mask, first, rows, t.add,
                         t.gQ.as<G>() + row * s.queryGradientStride + head * s.headSize, tiles, m);
    }
  }
  const Vec scale = broadcast(1.f / std::sqrt(static_cast<float>(s.headSize)));
  for (std::int64_t key = begin; key < end; ++key) {
    storeGradient(s.headSize, m.gK + key * size, scale, t.add, t.gK.as<G>() + kAt + key * s.keyStride);
    storeGradient(s.headSize, m.gV + key * size, broadcast(1.f), t.add,
                  t.gV.as<G>() + vAt + key * s.valueStride);
  }
}

}  // namespace

bool attentionBackwardBfloat16(Bfloat16Product by, const AttentionBlockShape& s, const AttentionBackward& t,
                               int threads, Workspace workspace) {
  if (by == Bfloat16Product::none || t.q.type != DataType::bfloat16 || !fitsBfloat16Tiles(s.headSize))
    return false;
  const std::int64_t perThread = attentionBackwardElements(s.keySequence, s.headSize);
  parallelRanges(threads, s.batch * s.kvHeads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    Bfloat16BackwardScratch scratch;
    scratch.place(static_cast<float*>(workspace.data) + thread * perThread, s.keySequence, s.headSize);
    const Bfloat16Tiles state(by);
    const bool tiles = by == Bfloat16Product::tiles;
    for (std::int64_t i = begin; i < end; ++i) {
      t.gQ.type == DataType::float32
          ? backwardHead<float>(s, i / s.kvHeads, i % s.kvHeads, t, tiles, scratch)
          : backwardHead<Bfloat16>(s, i / s.kvHeads, i % s.kvHeads, t, tiles, scratch);
    }
  });
  return true;
}

#else

bool attentionBackwardBfloat16(Bfloat16Product, const AttentionBlockShape&, const AttentionBackward&, int,
                               Workspace) {
  return false;
}

#endif

}  // namespace internevo::cpu
