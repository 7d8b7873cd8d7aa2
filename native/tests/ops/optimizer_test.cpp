#include "backend/cpu/reference/reference.h"
#include "internevo/random.h"
#include "ops/support.h"

namespace internevo::test {
namespace {

constexpr AdamwSettings kSettings{1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 1, 0.5f};

struct Adam {
  Values w = randomValues(101, 1), m = Values(101), v = Values(101);
};

TEST(Adamw, FollowsTheFormulaForManySteps) {
  Adam exact;
  const Buffer w(DataType::float32, exact.w), m(DataType::float32, exact.m), v(DataType::float32, exact.v);
  const auto backend = createTestBackend(2);
  for (int step = 1; step <= 20; ++step) {
    const Values g = roundedTo(randomValues(101, 100 + static_cast<unsigned>(step)), DataType::float32);
    const Buffer gradient(DataType::float32, g);
    AdamwSettings settings = kSettings;
    settings.step = step;
    ASSERT_TRUE(backend->adamw(101, settings, w.view(), {}, gradient.view(), m.view(), v.view()).ok());
    reference::adamw<double>(101, settings.learningRate, settings.beta1, settings.beta2, settings.epsilon,
                             settings.weightDecay, step, settings.gradientScale, exact.w.data(), g.data(),
                             exact.m.data(), exact.v.data());
  }
  EXPECT_LE(rmsError(w.values(), exact.w), 1e-6 * rootMeanSquare(exact.w));
  EXPECT_LE(rmsError(m.values(), exact.m), 1e-6 * rootMeanSquare(exact.m));
  EXPECT_LE(rmsError(v.values(), exact.v), 1e-6 * rootMeanSquare(exact.v));
}

TEST(Adamw, Bfloat16ParametersAreTheRoundingOfTheMaster) {
  const Values start = randomValues(77, 1), g = randomValues(77, 2);
  const Buffer w32(DataType::float32, start), master(DataType::float32, start),
      w16(DataType::bfloat16, start);
  const Buffer gradient(DataType::float32, g), zero(DataType::float32, Values(77));
  const Buffer m1(DataType::float32, Values(77)), v1(DataType::float32, Values(77)),
      m2(DataType::float32, Values(77)), v2(DataType::float32, Values(77));
  const auto backend = createTestBackend(1);
  ASSERT_TRUE(backend->adamw(77, kSettings, w32.view(), {}, gradient.view(), m1.view(), v1.view()).ok());
  ASSERT_TRUE(
      backend->adamw(77, kSettings, w16.view(), master.view(), gradient.view(), m2.view(), v2.view()).ok());
  EXPECT_EQ(master.values(), w32.values());
  EXPECT_EQ(w16.values(), roundedTo(w32.values(), DataType::bfloat16));
}

TEST(Adamw, ShardsGiveTheBitsOfTheWhole) {
  const Values start = randomValues(1000, 1), g = randomValues(1000, 2);
  const auto backend = createTestBackend(1);
  const Buffer gradient(DataType::float32, g);
  const Buffer whole(DataType::float32, start), m1(DataType::float32, Values(1000)),
      v1(DataType::float32, Values(1000));
  const Buffer parts(DataType::float32, start), m2(DataType::float32, Values(1000)),
      v2(DataType::float32, Values(1000));
  ASSERT_TRUE(backend->adamw(1000, kSettings, whole.view(), {}, gradient.view(), m1.view(), v1.view()).ok());
  for (std::int64_t first = 0; first < 1000; first += 333) {
    const std::int64_t count = std::min<std::int64_t>(333, 1000 - first);
    ASSERT_TRUE(backend
                    ->adamw(count, kSettings, parts.view().offset(first), {}, gradient.view().offset(first),
                            m2.view().offset(first), v2.view().offset(first))
                    .ok());
  }
  EXPECT_EQ(whole.values(), parts.values());
}

TEST(SquaredNorm, ExactUnderEverySharding) {
  constexpr std::int64_t kElements = 64 * 500;
  Values x = randomValues(kElements, 3);
  for (std::size_t i = 0; i < x.size(); i += 7) x[i] *= 1e-12;
  for (std::size_t i = 0; i < x.size(); i += 97) x[i] *= 1e6;
  const Buffer buffer(DataType::float32, x);
  ExactSum whole;
  const auto one = createTestBackend(1), three = createTestBackend(3);
  ASSERT_TRUE(one->squaredNorm(kElements, buffer.view(), &whole).ok());
  ASSERT_TRUE(one->settle().ok());
  double plain = 0;
  for (double value : buffer.values()) plain += value * value;
  EXPECT_NEAR(whole.value(), plain, 1e-12 * plain);
  for (const std::int64_t shard : {std::int64_t{64}, std::int64_t{64 * 3}, std::int64_t{64 * 100}}) {
    ExactSum parts;
    for (std::int64_t first = 0; first < kElements; first += shard) {
      ASSERT_TRUE(
          three->squaredNorm(std::min(shard, kElements - first), buffer.view().offset(first), &parts).ok());
    }
    ASSERT_TRUE(three->settle().ok());
    EXPECT_EQ(parts.words, whole.words) << shard;
  }
}

TEST(SquaredNorm, NaNShows) {
  const Buffer x(DataType::float32, {1.0, NAN, 2.0});
  ExactSum sum;
  const auto backend = createTestBackend(1);
  ASSERT_TRUE(backend->squaredNorm(3, x.view(), &sum).ok());
  ASSERT_TRUE(backend->settle().ok());
  EXPECT_TRUE(std::isnan(sum.value()));
}

TEST(Accumulate, AddsInFloat32) {
  const Values a = roundedTo(randomValues(50, 1), DataType::float32),
               b = roundedTo(randomValues(50, 2), DataType::bfloat16);
  const Buffer target(DataType::float32, a), source(DataType::bfloat16, b);
  ASSERT_TRUE(createTestBackend(1)->accumulate(50, source.view(), target.view()).ok());
  for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(target.values()[i], rounded(a[i] + b[i], DataType::float32));
}

TEST(InitialWeights, AreTheValuesOfTheirPlacesBitForBit) {
  constexpr std::uint64_t kKey = 0x1234567890abcdefull;
  constexpr double kDeviation = 0.02;
  for (const InitialShape& s : {InitialShape{1000, 0, 1000, 1000, 0, 0}, InitialShape{300, 17, 24, 96, 5, 48},
                                InitialShape{1, 7, 3, 9, 1, 3}}) {
    for (const int threads : {1, 3}) {
      const Buffer target(DataType::float32, Values(static_cast<std::size_t>(s.elements), 7.));
      ASSERT_TRUE(createTestBackend(threads)->initialNormal(s, kKey, kDeviation, target.view()).ok());
      for (std::int64_t i = 0; i < s.elements; ++i) {
        const std::int64_t at = s.first + i, whole = (s.firstRow + at / s.columns) * s.wholeColumns +
                                                     s.firstColumn + at % s.columns;
        const auto expected =
            static_cast<float>(kDeviation * randomNormal(kKey, static_cast<std::uint64_t>(whole)));
        ASSERT_EQ(target.view().as<float>()[i], expected) << i;
      }
    }
  }
}

TEST(InitialWeights, AreNormalNumbers) {
  double furthest = 0;
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const std::uint64_t bits = randomBits(3, i);
    const auto turns = static_cast<std::uint32_t>(bits);
    const double u = (static_cast<double>(bits >> 32) + 0.5) * 0x1p-32, logarithm = std::log(u);
    ASSERT_LE(std::abs(random::logarithm(u) - logarithm), 0x1p-52 * std::abs(logarithm)) << u;
    ASSERT_LE(std::abs(random::cosineOfTurns(turns) - std::cos(6.283185307179586476925 * 0x1p-32 * turns)),
              0x1p-50)
        << turns;
    furthest = std::max(furthest, std::abs(randomNormal(3, i)));
  }
  EXPECT_GT(furthest, 4);
  // Both ends of u, and the borders of quarters.
  EXPECT_NEAR(random::logarithm(0x1p-33), std::log(0x1p-33), 1e-14);
  EXPECT_NEAR(random::logarithm(1 - 0x1p-33), std::log1p(-0x1p-33), 1e-25);
  for (const auto& [turns, cosine] : {std::pair<std::uint32_t, double>{0, 1.},
                                      {1u << 30, 0.},
                                      {1u << 31, -1.},
                                      {3u << 30, 0.},
                                      {~0u, 1.}}) {
    EXPECT_NEAR(random::cosineOfTurns(turns), cosine, 1e-15) << turns;
  }
}

/// A GPU computes the same expressions: these are the bits that it must find.
TEST(InitialWeights, HaveKnownBits) {
  const std::vector<std::uint64_t> bits = {
      0x3fd7943a45d6ce96ull, 0xbfe160f48b341547ull, 0xbfe3b0d805b6ecb5ull,
      0xbfe6cdb27cc33bd8ull, 0x3fed13c83502b8f1ull, 0xbfde595a83868d91ull,
  };
  for (std::size_t i = 0; i < bits.size(); ++i)
    EXPECT_EQ(std::bit_cast<std::uint64_t>(randomNormal(42, i)), bits[i]) << i;
}

}  // namespace
}  // namespace internevo::test
