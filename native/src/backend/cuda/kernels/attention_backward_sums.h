// What goes into and comes out of the backward pass on sm_90a: statistics of the queries, and the float32 sums of gQ.
#pragma once

#include "backend/cuda/kernels/attention_tensor.h"

namespace internevo::cuda {

struct alignas(16) Float4 {
  float v[4];
};

/// Of a tile of 64 queries: (log-sum-exp · log2 e, delta) of each, then each one's first key. 768 bytes, copied at once.
/// Queries that see nothing, or are behind the sequence, have an infinite log-sum-exp: their probabilities are 0.
struct QueryStatistics {
  static constexpr int kQueries = 64, kLowsAt = kQueries * 8, kBytes = kQueries * 12;
  const unsigned char* memory;

  struct Pair {
    float logSumExp[2], delta[2];
  };
  /// Of two neighbouring queries, the first even.
  INTERNEVO_DEVICE Pair pair(int query) const {
    const Float4 f = *reinterpret_cast<const Float4*>(memory + query * 8);
    return {{f.v[0], f.v[2]}, {f.v[1], f.v[3]}};
  }
  INTERNEVO_DEVICE int low(int query) const {
    return *reinterpret_cast<const std::int32_t*>(memory + kLowsAt + query * 4);
  }
};

/// delta = Σ o · gO, and the other statistics, of all queries and of those that fill the last tile. One warp a row and head.
template <int kHead>
struct AttentionStatisticsKernel {
  static constexpr int kThreads = 128;
  AttentionArguments s;
  const Bfloat16* o;
  const Bfloat16* gO;
  const float* logSumExp;
  unsigned char* statistics;  ///< QueryStatistics [batch · heads, tiles]
  std::int64_t tiles;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    constexpr int kWarps = kThreads / kWarp;
    const std::int64_t rows = tiles * QueryStatistics::kQueries, all = s.batch * s.heads * rows;
    const int lane = t.x() % kWarp;
    for (std::int64_t first = t.blockX() * kWarps; first < all; first += t.gridX() * kWarps) {
      const std::int64_t which = first + t.x() / kWarp;  // all is a multiple of 64
      const std::int64_t row = which % rows, head = which / rows % s.heads, b = which / rows / s.heads;
      const bool valid = row < s.sequence;
      float sum = 0;
#pragma unroll
      for (int i = 2 * lane; i < kHead; i += 2 * kWarp) {
        if (i >= s.headSize) break;
        const std::int64_t at = s.output(b, valid ? row : 0, head) + i;
        const std::uint32_t left = *reinterpret_cast<const std::uint32_t*>(o + at);
        const std::uint32_t right = *reinterpret_cast<const std::uint32_t*>(gO + at);
        sum = fmaf(floatOf(left << 16), floatOf(right << 16), sum);
        sum = fmaf(floatOf(left & 0xffff0000u), floatOf(right & 0xffff0000u), sum);
      }
      for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += t.shuffleXor(sum, mask);
      if (lane != 0) continue;
      const float own = valid ? logSumExp[s.statistic(b, row, head)] : minusInfinity();
      const bool sees = own != minusInfinity();
      unsigned char* const tile = statistics + which / QueryStatistics::kQueries * QueryStatistics::kBytes;
      const std::int64_t place = which % QueryStatistics::kQueries;
      auto* const pair = reinterpret_cast<float*>(tile + place * 8);
      pair[0] = sees ? own * kLog2E : -minusInfinity(), pair[1] = sees ? sum : 0.f;
      *reinterpret_cast<std::int32_t*>(tile + QueryStatistics::kLowsAt + place * 4) =
          static_cast<std::int32_t>(s.low(b, valid ? row : s.sequence - 1));
    }
  }
};

/// The sums of gQ of a tile of 64 queries, in the order of the threads that have them: warpgroup (half of the columns), group of 8
/// columns, thread, its four results.
template <int kHead>
struct QuerySums {
  static constexpr int kQueries = 64, kElements = kQueries * kHead, kBytes = 4 * kElements,
                       kGroups = kHead / 16;

  template <class Thread>
  static INTERNEVO_DEVICE void put(Thread& t, int warpgroup, const float (&d)[kGroups][4],
                                   unsigned char* memory) {
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      const Float4 value{{d[n][0], d[n][1], d[n][2], d[n][3]}};
      t.storeShared(memory + ((warpgroup * kGroups + n) * 128 + t.x() % 128) * 16, value);
    }
  }
};

/// gQ (+)= sums · scale of the tiles of one launch; zeros where no block of keys added. Grid: tiles, heads of the launch.
template <int kHead, typename G, bool kAdd>
struct AttentionQuerySumsKernel {
  static constexpr int kThreads = 128;
  AttentionArguments s;
  const float* sums;
  G* gQ;
  int firstPair, keys;  ///< keys of a block of the pass

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    using Sums = QuerySums<kHead>;
    const std::int64_t first = t.blockX() * Sums::kQueries, group = s.heads / s.kvHeads;
    const std::int64_t pair = firstPair + t.blockY() / group, b = pair / s.kvHeads;
    const std::int64_t head = pair % s.kvHeads * group + t.blockY() % group;
    const bool any = s.beginTile(b, first, keys) < s.endTile(first, Sums::kQueries, keys);
    const auto* const own =
        reinterpret_cast<const Float4*>(sums + (t.blockY() * t.gridX() + t.blockX()) * Sums::kElements);
    const std::int64_t row = first + 16 * (t.x() / kWarp) + t.x() % kWarp / 4;
#pragma unroll
    for (int which = 0; which < 2 * Sums::kGroups; ++which) {
      const Float4 value = any ? own[which * kThreads + t.x()] : Float4{};
      const int column = which / Sums::kGroups * (kHead / 2) + which % Sums::kGroups * 8 + t.x() % 4 * 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (row + 8 * half >= s.sequence || column >= s.headSize) continue;
        G* const target = gQ + s.queryGradient(b, row + 8 * half, head) + column;
        storePair<kAdd>(target, value.v[2 * half] * s.scale, value.v[2 * half + 1] * s.scale);
      }
    }
  }
};

}  // namespace internevo::cuda
