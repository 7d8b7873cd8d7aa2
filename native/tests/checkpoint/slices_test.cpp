// Slices of logical tensors: shared runs against element by element, and coverage.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "checkpoint/slices.h"

namespace internevo::trainer::testing {
namespace {

/// Element of the tensor -> place in the slice.
std::map<std::int64_t, std::int64_t> elementsOf(const Slice& s, std::int64_t columns) {
  std::map<std::int64_t, std::int64_t> places;
  for (std::int64_t i = s.begin; i < s.end; ++i) {
    const std::int64_t row = s.rectangle.row + i / s.rectangle.columns,
                       column = s.rectangle.column + i % s.rectangle.columns;
    places[row * columns + column] = i - s.begin;
  }
  return places;
}

Slice randomSlice(std::mt19937& random, const TensorShape& shape) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  Slice s;
  s.rectangle.row = below(shape.rows), s.rectangle.column = below(shape.columns);
  s.rectangle.rows = 1 + below(shape.rows - s.rectangle.row),
  s.rectangle.columns = 1 + below(shape.columns - s.rectangle.column);
  s.begin = below(s.rectangle.elements());
  s.end = s.begin + 1 + below(s.rectangle.elements() - s.begin);
  return s;
}

TEST(Slices, SharedRunsAreTheSharedElements) {
  std::mt19937 random(7);
  int shared = 0;
  for (int i = 0; i < 20000; ++i) {
    const TensorShape shape{1 + static_cast<std::int64_t>(random() % 9),
                            1 + static_cast<std::int64_t>(random() % 9)};
    const Slice a = randomSlice(random, shape), b = randomSlice(random, shape);
    const auto inA = elementsOf(a, shape.columns), inB = elementsOf(b, shape.columns);
    std::map<std::int64_t, std::int64_t> expected, found;  // place in b -> place in a
    for (const auto& [element, place] : inA) {
      if (inB.count(element) != 0) expected[inB.at(element)] = place;
    }
    const auto runs = sharedRuns(a, b);
    for (std::size_t r = 0; r < runs.size(); ++r) {
      for (std::int64_t k = 0; k < runs[r].elements; ++k) found[runs[r].target + k] = runs[r].source + k;
      const bool joinable = r > 0 && runs[r - 1].source + runs[r - 1].elements == runs[r].source &&
                            runs[r - 1].target + runs[r - 1].elements == runs[r].target;
      EXPECT_FALSE(joinable);
    }
    EXPECT_EQ(found, expected);
    shared += static_cast<int>(found.size());
  }
  EXPECT_GT(shared, 3000);
}

TEST(Slices, ASliceOfWholeRowsIsOneRun) {
  const TensorShape shape{100, 64};
  Slice part = wholeOf(shape);
  part.begin = 130, part.end = 5000;
  EXPECT_EQ(sharedRuns(wholeOf(shape), part), (std::vector<internevo::trainer::Run>{{130, 0, 4870}}));
}

TEST(Slices, CoverageIsExactlyOnce) {
  const TensorShape shape{6, 8};
  // Two column halves, the left one in two flat parts that cut a row, the right one in row parts.
  std::vector<Slice> slices = {
      {{0, 0, 6, 4}, 0, 10}, {{0, 0, 6, 4}, 10, 24}, {{0, 4, 3, 4}, 0, 12}, {{3, 4, 3, 4}, 0, 12}};
  EXPECT_EQ(coverageProblem(shape, slices), "");
  for (std::size_t i = 0; i < slices.size(); ++i) {
    auto fewer = slices;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_NE(coverageProblem(shape, fewer).find("in no file"), std::string::npos);
    auto twice = slices;
    twice.push_back(slices[i]);
    EXPECT_NE(coverageProblem(shape, twice).find("overlap"), std::string::npos);
    auto moved = slices;
    moved[i].begin += 1;
    EXPECT_NE(coverageProblem(shape, moved), "");
    moved = slices;
    moved[i].rectangle.row += 1;
    EXPECT_NE(coverageProblem(shape, moved), "");
  }
  // As many elements as there are, but one twice and one not at all.
  auto shifted = slices;
  shifted[0].end = 11, shifted[1].end = 23;
  EXPECT_NE(coverageProblem(shape, shifted).find("overlap"), std::string::npos);
  EXPECT_NE(coverageProblem(shape, {{{0, 0, 7, 8}, 0, 48}}).find("not inside"), std::string::npos);
  EXPECT_NE(coverageProblem(shape, {{{1, 0, INT64_MAX, 8}, 0, 48}}).find("not inside"), std::string::npos);
}

}  // namespace
}  // namespace internevo::trainer::testing
