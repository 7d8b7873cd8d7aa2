// The model of a device finds what it is there to find.
#include <gtest/gtest.h>

#include <random>

#include "cuda/instruction_kernels.h"

namespace internevo::cuda {
namespace {

/// Every thread writes its number and reads its neighbour's; without a barrier in between the answer depends on the order.
struct Neighbour {
  static constexpr int kThreads = 64;
  int* result;
  bool synchronized;

  template <class Thread>
  void operator()(Thread& t) const {
    auto* const shared = reinterpret_cast<int*>(t.shared());
    shared[t.x()] = t.x();
    if (synchronized) t.sync();
    result[t.x()] = shared[(t.x() + 1) % kThreads];
  }
};

TEST(DeviceModel, AMissingBarrierShowsAsAnotherResult) {
  std::vector<int> expected(64), result(64);
  for (int i = 0; i < 64; ++i) expected[static_cast<std::size_t>(i)] = (i + 1) % 64;
  for (int order = 0; order < 3; ++order) {
    model::setThreadOrder(order);
    ASSERT_TRUE(launch({}, {1, 1, 1, 256}, Neighbour{result.data(), true}, "neighbour").ok());
    EXPECT_EQ(result, expected);
    ASSERT_TRUE(launch({}, {1, 1, 1, 256}, Neighbour{result.data(), false}, "neighbour").ok());
    EXPECT_NE(result, expected);
  }
  model::setThreadOrder(0);
}

struct Faulty {
  static constexpr int kThreads = 64;
  int fault;

  template <class Thread>
  void operator()(Thread& t) const {
    auto* const shared = reinterpret_cast<float*>(t.shared());
    if (fault == 0 && t.x() < 32) t.sync();
    if (fault == 1 && t.x() != 5) static_cast<void>(t.shuffleXor(1.f, 1));
    if (fault == 2) shared[t.x()] = 1.f;
    if (fault == 3) t.copyAsync(shared + 1, shared, true);
    if (fault == 4 && t.x() == 0) {
      std::uint32_t r[4];
      t.loadMatrices(r, shared);
    } else if (fault == 4) {
      static_cast<void>(t.shuffleXor(1.f, 1));
    }
  }
};

TEST(DeviceModel, FaultsAreErrors) {
  const auto run = [](int fault, int sharedBytes) {
    return launch({}, {1, 1, 1, sharedBytes}, Faulty{fault}, "faulty");
  };
  EXPECT_NE(run(0, 256).message().find("barrier"), std::string::npos);
  EXPECT_NE(run(1, 256).message().find("wait for one another forever"), std::string::npos);
  EXPECT_TRUE(run(2, 256).ok());
  EXPECT_NE(run(2, 252).message().find("behind the block's shared memory"), std::string::npos);
  EXPECT_NE(run(3, 256).message().find("not aligned"), std::string::npos);
  EXPECT_NE(run(4, 256).message().find("different collectives"), std::string::npos);
}

TEST(DeviceModel, CopiesHappenAsLateAsTheyMay) {
  std::vector<float> source(256, 2.f), result(256);
  ASSERT_TRUE(launch({}, {1, 1, 1, 1024}, Copies<1>{source.data(), result.data()}, "copies").ok());
  EXPECT_EQ(result[0], 2.f);
  EXPECT_EQ(result[124], 0.f) << "what is not valid is zero";
  EXPECT_TRUE(std::isnan(result[128])) << "the second group was not waited for";
}

TEST(DeviceModel, FragmentsMultiply) {
  std::mt19937 engine(5);
  std::vector<std::uint16_t> a(256), b(256), bT(256);
  for (int i = 0; i < 256; ++i) {
    a[static_cast<std::size_t>(i)] =
        bfloat16FromFloat(static_cast<float>(static_cast<int>(engine() % 9) - 4));
    b[static_cast<std::size_t>(i)] =
        bfloat16FromFloat(static_cast<float>(static_cast<int>(engine() % 9) - 4));
  }
  std::vector<float> expected(256), result(256);
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column) {
      bT[static_cast<std::size_t>(column * 16 + row)] = b[static_cast<std::size_t>(row * 16 + column)];
      for (int k = 0; k < 16; ++k) {
        expected[static_cast<std::size_t>(row * 16 + column)] +=
            floatFromBfloat16(a[static_cast<std::size_t>(row * 16 + k)]) *
            floatFromBfloat16(b[static_cast<std::size_t>(k * 16 + column)]);
      }
    }
  }
  ASSERT_TRUE(
      launch({}, {1, 1, 1, 1024}, Fragments{a.data(), b.data(), result.data(), false}, "fragments").ok());
  EXPECT_EQ(result, expected);
  ASSERT_TRUE(
      launch({}, {1, 1, 1, 1024}, Fragments{a.data(), bT.data(), result.data(), true}, "fragments").ok());
  EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace internevo::cuda
