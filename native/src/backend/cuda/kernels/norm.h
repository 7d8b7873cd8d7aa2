// RMSNorm. One block a row.
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

/// gH = r·(gY·gain − h·r²·mean(gY·gain·h)) + gSum, r = inverseRms of the row. gSum may be null, or be gH. On its way a block
/// sums gY · h · r, of its rows block, block + blocks, …, for the gradient of the gain: what it read is still near.
template <int N, typename T>
struct NormGradientKernel {
  static constexpr int kThreads = 256;
  static constexpr int kReduceBytes = kThreads / kWarp * 4;
  static constexpr std::int64_t kWidest =
      24 << 10;  ///< of sums in shared memory, which wider rows have in `parts` itself
  std::int64_t rows, width;
  const T* h;
  const T* gain;
  const float* inverseRms;
  const T* gY;
  const T* gSum;
  T* gH;
  float* parts;  ///< [blocks, width]

  static constexpr int sharedBytes(std::int64_t width) {
    return kReduceBytes + static_cast<int>(width <= kWidest ? 4 * width : 0);
  }

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto* const scratch = reinterpret_cast<float*>(t.shared());
    float* const own = parts + t.blockX() * width;
    float* const sums = width <= kWidest ? scratch + kReduceBytes / 4 : own;
    // Every thread touches only the sums of its own columns.
    for (std::int64_t c = t.x() * N; c < width; c += kThreads * N) storePiece<N>(sums + c, {});
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
        float x[N], g[N], d[N], sum[N];
        loadPiece<N>(h + at + c, x), loadPiece<N>(gain + c, g), loadPiece<N>(gY + at + c, d);
        loadPiece<N>(sums + c, sum);
        for (int i = 0; i < N; ++i) {
          sum[i] = fmaf(d[i], x[i] * r, sum[i]);
          x[i] = r * (d[i] * g[i] - x[i] * shrink);
        }
        storePiece<N>(sums + c, sum);
        if (gSum != nullptr) {
          loadPiece<N>(gSum + at + c, g);
          for (int i = 0; i < N; ++i) x[i] += g[i];
        }
        storePiece<N>(gH + at + c, x);
      }
    }
    if (sums == own) return;
    for (std::int64_t c = t.x() * N; c < width; c += kThreads * N) {
      float sum[N];
      loadPiece<N>(sums + c, sum);
      storePiece<N>(own + c, sum);
    }
  }
};

/// Where the heads of a matrix stand. A warp takes a head of a row at a time, a lane N neighbours of it.
struct HeadPlaces {
  std::int64_t items, heads, headSize, inputStride, outputStride;

  INTERNEVO_BOTH std::int64_t input(std::int64_t item) const { return at(item, inputStride); }
  INTERNEVO_BOTH std::int64_t output(std::int64_t item) const { return at(item, outputStride); }
  INTERNEVO_BOTH std::int64_t at(std::int64_t item, std::int64_t stride) const {
    const std::int64_t row = item / heads;
    return row * stride + (item - row * heads) * headSize;
  }
};
/// Of a head that a GPU normalises: so that the sums of a block's warps go into its shared memory.
constexpr std::int64_t kLargestNormedHead = 1024;

/// y = x / rms(x) · gain of every head. y may be x: a lane reads again only what it will write.
template <int N, typename T>
struct HeadNormKernel {
  static constexpr int kThreads = 128, kWarps = kThreads / kWarp;
  HeadPlaces s;
  const T* x;
  const T* gain;
  float epsilon;
  T* y;
  float* inverseRms;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const int lane = t.x() % kWarp;
    for (std::int64_t item = t.blockX() * kWarps + t.x() / kWarp; item < s.items;
         item += t.gridX() * kWarps) {
      const T* const source = x + s.input(item);
      T* const target = y + s.output(item);
      float squares = 0;
      for (std::int64_t c = lane * N; c < s.headSize; c += kWarp * N) {
        float h[N];
        loadPiece<N>(source + c, h);
        for (int i = 0; i < N; ++i) squares = fmaf(h[i], h[i], squares);
      }
      const float scale = 1.f / sqrtf(warpSum(t, squares) / static_cast<float>(s.headSize) + epsilon);
      if (lane == 0) inverseRms[item] = scale;
      for (std::int64_t c = lane * N; c < s.headSize; c += kWarp * N) {
        float h[N], g[N];
        loadPiece<N>(source + c, h), loadPiece<N>(gain + c, g);
        for (int i = 0; i < N; ++i) h[i] = h[i] * scale * g[i];
        storePiece<N>(target + c, h);
      }
    }
  }
};

