#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/attention.h"
#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"

namespace internevo::cpu {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct ForwardScratch {
  float *packedK, *packedV, *scores, *query, *output, *largest, *total;

  ForwardScratch(float* base, const AttentionShape& s) {
    const std::int64_t rows = attentionTiles(s.sequence) * kAttentionTile;
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

/// One row of scores[0, valid) -> exp(score − running maximum), zeros up to `columns`; rescales the row's state.
void softmaxRow(std::int64_t valid, std::int64_t columns, std::int64_t headSize, float* scores, float* largest,
                float* total, float* output) {
  const std::int64_t padded = alignUp(valid, Vec::width);
  std::fill(scores + valid, scores + padded, kMinusInfinity);
  std::fill(scores + padded, scores + std::max(padded, columns), 0.f);
  Vec top = load(scores);
  for (std::int64_t c = Vec::width; c < padded; c += Vec::width) top = max(top, load(scores + c));
  const float newLargest = std::max(*largest, maxOf(top));
  const Vec shift = broadcast(newLargest);
  Vec sum = broadcast(0.f);
  for (std::int64_t c = 0; c < padded; c += Vec::width) {
    const Vec e = exponential(load(scores + c) - shift);
    store(scores + c, e);
    sum = sum + e;
  }
  if (newLargest != *largest) {
    const float correction = std::exp(*largest - newLargest);  // 0 for the first tile
    *total *= correction;
    const Vec factor = broadcast(correction);
    forVectors(headSize, [&](std::int64_t i, std::int64_t count) {
      storeUpTo(output + i, loadUpTo(output + i, count) * factor, count);
    });
    *largest = newLargest;
  }
  *total += sumOf(sum);
}

/// Queries [tile·kAttentionTile, …) of one head. q, o: first row of the sequence at this head.
template <typename T>
void forwardTile(const AttentionShape& s, std::int64_t tile, const T* q, T* o, float* logSumExp,
                 const ForwardScratch& m) {
  const std::int64_t first = tile * kAttentionTile, size = s.headSize;
  const std::int64_t rows = std::min(kAttentionTile, s.sequence - first);
  const Vec scale = broadcast(1.f / std::sqrt(static_cast<float>(size)));
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* const source = q + (first + r) * s.queryStride;
    forVectors(size, [&](std::int64_t i, std::int64_t count) {
      storeUpTo(m.query + r * size + i, loadUpTo(source + i, count) * scale, count);
    });
    m.largest[r] = kMinusInfinity;
    m.total[r] = 0.f;
  }
  std::fill_n(m.output, rows * size, 0.f);

  for (std::int64_t j = 0; j <= tile; ++j) {
    const std::int64_t columns = std::min(kAttentionTile, s.sequence - j * kAttentionTile);
    const bool diagonal = j == tile;
    gemmPacked(rows, columns, size, m.query, size, 1, m.packedK + j * kAttentionTile * size, m.scores,
               kAttentionTile, false, diagonal ? Triangle::result : Triangle::none);
    for (std::int64_t r = 0; r < rows; ++r) {
      softmaxRow(diagonal ? r + 1 : columns, columns, size, m.scores + r * kAttentionTile, m.largest + r,
                 m.total + r, m.output + r * size);
    }
    gemmPacked(rows, size, columns, m.scores, kAttentionTile, 1,
               m.packedV + j * kAttentionTile * alignUp(size, kAttentionPad), m.output, size, true,
               diagonal ? Triangle::left : Triangle::none);
  }

  for (std::int64_t r = 0; r < rows; ++r) {
    const Vec inverse = broadcast(1.f / m.total[r]);
    T* const target = o + (first + r) * s.outputStride;
    forVectors(size, [&](std::int64_t i, std::int64_t count) {
      storeUpTo(target + i, loadUpTo(m.output + r * size + i, count) * inverse, count);
    });
    logSumExp[first + r] = m.largest[r] + std::log(m.total[r]);
  }
}

/// All query heads that read one key/value head of one sequence.
template <typename T>
void forwardHead(const AttentionShape& s, std::int64_t batch, std::int64_t kvHead, const T* q, ConstView k,
                 ConstView v, T* o, float* logSumExp, const ForwardScratch& m) {
  const std::int64_t size = s.headSize, group = s.heads / s.kvHeads, row = batch * s.sequence;
  for (std::int64_t j = 0; j < attentionTiles(s.sequence); ++j) {
    const std::int64_t first = j * kAttentionTile, columns = std::min(kAttentionTile, s.sequence - first);
    packSlivers(k.offset((row + first) * s.keyStride + kvHead * size), 1, s.keyStride, size, columns,
                m.packedK + first * size);
    packSlivers(v.offset((row + first) * s.valueStride + kvHead * size), s.valueStride, 1, columns, size,
                m.packedV + first * alignUp(size, kAttentionPad));
  }
  for (std::int64_t head = kvHead * group; head < (kvHead + 1) * group; ++head) {
    for (std::int64_t tile = 0; tile < attentionTiles(s.sequence); ++tile) {
      forwardTile(s, tile, q + row * s.queryStride + head * size, o + row * s.outputStride + head * size,
                  logSumExp + (batch * s.heads + head) * s.sequence, m);
    }
  }
}

}  // namespace

Status prepareAttention(const char* call, AttentionShape* s) {
  INTERNEVO_RETURN_IF_ERROR(requirePositive(call, {{"batch", s->batch},
                                                   {"sequence", s->sequence},
                                                   {"heads", s->heads},
                                                   {"kvHeads", s->kvHeads},
                                                   {"headSize", s->headSize}}));
  if (s->heads % s->kvHeads != 0) {
    return badArgument(call, "heads",
                       "is " + std::to_string(s->heads) + "; must be a multiple of kvHeads " +
                           std::to_string(s->kvHeads));
  }
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "queryStride", s->heads * s->headSize, &s->queryStride));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "keyStride", s->kvHeads * s->headSize, &s->keyStride));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "valueStride", s->kvHeads * s->headSize, &s->valueStride));
  return resolveStride(call, "outputStride", s->heads * s->headSize, &s->outputStride);
}

std::int64_t CpuBackend::attentionWorkspaceBytes(const AttentionShape& s) const {
  return 4 * threads_ *
         std::max(attentionForwardElements(s.sequence, s.headSize),
                  attentionBackwardElements(s.sequence, s.headSize));
}

Status CpuBackend::attentionForward(const AttentionShape& given, ConstView q, ConstView k, ConstView v, View o,
                                    View logSumExp, Workspace workspace) {
  constexpr const char* kCall = "attentionForward";
  AttentionShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepareAttention(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"q", q}, {"k", k}, {"v", v}, {"o", o}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"logSumExp", logSumExp}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, attentionWorkspaceBytes(s)));
  const std::int64_t perThread = attentionForwardElements(s.sequence, s.headSize);
  withElementType(q.type, [&](auto tag) {
    using T = decltype(tag);
    parallelRanges(threads_, s.batch * s.kvHeads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      const ForwardScratch scratch(static_cast<float*>(workspace.data) + thread * perThread, s);
      for (std::int64_t i = begin; i < end; ++i) {
        forwardHead(s, i / s.kvHeads, i % s.kvHeads, q.as<T>(), k, v, o.as<T>(), logSumExp.as<float>(), scratch);
      }
    });
  });
  return Status::success();
}

}  // namespace internevo::cpu
