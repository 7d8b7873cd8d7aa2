// Kernels that take every element, or pair of elements, for itself.
#pragma once

#include "backend/cuda/kernels/pieces.h"

namespace internevo::cuda {

/// y = a + b.
template <int N, typename T>
struct AddKernel {
  static constexpr int kThreads = 256;
  std::int64_t pieces;
  const T* a;
  const T* b;
  T* y;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    for (std::int64_t p = t.blockX() * kThreads + t.x(); p < pieces; p += t.gridX() * kThreads) {
      float left[N], right[N];
      loadPiece<N>(a + p * N, left), loadPiece<N>(b + p * N, right);
      for (int i = 0; i < N; ++i) left[i] += right[i];
      storePiece<N>(y + p * N, left);
    }
  }
};

/// target (+)= source.
template <int N, typename From, typename To, bool kAdd>
struct ConvertKernel {
  static constexpr int kThreads = 256;
  std::int64_t pieces;
  const From* source;
  To* target;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    for (std::int64_t p = t.blockX() * kThreads + t.x(); p < pieces; p += t.gridX() * kThreads) {
      float values[N];
      loadPiece<N>(source + p * N, values);
      if constexpr (kAdd) {
        float before[N];
        loadPiece<N>(target + p * N, before);
        for (int i = 0; i < N; ++i) values[i] = before[i] + values[i];
      }
      storePiece<N>(target + p * N, values);
    }
  }
};

/// target = source, rows of pieces with strides of their own, in elements.
template <int N, typename From, typename To>
struct ConvertRowsKernel {
  static constexpr int kThreads = 256;
  std::int64_t rows, piecesOfRow, sourceStride, targetStride;
  const From* source;
  To* target;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    for (std::int64_t p = t.blockX() * kThreads + t.x(); p < rows * piecesOfRow; p += t.gridX() * kThreads) {
      const std::int64_t row = p / piecesOfRow, at = p % piecesOfRow * N;
      float values[N];
      loadPiece<N>(source + row * sourceStride + at, values);
      storePiece<N>(target + row * targetStride + at, values);
    }
  }
};

INTERNEVO_DEVICE float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

/// y = gate · sigmoid(gate) · up over [rows, width].
template <int N, typename T>
struct SwigluKernel {
  static constexpr int kThreads = 256;
  std::int64_t rows, piecesOfRow, gateStride, outputStride;
  const T* gate;
  const T* up;
  T* y;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    for (std::int64_t p = t.blockX() * kThreads + t.x(); p < rows * piecesOfRow; p += t.gridX() * kThreads) {
      const std::int64_t row = p / piecesOfRow, column = p % piecesOfRow * N;
      float g[N], u[N];
      loadPiece<N>(gate + row * gateStride + column, g), loadPiece<N>(up + row * gateStride + column, u);
      for (int i = 0; i < N; ++i) u[i] = g[i] * sigmoid(g[i]) * u[i];
      storePiece<N>(y + row * outputStride + column, u);
    }
  }
};

template <int N, typename T>
struct SwigluGradientKernel {
  static constexpr int kThreads = 256;
  std::int64_t rows, piecesOfRow, gateStride, outputStride;
  const T* gate;
  const T* up;
  const T* gY;
  T* gGate;
  T* gUp;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    for (std::int64_t p = t.blockX() * kThreads + t.x(); p < rows * piecesOfRow; p += t.gridX() * kThreads) {
      const std::int64_t row = p / piecesOfRow, column = p % piecesOfRow * N, at = row * gateStride + column;
      float g[N], u[N], d[N];
      loadPiece<N>(gate + at, g), loadPiece<N>(up + at, u), loadPiece<N>(gY + row * outputStride + column, d);
      for (int i = 0; i < N; ++i) {
        const float s = sigmoid(g[i]), silu = g[i] * s;
        g[i] = d[i] * u[i] * (s + silu * (1.f - s));
        u[i] = d[i] * silu;
      }
      storePiece<N>(gGate + at, g), storePiece<N>(gUp + at, u);
    }
  }
};

/// Rotates the pairs (i, i + headSize / 2) of x [rows, heads, headSize]; a piece is N pairs. direction −1: back.
template <int N, typename T>
struct RopeKernel {
  static constexpr int kThreads = 256;
  std::int64_t rows, heads, headSize, stride, sequence, positionOffset;
  const std::int32_t* positions;  ///< or null
  const float* cosines;           ///< [positions, headSize / 2]
  const float* sines;
  T* x;
  float direction;
  std::int64_t* errors;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const std::int64_t half = headSize / 2, piecesOfHead = half / N, piecesOfRow = heads * piecesOfHead;
    for (std::int64_t p = t.blockX() * kThreads + t.x(); p < rows * piecesOfRow; p += t.gridX() * kThreads) {
      const std::int64_t row = p / piecesOfRow, head = p % piecesOfRow / piecesOfHead, i = p % piecesOfHead * N;
      const std::int64_t position = positions != nullptr ? positions[row] : positionOffset + row % sequence;
      if (positions != nullptr && (position < 0 || position >= sequence)) {
        t.atomicAdd(errors, 1);
        continue;
      }
      T* const at = x + row * stride + head * headSize + i;
      float a[N], b[N], c[N], s[N];
      loadPiece<N>(at, a), loadPiece<N>(at + half, b);
      loadPiece<N>(cosines + position * half + i, c), loadPiece<N>(sines + position * half + i, s);
      for (int k = 0; k < N; ++k) {
        const float sine = s[k] * direction, first = a[k];
        a[k] = first * c[k] - b[k] * sine;
        b[k] = b[k] * c[k] + first * sine;
      }
      storePiece<N>(at, a), storePiece<N>(at + half, b);
    }
  }
};

}  // namespace internevo::cuda
