// Arena, exact sums, lane.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "internevo/arena.h"
#include "internevo/exact_sum.h"
#include "internevo/lane.h"

namespace internevo {
namespace {

TEST(Arena, HandsOutPlannedRangesAndKeepsTheHighWaterMark) {
  Arena arena;
  ASSERT_TRUE(arena.create(4096).ok());
  void* memory = nullptr;
  ASSERT_TRUE(arena.at(1024, 512, &memory).ok());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
  EXPECT_EQ(*static_cast<char*>(memory), 0);
  EXPECT_EQ(arena.highWaterBytes(), 1536);
  EXPECT_EQ(arena.at(4032, 65, &memory).code(), StatusCode::outOfMemory);
  EXPECT_EQ(arena.at(32, 8, &memory).code(), StatusCode::outOfMemory);
  EXPECT_EQ(arena.at(-64, 8, &memory).code(), StatusCode::outOfMemory);
  EXPECT_EQ(arena.create(4096).code(), StatusCode::internal);
}

TEST(Arena, ShortageNamesTheSize) {
  Arena arena;
  const Status status = arena.create(std::int64_t{1} << 60);
  EXPECT_EQ(status.code(), StatusCode::outOfMemory);
  EXPECT_NE(status.message().find("1152921504606846976"), std::string::npos);
}

TEST(ExactSum, OrderAndGroupingDoNotMatter) {
  std::mt19937_64 engine(1);
  std::uniform_real_distribution<double> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(-60, 50);
  std::vector<double> values(2000);
  for (double& value : values) value = std::ldexp(mantissa(engine), exponent(engine));
  ExactSum forward, grouped;
  for (double value : values) forward.add(value);
  for (std::size_t first = 0; first < values.size(); first += 37) {
    ExactSum part;
    for (std::size_t i = std::min(values.size(), first + 37); i-- > first;) part.add(values[i]);
    grouped.add(part);
  }
  EXPECT_EQ(forward.value(), grouped.value());
  long double plain = 0;
  for (double value : values) plain += value;
  EXPECT_NEAR(forward.value(), static_cast<double>(plain), 1e-12 * std::ldexp(1.0, 50));
}

TEST(ExactSum, CancelsExactlyAndCoversItsRange) {
  ExactSum sum;
  sum.add(0x1p62);
  sum.add(0x1p-90);
  sum.add(-0x1p62);
  EXPECT_EQ(sum.value(), 0x1p-90);
  ExactSum single;
  single.add(-1234.56789);
  EXPECT_EQ(single.value(), -1234.56789);
  ExactSum tiny;
  tiny.add(0x1p-200);
  EXPECT_EQ(tiny.value(), 0.0);
  for (const double bad : {0x1p63, -0x1p64, std::numeric_limits<double>::infinity(), std::nan("")}) {
    ExactSum broken;
    broken.add(bad);
    broken.add(1.0);
    EXPECT_TRUE(std::isnan(broken.value())) << bad;
  }
}

TEST(Lane, RunsInOrderAndWaitsForTheTicket) {
  std::vector<int> order;
  ThreadLane lane;
  Lane::Ticket last = 0;
  for (int i = 0; i < 1000; ++i) {
    last = lane.submit([&order, i] {
      order.push_back(i);
      return Status::success();
    });
  }
  ASSERT_TRUE(lane.wait(last).ok());
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Lane, FirstErrorStaysAndLaterJobsDoNotRun) {
  ThreadLane lane;
  bool ran = false;
  lane.submit([] { return Status(StatusCode::communicationError, "first"); });
  const auto ticket = lane.submit([&ran] {
    ran = true;
    return Status::success();
  });
  EXPECT_EQ(lane.wait(ticket).message(), "first");
  EXPECT_FALSE(ran);
  EXPECT_EQ(lane.waitAll().code(), StatusCode::communicationError);
}

}  // namespace
}  // namespace internevo
