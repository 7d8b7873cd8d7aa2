// Attention's forward pass on sm_90a: a warpgroup that only copies, two that multiply (after FlashAttention-3).
//
// Blocks stay and take the next tile of queries by a ticket, the longest tiles first (TileOrder). The two multiplying warpgroups
// take turns at the tensor cores: while one has its products computed, the other is at its softmax. Inside a warpgroup the scores of the next keys are under way together with the product of this tile's probabilities.
#pragma once

#include "backend/cuda/kernels/warpgroup_tile.h"

namespace internevo::cuda {

/// 128 queries of one head a tile, 64 a warpgroup; keys in tiles of 128. Columns behind a head smaller than kHead are zeros: the
/// copies fill them.
template <int kHead, typename O>
struct AttentionForwardWarpgroupKernel {
  static constexpr int kWarpgroups = 2, kThreads = kWarpgroup * (1 + kWarpgroups), kWarps = 4 * kWarpgroups;
  static constexpr int kQueries = 64 * kWarpgroups, kKeys = 128, kStages = 2;
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  using QueryTile = BulkTile<kHead, kQueries>;
  using KeyTile = BulkTile<kHead, kKeys>;

  struct Barriers {
    MemoryBarrier queriesFull, queriesEmpty, workFull, workEmpty;
    MemoryBarrier keysFull[kStages], keysEmpty[kStages], valuesFull[kStages], valuesEmpty[kStages];
    std::int32_t work;
  };
  static constexpr int kKeysAt = QueryTile::kBytes, kValuesAt = kKeysAt + kStages * KeyTile::kBytes;
  static constexpr int kBarriersAt = kValuesAt + kStages * KeyTile::kBytes;
  static constexpr int kSharedBytes = kBarriersAt + static_cast<int>(sizeof(Barriers));
  static constexpr int kTurn = 1;  // and the next: named barriers of the warpgroups' turns

  TensorMap q, k, v;
  AttentionArguments s;
  O* o;
  float* logSumExp;
  std::int32_t* ticket;  ///< 0 at the start
  TileOrder order;
  bool merge;

  struct Item {
    int b, head, kvHead, first, begin, end;  ///< first query; tiles of keys
  };
  /// What a thread knows of its two rows, lane / 4 and that + 8 of its warp's 16.
  struct Rows {
    int low[2], high[2];
    float largest[2], total[2], rescale[2];
  };

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto& barriers = *reinterpret_cast<Barriers*>(t.shared() + kBarriersAt);
    if (t.x() == 0) {
      t.prefetchMap(&q), t.prefetchMap(&k), t.prefetchMap(&v);
      t.initBarrier(&barriers.queriesFull, 1), t.initBarrier(&barriers.queriesEmpty, kWarps);
      t.initBarrier(&barriers.workFull, 1), t.initBarrier(&barriers.workEmpty, kWarps);
      for (int i = 0; i < kStages; ++i) {
        t.initBarrier(&barriers.keysFull[i], 1), t.initBarrier(&barriers.keysEmpty[i], kWarps);
        t.initBarrier(&barriers.valuesFull[i], 1), t.initBarrier(&barriers.valuesEmpty[i], kWarps);
      }
      t.publishBarriers();
    }
    t.sync();
    // 40 · 128 + 232 · 256 are the registers that the block is started with, 168 a thread: setmaxnreg has no others to give.
    if (t.x() < kWarpgroup) {
      t.template releaseRegisters<kProducerRegisters>();
      if (t.x() == 0) produce(t, barriers);
    } else {
      t.template takeRegisters<kConsumerRegisters>();
      consume(t, barriers);
    }
  }

  INTERNEVO_DEVICE Item itemAt(int index) const {
    Item item;
    const TileOrder::Place place = order.at(index);
    item.b = place.head / static_cast<int>(s.heads), item.head = place.head % static_cast<int>(s.heads);
    item.kvHead = item.head / static_cast<int>(s.heads / s.kvHeads);
    item.first = (order.tiles - 1 - place.rank) * kQueries;
    item.begin = static_cast<int>(s.beginTile(item.b, item.first, kKeys));
    item.end = static_cast<int>(s.endTile(item.first, kQueries, kKeys));
    return item;
  }

