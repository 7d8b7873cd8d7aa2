// Attention's backward pass on sm_90a: five products, gQ summed in float32 by the blocks of keys in a fixed order.
//
// A block has 128 keys and values of one key/value head and goes over the queries that see them, 64 at a time: a warpgroup copies, two
// multiply, 64 keys each. Products are transposed (keys down, queries across), so that probabilities and gradients of scores are the
// left sides of the products for gV and gK without leaving their registers; for gQ the gradients of scores of both go through
// shared memory. A block's part of gQ is added to global memory by a bulk copy when all earlier blocks of keys have added theirs:
// sums of one order, the same bits every time. Earlier keys are seen by more queries, so their blocks are the longest and begin
// first (TileOrder); all go from the last queries to the first, so that a block that begins later is behind at every tile of
// queries, and rarely waits. Of a step's products each
// is under way while a warpgroup does what does not need it.
#pragma once

#include "backend/cuda/kernels/attention_backward_sums.h"
#include "backend/cuda/kernels/warpgroup_tile.h"

namespace internevo::cuda {

template <int kHead, typename G, bool kAdd>
struct AttentionBackwardWarpgroupKernel {
  static constexpr int kWarpgroups = 2, kThreads = kWarpgroup * (1 + kWarpgroups), kWarps = 4 * kWarpgroups;
  static constexpr int kConsumers = kWarpgroup * kWarpgroups, kQueries = QuerySums<kHead>::kQueries,
                       kKeys = 128, kStages = 2;
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  using KeyTile = BulkTile<kHead, kKeys>;
  using QueryTile = BulkTile<kHead, kQueries>;
  using ScoreTile = BulkTile<kQueries, kKeys>;  // gradients of scores: keys down, queries across

  struct Barriers {
    MemoryBarrier keysFull, queriesFull[kStages], queriesEmpty[kStages], gradientsFull[kStages],
        gradientsEmpty[kStages];
    std::int32_t item;
  };
  static constexpr int kValuesAt = KeyTile::kBytes, kQueriesAt = 2 * KeyTile::kBytes;
  static constexpr int kGradientsAt = kQueriesAt + kStages * QueryTile::kBytes;
  static constexpr int kScoresAt = kGradientsAt + kStages * QueryTile::kBytes;
  static constexpr int kSumsAt = kScoresAt + 2 * ScoreTile::kBytes;
  static constexpr int kStatisticsAt = kSumsAt + QuerySums<kHead>::kBytes;
  static constexpr int kBarriersAt = kStatisticsAt + kStages * QueryStatistics::kBytes;
  static constexpr int kSharedBytes = kBarriersAt + static_cast<int>(sizeof(Barriers));
  /// Named barriers: scores written; part of gQ written; its place free.
  static constexpr int kScoresReady = 1, kSumsFull = 2, kSumsEmpty = 3, kSumsThreads = kConsumers + kWarp;

  TensorMap q, k, v, gO;
  AttentionArguments s;
  const unsigned char* statistics;  ///< QueryStatistics [batch · heads, tiles]
  float* sums;                      ///< [pairs · group, tiles, kQueries · kHead]
  std::int32_t* counts;  ///< [pairs · group, tiles]: blocks of keys that have added; 0 at the start
  std::int32_t* ticket;  ///< 0 at the start: blocks wait only for blocks that came before them
  G* gK;
  G* gV;
  int firstPair, tiles;  ///< first (sequence, key/value head) of this launch; tiles of queries of a sequence
  TileOrder order;       ///< of the launch's pairs and their tiles of keys

  struct Item {
    int pair, b, kvHead, keyTile, begin, end;  ///< pair of this launch; tiles of queries
  };

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto& barriers = *reinterpret_cast<Barriers*>(t.shared() + kBarriersAt);
    if (t.x() == 0) {
      t.prefetchMap(&q), t.prefetchMap(&k), t.prefetchMap(&v), t.prefetchMap(&gO);
      t.initBarrier(&barriers.keysFull, 1);
      for (int i = 0; i < kStages; ++i) {
        t.initBarrier(&barriers.queriesFull[i], 1), t.initBarrier(&barriers.queriesEmpty[i], kWarps);
        t.initBarrier(&barriers.gradientsFull[i], 1), t.initBarrier(&barriers.gradientsEmpty[i], kWarps);
      }
      t.publishBarriers();
      barriers.item = t.atomicAddInteger(ticket, 1);
    }
    t.sync();
    const Item item = itemAt(barriers.item);
    // 40 · 128 + 232 · 256 are the registers that the block is started with, 168 a thread: setmaxnreg has no others to give.
    if (t.x() < kWarpgroup) {
      t.template releaseRegisters<kProducerRegisters>();
      if (t.x() == 0) produce(t, barriers, item);
      if (t.x() / kWarp == 1) addSums(t, item);
    } else {
      t.template takeRegisters<kConsumerRegisters>();
      consume(t, barriers, item);
    }
  }

