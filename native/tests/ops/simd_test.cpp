// The vector functions that the kernels share, against the standard library.
#include "backend/cpu/simd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace internevo::cpu {
namespace {

using Function = Vec (*)(Vec);

float one(Function function, float x) { return firstOf(function(broadcast(x))); }

/// Largest difference to `exact` in units of the last place of the result.
double worstUnits(Function function, double (*exact)(double), float from, float to) {
  double worst = 0;
  const int steps = 200000;
  for (int i = 0; i <= steps; ++i) {
    const float x = from + (to - from) * static_cast<float>(i) / static_cast<float>(steps);
    const double expected = exact(static_cast<double>(x));
    const auto nearest = static_cast<float>(expected);
    const double unit =
        static_cast<double>(std::nextafter(nearest, std::numeric_limits<float>::infinity()) - nearest);
    worst = std::max(worst, std::fabs(static_cast<double>(one(function, x)) - expected) / unit);
  }
  return worst;
}

double exactExp(double x) { return std::exp(x); }
double exactExp2(double x) { return std::exp2(x); }

TEST(Simd, ExponentialsAreWithinTwoUnits) {
  EXPECT_LT(worstUnits(exponential, exactExp, -87.f, 88.f), 2.0);
  EXPECT_LT(worstUnits(exponential2, exactExp2, -126.f, 127.f), 2.0);
}

TEST(Simd, ExponentialsKeepOneZeroAndWhatIsNoNumber) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Function function : {Function{exponential}, Function{exponential2}}) {
    EXPECT_EQ(one(function, 0.f), 1.f);
    EXPECT_EQ(one(function, -kInfinity), 0.f);
    EXPECT_EQ(one(function, -std::numeric_limits<float>::max()), 0.f);
    EXPECT_EQ(one(function, -127.f), 0.f);
    EXPECT_TRUE(std::isnan(one(function, std::numeric_limits<float>::quiet_NaN())));
  }
  EXPECT_GT(one(exponential, 1000.f), 1e38f);  // does not wrap around
}

TEST(Simd, LanesAreSummedComparedAndChosen) {
  float numbers[Vec::width], chosen[Vec::width];
  for (int i = 0; i < Vec::width; ++i) numbers[i] = static_cast<float>(i + 1);
  EXPECT_EQ(sumOf(load(numbers)), static_cast<float>(Vec::width * (Vec::width + 1) / 2));
  for (int top = 0; top < Vec::width; ++top) {
    numbers[top] += 100.f;
    EXPECT_EQ(maxOf(load(numbers)), static_cast<float>(top + 101));
    numbers[top] -= 100.f;
    store(chosen, firstLanes(top, load(numbers), broadcast(-1.f)));
    for (int i = 0; i < Vec::width; ++i) EXPECT_EQ(chosen[i], i < top ? numbers[i] : -1.f);
  }
}

}  // namespace
}  // namespace internevo::cpu