  template <class Thread>
  INTERNEVO_DEVICE void produce(Thread& t, Barriers& barriers) const {
    RingPlace<kStages> keysAt, valuesAt;
    int queriesParity = 1, workParity = 1;  // of the phases that free a buffer: the first is free
    for (;;) {
      const int index = t.atomicAddInteger(ticket, 1);
      t.wait(&barriers.workEmpty, workParity), workParity ^= 1;
      barriers.work = index < order.items() ? index : -1;
      t.arrive(&barriers.workFull);
      if (index >= order.items()) return;
      const Item item = itemAt(index);
      if (item.begin >= item.end) continue;
      t.wait(&barriers.queriesEmpty, queriesParity), queriesParity ^= 1;
      t.arriveExpecting(&barriers.queriesFull, QueryTile::kBytes);
      startTileCopy<kHead, kQueries>(t, t.shared(), &q, &barriers.queriesFull, item.first, item.head, item.b);
      for (int tile = item.begin; tile < item.end; ++tile) {
        load(t, &k, kKeysAt, barriers.keysFull, barriers.keysEmpty, keysAt, tile, item);
        if (tile > item.begin)
          load(t, &v, kValuesAt, barriers.valuesFull, barriers.valuesEmpty, valuesAt, tile - 1, item);
      }
      load(t, &v, kValuesAt, barriers.valuesFull, barriers.valuesEmpty, valuesAt, item.end - 1, item);
    }
  }

  template <class Thread>
  INTERNEVO_DEVICE void load(Thread& t, const TensorMap* map, int at, MemoryBarrier* full,
                             MemoryBarrier* empty, RingPlace<kStages>& place, int tile,
                             const Item& item) const {
    t.wait(&empty[place.stage], place.parity ^ 1);
    t.arriveExpecting(&full[place.stage], KeyTile::kBytes);
    startTileCopy<kHead, kKeys>(t, t.shared() + at + place.stage * KeyTile::kBytes, map, &full[place.stage],
                                tile * kKeys, item.kvHead, item.b);
    place.advance();
  }

  /// Every warp says that it has read a buffer: the wait for a product is each warp's own.
  template <class Thread>
  INTERNEVO_DEVICE void release(Thread& t, MemoryBarrier* empty) const {
    if (t.x() % kWarp == 0) t.arrive(empty);
  }

  template <class Thread>
  INTERNEVO_DEVICE void consume(Thread& t, Barriers& barriers) const {
    const int group = t.x() / kWarpgroup - 1;
    const std::uint32_t memory = t.sharedAddress(t.shared());
    RingPlace<kStages> keysAt, valuesAt;
    int queriesParity = 0, workParity = 0;
    float scores[kKeys / 8][4], sums[kHead / 8][4];
    std::uint32_t p[kKeys / kStepK][4];
    if (group == 1) t.arriveNamed(kTurn, kThreads - kWarpgroup);  // the first turn is the other's
    for (;;) {
      t.wait(&barriers.workFull, workParity), workParity ^= 1;
      const int index = barriers.work;
      t.syncWarp();  // all lanes have read it before one says so
      release(t, &barriers.workEmpty);
      if (index < 0) break;
      const Item item = itemAt(index);
      Rows rows = rowsOf(t, item, group);
      clearFragments(sums);
      if (item.begin < item.end) {
        const QueryTile queries{memory};
        t.wait(&barriers.queriesFull, queriesParity), queriesParity ^= 1;
        t.wait(&barriers.keysFull[keysAt.stage], keysAt.parity);
        t.fenceProducts();
        startRowsByRows(t, queries, 64 * group, KeyTile{keysAddress(memory, keysAt)}, scores);
        t.commitProducts();
        t.template waitProducts<0>();
        t.settle(scores);
        release(t, &barriers.keysEmpty[keysAt.stage]);
        keysAt.advance();
        softmax(t, item, group, item.begin, rows, scores);
        roundResults(scores, p);
        for (int tile = item.begin + 1; tile < item.end; ++tile) {
          t.wait(&barriers.keysFull[keysAt.stage], keysAt.parity);
          t.syncNamed(kTurn + group, kThreads - kWarpgroup);
          t.fenceProducts();
          startRowsByRows(t, queries, 64 * group, KeyTile{keysAddress(memory, keysAt)}, scores);
          t.commitProducts();
          t.wait(&barriers.valuesFull[valuesAt.stage], valuesAt.parity);
          t.fenceProducts();
          startResultsByTile(t, p, KeyTile{valuesAddress(memory, valuesAt)}, sums);
          t.commitProducts();
          t.arriveNamed(kTurn + 1 - group, kThreads - kWarpgroup);
          t.template waitProducts<1>();
          t.settle(scores);
          release(t, &barriers.keysEmpty[keysAt.stage]);
          keysAt.advance();
          softmax(t, item, group, tile, rows, scores);
          t.template waitProducts<0>();
          t.settle(sums);
          release(t, &barriers.valuesEmpty[valuesAt.stage]);
          valuesAt.advance();
          roundResults(scores, p);
          rescale(rows, sums);
        }
        release(t, &barriers.queriesEmpty);
        t.wait(&barriers.valuesFull[valuesAt.stage], valuesAt.parity);
        t.fenceProducts();
        startResultsByTile(t, p, KeyTile{valuesAddress(memory, valuesAt)}, sums);
        t.commitProducts();
        t.template waitProducts<0>();
        t.settle(sums);
        release(t, &barriers.valuesEmpty[valuesAt.stage]);
        valuesAt.advance();
      }
      store(t, item, group, rows, sums);
    }
    if (group == 0) t.syncNamed(kTurn, kThreads - kWarpgroup);  // takes the turn that the other gave last
  }

