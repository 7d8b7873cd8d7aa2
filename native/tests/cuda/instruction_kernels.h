// Kernels that use one instruction, or one kind of them: what the model says of it is compared with the formula (block_test.cpp,
// warpgroup_model_test.cpp) and with a GPU, bit by bit (kernel_cases.cpp). Their data are small integers, of which every sum is exact.
#pragma once

#include <cstring>

#include "backend/cuda/kernels/warpgroup_tile.h"
#include "backend/cuda/launch.h"

namespace internevo::cuda {

/// A copy is there after the wait for its group; `newest` groups are not waited for.
template <int kNewest>
struct Copies {
  static constexpr int kThreads = 32, kSharedBytes = 1024;
  const float* source;  ///< [256]
  float* result;        ///< [256]

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto* const shared = reinterpret_cast<float*>(t.shared());
    for (int group = 0; group < 2; ++group) {
      t.copyAsync(shared + 128 * group + 4 * t.x(), source + 128 * group + 4 * t.x(), t.x() < 30);
      t.commitCopies();
    }
    t.template waitCopies<kNewest>();
    for (int group = 0; group < 2; ++group) {
      for (int i = 0; i < 4; ++i) result[128 * group + 4 * t.x() + i] = shared[128 * group + 4 * t.x() + i];
    }
  }
};

/// C = A · B of one warp by fragments: [16, 16] · [16, 16], B given by rows or by columns.
struct Fragments {
  static constexpr int kThreads = 32, kSharedBytes = 1024;
  const std::uint16_t* a;  ///< [16, 16]
  const std::uint16_t* b;  ///< [16, 16]: two products of eight columns
  float* c;                ///< [16, 16]
  bool transposed;         ///< b is [columns, k]

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto* const left = reinterpret_cast<std::uint16_t*>(t.shared());
    std::uint16_t* const right = left + 256;
    for (int i = t.x(); i < 256; i += kThreads) left[i] = a[i], right[i] = b[i];
    t.sync();
    const int lane = t.x(), matrix = lane / 8;
    std::uint32_t x[4], y[4];
    t.loadMatrices(x, left + lane % 16 * 16 + lane / 16 * 8);
    if (transposed) {
      t.loadMatrices(y, right + (lane % 8 + 8 * (matrix / 2)) * 16 + matrix % 2 * 8);
    } else {
      t.loadMatricesTransposed(y, right + (lane % 8 + 8 * (matrix % 2)) * 16 + matrix / 2 * 8);
    }
    for (int half = 0; half < 2; ++half) {
      float d[4] = {};
      t.multiply(d, x, y[2 * half], y[2 * half + 1]);
      for (int j = 0; j < 4; ++j) c[(lane / 4 + j / 2 * 8) * 16 + 8 * half + lane % 4 * 2 + j % 2] = d[j];
    }
  }
};

/// One warpgroup multiplies tiles of two tensors: D[64, N] = A[64, 128] · B[128, 128] in the ways that attention does.
struct Multiply {
  static constexpr int kThreads = kWarpgroup, kWarpgroups = 1;
  using Left = BulkTile<128, 64>;  // also read as its transpose's [128, 64]: rows are then the sum
  using Right = BulkTile<128, 128>;
  static constexpr int kRightAt = Left::kBytes, kBarrierAt = kRightAt + Right::kBytes,
                       kSharedBytes = kBarrierAt + 64;
  TensorMap a, b;
  float* d;  ///< [64, columnsOf(way)]
  enum Way { byRows, byColumns, fromRegisters, transposedLeft, insideAtom } way;

