// Head and loss with the vocabulary split over ranks: the two halves around the exchange of the rows' statistics.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/head_gradients.h"
#include "backend/cpu/parallel.h"

namespace internevo::cpu {

namespace {

/// Turns a row of logits into exp(logit − largest); target −1: in another slice, or not counted.
void exponentiate(std::int64_t vocabulary, std::int64_t target, float* logits, double* statistics) {
  Vec largest = broadcast(-std::numeric_limits<float>::infinity());
  forVectors(vocabulary, [&](std::int64_t i, std::int64_t count) {
    largest = max(largest, loadUpTo(logits + i, count, -std::numeric_limits<float>::infinity()));
  });
  const float top = maxOf(largest);
  statistics[0] = static_cast<double>(top);
  statistics[2] = target < 0 ? 0.0 : static_cast<double>(logits[target]);
  Vec partial = broadcast(0.f);
  double total = 0;
  int held = 0;
  forVectors(vocabulary, [&](std::int64_t i, std::int64_t count) {
    const Vec e =
        exponential(loadUpTo(logits + i, count, -std::numeric_limits<float>::infinity()) - broadcast(top));
    storeUpTo(logits + i, e, count);
    partial = partial + e;
    if (++held == 64) {  // float32 partial sums stay short for large vocabularies
      total += static_cast<double>(sumOf(partial));
      partial = broadcast(0.f);
      held = 0;
    }
  });
  statistics[1] = total + static_cast<double>(sumOf(partial));
}

Status check(const char* call, const HeadSliceShape& s, ConstView x, ConstView w, ConstView targets,
             ConstView logits, ConstView statistics) {
  INTERNEVO_RETURN_IF_ERROR(requirePositive(call, {{"rows", s.rows},
                                                   {"width", s.width},
                                                   {"vocabulary", s.vocabulary},
                                                   {"wholeVocabulary", s.wholeVocabulary}}));
  if (s.first < 0 || s.first + s.vocabulary > s.wholeVocabulary) {
    return badArgument(call, "first",
                       "is " + std::to_string(s.first) + "; the slice must be inside the vocabulary of " +
                           std::to_string(s.wholeVocabulary));
  }
  INTERNEVO_RETURN_IF_ERROR(requireFloats(call, {{"x", x}, {"w", w}}));
  INTERNEVO_RETURN_IF_ERROR(requireType(call, DataType::int32, "int32", {{"targets", targets}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(call, {{"logits", logits}}));
  INTERNEVO_RETURN_IF_ERROR(requireType(call, DataType::float64, "float64", {{"statistics", statistics}}));
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const std::int32_t target = targets.as<std::int32_t>()[row];
    if (target < -1 || target >= s.wholeVocabulary) {
      return {StatusCode::dataError,
              std::string(call) + ": targets[" + std::to_string(row) + "] is " + std::to_string(target) +
                  "; must be -1 or inside the vocabulary of " + std::to_string(s.wholeVocabulary)};
    }
  }
  return Status::success();
}

/// The row's target inside this slice, or −1.
std::int64_t ownTarget(const HeadSliceShape& s, std::int32_t target) {
  return target >= s.first && target < s.first + s.vocabulary ? target - s.first : -1;
}

}  // namespace

Status CpuBackend::headSliceForward(const HeadSliceShape& s, ConstView x, ConstView w, ConstView targets,
                                    View logits, View statistics, Workspace workspace) {
  constexpr const char* kCall = "headSliceForward";
  INTERNEVO_RETURN_IF_ERROR(check(kCall, s, x, w, targets, logits, statistics));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, linearWorkspaceBytes()));
  gemm({s.rows, s.vocabulary, s.width, x, s.width, 1, w, 1, s.width, logits, s.vocabulary, false}, threads_,
       workspace.data);
  parallelRanges(threads_, s.rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      exponentiate(s.vocabulary, ownTarget(s, targets.as<std::int32_t>()[row]),
                   logits.as<float>() + row * s.vocabulary, statistics.as<double>() + row * kHeadStatistics);
    }
  });
  return Status::success();
}

Status CpuBackend::headSliceBackward(const HeadSliceShape& s, int slices, int own, ConstView x, ConstView w,
                                     ConstView targets, ConstView statistics, float gradientScale,
                                     ExactSum* lossSum, View logits, View gX, View gW, Workspace workspace) {
  constexpr const char* kCall = "headSliceBackward";
  INTERNEVO_RETURN_IF_ERROR(check(kCall, s, x, w, targets, logits, statistics));
  const bool wantGradient = !gX.empty();
  if (wantGradient) {
    INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gX", gX}, {"gW", gW}}));
  }
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, linearWorkspaceBytes()));
  if (own < 0 || own >= slices)
    return badArgument(kCall, "own", "is " + std::to_string(own) + "; must be a slice");
  const DataType type = headGradientType(x, w);
  const bool narrow = type == DataType::bfloat16;
  parallelRanges(threads_, s.rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    ExactSum part;
    for (std::int64_t row = begin; row < end; ++row) {
      float* const rowLogits = logits.as<float>() + row * s.vocabulary;
      const std::int32_t target = targets.as<std::int32_t>()[row];
      if (target < 0) {
        if (!wantGradient) continue;
        narrow ? zeroGradientOfRow<Bfloat16>(s.vocabulary, rowLogits)
               : zeroGradientOfRow<float>(s.vocabulary, rowLogits);
        continue;
      }
      const auto of = [&](int slice, int which) {
        return statistics.as<double>()[(slice * s.rows + row) * kHeadStatistics + which];
      };
      double top = of(0, 0), total = 0, targetLogit = 0;
      for (int slice = 1; slice < slices; ++slice) top = std::max(top, of(slice, 0));
      for (int slice = 0; slice < slices; ++slice) {
        total += of(slice, 1) * std::exp(of(slice, 0) - top);
        targetLogit += of(slice, 2);
      }
      part.add(std::log(total) + top - targetLogit);
      if (!wantGradient) continue;
      const float scale =
          static_cast<float>(static_cast<double>(gradientScale) * std::exp(of(own, 0) - top) / total);
      const std::int64_t place = ownTarget(s, target);
      narrow ? gradientOfRow<Bfloat16>(s.vocabulary, place, gradientScale, scale, rowLogits)
             : gradientOfRow<float>(s.vocabulary, place, gradientScale, scale, rowLogits);
    }
    if (lossSum == nullptr) return;
#pragma omp critical(internevo_loss_sum)
    lossSum->add(part);
  });
  if (wantGradient)
    headGradients(s.rows, s.width, s.vocabulary, x, w, {logits.data, type}, gX, gW, threads_, workspace.data);
  return Status::success();
}

}  // namespace internevo::cpu