  INTERNEVO_DEVICE std::uint32_t keysAddress(std::uint32_t memory, RingPlace<kStages> at) const {
    return memory + static_cast<std::uint32_t>(kKeysAt + at.stage * KeyTile::kBytes);
  }
  INTERNEVO_DEVICE std::uint32_t valuesAddress(std::uint32_t memory, RingPlace<kStages> at) const {
    return memory + static_cast<std::uint32_t>(kValuesAt + at.stage * KeyTile::kBytes);
  }
  template <class Thread>
  INTERNEVO_DEVICE int rowOf(Thread& t, const Item& item, int group, int half) const {
    return item.first + 64 * group + 16 * (t.x() / kWarp % 4) + t.x() % kWarp / 4 + 8 * half;
  }

  template <class Thread>
  INTERNEVO_DEVICE Rows rowsOf(Thread& t, const Item& item, int group) const {
    Rows rows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = rowOf(t, item, group, half);
      const bool valid = row < s.sequence;
      rows.low[half] = valid ? static_cast<int>(s.low(item.b, row)) : 0;
      rows.high[half] = valid ? static_cast<int>(s.high(row)) : 0;
      rows.largest[half] = minusInfinity(), rows.total[half] = 0.f, rows.rescale[half] = 1.f;
    }
    return rows;
  }

  /// Some row of this warpgroup does not see all keys of the tile.
  INTERNEVO_DEVICE bool masked(const Item& item, int group, int tile) const {
    const std::int64_t first = item.first + 64 * group,
                       last = smaller<std::int64_t>(first + 63, s.sequence - 1);
    if (first > last) return false;  // all of its rows are behind the sequence: nobody reads them
    return s.high(first) < std::int64_t{tile + 1} * kKeys || s.low(item.b, last) > std::int64_t{tile} * kKeys;
  }

  /// Scores [64, kKeys] -> exp(scale · (score − largest)); what was summed before is to be multiplied by rows.rescale.
  template <class Thread>
  INTERNEVO_DEVICE void softmax(Thread& t, const Item& item, int group, int tile, Rows& rows,
                                float (&scores)[kKeys / 8][4]) const {
    const int column = t.x() % 4 * 2, key = tile * kKeys;
    const float factor = s.scale * kLog2E;
    if (masked(item, group, tile)) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int low = rows.low[half] - key - column, high = rows.high[half] - key - column;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            if (8 * n + j < low || 8 * n + j >= high) scores[n][2 * half + j] = minusInfinity();
          }
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = rows.largest[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
        top = larger(top, larger(scores[n][2 * half], scores[n][2 * half + 1]));
      top = larger(top, t.shuffleXor(top, 1));
      top = larger(top, t.shuffleXor(top, 2));
      const float shift = top == minusInfinity() ? 0.f : top * factor;
      rows.rescale[half] = t.exponential2(fmaf(rows.largest[half], factor, -shift));
      rows.largest[half] = top;
      float total = rows.total[half] * rows.rescale[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = scores[n][2 * half + j];
          score = t.exponential2(fmaf(score, factor, -shift));
          total += score;
        }
      }
      rows.total[half] = total;
    }
  }

  INTERNEVO_DEVICE void rescale(const Rows& rows, float (&sums)[kHead / 8][4]) const {
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[n][j] *= rows.rescale[j / 2];
    }
  }

  template <class Thread>
  INTERNEVO_DEVICE void store(Thread& t, const Item& item, int group, const Rows& rows,
                              const float (&sums)[kHead / 8][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = rowOf(t, item, group, half);
      const bool valid = row < s.sequence;
      float* const statistic = logSumExp + s.statistic(item.b, valid ? row : 0, item.head);
      float total = rows.total[half];
      const float before =
          *statistic;  // by all four threads of the row before one of them writes it: the shuffles come between
      total += t.shuffleXor(total, 1);
      total += t.shuffleXor(total, 2);
      if (!valid) continue;
      const RowMerge m = mergeRow(rows.largest[half] * s.scale, total, merge, before);
      if (!m.store) continue;
      O* const target = o + s.output(item.b, row, item.head) + t.x() % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
        if (8 * n >= s.headSize) break;
        float pair[2] = {sums[n][2 * half] * m.factor, sums[n][2 * half + 1] * m.factor};
        if (m.keep != 0.f) {
          for (int j = 0; j < 2; ++j) pair[j] = fmaf(toFloat(target[8 * n + j]), m.keep, pair[j]);
        }
        storePair<false>(target + 8 * n, pair[0], pair[1]);
      }
      if (t.x() % 4 == 0) *statistic = m.logSumExp;
    }
  }
};

}  // namespace internevo::cuda