  static constexpr int columnsOf(Way way) {
    return way == transposedLeft ? 64 : way == insideAtom ? 32 : 128;
  }

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto* const barrier = reinterpret_cast<MemoryBarrier*>(t.shared() + kBarrierAt);
    if (t.x() == 0) t.initBarrier(barrier, 1), t.publishBarriers();
    t.sync();
    if (t.x() == 0) {
      t.arriveExpecting(barrier, Left::kBytes + Right::kBytes);
      startTileCopy<128, 64>(t, t.shared(), &a, barrier, 0, 0, 0);
      startTileCopy<128, 128>(t, t.shared() + kRightAt, &b, barrier, 0, 0, 0);
    }
    t.wait(barrier, 0);
    const Left left{t.sharedAddress(t.shared())};
    const Right right{t.sharedAddress(t.shared() + kRightAt)};
    if (way == transposedLeft) {
      // Columns 64… of A down (its 64 rows are summed over), columns 64… of B's first 64 rows across.
      float narrow[8][4];
      t.fenceProducts();
      for (int step = 0; step < 4; ++step) {
        t.template multiplyShared<true, true>(narrow, left.byColumns(64, step), right.byColumns(64, step),
                                              step > 0);
      }
      finish(t, narrow);
    } else if (way == insideAtom) {
      // As heads of 64 have it in their gradient of the queries: 32 columns that begin 64 bytes inside the swizzle's atom.
      float half[4][4];
      t.fenceProducts();
      for (int step = 0; step < 4; ++step) {
        t.template multiplyShared<true, true>(half, left.byColumns(64, step), right.byColumns(32, step),
                                              step > 0);
      }
      finish(t, half);
    } else {
      wide(t, left, right);
    }
  }
  template <class Thread>
  INTERNEVO_DEVICE void wide(Thread& t, Left left, Right right) const {
    float result[16][4];
    std::uint32_t words[8][4];
#pragma unroll
    for (int step = 0; step < 8; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // A fragments out of the swizzled tile
        const int row = 16 * (t.x() / 32) + t.x() % 32 / 4 + i % 2 * 8,
                  column = 16 * step + t.x() % 4 * 2 + i / 2 * 8;
        const int place = column / 64 * Left::kHalfBytes + row * 128 + (column % 64 * 2 ^ (row & 7) << 4);
        memcpy(&words[step][i], t.shared() + place, 4);
      }
    }
    t.fenceProducts();
    if (way == byRows) startRowsByRows(t, left, 0, right, result);
    if (way == byColumns) {
#pragma unroll
      for (int step = 0; step < 8; ++step) {
        t.template multiplyShared<false, true>(result, left.byRows(0, step), right.byColumns(0, step),
                                               step > 0);
      }
    }
    if (way == fromRegisters) {
#pragma unroll
      for (int step = 0; step < 8; ++step)
        t.template multiplyRegisters<true>(result, words[step], right.byColumns(0, step), step > 0);
    }
    finish(t, result);
  }
  template <int kCount, class Thread>
  INTERNEVO_DEVICE void finish(Thread& t, float (&results)[kCount][4]) const {
    t.commitProducts();
    t.template waitProducts<0>();
    t.settle(results);
    for (int n = 0; n < kCount; ++n) {
      for (int j = 0; j < 4; ++j) {
        const int row = 16 * (t.x() / 32) + t.x() % 32 / 4 + j / 2 * 8,
                  column = 8 * n + t.x() % 4 * 2 + j % 2;
        d[row * 8 * kCount + column] = results[n][j];
      }
    }
  }
};

