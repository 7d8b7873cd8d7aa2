#include "backend/cpu/attention_bfloat16.h"

#include "backend/cpu/attention_rows.h"
#include "backend/cpu/parallel.h"

namespace internevo::cpu {

#if defined(INTERNEVO_BFLOAT16_TILES)

namespace {

constexpr bool fits(std::int64_t headSize) {
  for (const std::int64_t keys : {1, 31, 96, 97, 1000, 100000}) {
    if (Bfloat16ForwardScratch{}.place(nullptr, keys, headSize) > attentionForwardElements(keys, headSize))
      return false;
  }
  return true;
}
static_assert([] {
  for (std::int64_t size = 1; size <= 512; ++size)
    if (fitsBfloat16Tiles(size) && !fits(size)) return false;
  return true;
}());

/// Scores of 16 queries and the keys [begin, end) of a tile -> p, as words by pair of keys, and the queries' state; what
/// `output` holds of them is rescaled unless `begins`.
template <bool masked>
void softmaxLanes(std::int64_t lanes, std::int64_t begin, std::int64_t end, __m512 scale, std::int64_t size,
                  bool begins, const Bfloat16ForwardScratch& m) {
  const float* const scores = m.scores + lanes;
  const __m512i low = _mm512_load_si512(m.limits.low + lanes),
                high = _mm512_load_si512(m.limits.high + lanes);
  const __m512 before = _mm512_load_ps(m.largest + lanes), nothing = _mm512_set1_ps(kNothingSeen);
  __m512 top[4] = {nothing, nothing, nothing, nothing};
  for (std::int64_t key = begin; key < end; key += 4) {
    for (int i = 0; i < 4; ++i) {
      const __mmask16 wanted = masked ? seen(low, high, key + i) : __mmask16{0xffff};
      top[i] =
          _mm512_mask_max_ps(top[i], wanted, top[i], _mm512_load_ps(scores + (key + i) * kForwardQueries));
    }
  }
  const __m512 highest = _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));
  const __mmask16 sees = _mm512_cmp_ps_mask(highest, nothing, _CMP_NEQ_UQ);
  const __m512 largest = _mm512_mask_max_ps(before, sees, before, _mm512_mul_ps(highest, scale));

  __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  std::uint32_t* const p = m.p + lanes / kLanes * kDepthsOfTile * kTileWords;
  for (std::int64_t key = begin; key < end; key += 2) {
    __m512 e[2];
    for (int i = 0; i < 2; ++i) {
      e[i] = exponential2Short(
          _mm512_fmsub_ps(_mm512_load_ps(scores + (key + i) * kForwardQueries), scale, largest));
      if (masked) e[i] = _mm512_maskz_mov_ps(seen(low, high, key + i), e[i]);
      sum[i] = _mm512_add_ps(sum[i], e[i]);
    }
    _mm512_store_si512(p + key / 2 * kLanes, pairOf(e[0], e[1]));
  }
  const __m512 change = exponential2Short(_mm512_sub_ps(before, largest));
  _mm512_store_ps(m.largest + lanes, largest);
  _mm512_store_ps(m.total + lanes,
                  _mm512_fmadd_ps(_mm512_load_ps(m.total + lanes), change, _mm512_add_ps(sum[0], sum[1])));
  if (begins || _mm512_cmp_ps_mask(change, _mm512_set1_ps(1.f), _CMP_NEQ_UQ) == 0) return;
  for (float* row = m.output + lanes; row < m.output + size * kForwardQueries; row += kForwardQueries) {
    _mm512_store_ps(row, _mm512_mul_ps(_mm512_load_ps(row), change));
  }
}