/// gX = r·(gY·gain − x·r²·mean(gY·gain·x)) of every head; gX may be gY. A block's warps sum gY · x · r on the way.
template <int N, typename T>
struct HeadNormGradientKernel {
  static constexpr int kThreads = 128, kWarps = kThreads / kWarp;
  HeadPlaces s;
  const T* x;
  const T* gain;
  const float* inverseRms;
  const T* gY;
  T* gX;
  float* parts;  ///< [blocks, headSize]

  static constexpr int sharedBytes(std::int64_t headSize) { return static_cast<int>(4 * kWarps * headSize); }

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto* const all = reinterpret_cast<float*>(t.shared());
    const int lane = t.x() % kWarp, warp = t.x() / kWarp;
    float* const sums = all + warp * s.headSize;
    // Every lane touches only the sums of its own columns.
    for (std::int64_t c = lane * N; c < s.headSize; c += kWarp * N) storePiece<N>(sums + c, {});
    for (std::int64_t item = t.blockX() * kWarps + warp; item < s.items; item += t.gridX() * kWarps) {
      const T* const source = x + s.input(item);
      const std::int64_t at = s.output(item);
      float dot = 0;
      for (std::int64_t c = lane * N; c < s.headSize; c += kWarp * N) {
        float h[N], g[N], d[N];
        loadPiece<N>(source + c, h), loadPiece<N>(gain + c, g), loadPiece<N>(gY + at + c, d);
        for (int i = 0; i < N; ++i) dot = fmaf(d[i] * g[i], h[i], dot);
      }
      const float r = inverseRms[item];
      const float shrink = warpSum(t, dot) / static_cast<float>(s.headSize) * r * r;
      for (std::int64_t c = lane * N; c < s.headSize; c += kWarp * N) {
        float h[N], g[N], d[N], sum[N];
        loadPiece<N>(source + c, h), loadPiece<N>(gain + c, g), loadPiece<N>(gY + at + c, d);
        loadPiece<N>(sums + c, sum);
        for (int i = 0; i < N; ++i) {
          sum[i] = fmaf(d[i], h[i] * r, sum[i]);
          h[i] = r * (d[i] * g[i] - h[i] * shrink);
        }
        storePiece<N>(sums + c, sum), storePiece<N>(gX + at + c, h);
      }
    }
    t.sync();
    for (std::int64_t c = t.x(); c < s.headSize; c += kThreads) {
      float total = all[c];
      for (int i = 1; i < kWarps; ++i) total += all[i * s.headSize + c];
      parts[t.blockX() * s.headSize + c] = total;
    }
  }
};

/// parts[part][column] = Σ of gY over the rows part, part + count, …. Blocks are [columns, parts]; a thread has N columns.
template <int N, typename T>
struct ColumnSumsKernel {
  static constexpr int kThreads = 128;
  std::int64_t rows, width, stride, count;
  const T* gY;
  float* parts;  ///< [count, width]

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const std::int64_t column = (t.blockX() * kThreads + t.x()) * N, part = t.blockY();
    if (column >= width) return;
    float sums[N] = {};
    for (std::int64_t row = part; row < rows; row += count) {
      float values[N];
      loadPiece<N>(gY + row * stride + column, values);
      for (int i = 0; i < N; ++i) sums[i] += values[i];
    }
    storePiece<N>(parts + part * width + column, sums);
  }
};

/// gGain[width] += Σ over parts. Thread (lane, turn) adds parts turn, turn + kTurns, … of its column; those sums are added in order,
/// so the bits depend on the shape only. What gGain held is added last, and the result is rounded once to its type G.
template <typename G>
struct GainGradientKernel {
  static constexpr int kColumns = 32, kTurns = 16, kThreads = kColumns * kTurns;
  static constexpr int kSharedBytes = kThreads * 4;
  std::int64_t count, width;
  const float* parts;  ///< [count, width]
  G* gGain;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto* const sums = reinterpret_cast<float*>(t.shared());
    const int lane = t.x() % kColumns, turn = t.x() / kColumns;
    const std::int64_t column = t.blockX() * kColumns + lane;
    float sum = 0;
    for (std::int64_t part = turn; part < count && column < width; part += kTurns)
      sum += parts[part * width + column];
    sums[t.x()] = sum;
    t.sync();
    if (turn != 0 || column >= width) return;
    float total = sums[lane];
    for (int i = 1; i < kTurns; ++i) total += sums[i * kColumns + lane];
    storeFloat(gGain + column, toFloat(gGain[column]) + total);
  }
};

}  // namespace internevo::cuda
