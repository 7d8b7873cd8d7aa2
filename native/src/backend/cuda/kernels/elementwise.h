// Kernels that take every element, or pair of elements, for itself.
//
// Where a piece's row and column are found by division, `Index` is the type that this is done in: of 32 bits where all pieces can
// be counted so, as a GPU divides those several times as fast. Addresses are of 64 bits in any case.
#pragma once

#include "backend/cuda/kernels/pieces.h"

namespace internevo::cuda {

template <typename Index>
struct RowPlace {
  Index row, rest;
};
/// One division for both.
template <typename Index>
INTERNEVO_DEVICE RowPlace<Index> rowPlace(Index piece, Index piecesOfRow) {
  const Index row = piece / piecesOfRow;
  return {row, piece - row * piecesOfRow};
}

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
template <int N, typename From, typename To, typename Index>
struct ConvertRowsKernel {
  static constexpr int kThreads = 256;
  Index pieces, piecesOfRow;
  std::int64_t sourceStride, targetStride;
  const From* source;
  To* target;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const auto step = static_cast<Index>(t.gridX() * kThreads);
    for (Index p = static_cast<Index>(t.blockX() * kThreads + t.x()); p < pieces; p += step) {
      const RowPlace<Index> place = rowPlace(p, piecesOfRow);
      const std::int64_t row = place.row, at = std::int64_t{place.rest} * N;
      float values[N];
      loadPiece<N>(source + row * sourceStride + at, values);
      storePiece<N>(target + row * targetStride + at, values);
    }
  }
};

/// y += bias, rows of pieces `stride` elements apart.
template <int N, typename T, typename Index>
struct BiasKernel {
  static constexpr int kThreads = 256;
  Index pieces, piecesOfRow;
  std::int64_t stride;
  const T* bias;
  T* y;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const auto step = static_cast<Index>(t.gridX() * kThreads);
    for (Index p = static_cast<Index>(t.blockX() * kThreads + t.x()); p < pieces; p += step) {
      const RowPlace<Index> place = rowPlace(p, piecesOfRow);
      const std::int64_t row = place.row, column = std::int64_t{place.rest} * N;
      float values[N], b[N];
      loadPiece<N>(y + row * stride + column, values), loadPiece<N>(bias + column, b);
      for (int i = 0; i < N; ++i) values[i] += b[i];
      storePiece<N>(y + row * stride + column, values);
    }
  }
};

INTERNEVO_DEVICE float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

/// y = gate · sigmoid(gate) · up over [rows, width].
template <int N, typename T, typename Index>
struct SwigluKernel {
  static constexpr int kThreads = 256;
  Index pieces, piecesOfRow;
  std::int64_t gateStride, outputStride;
  const T* gate;
  const T* up;
  T* y;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const auto step = static_cast<Index>(t.gridX() * kThreads);
    for (Index p = static_cast<Index>(t.blockX() * kThreads + t.x()); p < pieces; p += step) {
      const RowPlace<Index> place = rowPlace(p, piecesOfRow);
      const std::int64_t row = place.row, column = std::int64_t{place.rest} * N;
      float g[N], u[N];
      loadPiece<N>(gate + row * gateStride + column, g), loadPiece<N>(up + row * gateStride + column, u);
      for (int i = 0; i < N; ++i) u[i] = g[i] * sigmoid(g[i]) * u[i];
      storePiece<N>(y + row * outputStride + column, u);
    }
  }
};

template <int N, typename T, typename Index>
struct SwigluGradientKernel {
  static constexpr int kThreads = 256;
  Index pieces, piecesOfRow;
  std::int64_t gateStride, outputStride;
  const T* gate;
  const T* up;
  const T* gY;
  T* gGate;
  T* gUp;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const auto step = static_cast<Index>(t.gridX() * kThreads);
    for (Index p = static_cast<Index>(t.blockX() * kThreads + t.x()); p < pieces; p += step) {
      const RowPlace<Index> place = rowPlace(p, piecesOfRow);
      const std::int64_t row = place.row, column = std::int64_t{place.rest} * N,
                         at = row * gateStride + column;
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

/// Rotates the pairs (i, i + half) of x [rows, heads, headSize], i < half; a piece is N pairs. direction −1: back.
template <int N, typename T, typename Index>
struct RopeKernel {
  static constexpr int kThreads = 256;
  Index pieces, heads, piecesOfHead, sequence;
  std::int64_t headSize, half, stride, positionOffset;
  const std::int32_t* positions;  ///< or null
  const float* cosines;           ///< [positions, half]
  const float* sines;
  T* x;
  float direction;
  std::int64_t* errors;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    const auto step = static_cast<Index>(t.gridX() * kThreads);
    for (Index p = static_cast<Index>(t.blockX() * kThreads + t.x()); p < pieces; p += step) {
      const RowPlace<Index> ofHead = rowPlace(p, piecesOfHead), ofRow = rowPlace(ofHead.row, heads);
      const std::int64_t row = ofRow.row, head = ofRow.rest, i = std::int64_t{ofHead.rest} * N;
      const std::int64_t position =
          positions != nullptr ? positions[row] : positionOffset + ofRow.row % sequence;
      if (positions != nullptr && (position < 0 || position >= std::int64_t{sequence})) {
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
