// RMSNorm. One block a row; the gain's gradient has blocks of columns.
#pragma once

#include "backend/cuda/kernels/pieces.h"
#include "backend/cuda/launch.h"

namespace internevo::cuda {

/// h = x (+ residual), stored in sum where that is not null; y = h / rms(h) · gain. The norm is of h as stored.
template <int N, typename T>
struct NormKernel {
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = kThreads / kWarp * 4;
  std::int64_t rows, width;
  const T* x;
  const T* residual;
  const T* gain;
  float epsilon;
  T* sum;
  T* y;
  float* inverseRms;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto* const scratch = reinterpret_cast<float*>(t.shared());
    for (std::int64_t row = t.blockX(); row < rows; row += t.gridX()) {
      const std::int64_t at = row * width;
      float squares = 0;
      for (std::int64_t c = t.x() * N; c < width; c += kThreads * N) {
        float h[N];
        input(at + c, h);
        for (int i = 0; i < N; ++i) squares = fmaf(h[i], h[i], squares);
        if (sum != nullptr) storePiece<N>(sum + at + c, h);
      }
      const float scale = 1.f / sqrtf(blockSum(t, squares, scratch) / static_cast<float>(width) + epsilon);
      if (t.x() == 0) inverseRms[row] = scale;
      for (std::int64_t c = t.x() * N; c < width; c += kThreads * N) {
        float h[N], g[N];
        // Every thread reads again only what it wrote: sum may stand where x or residual stood.
        if (sum != nullptr) {
          loadPiece<N>(sum + at + c, h);
        } else {
          input(at + c, h);
        }
        loadPiece<N>(gain + c, g);
        for (int i = 0; i < N; ++i) h[i] = h[i] * scale * g[i];
        storePiece<N>(y + at + c, h);
      }
    }
  }

  INTERNEVO_DEVICE void input(std::int64_t at, float (&h)[N]) const {
    loadPiece<N>(x + at, h);
    if (residual == nullptr) return;
    float r[N];
    loadPiece<N>(residual + at, r);
    for (int i = 0; i < N; ++i) h[i] = roundedTo<T>(h[i] + r[i]);
  }
};

/// gH = r·(gY·gain − h·r²·mean(gY·gain·h)) + gSum, r = inverseRms of the row. gSum may be null, or be gH.
template <int N, typename T>
struct NormGradientKernel {
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = kThreads / kWarp * 4;
  std::int64_t rows, width;
  const T* h;
  const T* gain;
  const float* inverseRms;
  const T* gY;
  const T* gSum;
  T* gH;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto* const scratch = reinterpret_cast<float*>(t.shared());
    for (std::int64_t row = t.blockX(); row < rows; row += t.gridX()) {
      const std::int64_t at = row * width;
      float dot = 0;
      for (std::int64_t c = t.x() * N; c < width; c += kThreads * N) {
        float x[N], g[N], d[N];
        loadPiece<N>(h + at + c, x), loadPiece<N>(gain + c, g), loadPiece<N>(gY + at + c, d);
        for (int i = 0; i < N; ++i) dot = fmaf(d[i] * g[i], x[i], dot);
      }
      const float r = inverseRms[row];
      const float shrink = blockSum(t, dot, scratch) / static_cast<float>(width) * r * r;
      for (std::int64_t c = t.x() * N; c < width; c += kThreads * N) {
        float x[N], g[N], d[N];
        loadPiece<N>(h + at + c, x), loadPiece<N>(gain + c, g), loadPiece<N>(gY + at + c, d);
        for (int i = 0; i < N; ++i) x[i] = r * (d[i] * g[i] - x[i] * shrink);
        if (gSum != nullptr) {
          loadPiece<N>(gSum + at + c, g);
          for (int i = 0; i < N; ++i) x[i] += g[i];
        }
        storePiece<N>(gH + at + c, x);
      }
    }
  }
};

/// gGain[width] += Σ over rows of gY · h · r. Thread (lane, part) sums rows part, part + kParts, … of its column; the parts are
/// added in order, so the bits depend on the rows only.
template <typename T>
struct GainGradientKernel {
  static constexpr int kColumns = 32, kParts = 16, kThreads = kColumns * kParts;
  static constexpr int kSharedBytes = kThreads * 4;
  std::int64_t rows, width;
  const T* h;
  const float* inverseRms;
  const T* gY;
  float* gGain;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto* const sums = reinterpret_cast<float*>(t.shared());
    const int lane = t.x() % kColumns, part = t.x() / kColumns;
    const std::int64_t column = t.blockX() * kColumns + lane;
    float sum = 0;
    for (std::int64_t row = part; row < rows && column < width; row += kParts) {
      sum = fmaf(toFloat(gY[row * width + column]), toFloat(h[row * width + column]) * inverseRms[row], sum);
    }
    sums[t.x()] = sum;
    t.sync();
    if (part != 0 || column >= width) return;
    float total = sums[lane];
    for (int i = 1; i < kParts; ++i) total += sums[i * kColumns + lane];
    gGain[column] += total;
  }
};

}  // namespace internevo::cuda
