// AdamW and the squared norm.
#pragma once

#include "backend/cuda/kernels/exact_sum.h"
#include "backend/cuda/kernels/pieces.h"

namespace internevo::cuda {

/// AdamwSettings, with the corrections of the moments as factors.
struct AdamwFactors {
  float beta1, oneMinusBeta1, beta2, oneMinusBeta2, gradientScale, correction1, correction2, epsilon,
      learningRate, decay;
};

/// weights: float32, of which `parameters` (bfloat16) receive the rounding where they are not null. The gradient is of type G.
template <int N, typename G>
struct AdamwKernel {
  static constexpr int kThreads = 256;
  std::int64_t pieces;
  AdamwFactors f;
  float* weights;
  Bfloat16* parameters;
  const G* gradient;
  float* firstMoment;
  float* secondMoment;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    for (std::int64_t p = t.blockX() * kThreads + t.x(); p < pieces; p += t.gridX() * kThreads) {
      float w[N], g[N], m[N], v[N];
      loadPiece<N>(weights + p * N, w), loadPiece<N>(gradient + p * N, g);
      loadPiece<N>(firstMoment + p * N, m), loadPiece<N>(secondMoment + p * N, v);
      for (int i = 0; i < N; ++i) {
        g[i] *= f.gradientScale;
        m[i] = f.beta1 * m[i] + f.oneMinusBeta1 * g[i];
        v[i] = f.beta2 * v[i] + f.oneMinusBeta2 * (g[i] * g[i]);
        const float step = m[i] * f.correction1 / (sqrtf(v[i] * f.correction2) + f.epsilon);
        w[i] = w[i] - f.learningRate * (step + f.decay * w[i]);
      }
      storePiece<N>(weights + p * N, w), storePiece<N>(firstMoment + p * N, m),
          storePiece<N>(secondMoment + p * N, v);
      if (parameters != nullptr) storePiece<N>(parameters + p * N, w);
    }
  }
};

/// Adds Σ x² to *sum, blocks of 64 elements in float64: thread i of four takes elements i mod 4 of a block, in order; the four
/// are added as (0 + 1) + (2 + 3). The bits are those of the CPU backend.
template <typename T>
struct SquaredNormKernel {
  static constexpr int kThreads = 256, kNormBlock = 64;
  std::int64_t elements;
  const T* x;
  std::int64_t* sum;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const std::int64_t blocks = (elements + kNormBlock - 1) / kNormBlock, each = kThreads / 4;
    SumWords words;
    words.clear();
    // All threads go around equally often: the shuffles below are of whole warps.
    for (std::int64_t first = t.blockX() * each; first < blocks; first += t.gridX() * each) {
      const std::int64_t block = first + t.x() / 4;
      double total = 0;
      for (int i = t.x() % 4; i < kNormBlock; i += 4) {
        const std::int64_t at = block * kNormBlock + i;
        if (at >= elements) break;
        const auto value = static_cast<double>(toFloat(x[at]));
        total += value * value;
      }
      total += t.shuffleXor(total, 1);
      total += t.shuffleXor(total, 2);
      if (t.x() % 4 == 0) words.add(total);
    }
    for (int mask = 4; mask < kWarp; mask *= 2) {
      for (int i = 0; i < kSumWords; ++i) words.words[i] += t.shuffleXor(words.words[i], mask);
    }
    if (t.x() % kWarp == 0) words.addTo(t, sum);
  }
};

}  // namespace internevo::cuda
