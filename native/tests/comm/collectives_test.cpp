// Exact small integers, so that a misrouted piece is a wrong number; and the order of sums, bit by bit.
#include <chrono>
#include <cmath>
#include <random>

#include "comm/support.h"
#include "internevo/lane.h"

namespace internevo::test {
namespace {

/// What index `index` holds at element i: different for every rank and place, exact in bfloat16 after the sum.
float valueOf(int index, std::int64_t i) { return static_cast<float>((index + 1) * (1 + i % 13)); }
float sumOf(int size, std::int64_t i) { return static_cast<float>(size * (size + 1) / 2 * (1 + i % 13)); }

const DataType kFloats[] = {DataType::float32, DataType::bfloat16};
/// Small message, odd, larger than one segment, and fewer elements than ranks.
const std::int64_t kSizes[] = {1, 2, 7, 1000, 5003, 300001};

TEST(AllReduce, SumsIntegersExactly) {
  const Communicator group = makeGroup(reversedRanks());
  Scratch scratch(group.reduceWorkspaceBytes());
  for (const DataType type : kFloats) {
    for (const std::int64_t n : kSizes) {
      Tensor data(type, n);
      for (std::int64_t i = 0; i < n; ++i) data.set(i, valueOf(group.index(), i));
      ASSERT_TRUE(group.allReduce(data.view(), n, ReduceOperation::sum, scratch.workspace()).ok());
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(data.get(i), sumOf(group.size(), i)) << n << " at " << i;
    }
  }
}

TEST(AllReduce, MaximumAndWideTypes) {
  const Communicator group = makeGroup(allRanks());
  Scratch scratch(group.reduceWorkspaceBytes());
  std::vector<double> seconds{1.0 + group.index(), -1.0 - group.index()};
  ASSERT_TRUE(
      group.allReduce({seconds.data(), DataType::float64}, 2, ReduceOperation::maximum, scratch.workspace())
          .ok());
  EXPECT_EQ(seconds, (std::vector<double>{static_cast<double>(group.size()), -1.0}));
  std::vector<std::int64_t> counts(3, (std::int64_t{1} << 40) + group.index());
  ASSERT_TRUE(
      group.allReduce({counts.data(), DataType::int64}, 3, ReduceOperation::sum, scratch.workspace()).ok());
  const std::int64_t n = group.size();
  EXPECT_EQ(counts, (std::vector<std::int64_t>(3, n * (std::int64_t{1} << 40) + n * (n - 1) / 2)));
}

TEST(ReduceScatter, EveryIndexGetsItsChunk) {
  const Communicator group = makeGroup(reversedRanks());
  Scratch scratch(group.reduceWorkspaceBytes());
  for (const DataType type : kFloats) {
    for (const std::int64_t chunk : kSizes) {
      Tensor input(type, chunk * group.size()), output(type, chunk);
      for (std::int64_t i = 0; i < input.size(); ++i) input.set(i, valueOf(group.index(), i));
      ASSERT_TRUE(group.reduceScatter(input.view(), output.view(), chunk, scratch.workspace()).ok());
      for (std::int64_t i = 0; i < chunk; ++i) {
        ASSERT_EQ(output.get(i), sumOf(group.size(), group.index() * chunk + i));
      }
      const View own = input.view().offset(group.index() * chunk);  // the same in place
      ASSERT_TRUE(group.reduceScatter(input.view(), own, chunk, scratch.workspace()).ok());
      for (std::int64_t i = 0; i < chunk; ++i) {
        ASSERT_EQ(input.get(group.index() * chunk + i), output.get(i));
      }
    }
  }
}

TEST(ReduceScatter, SameBitsAsAllReduceAndTreeOrder) {
  const Communicator group = makeGroup(allRanks());
  Scratch scratch(group.reduceWorkspaceBytes());
  const std::int64_t chunk = 70001;
  std::vector<std::vector<float>> everyone;
  for (int rank = 0; rank < group.size(); ++rank) {
    std::mt19937 engine(static_cast<unsigned>(rank));
    std::normal_distribution<float> normal;
    auto& values = everyone.emplace_back(static_cast<std::size_t>(chunk * group.size()));
    for (float& value : values) value = normal(engine);
  }
  std::vector<float> whole = everyone[static_cast<std::size_t>(group.index())],
                     part(static_cast<std::size_t>(chunk));
  ASSERT_TRUE(group
                  .reduceScatter({whole.data(), DataType::float32}, {part.data(), DataType::float32}, chunk,
                                 scratch.workspace())
                  .ok());
  ASSERT_TRUE(group
                  .allReduce({whole.data(), DataType::float32}, chunk * group.size(), ReduceOperation::sum,
                             scratch.workspace())
                  .ok());
  for (std::int64_t i = 0; i < chunk; ++i) ASSERT_EQ(part[i], whole[group.index() * chunk + i]);
  const auto at = [&](int rank, std::int64_t i) {
    return everyone[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)];
  };
  for (std::int64_t i = 0; i < chunk * group.size(); ++i) {
    float expected = at(0, i);
    if (group.size() == 2) expected = at(0, i) + at(1, i);
    if (group.size() == 3) expected = (at(0, i) + at(1, i)) + at(2, i);
    if (group.size() == 4) expected = (at(0, i) + at(1, i)) + (at(2, i) + at(3, i));
    ASSERT_EQ(whole[i], expected) << i;
  }
}

TEST(ReduceScatter, SubgroupsThenReplicasGiveTheBitsOfTheWholeGroup) {
  if (worldSize() != 4) GTEST_SKIP() << "needs 4 ranks";
  const int rank = worldRank();
  const Communicator world = makeGroup({0, 1, 2, 3}, 1);
  const Communicator shard = makeGroup(rank < 2 ? std::vector{0, 1} : std::vector{2, 3}, 2);
  const Communicator replicas = makeGroup(rank % 2 == 0 ? std::vector{0, 2} : std::vector{1, 3}, 3);
  Scratch scratch(world.reduceWorkspaceBytes());
  const std::int64_t n = 40000;
  std::mt19937 engine(static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  std::vector<float> data(static_cast<std::size_t>(n)), part(static_cast<std::size_t>(n / 2));
  for (float& value : data) value = normal(engine);
  ASSERT_TRUE(shard
                  .reduceScatter({data.data(), DataType::float32}, {part.data(), DataType::float32}, n / 2,
                                 scratch.workspace())
                  .ok());
  ASSERT_TRUE(
      replicas.allReduce({part.data(), DataType::float32}, n / 2, ReduceOperation::sum, scratch.workspace())
          .ok());
  ASSERT_TRUE(
      world.allReduce({data.data(), DataType::float32}, n, ReduceOperation::sum, scratch.workspace()).ok());
  for (std::int64_t i = 0; i < n / 2; ++i) ASSERT_EQ(part[i], data[shard.index() * (n / 2) + i]);
}

TEST(AllReduce, Bfloat16IsSummedInFloat32AndRoundedOnce) {
  const Communicator group = makeGroup(allRanks());
  Scratch scratch(group.reduceWorkspaceBytes());
  // 256 + 1 + 1 + … in bfloat16 would stay at 256: the spacing there is 2.
  const std::int64_t n = 9000;
  Tensor data(DataType::bfloat16, n);
  for (std::int64_t i = 0; i < n; ++i) data.set(i, group.index() == 0 ? 256.f : 1.f);
  ASSERT_TRUE(group.allReduce(data.view(), n, ReduceOperation::sum, scratch.workspace()).ok());
  const float expected = floatFromBfloat16(bfloat16FromFloat(256.f + static_cast<float>(group.size() - 1)));
  for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(data.get(i), expected);
}

TEST(AllGather, ChunksInOrderOfIndex) {
  const Communicator group = makeGroup(reversedRanks());
  for (const std::int64_t chunk : kSizes) {
    Tensor own(DataType::bfloat16, chunk), all(DataType::bfloat16, chunk * group.size());
    for (std::int64_t i = 0; i < chunk; ++i) own.set(i, valueOf(group.index(), i));
    ASSERT_TRUE(group.allGather(own.view(), all.view(), chunk).ok());
    for (std::int64_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(all.get(i), valueOf(static_cast<int>(i / chunk), i % chunk));
    }
    Tensor inPlace(DataType::bfloat16, chunk * group.size());
    for (std::int64_t i = 0; i < chunk; ++i) inPlace.set(group.index() * chunk + i, own.get(i));
    ASSERT_TRUE(group.allGather(inPlace.view().offset(group.index() * chunk), inPlace.view(), chunk).ok());
    EXPECT_EQ(inPlace.bytes, all.bytes);
  }
}

TEST(AllToAll, BlockJOfIndexIArrivesAsBlockIOfIndexJ) {
  const Communicator group = makeGroup(reversedRanks());
  for (const std::int64_t block : {std::int64_t{1}, std::int64_t{50}, std::int64_t{100000}}) {
    std::vector<std::byte> out(static_cast<std::size_t>(block * group.size())), in(out.size());
    for (int to = 0; to < group.size(); ++to) {
      for (std::int64_t i = 0; i < block; ++i) {
        out[static_cast<std::size_t>(to * block + i)] = static_cast<std::byte>(16 * group.index() + to);
      }
    }
    ASSERT_TRUE(group.allToAll({out.data(), DataType::byte}, {in.data(), DataType::byte}, block).ok());
    for (int from = 0; from < group.size(); ++from) {
      for (std::int64_t i = 0; i < block; ++i) {
        ASSERT_EQ(in[static_cast<std::size_t>(from * block + i)],
                  static_cast<std::byte>(16 * from + group.index()));
      }
    }
  }
}

TEST(Broadcast, FromEveryRoot) {
  const Communicator group = makeGroup(reversedRanks());
  for (int root = 0; root < group.size(); ++root) {
    Tensor data(DataType::float32, 70000);
    for (std::int64_t i = 0; i < data.size(); ++i) data.set(i, valueOf(group.index(), i));
    ASSERT_TRUE(group.broadcast(data.view(), data.size(), root).ok());
    for (std::int64_t i = 0; i < data.size(); ++i) ASSERT_EQ(data.get(i), valueOf(root, i));
  }
  float x = 0;
  EXPECT_EQ(group.broadcast({&x, DataType::float32}, 1, group.size()).code(), StatusCode::badConfig);
}

TEST(Communicator, PartitionGivesEveryRankItsGroupAndOrder) {
  std::vector<std::vector<int>> partition;
  for (int rank = 0; rank < worldSize(); rank += 2) {
    partition.push_back(rank + 1 < worldSize() ? std::vector{rank + 1, rank} : std::vector{rank});
  }
  Communicator group;
  ASSERT_TRUE(Communicator::fromPartition(partition, 7, &group).ok());
  const auto& own = partition[static_cast<std::size_t>(worldRank() / 2)];
  ASSERT_EQ(group.size(), static_cast<int>(own.size()));
  EXPECT_EQ(own[static_cast<std::size_t>(group.index())], worldRank());
  std::int64_t sum = worldRank();
  Scratch scratch(group.reduceWorkspaceBytes());
  ASSERT_TRUE(group.allReduce({&sum, DataType::int64}, 1, ReduceOperation::sum, scratch.workspace()).ok());
  EXPECT_EQ(sum, std::accumulate(own.begin(), own.end(), 0));
}

TEST(Communicator, RefusesGroupsThatCannotBe) {
  Communicator group;
  EXPECT_EQ(Communicator::create({worldRank(), worldSize()}, 1, &group).code(), StatusCode::badConfig);
  EXPECT_EQ(Communicator::create({worldRank(), worldRank()}, 1, &group).code(), StatusCode::badConfig);
  EXPECT_EQ(Communicator::fromPartition({{worldSize() + 1}}, 1, &group).code(), StatusCode::badConfig);
}

TEST(Reduction, RefusesAWorkspaceThatIsTooSmall) {
  const Communicator group = makeGroup(allRanks());
  if (group.size() == 1) GTEST_SKIP() << "needs no workspace";
  float x = 0;
  const Status status = group.allReduce({&x, DataType::float32}, 1, ReduceOperation::sum, {});
  EXPECT_EQ(status.code(), StatusCode::badConfig);
  EXPECT_NE(status.message().find("workspace has 0 bytes"), std::string::npos) << status.message();
}

TEST(Lane, CollectivesOfTwoGroupsRunBesideEachOther) {
  const Communicator first = makeGroup(allRanks(), 1), second = makeGroup(allRanks(), 2);
  Scratch a(first.reduceWorkspaceBytes()), b(second.reduceWorkspaceBytes());
  const std::int64_t n = 60000;
  std::vector<float> x(static_cast<std::size_t>(n), 1.f), y(static_cast<std::size_t>(n), 2.f);
  ThreadLane lane;
  for (int i = 0; i < 5; ++i) {
    const auto ticket = lane.submit([&] {
      return first.allReduce({x.data(), DataType::float32}, n, ReduceOperation::sum, a.workspace());
    });
    ASSERT_TRUE(second.allReduce({y.data(), DataType::float32}, n, ReduceOperation::sum, b.workspace()).ok());
    ASSERT_TRUE(lane.wait(ticket).ok());
  }
  const float power = static_cast<float>(std::pow(first.size(), 5));
  EXPECT_EQ(x.front(), power);
  EXPECT_EQ(y.back(), 2 * power);
}

/// Of every index to the next, whose last element arrives though nobody waits for it.
void getOnWithoutBeingWaitedFor(const Communicator& group, int next, int before) {
  constexpr std::int64_t kElements = 1 << 20;  // moves in many parts
  std::vector<float> out(kElements, static_cast<float>(group.index())), in(kElements, -1.f);
  Transfer send, receive;
  EXPECT_TRUE(Communicator::advance(&send).ok()) << "nothing is pending";
  ASSERT_TRUE(group.startReceive({in.data(), DataType::float32}, kElements, before, 0, &receive).ok());
  ASSERT_TRUE(group.startSend(ConstView(out.data(), DataType::float32), kElements, next, 0, &send).ok());
  const auto arrived = [&] {
    return *static_cast<volatile float*>(&in.back()) == static_cast<float>(before);
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!arrived() && std::chrono::steady_clock::now() < end) {
    ASSERT_TRUE(Communicator::advance(&receive).ok());
    ASSERT_TRUE(Communicator::advance(&send).ok());
  }
  EXPECT_TRUE(arrived());
  EXPECT_TRUE(send.pending() && receive.pending()) << "until they are finished";
  ASSERT_TRUE(Communicator::finish(&receive).ok());
  ASSERT_TRUE(Communicator::finish(&send).ok());
  EXPECT_FALSE(send.pending() || receive.pending());
  EXPECT_EQ(in, std::vector<float>(kElements, static_cast<float>(before)));
}

TEST(PointToPoint, MessagesOfSeveralTagsGoRoundARingAndArriveByTag) {
  const Communicator group = makeGroup(reversedRanks());
  if (group.size() == 1) GTEST_SKIP() << "needs a neighbour";
  const int next = (group.index() + 1) % group.size(),
            before = (group.index() + group.size() - 1) % group.size();
  constexpr std::int64_t kElements = 50000;  // beyond what MPI sends eagerly
  std::vector<float> out[2], in[2];
  Transfer sends[2], receives[2];
  for (int tag = 0; tag < 2; ++tag) {
    out[tag].assign(kElements, static_cast<float>(10 * group.index() + tag));
    in[tag].assign(kElements, -1.f);
  }
  for (int tag = 0; tag < 2; ++tag) {
    ASSERT_TRUE(
        group.startSend(ConstView(out[tag].data(), DataType::float32), kElements, next, tag, &sends[tag])
            .ok());
    EXPECT_TRUE(sends[tag].pending());
  }
  for (int tag = 1; tag >= 0; --tag) {
    ASSERT_TRUE(
        group.startReceive({in[tag].data(), DataType::float32}, kElements, before, tag, &receives[tag]).ok());
  }
  for (int tag = 0; tag < 2; ++tag) {
    ASSERT_TRUE(Communicator::finish(&receives[tag]).ok());
    ASSERT_TRUE(Communicator::finish(&sends[tag]).ok());
    EXPECT_FALSE(sends[tag].pending());
    EXPECT_EQ(in[tag], std::vector<float>(kElements, static_cast<float>(10 * before + tag)));
  }
  EXPECT_TRUE(Communicator::finish(&sends[0]).ok()) << "nothing is pending";
  EXPECT_EQ(
      group.startSend(ConstView(out[0].data(), DataType::float32), 1, group.index(), 0, &sends[0]).code(),
      StatusCode::badConfig);
  EXPECT_EQ(
      group.startSend(ConstView(out[0].data(), DataType::float32), 1, next, Communicator::kTags, &sends[0])
          .code(),
      StatusCode::badConfig);
  getOnWithoutBeingWaitedFor(group, next, before);
}

}  // namespace
}  // namespace internevo::test
