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

constexpr const char* kCall = "headLoss";

std::int64_t logitsBytes(const HeadLossShape& s) {
  return alignUp(std::min(s.chunkRows, s.rows) * s.vocabulary * 4, kAlignmentBytes);
}

/// Loss of one row; turns its logits into gradientScale · (softmax − onehot) in place when asked to.
template <typename T>
double lossOfRow(std::int64_t vocabulary, std::int32_t target, float gradientScale, bool wantGradient,
                 float* logits) {
  Vec largest = broadcast(-std::numeric_limits<float>::infinity());
  forVectors(vocabulary, [&](std::int64_t i, std::int64_t count) {
    largest = max(largest, loadUpTo(logits + i, count, -std::numeric_limits<float>::infinity()));
  });
  const float top = maxOf(largest), targetLogit = logits[target];
  // exp is needed again for the gradient: kept in place of the logits.
  Vec partial = broadcast(0.f);
  double total = 0;
  int held = 0;
  forVectors(vocabulary, [&](std::int64_t i, std::int64_t count) {
    const Vec e =
        exponential(loadUpTo(logits + i, count, -std::numeric_limits<float>::infinity()) - broadcast(top));
    if (wantGradient) storeUpTo(logits + i, e, count);
    partial = partial + e;
    if (++held == 64) {  // float32 partial sums stay short for large vocabularies
      total += static_cast<double>(sumOf(partial));
      partial = broadcast(0.f);
      held = 0;
    }
  });
  total += static_cast<double>(sumOf(partial));
  if (wantGradient) {
    gradientOfRow<T>(vocabulary, target, gradientScale,
                     static_cast<float>(static_cast<double>(gradientScale) / total), logits);
  }
  return std::log(total) + static_cast<double>(top) - static_cast<double>(targetLogit);
}

/// Losses of `rows` rows and, where `wantGradient`, their gradients over their logits, each row's at the beginning of its own.
template <typename T>
void lossOfRows(std::int64_t rows, std::int64_t vocabulary, const std::int32_t* targets, float gradientScale,
                bool wantGradient, int threads, float* logits, ExactSum* lossSum) {
  parallelRanges(threads, rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    ExactSum part;
    for (std::int64_t row = begin; row < end; ++row) {
      float* const rowLogits = logits + row * vocabulary;
      if (targets[row] >= 0) {
        part.add(lossOfRow<T>(vocabulary, targets[row], gradientScale, wantGradient, rowLogits));
      } else if (wantGradient) {
        zeroGradientOfRow<T>(vocabulary, rowLogits);
      }
    }
#pragma omp critical(internevo_loss_sum)
    lossSum->add(part);
  });
}

Status check(const HeadLossShape& s, ConstView x, ConstView w, ConstView targets, ExactSum* lossSum, View gX,
             View gW) {
  INTERNEVO_RETURN_IF_ERROR(requirePositive(
      kCall,
      {{"rows", s.rows}, {"width", s.width}, {"vocabulary", s.vocabulary}, {"chunkRows", s.chunkRows}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"x", x}, {"w", w}}));
  INTERNEVO_RETURN_IF_ERROR(requireType(kCall, DataType::int32, "int32", {{"targets", targets}}));
  if (lossSum == nullptr) return badArgument(kCall, "lossSum", "is missing");
  if (!gX.empty()) {
    INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gX", gX}, {"gW", gW}}));
  }
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const std::int32_t target = targets.as<std::int32_t>()[row];
    if (target < -1 || target >= s.vocabulary) {
      return {StatusCode::dataError,
              std::string(kCall) + ": targets[" + std::to_string(row) + "] is " + std::to_string(target) +
                  "; must be -1 or inside the vocabulary of " + std::to_string(s.vocabulary)};
    }
  }
  return Status::success();
}

}  // namespace

std::int64_t CpuBackend::headLossWorkspaceBytes(const HeadLossShape& s) const {
  return logitsBytes(s) + linearWorkspaceBytes();
}

Status CpuBackend::headLoss(const HeadLossShape& s, ConstView x, ConstView w, ConstView targets,
                            float gradientScale, ExactSum* lossSum, View gX, View gW, Workspace workspace) {
  INTERNEVO_RETURN_IF_ERROR(check(s, x, w, targets, lossSum, gX, gW));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, headLossWorkspaceBytes(s)));
  float* const logits = static_cast<float*>(workspace.data);
  const View logitsView{logits, DataType::float32};
  void* const scratch = static_cast<std::byte*>(workspace.data) + logitsBytes(s);
  const bool wantGradient = !gX.empty();
  const std::int64_t width = s.width, vocabulary = s.vocabulary;

  for (std::int64_t first = 0; first < s.rows; first += s.chunkRows) {
    const std::int64_t rows = std::min(s.chunkRows, s.rows - first);
    const ConstView chunk = x.offset(first * width);
    gemm({rows, vocabulary, width, chunk, width, 1, w, 1, width, logitsView, vocabulary, false}, threads_,
         scratch);
    const std::int32_t* const own = targets.as<std::int32_t>() + first;
    const DataType type = headGradientType(x, w);
    if (type == DataType::bfloat16) {
      lossOfRows<Bfloat16>(rows, vocabulary, own, gradientScale, wantGradient, threads_, logits, lossSum);
    } else {
      lossOfRows<float>(rows, vocabulary, own, gradientScale, wantGradient, threads_, logits, lossSum);
    }
    if (wantGradient) {
      headGradients(rows, width, vocabulary, chunk, w, {logits, type}, gX.offset(first * width), gW, threads_,
                    scratch);
    }
  }
  return Status::success();
}

}  // namespace internevo::cpu