/// Queries [first, first + rows) of one head, at most kForwardQueries. q, o: first row of the sequence at this head.
template <typename O>
void forwardQueries(const AttentionBlockShape& s, const AttentionMask& mask, std::int64_t first,
                    std::int64_t rows, const Bfloat16* q, bool merge, O* o, float* logSumExp, bool tiles,
                    const Bfloat16ForwardScratch& m) {
  const std::int64_t size = paddedHead(s.headSize), headWords = kLanes * size / 2;  // of 16 lanes of q or K
  const TileRange range = mask.tiles(first, rows);
  if (merge && range.begin >= range.end) return;
  const __m512 scale = _mm512_set1_ps(kLog2E / std::sqrt(static_cast<float>(s.headSize)));
  packPadded<Order::byPair>(q + first * s.queryStride, s.queryStride, 1, rows, s.headSize, kForwardQueries,
                            size, m.query);
  prefetchRows(q, first + kForwardQueries, std::min(first + 2 * kForwardQueries, s.sequence), s.queryStride,
               s.headSize);
  std::fill_n(m.largest, kForwardQueries, kNothingSeen);
  std::fill_n(m.total, kForwardQueries, 0.f);

  bool begins = true;
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    const std::int64_t tile = j * kAttentionTile, columns = std::min(kAttentionTile, s.keySequence - tile);
    m.limits.set(mask, first, rows, kForwardQueries, tile, columns);
    const std::int64_t begin = m.limits.low[0] / kSquare * kSquare,
                       end = alignUp(m.limits.high[rows - 1], kSquare);
    if (begin >= end) continue;
    const bool whole =
        rows == kForwardQueries && m.limits.low[rows - 1] == 0 && m.limits.high[0] == kAttentionTile;
    for (std::int64_t key = begin; key < end; key += kSquare) {
      multiplyTiles<2, 2>(
          tiles, {m.packedK + (tile + key) * size / 2, m.query, headWords, headWords, size / kTileDepth,
                  m.scores + key * kForwardQueries, kForwardQueries, false});
    }
    for (std::int64_t lanes = 0; lanes < kForwardQueries; lanes += kLanes) {
      whole ? softmaxLanes<false>(lanes, begin, end, scale, size, begins, m)
            : softmaxLanes<true>(lanes, begin, end, scale, size, begins, m);
    }
    const std::uint32_t* const v = m.packedVT + tile * size / 2 + begin / kTileDepth * kTileWords;
    constexpr std::int64_t kNext = kDepthsOfTile * kTileWords;
    for (std::int64_t i = 0; i < size; i += kSquare) {
      multiplyTiles<2, 2>(
          tiles, {v + i / kLanes * kNext, m.p + begin / kTileDepth * kTileWords, kNext, kNext,
                  (end - begin) / kTileDepth, m.output + i * kForwardQueries, kForwardQueries, !begins});
    }
    begins = false;
  }
  if (!begins) transposeFloats(m.output, kForwardQueries, size, kForwardQueries, m.rows, size);
  for (std::int64_t r = 0; r < rows; ++r) {
    storeRow(s.headSize, m.rows + r * size, m.largest[r], m.total[r], merge, o + (first + r) * s.outputStride,
             logSumExp + first + r);
  }
}

/// All query heads that read one key/value head of one sequence.
template <typename O>
void forwardHead(const AttentionBlockShape& s, std::int64_t batch, std::int64_t kvHead,
                 const AttentionForward& t, bool tiles, const Bfloat16ForwardScratch& m) {
  const std::int64_t size = paddedHead(s.headSize), group = s.heads / s.kvHeads;
  const std::int64_t row = batch * s.queryBatchRows, keyRow = batch * s.keyBatchRows;
  const AttentionMask mask(s, batch);
  const TileRange range = mask.tiles(0, s.sequence);
  const auto* const k = t.k.as<Bfloat16>() + keyRow * s.keyStride + kvHead * s.headSize;
  const auto* const v = t.v.as<Bfloat16>() + keyRow * s.valueStride + kvHead * s.headSize;
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    const std::int64_t first = j * kAttentionTile, columns = std::min(kAttentionTile, s.keySequence - first);
    packPadded<Order::byLane>(k + first * s.keyStride, s.keyStride, 1, columns, s.headSize, kAttentionTile,
                              size, m.packedK + first * size / 2);
    packPadded<Order::byLane>(v + first * s.valueStride, 1, s.valueStride, s.headSize, columns, size,
                              kAttentionTile, m.packedVT + first * size / 2);
  }
  for (std::int64_t head = kvHead * group; head < (kvHead + 1) * group; ++head) {
    for (std::int64_t first = 0; first < s.sequence; first += kForwardQueries) {
      forwardQueries(s, mask, first, std::min(kForwardQueries, s.sequence - first),
                     t.q.as<Bfloat16>() + row * s.queryStride + head * s.headSize, t.merge,
                     t.o.as<O>() + row * s.outputStride + head * s.headSize,
                     t.logSumExp + (batch * s.heads + head) * s.queryBatchRows, tiles, m);
    }
  }
}

}  // namespace

bool attentionForwardBfloat16(Bfloat16Product by, const AttentionBlockShape& s, const AttentionForward& t,
                              int threads, Workspace workspace) {
  if (by == Bfloat16Product::none || t.q.type != DataType::bfloat16 || !fitsBfloat16Tiles(s.headSize))
    return false;
  const std::int64_t perThread = attentionForwardElements(s.keySequence, s.headSize);
  parallelRanges(threads, s.batch * s.kvHeads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    Bfloat16ForwardScratch scratch;
    scratch.place(static_cast<float*>(workspace.data) + thread * perThread, s.keySequence, s.headSize);
    const Bfloat16Tiles state(by);
    const bool tiles = by == Bfloat16Product::tiles;
    for (std::int64_t i = begin; i < end; ++i) {
      t.o.type == DataType::float32
          ? forwardHead<float>(s, i / s.kvHeads, i % s.kvHeads, t, tiles, scratch)
          : forwardHead<Bfloat16>(s, i / s.kvHeads, i % s.kvHeads, t, tiles, scratch);
    }
  });
  return true;
}

#else

bool attentionForwardBfloat16(Bfloat16Product, const AttentionBlockShape&, const AttentionForward&, int,
                              Workspace) {
  return false;
}

#endif

}  // namespace internevo::cpu