  /// Blocks of earlier keys begin before those of later ones, which wait for them.
  INTERNEVO_DEVICE Item itemAt(int index) const {
    Item item;
    const TileOrder::Place place = order.at(index);
    item.pair = place.head, item.keyTile = place.rank;
    const int kvHeads = static_cast<int>(s.kvHeads);
    item.b = (firstPair + item.pair) / kvHeads, item.kvHead = (firstPair + item.pair) % kvHeads;
    const std::int64_t key = std::int64_t{item.keyTile} * kKeys;
    item.begin = static_cast<int>(s.beginQueryTile(key, kQueries));
    item.end = s.high(s.sequence - 1) > key ? tiles : 0;
    if (!s.hasFirstKeys()) return item;
    int low = item.begin, high = item.end;  // the first tile that is past these keys: first keys do not fall
    while (low < high) {
      const int middle = (low + high) / 2;
      if (s.past(item.b, std::int64_t{middle} * kQueries, key + kKeys)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    item.end = low;
    return item;
  }
  INTERNEVO_DEVICE int groupSize() const { return static_cast<int>(s.heads / s.kvHeads); }

  template <class Thread>
  INTERNEVO_DEVICE void produce(Thread& t, Barriers& barriers, const Item& item) const {
    if (item.begin >= item.end) return;
    t.arriveExpecting(&barriers.keysFull, 2 * KeyTile::kBytes);
    startTileCopy<kHead, kKeys>(t, t.shared(), &k, &barriers.keysFull, item.keyTile * kKeys, item.kvHead,
                                item.b);
    startTileCopy<kHead, kKeys>(t, t.shared() + kValuesAt, &v, &barriers.keysFull, item.keyTile * kKeys,
                                item.kvHead, item.b);
    RingPlace<kStages> place;
    for (int member = 0; member < groupSize(); ++member) {
      const int head = item.kvHead * groupSize() + member;
      const unsigned char* const ofHead = statistics + (std::int64_t{item.b} * s.heads + head) * tiles *
                                                           std::int64_t{QueryStatistics::kBytes};
      for (int tile = item.end - 1; tile >= item.begin; --tile) {
        MemoryBarrier* const queriesFull = &barriers.queriesFull[place.stage];
        t.wait(&barriers.queriesEmpty[place.stage], place.parity ^ 1);
        t.arriveExpecting(queriesFull, QueryTile::kBytes + QueryStatistics::kBytes);
        startTileCopy<kHead, kQueries>(t, t.shared() + kQueriesAt + place.stage * QueryTile::kBytes, &q,
                                       queriesFull, tile * kQueries, head, item.b);
        t.copyBulk(t.shared() + kStatisticsAt + place.stage * QueryStatistics::kBytes,
                   ofHead + std::int64_t{tile} * QueryStatistics::kBytes, QueryStatistics::kBytes,
                   queriesFull);
        MemoryBarrier* const gradientsFull = &barriers.gradientsFull[place.stage];
        t.wait(&barriers.gradientsEmpty[place.stage], place.parity ^ 1);
        t.arriveExpecting(gradientsFull, QueryTile::kBytes);
        startTileCopy<kHead, kQueries>(t, t.shared() + kGradientsAt + place.stage * QueryTile::kBytes, &gO,
                                       gradientsFull, tile * kQueries, head, item.b);
        place.advance();
      }
    }
  }

  /// One warp: adds the parts of gQ to global memory, each when its turn has come.
  template <class Thread>
  INTERNEVO_DEVICE void addSums(Thread& t, const Item& item) const {
    const bool first = t.x() % kWarp == 0;
    std::int32_t* written = nullptr;
    for (int member = 0; member < groupSize(); ++member) {
      for (int tile = item.end - 1; tile >= item.begin; --tile) {
        t.syncWarp();
        t.arriveNamed(kSumsEmpty, kSumsThreads);
        if (first && written != nullptr) {
          t.waitBulk();
          t.addRelease(written, 1);
        }
        t.syncWarp();
        t.syncNamed(kSumsFull, kSumsThreads);
        if (!first) continue;
        const std::int64_t slot = (std::int64_t{item.pair} * groupSize() + member) * tiles + tile;
        const auto turn =
            item.keyTile - static_cast<int>(s.beginTile(item.b, std::int64_t{tile} * kQueries, kKeys));
        while (t.loadAcquire(counts + slot) != turn) {
        }
        t.fenceProxy();
        float* const target = sums + slot * QuerySums<kHead>::kElements;
        if (turn == 0) {
          t.storeBulk(target, t.shared() + kSumsAt, QuerySums<kHead>::kBytes);
        } else {
          t.reduceAddBulk(target, t.shared() + kSumsAt, QuerySums<kHead>::kBytes);
        }
        t.commitBulk();
        t.waitBulkRead();
        written = counts + slot;
      }
    }
    if (written == nullptr) return;
    t.waitBulk();
    t.addRelease(written, 1);
  }

  /// Every warp says that it has read a buffer: the wait for a product is each warp's own.
  template <class Thread>
  INTERNEVO_DEVICE void release(Thread& t, MemoryBarrier* empty) const {
    if (t.x() % kWarp == 0) t.arrive(empty);
  }

  template <class Thread>
  INTERNEVO_DEVICE void consume(Thread& t, Barriers& barriers, const Item& item) const {
    const int group = t.x() / kWarpgroup - 1;
    const std::uint32_t memory = t.sharedAddress(t.shared());
    const KeyTile keys{memory}, values{memory + kValuesAt};
    float gKeys[kHead / 8][4], gValues[kHead / 8][4];
    float scores[kQueries / 8][4], gScores[kQueries / 8][4];
    std::uint32_t p[kQueries / kStepK][4], ds[kQueries / kStepK][4];
    clearFragments(gKeys), clearFragments(gValues);
    RingPlace<kStages> place;
    int scoresAt = 0;
    if (item.begin < item.end) t.wait(&barriers.keysFull, 0);
    for (int member = 0; member < groupSize(); ++member) {
      for (int tile = item.end - 1; tile >= item.begin; --tile) {
        const QueryTile queries{memory +
                                static_cast<std::uint32_t>(kQueriesAt + place.stage * QueryTile::kBytes)};
        const QueryTile gradients{memory +
                                  static_cast<std::uint32_t>(kGradientsAt + place.stage * QueryTile::kBytes)};
        const QueryStatistics statistic{t.shared() + kStatisticsAt + place.stage * QueryStatistics::kBytes};
        t.wait(&barriers.queriesFull[place.stage], place.parity);
        t.fenceProducts();
        startRowsByRows(t, keys, 64 * group, queries, scores);
        t.commitProducts();
        t.wait(&barriers.gradientsFull[place.stage], place.parity);
        t.fenceProducts();
        startRowsByRows(t, values, 64 * group, gradients, gScores);
        t.commitProducts();
        t.template waitProducts<1>();
        t.settle(scores);
        probabilities(t, item, item.keyTile * kKeys + 64 * group, tile, statistic, scores);
        roundResults(scores, p);
        t.template waitProducts<0>();
        t.settle(gScores);
        scoreGradients(t, statistic, scores, gScores);
        roundResults(gScores, ds);
        t.fenceProducts();
        startResultsByTile(t, p, gradients, gValues);
        t.commitProducts();
        storeScores(t, group, scoresAt, ds);
        t.fenceProxy();
        t.syncNamed(kScoresReady, kConsumers);
        float gQueries[kHead / 16][4];
        const ScoreTile all{memory + static_cast<std::uint32_t>(kScoresAt + scoresAt * ScoreTile::kBytes)};
        t.fenceProducts();
#pragma unroll
        for (int step = 0; step < kKeys / kStepK; ++step) {
          t.template multiplyShared<true, true>(gQueries, all.byColumns(0, step),
                                                keys.byColumns(group * kHead / 2, step), step > 0);
        }
        t.commitProducts();
        startResultsByTile(t, ds, queries, gKeys);
        t.commitProducts();
        t.template waitProducts<1>();
        t.settle(gQueries);
        release(t, &barriers.gradientsEmpty[place.stage]);
        t.syncNamed(kSumsEmpty, kSumsThreads);
        QuerySums<kHead>::put(t, group, gQueries, t.shared() + kSumsAt);
        t.fenceProxy();
        t.arriveNamed(kSumsFull, kSumsThreads);
        t.template waitProducts<0>();
        t.settle(gKeys), t.settle(gValues);
        release(t, &barriers.queriesEmpty[place.stage]);
        scoresAt ^= 1;
        place.advance();
      }
    }
    store(t, item, group, gKeys, gValues);
  }

  /// Scores, keys down from keyRow and queries across -> probabilities; zeros where a query does not see a key.
  template <class Thread>
  INTERNEVO_DEVICE void probabilities(Thread& t, const Item& item, int keyRow, int tile,
                                      const QueryStatistics& statistic, float (&p)[kQueries / 8][4]) const {
    const float factor = s.scale * kLog2E;
    const int across = t.x() % 4 * 2, down = 16 * (t.x() / kWarp % 4) + t.x() % kWarp / 4;
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
      const QueryStatistics::Pair pair = statistic.pair(8 * n + across);
#pragma unroll
      for (int j = 0; j < 4; ++j) p[n][j] = t.exponential2(fmaf(p[n][j], factor, -pair.logSumExp[j % 2]));
    }
    const std::int64_t first = std::int64_t{tile} * kQueries;
    if (s.high(first) >= keyRow + 64 && statistic.low(kQueries - 1) <= keyRow) return;
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int query = 8 * n + across + j;
        const int low = statistic.low(query) - keyRow,
                  high = static_cast<int>(s.high(first + query)) - keyRow;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int key = down + 8 * half;
          if (key < low || key >= high) p[n][2 * half + j] = 0.f;
        }
      }
    }
  }

  /// gP -> p · (gP − delta).
  template <class Thread>
  INTERNEVO_DEVICE void scoreGradients(Thread& t, const QueryStatistics& statistic,
                                       const float (&p)[kQueries / 8][4],
                                       float (&gScores)[kQueries / 8][4]) const {
    const int across = t.x() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
      const QueryStatistics::Pair pair = statistic.pair(8 * n + across);
#pragma unroll
      for (int j = 0; j < 4; ++j) gScores[n][j] = p[n][j] * (gScores[n][j] - pair.delta[j % 2]);
    }
  }

  /// This warpgroup's 64 keys of the gradients of scores, where the product for gQ reads them. Eight rows of a warp lie in
  /// different banks by the swizzle.
  template <class Thread>
  INTERNEVO_DEVICE void storeScores(Thread& t, int group, int buffer,
                                    const std::uint32_t (&ds)[kQueries / kStepK][4]) const {
    unsigned char* const tile = t.shared() + kScoresAt + buffer * ScoreTile::kBytes;
#pragma unroll
    for (int step = 0; step < kQueries / kStepK; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 64 * group + 16 * (t.x() / kWarp % 4) + t.x() % kWarp / 4 + 8 * (i % 2);
        const int byte = 2 * (kStepK * step + t.x() % 4 * 2 + 8 * (i / 2));
        t.storeShared(tile + row * kHalfRowBytes + (byte ^ (row & 7) << 4), ds[step][i]);
      }
    }
  }

  template <class Thread>
  INTERNEVO_DEVICE void store(Thread& t, const Item& item, int group, const float (&gKeys)[kHead / 8][4],
                              const float (&gValues)[kHead / 8][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row =
          item.keyTile * kKeys + 64 * group + 16 * (t.x() / kWarp % 4) + t.x() % kWarp / 4 + 8 * half;
      if (row >= s.keySequence) continue;
      G* const keyTarget = gK + s.key(item.b, row, item.kvHead) + t.x() % 4 * 2;
      G* const valueTarget = gV + s.value(item.b, row, item.kvHead) + t.x() % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
        if (8 * n >= s.headSize) break;
        storePair<kAdd>(keyTarget + 8 * n, gKeys[n][2 * half] * s.scale, gKeys[n][2 * half + 1] * s.scale);
        storePair<kAdd>(valueTarget + 8 * n, gValues[n][2 * half], gValues[n][2 * half + 1]);
      }
    }
  }
};

}  // namespace internevo::cuda
