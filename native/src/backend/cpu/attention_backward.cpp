#include <algorithm>
#include <cmath>

#include "backend/cpu/attention.h"
#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"

namespace internevo::cpu {

namespace {

struct BackwardScratch {
  float *packedKT, *packedVT, *packedK, *gK, *gV, *p, *gP, *query, *gO, *gQ, *packedQuery, *packedGO, *delta;

  BackwardScratch(float* base, const AttentionShape& s) {
    const std::int64_t size = s.headSize, padded = alignUp(size, kAttentionPad);
    const std::int64_t rows = attentionTiles(s.sequence) * kAttentionTile;
    const auto take = [&base](std::int64_t elements) {
      float* const result = base;
      base += elements;
      return result;
    };
    packedKT = take(rows * size);
    packedVT = take(rows * size);
    packedK = take(rows * padded);
    gK = take(s.sequence * size);
    gV = take(s.sequence * size);
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

/// Loads one tile of q (scaled) and gO as float32 and packs both; delta = Σ o·gO of each row.
template <typename T>
void loadTile(const AttentionShape& s, std::int64_t first, std::int64_t rows, float scale, const T* q, const T* o,
              const T* gO, const BackwardScratch& m) {
  const std::int64_t size = s.headSize;
  const Vec factor = broadcast(scale);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* const qRow = q + (first + r) * s.queryStride;
    const T* const oRow = o + (first + r) * s.outputStride;
    const T* const gORow = gO + (first + r) * s.outputStride;
    Vec dot = broadcast(0.f);
    forVectors(size, [&](std::int64_t i, std::int64_t count) {
      const Vec g = loadUpTo(gORow + i, count);
      storeUpTo(m.query + r * size + i, loadUpTo(qRow + i, count) * factor, count);
      storeUpTo(m.gO + r * size + i, g, count);
      dot = fma(loadUpTo(oRow + i, count), g, dot);
    });
    m.delta[r] = sumOf(dot);
  }
  packSlivers({m.query, DataType::float32}, size, 1, rows, size, m.packedQuery);
  packSlivers({m.gO, DataType::float32}, size, 1, rows, size, m.packedGO);
}

/// scores -> p = exp(score − logSumExp) in m.p, and p·(gP − delta) in m.gP; zeros right of the diagonal.
void softmaxGradient(std::int64_t rows, std::int64_t columns, bool diagonal, const float* logSumExp,
                     const BackwardScratch& m) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* const p = m.p + r * kAttentionTile;
    float* const gP = m.gP + r * kAttentionTile;
    const std::int64_t valid = diagonal ? std::min(r + 1, columns) : columns;
    const Vec shift = broadcast(logSumExp[r]), delta = broadcast(m.delta[r]);
    forVectors(valid, [&](std::int64_t c, std::int64_t count) {
      const Vec e = exponential(loadUpTo(p + c, count) - shift);
      storeUpTo(gP + c, e * (loadUpTo(gP + c, count) - delta), count);
      storeUpTo(p + c, e, count);
    });
    std::fill(p + valid, p + columns, 0.f);
    std::fill(gP + valid, gP + columns, 0.f);
  }
}

/// Queries [tile·kAttentionTile, …) of one head: adds to gK and gV, writes gQ.
template <typename T>
void backwardTile(const AttentionShape& s, std::int64_t tile, const T* q, const T* o, const T* gO, T* gQ,
                  const float* logSumExp, const BackwardScratch& m) {
  const std::int64_t first = tile * kAttentionTile, size = s.headSize, padded = alignUp(size, kAttentionPad);
  const std::int64_t rows = std::min(kAttentionTile, s.sequence - first);
  const float scale = 1.f / std::sqrt(static_cast<float>(size));
  loadTile(s, first, rows, scale, q, o, gO, m);

  for (std::int64_t j = 0; j <= tile; ++j) {
    const std::int64_t key = j * kAttentionTile, columns = std::min(kAttentionTile, s.sequence - key);
    const bool diagonal = j == tile;
    const Triangle result = diagonal ? Triangle::result : Triangle::none;
    const Triangle left = diagonal ? Triangle::left : Triangle::none;
    const Triangle transposed = diagonal ? Triangle::leftTransposed : Triangle::none;
    gemmPacked(rows, columns, size, m.query, size, 1, m.packedKT + key * size, m.p, kAttentionTile, false, result);
    gemmPacked(rows, columns, size, m.gO, size, 1, m.packedVT + key * size, m.gP, kAttentionTile, false, result);
    softmaxGradient(rows, columns, diagonal, logSumExp + first, m);
    gemmPacked(columns, size, rows, m.p, 1, kAttentionTile, m.packedGO, m.gV + key * size, size, true, transposed);
    gemmPacked(columns, size, rows, m.gP, 1, kAttentionTile, m.packedQuery, m.gK + key * size, size, true,
               transposed);
    gemmPacked(rows, size, columns, m.gP, kAttentionTile, 1, m.packedK + key * padded, m.gQ, size, j > 0, left);
  }

  const Vec factor = broadcast(scale);
  for (std::int64_t r = 0; r < rows; ++r) {
    T* const target = gQ + (first + r) * s.queryStride;
    forVectors(size, [&](std::int64_t i, std::int64_t count) {
      storeUpTo(target + i, loadUpTo(m.gQ + r * size + i, count) * factor, count);
    });
  }
}

struct BackwardViews {
  ConstView q, k, v, o, gO;
  const float* logSumExp;
  View gQ, gK, gV;
};

/// One key/value head of one sequence and all query heads that read it, in order.
template <typename T>
void backwardHead(const AttentionShape& s, std::int64_t batch, std::int64_t kvHead, const BackwardViews& t,
                  const BackwardScratch& m) {
  const std::int64_t size = s.headSize, group = s.heads / s.kvHeads, row = batch * s.sequence;
  const std::int64_t kAt = row * s.keyStride + kvHead * size, vAt = row * s.valueStride + kvHead * size;
  for (std::int64_t j = 0; j < attentionTiles(s.sequence); ++j) {
    const std::int64_t first = j * kAttentionTile, columns = std::min(kAttentionTile, s.sequence - first);
    const ConstView k = t.k.offset(kAt + first * s.keyStride), v = t.v.offset(vAt + first * s.valueStride);
    packSlivers(k, 1, s.keyStride, size, columns, m.packedKT + first * size);
    packSlivers(v, 1, s.valueStride, size, columns, m.packedVT + first * size);
    packSlivers(k, s.keyStride, 1, columns, size, m.packedK + first * alignUp(size, kAttentionPad));
  }
  std::fill_n(m.gK, s.sequence * size, 0.f);
  std::fill_n(m.gV, s.sequence * size, 0.f);
  for (std::int64_t head = kvHead * group; head < (kvHead + 1) * group; ++head) {
    const std::int64_t qAt = row * s.queryStride + head * size, oAt = row * s.outputStride + head * size;
    for (std::int64_t tile = 0; tile < attentionTiles(s.sequence); ++tile) {
      backwardTile<T>(s, tile, t.q.as<T>() + qAt, t.o.as<T>() + oAt, t.gO.as<T>() + oAt, t.gQ.as<T>() + qAt,
                      t.logSumExp + (batch * s.heads + head) * s.sequence, m);
    }
  }
  for (std::int64_t position = 0; position < s.sequence; ++position) {
    T* const gK = t.gK.as<T>() + kAt + position * s.keyStride;
    T* const gV = t.gV.as<T>() + vAt + position * s.valueStride;
    forVectors(size, [&](std::int64_t i, std::int64_t count) {
      storeUpTo(gK + i, loadUpTo(m.gK + position * size + i, count), count);
      storeUpTo(gV + i, loadUpTo(m.gV + position * size + i, count), count);
    });
  }
}

}  // namespace

Status CpuBackend::attentionBackward(const AttentionShape& given, ConstView q, ConstView k, ConstView v, ConstView o,
                                     ConstView logSumExp, ConstView gO, View gQ, View gK, View gV,
                                     Workspace workspace) {
  constexpr const char* kCall = "attentionBackward";
  AttentionShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepareAttention(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(
      kCall, {{"q", q}, {"k", k}, {"v", v}, {"o", o}, {"gO", gO}, {"gQ", gQ}, {"gK", gK}, {"gV", gV}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"logSumExp", logSumExp}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, attentionWorkspaceBytes(s)));
  const BackwardViews views{q, k, v, o, gO, logSumExp.as<float>(), gQ, gK, gV};
  const std::int64_t perThread = attentionBackwardElements(s.sequence, s.headSize);
  withElementType(q.type, [&](auto tag) {
    using T = decltype(tag);
    parallelRanges(threads_, s.batch * s.kvHeads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      const BackwardScratch scratch(static_cast<float*>(workspace.data) + thread * perThread, s);
      for (std::int64_t i = begin; i < end; ++i) {
        backwardHead<T>(s, i / s.kvHeads, i % s.kvHeads, views, scratch);
      }
    });
  });
  return Status::success();
}

}  // namespace internevo::cpu
