#include "comm/support.h"

namespace internevo::test {
namespace {

/// Names one element of the full tensor [batch, sequence, heads, headSize] by a small integer (exact in bfloat16).
float nameOf(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t i) {
  return static_cast<float>((b * 101 + t * 37 + h * 11 + i * 3) % 251);
}

struct Case {
  std::int64_t heads;
  DataType type;
  std::int64_t paddingBefore, paddingAfter;
};

class Ulysses : public testing::TestWithParam<Case> {
 protected:
  static constexpr std::int64_t kBatch = 2, kPart = 3, kHeadSize = 4;
  std::int64_t sp() const { return group.size(); }
  std::int64_t heads() const { return GetParam().heads; }
  std::int64_t local() const { return ulyssesLocalHeads(heads(), group.size()); }
  std::int64_t sequence() const { return kPart * sp(); }
  std::int64_t before() const { return heads() * kHeadSize + GetParam().paddingBefore; }
  std::int64_t after() const { return local() * kHeadSize + GetParam().paddingAfter; }
  std::int64_t firstHead(std::int64_t rank) const {
    return heads() >= sp() ? rank * local() : rank * heads() / sp();
  }
  UlyssesShape shape() const { return {kBatch, sequence(), heads(), kHeadSize, before(), after()}; }
  void SetUp() override {
    if (local() == 0) GTEST_SKIP() << "heads and ranks do not divide one another";
  }
  const Communicator group = makeGroup(reversedRanks());
};

TEST_P(Ulysses, ToHeadsPlacesEveryElement) {
  Scratch scratch(ulyssesWorkspaceBytes(shape(), group.size(), GetParam().type));
  Tensor source(GetParam().type, kBatch * kPart * before()),
      target(GetParam().type, kBatch * sequence() * after());
  for (std::int64_t i = 0; i < target.size(); ++i) target.set(i, -1);
  for (std::int64_t b = 0; b < kBatch; ++b)
    for (std::int64_t t = 0; t < kPart; ++t)
      for (std::int64_t h = 0; h < heads(); ++h)
        for (std::int64_t i = 0; i < kHeadSize; ++i)
          source.set((b * kPart + t) * before() + h * kHeadSize + i,
                     nameOf(b, group.index() * kPart + t, h, i));
  const Status status = ulyssesToHeads(group, shape(), source.view(), target.view(), scratch.workspace());
  ASSERT_TRUE(status.ok()) << status.message();
  for (std::int64_t b = 0; b < kBatch; ++b)
    for (std::int64_t t = 0; t < sequence(); ++t) {
      const std::int64_t row = (b * sequence() + t) * after();
      for (std::int64_t h = 0; h < local(); ++h)
        for (std::int64_t i = 0; i < kHeadSize; ++i)
          ASSERT_EQ(target.get(row + h * kHeadSize + i), nameOf(b, t, firstHead(group.index()) + h, i));
      for (std::int64_t pad = local() * kHeadSize; pad < after(); ++pad) ASSERT_EQ(target.get(row + pad), -1);
    }
}

TEST_P(Ulysses, ToSequenceSumsReplicasAndPlacesEveryElement) {
  Scratch scratch(ulyssesWorkspaceBytes(shape(), group.size(), GetParam().type));
  Tensor source(GetParam().type, kBatch * sequence() * after()),
      target(GetParam().type, kBatch * kPart * before());
  for (std::int64_t i = 0; i < target.size(); ++i) target.set(i, -1);
  const std::int64_t replicas = heads() >= sp() ? 1 : sp() / heads();
  // Replica r of a head holds r + 1 times a number below 17, exact in bfloat16 with its sum.
  const auto small = [](std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t i) {
    return static_cast<float>(static_cast<int>(nameOf(b, t, h, i)) % 17);
  };
  for (std::int64_t b = 0; b < kBatch; ++b)
    for (std::int64_t t = 0; t < sequence(); ++t)
      for (std::int64_t h = 0; h < local(); ++h)
        for (std::int64_t i = 0; i < kHeadSize; ++i)
          source.set((b * sequence() + t) * after() + h * kHeadSize + i,
                     static_cast<float>(1 + group.index() % replicas) *
                         small(b, t, firstHead(group.index()) + h, i));
  const Status status = ulyssesToSequence(group, shape(), source.view(), target.view(), scratch.workspace());
  ASSERT_TRUE(status.ok()) << status.message();
  for (std::int64_t b = 0; b < kBatch; ++b)
    for (std::int64_t t = 0; t < kPart; ++t) {
      const std::int64_t row = (b * kPart + t) * before();
      for (std::int64_t h = 0; h < heads(); ++h)
        for (std::int64_t i = 0; i < kHeadSize; ++i)
          ASSERT_EQ(target.get(row + h * kHeadSize + i), static_cast<float>(replicas * (replicas + 1) / 2) *
                                                             small(b, group.index() * kPart + t, h, i));
      for (std::int64_t pad = heads() * kHeadSize; pad < before(); ++pad)
        ASSERT_EQ(target.get(row + pad), -1);
    }
}

/// <toHeads(x), y> = <x, toSequence(y)> over all ranks: the gradient's move is the transpose.
TEST_P(Ulysses, MovesAreTransposesOfEachOther) {
  Scratch scratch(ulyssesWorkspaceBytes(shape(), group.size(), GetParam().type) +
                  group.reduceWorkspaceBytes());
  Tensor x(GetParam().type, kBatch * kPart * before()), y(GetParam().type, kBatch * sequence() * after());
  Tensor moved(GetParam().type, y.size()), back(GetParam().type, x.size());
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<float>((i * 7 + worldRank()) % 5 - 2));
  for (std::int64_t i = 0; i < y.size(); ++i) y.set(i, static_cast<float>((i * 3 + worldRank()) % 5 - 2));
  ASSERT_TRUE(ulyssesToHeads(group, shape(), x.view(), moved.view(), scratch.workspace()).ok());
  ASSERT_TRUE(ulyssesToSequence(group, shape(), y.view(), back.view(), scratch.workspace()).ok());
  std::int64_t sums[2] = {0, 0};
  for (std::int64_t i = 0; i < y.size(); ++i)
    if (i % after() < local() * kHeadSize) sums[0] += static_cast<std::int64_t>(moved.get(i) * y.get(i));
  for (std::int64_t i = 0; i < x.size(); ++i)
    if (i % before() < heads() * kHeadSize) sums[1] += static_cast<std::int64_t>(x.get(i) * back.get(i));
  ASSERT_TRUE(group.allReduce({sums, DataType::int64}, 2, ReduceOperation::sum, scratch.workspace()).ok());
  EXPECT_EQ(sums[0], sums[1]);
}

INSTANTIATE_TEST_SUITE_P(Heads, Ulysses,
                         testing::Values(Case{12, DataType::float32, 0, 0},
                                         Case{12, DataType::bfloat16, 8, 0},
                                         Case{4, DataType::float32, 0, 12}, Case{3, DataType::float32, 4, 4},
                                         Case{2, DataType::bfloat16, 0, 0}, Case{1, DataType::float32, 4, 0},
                                         Case{1, DataType::bfloat16, 0, 4}));

TEST(UlyssesShapes, RefusedByName) {
  const Communicator group = makeGroup(allRanks());
  float x[64] = {};
  Scratch scratch(1024);
  if (group.size() > 1) {
    const UlyssesShape odd{1, 2 * group.size() + 1, group.size(), 2, 0, 0};
    const Status status =
        ulyssesToHeads(group, odd, {x, DataType::float32}, {x, DataType::float32}, scratch.workspace());
    EXPECT_EQ(status.code(), StatusCode::badConfig);
    EXPECT_NE(status.message().find("sequence"), std::string::npos) << status.message();
    const UlyssesShape heads{1, group.size(), group.size() + 1, 2, 0, 0};
    EXPECT_NE(
        ulyssesToHeads(group, heads, {x, DataType::float32}, {x, DataType::float32}, scratch.workspace())
            .message()
            .find("heads"),
        std::string::npos);
  }
  EXPECT_EQ(ulyssesLocalHeads(6, 4), 0);
  EXPECT_EQ(ulyssesLocalHeads(3, 4), 0);
  EXPECT_EQ(ulyssesLocalHeads(2, 4), 1);
  EXPECT_EQ(ulyssesLocalHeads(8, 4), 2);
}

}  // namespace
}  // namespace internevo::test
