#include <algorithm>
#include <cmath>
#include <random>

#include "comm/ring_attention.h"
#include "comm/support.h"

namespace internevo::test {
namespace {

TEST(RingExchange, PassesMessagesAroundInOrder) {
  const Communicator group = makeGroup(reversedRanks());
  const int size = group.size();
  ThreadLane lane;
  for (Lane* driver : {static_cast<Lane*>(nullptr), static_cast<Lane*>(&lane)}) {
    if (size == 1) break;
    RingExchange ring(group, 5, 4 * 100000, driver);
    std::vector<std::int32_t> held(100000, group.index()), next(held.size());
    for (int step = 1; step <= size; ++step) {
      const auto bytes = static_cast<std::int64_t>(4 * held.size());
      ASSERT_TRUE(ring.begin(held.data(), next.data(), bytes).ok());
      EXPECT_EQ(ring.begin(held.data(), next.data(), bytes).code(), StatusCode::badConfig);
      ASSERT_TRUE(ring.finish().ok());
      held.swap(next);
      ASSERT_EQ(held.front(), (group.index() - step + size) % size);
      ASSERT_EQ(held.back(), held.front());
    }
    EXPECT_EQ(ring.begin(held.data(), next.data(), 4 * 100001).code(), StatusCode::badConfig);
    EXPECT_EQ(ring.finish().code(), StatusCode::badConfig);
  }
}

TEST(Zigzag, EveryPositionOnceInAscendingOrderOnEachRank) {
  for (int size = 1; size <= 5; ++size) {
    const std::int64_t sequence = 6 * size;
    std::vector<int> seen(static_cast<std::size_t>(sequence));
    for (int rank = 0; rank < size; ++rank) {
      std::int64_t last = -1;
      for (std::int64_t row = 0; row < sequence / size; ++row) {
        const std::int64_t position = zigzagPosition(sequence, size, rank, row);
        EXPECT_GT(position, last);
        last = position;
        ++seen[static_cast<std::size_t>(position)];
      }
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  }
}

/// Every rank does the same work in every step, and all together each pair of chunks that is not in the future, once.
TEST(Zigzag, WorkOfEveryRankAndStepIsEqual) {
  for (int size = 1; size <= 9; ++size) {
    std::vector<int> computed(static_cast<std::size_t>(4 * size * size));
    for (int rank = 0; rank < size; ++rank) {
      for (int owner = 0; owner < size; ++owner) {
        const RingPairs work = ringPairs(size, rank, owner);
        int halves = 0;
        for (int i = 0; i < work.count; ++i) {
          const RingPair& pair = work.pairs[static_cast<std::size_t>(i)];
          halves += pair.diagonal ? 1 : 2;
          ++computed[static_cast<std::size_t>(zigzagChunk(size, rank, pair.query) * 2 * size +
                                              zigzagChunk(size, owner, pair.key))];
        }
        EXPECT_EQ(halves, 4) << "rank " << rank << " owner " << owner << " of " << size;
      }
    }
    for (int query = 0; query < 2 * size; ++query) {
      for (int key = 0; key < 2 * size; ++key) {
        EXPECT_EQ(computed[static_cast<std::size_t>(query * 2 * size + key)], key <= query ? 1 : 0);
      }
    }
  }
}

struct Case {
  std::int64_t heads, kvHeads, headSize, chunkRows;
  DataType type;
  bool documents, strided;
};

/// The whole tensors, equal on all ranks, and a rank's zigzag share of them.
class RingAttentionTest : public testing::TestWithParam<Case> {
 protected:
  static constexpr std::int64_t kBatch = 2;
  const Case& p() const { return GetParam(); }
  std::int64_t sequence() const { return p().chunkRows * 2 * group.size(); }
  std::int64_t rows() const { return sequence() / group.size(); }

  Tensor random(std::int64_t width, unsigned seed) const {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    Tensor t(p().type, kBatch * sequence() * width);
    for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, normal(engine));
    return t;
  }
  /// This rank's rows of a whole tensor, `stride` apart; what is between the rows is −7.
  Tensor share(const Tensor& whole, std::int64_t width, std::int64_t stride) const {
    Tensor own(whole.type, kBatch * rows() * stride);
    for (std::int64_t i = 0; i < own.size(); ++i) own.set(i, -7);
    eachRow([&](std::int64_t local, std::int64_t global) {
      for (std::int64_t i = 0; i < width; ++i) own.set(local * stride + i, whole.get(global * width + i));
    });
    return own;
  }
  template <typename Body>
  void eachRow(const Body& body) const {
    for (std::int64_t b = 0; b < kBatch; ++b) {
      for (std::int64_t r = 0; r < rows(); ++r) {
        body(b * rows() + r, b * sequence() + zigzagPosition(sequence(), group.size(), group.index(), r));
      }
    }
  }
  /// Root mean square of the difference over that of the whole, own rows only; gaps must be untouched.
  double error(const Tensor& own, const Tensor& whole, std::int64_t width, std::int64_t stride) const {
    double squares = 0, difference = 0;
    eachRow([&](std::int64_t local, std::int64_t global) {
      for (std::int64_t i = 0; i < width; ++i) {
        const double a = own.get(local * stride + i), b = whole.get(global * width + i);
        squares += b * b, difference += (a - b) * (a - b);
      }
      for (std::int64_t i = width; i < stride; ++i) EXPECT_EQ(own.get(local * stride + i), -7);
    });
    return std::sqrt(difference / squares);
  }
  /// Positions at which the row's document starts: documents that end inside chunks, at their ends, of one token.
  std::vector<std::int32_t> firstKeys() const {
    std::vector<std::int32_t> first;
    for (std::int64_t b = 0; b < kBatch; ++b) {
      std::int32_t start = 0;
      for (std::int64_t t = 0; t < sequence(); ++t) {
        const bool starts =
            b == 0 ? t % (p().chunkRows + 7) == 0 : t == p().chunkRows || t == p().chunkRows + 1;
        if (starts) start = static_cast<std::int32_t>(t);
        first.push_back(start);
      }
    }
    return first;
  }

  const Communicator group = makeGroup(reversedRanks());
};

TEST_P(RingAttentionTest, IsTheAttentionOfOneRank) {
  const auto backend = createCpuBackend(1);
  const std::int64_t query = p().heads * p().headSize, key = p().kvHeads * p().headSize,
                     gap = p().strided ? 8 : 0;
  const Tensor q = random(query, 1), k = random(key, 2), v = random(key, 3), gO = random(query, 4);
  const std::vector<std::int32_t> first = firstKeys();

  Tensor o(p().type, q.size()), gQ(p().type, q.size()), gK(p().type, k.size()), gV(p().type, k.size());
  Tensor lse(DataType::float32, kBatch * p().heads * sequence());
  AttentionShape whole{kBatch, sequence(), p().heads, p().kvHeads, p().headSize};
  if (p().documents) whole.firstKeys = {first.data(), DataType::int32};
  const auto constView = [](const Tensor& t) { return ConstView(t.bytes.data(), t.type); };
  const auto aligned = [](Scratch& s) {
    void* at = s.storage.data();
    std::size_t space = s.storage.size();
    std::align(kAlignmentBytes, 1, at, space);
    return Workspace{at, static_cast<std::int64_t>(space)};
  };
  Scratch scratch(backend->attentionWorkspaceBytes(whole) + 64);
  ASSERT_TRUE(backend
                  ->attentionForward(whole, constView(q), constView(k), constView(v), o.view(), lse.view(),
                                     aligned(scratch))
                  .ok());
  ASSERT_TRUE(backend
                  ->attentionBackward(whole, constView(q), constView(k), constView(v), constView(o),
                                      constView(lse), constView(gO), gQ.view(), gK.view(), gV.view(),
                                      aligned(scratch))
                  .ok());

  RingAttentionShape shape{p().type, kBatch, sequence(), p().heads, p().kvHeads, p().headSize};
  shape.queryStride = query + gap, shape.keyStride = key + gap, shape.valueStride = key + gap;
  shape.outputStride = query + gap;
  std::vector<std::int32_t> ownFirst(static_cast<std::size_t>(kBatch * rows()));
  eachRow([&](std::int64_t local, std::int64_t global) {
    ownFirst[static_cast<std::size_t>(local)] = first[static_cast<std::size_t>(global)];
  });
  const ConstView firstView = p().documents ? ConstView{ownFirst.data(), DataType::int32} : ConstView{};
  const Tensor ownQ = share(q, query, query + gap), ownK = share(k, key, key + gap),
               ownV = share(v, key, key + gap), ownGO = share(gO, query, query + gap);
  ThreadLane lane;
  std::vector<std::vector<std::byte>> bits[2];
  for (Lane* driver : {static_cast<Lane*>(nullptr), static_cast<Lane*>(&lane)}) {
    Scratch ringStaging(RingAttention::stagingBytes(shape, group.size()) + 64);
    Scratch ringScratch(RingAttention::scratchBytes(shape, group.size(), *backend) + 64);
    RingAttention ring(*backend, group, shape, aligned(ringStaging), aligned(ringScratch), driver);
    Tensor ringO = share(q, 0, query + gap), ringGQ = ringO, ringGK = share(k, 0, key + gap), ringGV = ringGK;
    Tensor ringLse(DataType::float32, kBatch * p().heads * rows());
    Status status = ring.forward(constView(ownQ), constView(ownK), constView(ownV), firstView, ringO.view(),
                                 ringLse.view());
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(ring.computedHalves(), 4 * group.size());
    status =
        ring.backward(constView(ownQ), constView(ownK), constView(ownV), constView(ringO), constView(ringLse),
                      constView(ownGO), firstView, ringGQ.view(), ringGK.view(), ringGV.view());
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(ring.computedHalves(), 8 * group.size());
    // bfloat16: both round once, from sums in float32 that differ in their order.
    const double tolerance = p().type == DataType::float32 ? 1e-6 : 2e-3;
    EXPECT_LE(error(ringO, o, query, query + gap), tolerance);
    EXPECT_LE(error(ringGQ, gQ, query, query + gap), tolerance);
    EXPECT_LE(error(ringGK, gK, key, key + gap), tolerance);
    EXPECT_LE(error(ringGV, gV, key, key + gap), tolerance);
    for (std::int64_t b = 0; b < kBatch; ++b) {
      for (std::int64_t h = 0; h < p().heads; ++h) {
        for (std::int64_t r = 0; r < rows(); ++r) {
          const std::int64_t at = zigzagPosition(sequence(), group.size(), group.index(), r);
          ASSERT_NEAR(ringLse.get((b * p().heads + h) * rows() + r),
                      lse.get((b * p().heads + h) * sequence() + at), 1e-5);
        }
      }
    }
    bits[driver == nullptr ? 0 : 1] = {ringO.bytes, ringGQ.bytes, ringGK.bytes, ringGV.bytes};
  }
  EXPECT_EQ(bits[0], bits[1]) << "a lane changes when messages move, never a result";
}

INSTANTIATE_TEST_SUITE_P(Shapes, RingAttentionTest,
                         testing::Values(Case{2, 2, 16, 10, DataType::float32, false, false},
                                         Case{4, 2, 24, 37, DataType::float32, false, true},
                                         Case{4, 1, 8, 100, DataType::float32, true, false},
                                         Case{2, 1, 32, 96, DataType::float32, true, true},
                                         Case{4, 2, 16, 50, DataType::bfloat16, false, true},
                                         Case{4, 2, 16, 50, DataType::bfloat16, true, false}));

TEST(RingAttentionShapes, RefusedByName) {
  const auto backend = createCpuBackend(1);
  const Communicator group = makeGroup(allRanks());
  float x[64] = {};
  const View view{x, DataType::float32};
  RingAttentionShape shape{DataType::float32, 1, 2 * group.size() + 1, 1, 1, 8};
  EXPECT_EQ(RingAttention::stagingBytes(shape, group.size()), 0);
  EXPECT_EQ(RingAttention::scratchBytes(shape, group.size(), *backend), 0);
  RingAttention odd(*backend, group, shape, {}, {}, nullptr);
  EXPECT_NE(odd.forward(view, view, view, {}, view, view).message().find("sequence is"), std::string::npos);
  shape.sequence = 2 * group.size();
  RingAttention bare(*backend, group, shape, {}, {}, nullptr);
  const Status status = bare.forward(view, view, view, {}, view, view);
  EXPECT_EQ(status.code(), StatusCode::badConfig);
  EXPECT_NE(status.message().find("have 0 and 0 bytes"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace internevo::test
