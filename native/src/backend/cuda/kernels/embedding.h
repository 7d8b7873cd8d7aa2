// Rows of a table by token, and the sum of gradients of rows that have one token.
#pragma once

#include "backend/cuda/kernels/pieces.h"
#include "backend/cuda/launch.h"

namespace internevo::cuda {

/// Which tokens a table has: [first, first + vocabulary) of [0, whole).
struct TableSlice {
  std::int64_t first, vocabulary, whole;
};

/// y[row] = table[token of the row], zeros where another slice has it. A token outside the whole counts in *errors.
template <int N, typename T>
struct EmbeddingKernel {
  static constexpr int kThreads = 256;
  std::int64_t rows, width;
  TableSlice slice;
  const std::int32_t* tokens;
  const T* table;
  T* y;
  std::int64_t* errors;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    for (std::int64_t row = t.blockX(); row < rows; row += t.gridX()) {
      const std::int64_t token = tokens[row], entry = token - slice.first;
      if (t.x() == 0 && (token < 0 || token >= slice.whole)) t.atomicAdd(errors, 1);
      const bool here = entry >= 0 && entry < slice.vocabulary;
      for (std::int64_t c = t.x() * N; c < width; c += kThreads * N) {
        float values[N] = {};
        if (here) loadPiece<N>(table + entry * width + c, values);
        storePiece<N>(y + row * width + c, values);
      }
    }
  }
};

/// Whether no row before this one has its token; the same for all threads of a block. `scratch`: shared, an int a warp.
template <class Thread>
INTERNEVO_DEVICE bool isFirstOfToken(Thread& t, const std::int32_t* tokens, std::int64_t row, int* scratch) {
  int before = 0;
  for (std::int64_t i = t.x(); i < row; i += t.threads()) before += tokens[i] == tokens[row] ? 1 : 0;
  return blockSum(t, before, scratch) == 0;
}

/// gTable[token] += gY[row], rows of a token in order. The block of the first row that has a token adds all of them, so
/// nothing is added by two blocks and the bits are the same every time.
template <int N, typename T>
struct EmbeddingGradientKernel {
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = kThreads * 4 + kThreads / kWarp * 4;
  std::int64_t rows, width;
  TableSlice slice;
  const std::int32_t* tokens;
  const T* gY;
  float* gTable;
  std::int64_t* errors;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto* const same = reinterpret_cast<int*>(t.shared());
    int* const scratch = same + kThreads;
    for (std::int64_t row = t.blockX(); row < rows; row += t.gridX()) {
      const std::int64_t token = tokens[row], entry = token - slice.first;
      if (t.x() == 0 && (token < 0 || token >= slice.whole)) t.atomicAdd(errors, 1);
      if (entry < 0 || entry >= slice.vocabulary) continue;
      if (!isFirstOfToken(t, tokens, row, scratch)) continue;
      for (std::int64_t base = row; base < rows; base += kThreads) {
        const std::int64_t at = base + t.x();
        same[t.x()] = at < rows && tokens[at] == token ? 1 : 0;
        if (blockSum(t, same[t.x()], scratch) == 0) continue;
        for (int i = 0; i < kThreads; ++i) {
          if (same[i] != 0) add(t, entry, base + i);
        }
        t.sync();
      }
    }
  }

  template <class Thread>
  INTERNEVO_DEVICE void add(Thread& t, std::int64_t entry, std::int64_t row) const {
    for (std::int64_t c = t.x() * N; c < width; c += kThreads * N) {
      float sum[N], term[N];
      loadPiece<N>(gTable + entry * width + c, sum), loadPiece<N>(gY + row * width + c, term);
      for (int i = 0; i < N; ++i) sum[i] += term[i];
      storePiece<N>(gTable + entry * width + c, sum);
    }
  }
};

/// The same with a bfloat16 table: what all rows of a token add is summed in float32, a tile of columns at a time, and the table's
/// row is rounded once.
template <int N, typename T>
struct EmbeddingRoundedGradientKernel {
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = kThreads * 4 + kThreads / kWarp * 4;
  std::int64_t rows, width;
  TableSlice slice;
  const std::int32_t* tokens;
  const T* gY;
  Bfloat16* gTable;
  std::int64_t* errors;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    int* const scratch = reinterpret_cast<int*>(t.shared()) + kThreads;
    for (std::int64_t row = t.blockX(); row < rows; row += t.gridX()) {
      const std::int64_t token = tokens[row], entry = token - slice.first;
      if (t.x() == 0 && (token < 0 || token >= slice.whole)) t.atomicAdd(errors, 1);
      if (entry < 0 || entry >= slice.vocabulary) continue;
      if (!isFirstOfToken(t, tokens, row, scratch)) continue;
      for (std::int64_t tile = 0; tile < width; tile += kThreads * N) {
        addTile(t, row, gTable + entry * width, tile + t.x() * N);
      }
    }
  }

  /// Columns [column, column + N) are this thread's.
  template <class Thread>
  INTERNEVO_DEVICE void addTile(Thread& t, std::int64_t row, Bfloat16* target, std::int64_t column) const {
    auto* const same = reinterpret_cast<int*>(t.shared());
    const bool inside = column < width;
    float sum[N] = {};
    if (inside) loadPiece<N>(target + column, sum);
    for (std::int64_t base = row; base < rows; base += kThreads) {
      const std::int64_t at = base + t.x();
      same[t.x()] = at < rows && tokens[at] == tokens[row] ? 1 : 0;
      if (blockSum(t, same[t.x()], same + kThreads) == 0) continue;
      for (int i = 0; i < kThreads && inside; ++i) {
        if (same[i] == 0) continue;
        float term[N];
        loadPiece<N>(gY + (base + i) * width + column, term);
        for (int k = 0; k < N; ++k) sum[k] += term[k];
      }
      t.sync();
    }
    if (inside) storePiece<N>(target + column, sum);
  }
};

}  // namespace internevo::cuda
