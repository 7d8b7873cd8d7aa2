// Cross-entropy over rows of logits, whole or split by vocabulary. One block a row.
#pragma once

#include "backend/cuda/kernels/exact_sum.h"
#include "backend/cuda/kernels/pieces.h"
#include "backend/cuda/launch.h"

namespace internevo::cuda {

constexpr int kLossThreads = 256;
constexpr int kLossSharedBytes = kLossThreads / kWarp * 8;

/// Largest logit of a row, and Σ exp(logit − largest) in float64 out of each thread's float32 sum. With `keep` the
/// exponentials take the logits' place. All threads get both.
template <class Thread>
INTERNEVO_DEVICE double exponentials(Thread& t, std::int64_t vocabulary, float* logits, bool keep,
                                     float* largest) {
  float top = minusInfinity();
  for (std::int64_t i = t.x(); i < vocabulary; i += kLossThreads) top = larger(top, logits[i]);
  *largest = blockMaximum(t, top, reinterpret_cast<float*>(t.shared()));
  float sum = 0;
  for (std::int64_t i = t.x(); i < vocabulary; i += kLossThreads) {
    const float e = expf(logits[i] - *largest);
    if (keep) logits[i] = e;
    sum += e;
  }
  return blockSum(t, static_cast<double>(sum), reinterpret_cast<double*>(t.shared()));
}

/// Turns exponentials of a row into scale · exponential − (1 at the target) · gradientScale, in the type that the products
/// read. bfloat16 takes the first half of the row's own bytes: a group is read by all threads before any of it is written,
/// and what is written lies in front of what is still to be read. scale 0: zeros (a row that is not counted).
template <typename G, class Thread>
INTERNEVO_DEVICE void writeGradient(Thread& t, std::int64_t vocabulary, float* logits, float scale,
                                    std::int64_t target, float gradientScale) {
  constexpr int kEach = 4;
  auto* const result = reinterpret_cast<G*>(logits);
  for (std::int64_t base = 0; base < vocabulary; base += kEach * kLossThreads) {
    float values[kEach];
    for (int k = 0; k < kEach; ++k) {
      const std::int64_t i = base + k * kLossThreads + t.x();
      values[k] = i < vocabulary && scale != 0.f ? logits[i] * scale : 0.f;
      if (i == target) values[k] -= gradientScale;
    }
    t.sync();
    for (int k = 0; k < kEach; ++k) {
      const std::int64_t i = base + k * kLossThreads + t.x();
      if (i < vocabulary) storeFloat(result + i, values[k]);
    }
    // The next group's reads lie behind these writes: base + kEach·kLossThreads floats and more.
  }
}

/// Loss of every counted row to *loss; with kGradient its gradient in the logits' place.
template <typename G, bool kGradient>
struct LossKernel {
  static constexpr int kThreads = kLossThreads;
  std::int64_t rows, vocabulary;
  const std::int32_t* targets;
  float gradientScale;
  float* logits;
  std::int64_t* loss;
  std::int64_t* errors;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    for (std::int64_t row = t.blockX(); row < rows; row += t.gridX()) {
      float* const own = logits + row * vocabulary;
      const std::int64_t target = targets[row];
      if (target < 0 || target >= vocabulary) {
        if (t.x() == 0 && target != -1) t.atomicAdd(errors, 1);
        if (kGradient) writeGradient<G>(t, vocabulary, own, 0.f, -1, 0.f);
        continue;
      }
      const float targetLogit = own[target];
      t.sync();  // the exponentials take its place
      float top = 0;
      const double total = exponentials(t, vocabulary, own, kGradient, &top);
      if (t.x() == 0) {
        SumWords words;
        words.clear();
        words.add(log(total) + static_cast<double>(top) - static_cast<double>(targetLogit));
        words.addTo(t, loss);
      }
      if (!kGradient) continue;
      writeGradient<G>(t, vocabulary, own, static_cast<float>(static_cast<double>(gradientScale) / total),
                       target, gradientScale);
    }
  }
};

/// First half of a split head: logits -> exponentials; statistics [rows, 3].
struct SliceForwardKernel {
  static constexpr int kThreads = kLossThreads;
  std::int64_t rows, vocabulary, first, whole;
  const std::int32_t* targets;
  float* logits;
  double* statistics;
  std::int64_t* errors;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    for (std::int64_t row = t.blockX(); row < rows; row += t.gridX()) {
      float* const own = logits + row * vocabulary;
      const std::int64_t target = targets[row], place = target - first;
      const bool here = target >= 0 && place >= 0 && place < vocabulary;
      const float targetLogit = here ? own[place] : 0.f;
      t.sync();
      float top = 0;
      const double total = exponentials(t, vocabulary, own, true, &top);
      if (t.x() != 0) continue;
      if (target < -1 || target >= whole) t.atomicAdd(errors, 1);
      double* const result = statistics + row * 3;
      result[0] = static_cast<double>(top), result[1] = total, result[2] = static_cast<double>(targetLogit);
    }
  }
};

/// Second half: statistics [slices, rows, 3] of all slices; exponentials -> gradient. loss null: it is counted elsewhere.
template <typename G>
struct SliceBackwardKernel {
  static constexpr int kThreads = kLossThreads;
  std::int64_t rows, vocabulary, first;
  int slices, slice;
  const std::int32_t* targets;
  const double* statistics;
  float gradientScale;
  float* logits;
  std::int64_t* loss;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    for (std::int64_t row = t.blockX(); row < rows; row += t.gridX()) {
      float* const own = logits + row * vocabulary;
      const std::int64_t target = targets[row];
      if (target < 0) {
        writeGradient<G>(t, vocabulary, own, 0.f, -1, 0.f);
        continue;
      }
      double top = of(0, row, 0), total = 0, targetLogit = 0;
      for (int s = 1; s < slices; ++s) top = of(s, row, 0) > top ? of(s, row, 0) : top;
      for (int s = 0; s < slices; ++s) {
        total += of(s, row, 1) * exp(of(s, row, 0) - top);
        targetLogit += of(s, row, 2);
      }
      if (t.x() == 0 && loss != nullptr) {
        SumWords words;
        words.clear();
        words.add(log(total) + top - targetLogit);
        words.addTo(t, loss);
      }
      const double scale = static_cast<double>(gradientScale) * exp(of(slice, row, 0) - top) / total;
      const std::int64_t place = target - first;
      writeGradient<G>(t, vocabulary, own, static_cast<float>(scale),
                       place >= 0 && place < vocabulary ? place : -1, gradientScale);
    }
  }

  INTERNEVO_DEVICE double of(int which, std::int64_t row, int what) const {
    return statistics[(which * rows + row) * 3 + what];
  }
};

}  // namespace internevo::cuda