/// The products of attention's two passes on one tile, by one warpgroup and without what is between them: in every form of operand that
/// the kernels have for heads of this size. Rounded scores reach the last product as there, stored by threads through the swizzle.
template <int kHead>
struct AttentionProducts {
  static constexpr int kThreads = kWarpgroup, kWarpgroups = 1, kKeys = 128, kQueries = 64;
  using KeyTile = BulkTile<kHead, kKeys>;
  using QueryTile = BulkTile<kHead, kQueries>;
  using ScoreTile = BulkTile<kQueries, kKeys>;
  static constexpr int kQueriesAt = KeyTile::kBytes, kScoresAt = kQueriesAt + QueryTile::kBytes,
                       kBarrierAt = kScoresAt + ScoreTile::kBytes, kSharedBytes = kBarrierAt + 64;
  TensorMap keys, queries;
  float* square;    ///< [64, keys]: keys from 64 on times all keys
  float* weighted;  ///< [64, head]: square, rounded, times keys
  float* scores;    ///< [keys, queries]
  float* gKeys;     ///< [keys, head]: scores, rounded, times queries
  float* gQueries;  ///< [queries, head]: scores, rounded, transposed, times keys

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto* const barrier = reinterpret_cast<MemoryBarrier*>(t.shared() + kBarrierAt);
    if (t.x() == 0) t.initBarrier(barrier, 1), t.publishBarriers();
    t.sync();
    if (t.x() == 0) {
      t.arriveExpecting(barrier, KeyTile::kBytes + QueryTile::kBytes);
      startTileCopy<kHead, kKeys>(t, t.shared(), &keys, barrier, 0, 0, 0);
      startTileCopy<kHead, kQueries>(t, t.shared() + kQueriesAt, &queries, barrier, 0, 0, 0);
    }
    t.wait(barrier, 0);
    const KeyTile k{t.sharedAddress(t.shared())};
    const QueryTile q{t.sharedAddress(t.shared() + kQueriesAt)};
    forward(t, k);
    for (int group = 0; group < 2; ++group) {
      float result[kQueries / 8][4], gradient[kHead / 8][4];
      std::uint32_t rounded[kQueries / kStepK][4];
      t.fenceProducts();
      startRowsByRows(t, k, 64 * group, q, result);
      finish(t, result, scores + 64 * group * kQueries, kQueries, 0);
      roundResults(result, rounded);
      clear(gradient);
      t.fenceProducts();
      startResultsByTile(t, rounded, q, gradient);
      finish(t, gradient, gKeys + 64 * group * kHead, kHead, 0);
      store(t, group, rounded);
    }
    t.fenceProxy();
    t.syncNamed(1, kWarpgroup);
    const ScoreTile all{t.sharedAddress(t.shared() + kScoresAt)};
    for (int half = 0; half < 2; ++half) {
      float result[kHead / 16][4];
      t.fenceProducts();
#pragma unroll
      for (int step = 0; step < kKeys / kStepK; ++step) {
        t.template multiplyShared<true, true>(result, all.byColumns(0, step),
                                              k.byColumns(half * kHead / 2, step), step > 0);
      }
      finish(t, result, gQueries, kHead, half * kHead / 2);
    }
  }
  template <class Thread>
  INTERNEVO_DEVICE void forward(Thread& t, KeyTile k) const {
    float result[kKeys / 8][4], out[kHead / 8][4];
    std::uint32_t rounded[kKeys / kStepK][4];
    t.fenceProducts();
    startRowsByRows(t, k, 64, k, result);
    finish(t, result, square, kKeys, 0);
    roundResults(result, rounded);
    clear(out);
    t.fenceProducts();
    startResultsByTile(t, rounded, k, out);
    finish(t, out, weighted, kHead, 0);
  }
  template <int kCount>
  static INTERNEVO_DEVICE void clear(float (&d)[kCount][4]) {
    for (int n = 0; n < kCount; ++n) {
      for (int j = 0; j < 4; ++j) d[n][j] = 0.f;
    }
  }
  /// As the backward pass stores gradients of scores.
  template <class Thread>
  INTERNEVO_DEVICE void store(Thread& t, int group,
                              const std::uint32_t (&rounded)[kQueries / kStepK][4]) const {
    for (int step = 0; step < kQueries / kStepK; ++step) {
      for (int i = 0; i < 4; ++i) {
        const int row = 64 * group + 16 * (t.x() / kWarp) + t.x() % kWarp / 4 + 8 * (i % 2);
        const int byte = 2 * (kStepK * step + t.x() % 4 * 2 + 8 * (i / 2));
        t.storeShared(t.shared() + kScoresAt + row * kHalfRowBytes + (byte ^ (row & 7) << 4),
                      rounded[step][i]);
      }
    }
  }
  template <int kCount, class Thread>
  INTERNEVO_DEVICE void finish(Thread& t, float (&results)[kCount][4], float* target, int columns,
                               int first) const {
    t.commitProducts();
    t.template waitProducts<0>();
    t.settle(results);
    for (int n = 0; n < kCount; ++n) {
      for (int j = 0; j < 4; ++j) {
        const int row = 16 * (t.x() / kWarp) + t.x() % kWarp / 4 + j / 2 * 8;
        target[row * columns + first + 8 * n + t.x() % 4 * 2 + j % 2] = results[n][j];
      }
    }
  }
};

/// A box of 8 rows of one head of one sequence, element by element through the swizzle.
struct Box {
  static constexpr int kThreads = 32, kWarpgroups = 1, kSharedBytes = 1088;
  TensorMap map;
  int row, head, b;
  std::uint16_t* result;  ///< [8, 64]

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto* const barrier = reinterpret_cast<MemoryBarrier*>(t.shared() + 1024);
    if (t.x() == 0) {
      t.initBarrier(barrier, 1), t.publishBarriers();
      t.arriveExpecting(barrier, 1024);
      t.copyTile(t.shared(), &map, barrier, 0, row, head, b);
      t.wait(barrier, 0);
    }
    t.sync();
    for (int i = t.x(); i < 512; i += 32) {
      const int r = i / 64, c = i % 64;
      memcpy(result + i, t.shared() + r * 128 + ((c / 8 ^ r % 8) * 16 + c % 8 * 2), 2);
    }
  }
};

}  // namespace internevo::cuda
