// Token files, the order of the data, the schedule, random numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include <functional>

#include "support.h"
#include "trainer/failure.h"
#include "trainer/random.h"
#include "trainer/schedule.h"
#include "trainer/token_file.h"

namespace internevo::trainer::testing {
namespace {

std::string messageOf(const std::function<void()>& call, StatusCode code) {
  try {
    call();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.problem().code, code);
    return failure.problem().message;
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

class TokenFileTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  std::string openError(std::int64_t vocabulary = 50, std::int64_t sequence = 10) {
    return messageOf([&] { TokenFile().open({path_}, vocabulary, sequence); }, StatusCode::dataError);
  }
  TemporaryDirectory directory_;
  std::string path_ = directory_.file("d.tokens");
};

TEST_P(TokenFileTest, GivesEverySequenceWithItsTargets) {
  const auto tokens = sampleTokens(101, 50);
  writeTokenFile(path_, tokens, 50, GetParam());
  TokenFile file;
  file.open({path_}, 50, 10);
  ASSERT_EQ(file.sequenceCount(), 10);
  for (std::int64_t sequence = 0; sequence < 10; ++sequence) {
    std::int32_t read[4], targets[4];
    file.read(sequence, 6, 4, read, targets);
    for (int i = 0; i < 4; ++i) {
      const auto at = static_cast<std::size_t>(sequence * 10 + 6 + i);
      EXPECT_EQ(read[i], static_cast<std::int32_t>(tokens[at]));
      EXPECT_EQ(targets[i], static_cast<std::int32_t>(tokens[at + 1]));
    }
  }
}

TEST_P(TokenFileTest, NamesFileExpectedAndFoundBytesOfATruncatedFile) {
  writeTokenFile(path_, sampleTokens(101, 50), 50, GetParam());
  const std::string whole = readFile(path_);
  for (const std::size_t length : {std::size_t{0}, std::size_t{63}, whole.size() - 1}) {
    writeFile(path_, whole.substr(0, length));
    const std::string message = openError();
    EXPECT_NE(message.find(path_), std::string::npos) << message;
    EXPECT_NE(message.find(std::to_string(length) + " bytes"), std::string::npos) << message;
    if (length > 64) {
      EXPECT_NE(message.find(std::to_string(whole.size())), std::string::npos) << message;
    }
  }
  writeFile(path_, whole + "x");
  EXPECT_NE(openError().find("too long"), std::string::npos);
}

TEST_P(TokenFileTest, NamesByteOffsetAndValueOfATokenOutsideTheVocabulary) {
  auto tokens = sampleTokens(101, 50);
  tokens[37] = 50;
  writeTokenFile(path_, tokens, 50, GetParam());
  TokenFile file;
  file.open({path_}, 50, 10);
  std::int32_t read[10], targets[10];
  EXPECT_NO_THROW(file.read(2, 0, 10, read, targets));
  const std::string message = messageOf([&] { file.read(3, 0, 10, read, targets); }, StatusCode::dataError);
  EXPECT_NE(message.find("token 50"), std::string::npos) << message;
  EXPECT_NE(message.find("byte " + std::to_string(64 + 37 * GetParam())), std::string::npos) << message;
}

TEST_P(TokenFileTest, RefusesOtherHeaders) {
  writeTokenFile(path_, sampleTokens(101, 50), 50, GetParam());
  const std::string whole = readFile(path_);
  const auto changed = [&](std::size_t at, char value) {
    std::string bytes = whole;
    bytes[at] = value;
    writeFile(path_, bytes);
    return openError();
  };
  EXPECT_NE(changed(0, 'X').find("IEVOTOK"), std::string::npos);
  EXPECT_NE(changed(8, 3).find("version 3"), std::string::npos);
  EXPECT_NE(changed(12, 3).find("3 bytes a token"), std::string::npos);
  EXPECT_NE(changed(23, '\x7f').find("too many"), std::string::npos);
  writeFile(path_, whole);
  EXPECT_NE(openError(49).find("vocabulary"), std::string::npos);
  EXPECT_NE(openError(50, 101).find("one sequence needs 102"), std::string::npos);
  path_ += ".absent";
  EXPECT_NE(openError().find(path_), std::string::npos);
  path_ = "/";
  EXPECT_FALSE(openError().empty());
}

INSTANTIATE_TEST_SUITE_P(Widths, TokenFileTest, ::testing::Values(2u, 4u));

TEST(DataOrder, EveryEpochIsAnotherPermutationOfAllSequences) {
  for (const std::int64_t count : {1, 2, 3, 17, 64, 1000}) {
    std::vector<std::vector<std::int64_t>> epochs;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::int64_t> order;
      for (std::int64_t i = 0; i < count; ++i) order.push_back(sequenceOfDraw(11, count, epoch * count + i));
      const std::set<std::int64_t> all(order.begin(), order.end());
      EXPECT_EQ(static_cast<std::int64_t>(all.size()), count);
      EXPECT_GE(*all.begin(), 0);
      EXPECT_LT(*all.rbegin(), count);
      epochs.push_back(order);
    }
    if (count > 10) {
      EXPECT_NE(epochs[0], epochs[1]);
      EXPECT_NE(epochs[1], epochs[2]);
      EXPECT_NE(sequenceOfDraw(11, count, 0) * 1000000 + sequenceOfDraw(11, count, 1) * 1000 +
                    sequenceOfDraw(11, count, 2),
                sequenceOfDraw(12, count, 0) * 1000000 + sequenceOfDraw(12, count, 1) * 1000 +
                    sequenceOfDraw(12, count, 2));
    }
  }
}

TEST(Random, NormalsHaveMeanZeroVarianceOneAndNoCorrelationOfNeighbours) {
  const std::uint64_t key = streamKey(3, "layers.0.wq");
  const int count = 200000;
  double sum = 0, squares = 0, product = 0, last = 0;
  for (int i = 0; i < count; ++i) {
    const double x = randomNormal(key, static_cast<std::uint64_t>(i));
    sum += x, squares += x * x, product += x * last, last = x;
  }
  const double bound = 5 / std::sqrt(count);
  EXPECT_NEAR(sum / count, 0, bound);
  EXPECT_NEAR(squares / count, 1, bound * std::sqrt(2));
  EXPECT_NEAR(product / count, 0, bound);
  EXPECT_NE(streamKey(3, "layers.0.wq"), streamKey(3, "layers.0.wk"));
  EXPECT_NE(streamKey(3, "layers.0.wq"), streamKey(4, "layers.0.wq"));
}

TEST(Schedule, WarmsUpLinearlyThenFollowsACosineToTheMinimum) {
  OptimizerConfig o;
  o.peakLearningRate = 1, o.minLearningRate = 0.1, o.warmupSteps = 4, o.decaySteps = 12;
  EXPECT_DOUBLE_EQ(learningRateAt(o, 1), 0.25);
  EXPECT_DOUBLE_EQ(learningRateAt(o, 4), 1);
  EXPECT_DOUBLE_EQ(learningRateAt(o, 8), 0.55);
  EXPECT_DOUBLE_EQ(learningRateAt(o, 12), 0.1);
  EXPECT_DOUBLE_EQ(learningRateAt(o, 100), 0.1);
  o.warmupSteps = 0;
  EXPECT_GT(learningRateAt(o, 1), 0.97);
  o.warmupSteps = 20;  // longer than the decay: warm up all the same
  EXPECT_DOUBLE_EQ(learningRateAt(o, 20), 1);
  EXPECT_DOUBLE_EQ(learningRateAt(o, 21), 0.1);
}

/// Against the closed form of each schedule, step by step, in long double.
TEST(Schedule, IsTheClosedFormOfEveryKind) {
  using Kind = LearningRateSchedule;
  constexpr long double kPi = 3.14159265358979323846264338327950288L;
  for (const std::int64_t warmup : {0, 1, 10}) {
    OptimizerConfig o;
    o.peakLearningRate = 3e-4, o.minLearningRate = 2e-5, o.warmupSteps = warmup, o.decaySteps = 100;
    o.annealingSteps = 30;
    const long double peak = 3e-4L, least = 2e-5L, w = static_cast<long double>(warmup);
    for (std::int64_t step = 1; step <= 130; ++step) {
      const auto s = static_cast<long double>(step);
      const long double part = std::min(1.0L, (s - w) / (100 - w));
      const std::pair<Kind, long double> expected[] = {
          {Kind::constant, peak},
          {Kind::linear, peak + (least - peak) * part},
          {Kind::cosine, (peak + least) / 2 + (peak - least) / 2 * std::cos(kPi * part)},
          {Kind::warmupStableDecay, s <= 70 ? peak : peak + (least - peak) * std::min(1.0L, (s - 70) / 30)}};
      for (const auto& [kind, behind] : expected) {
        o.schedule = kind;
        const long double wanted = step <= warmup ? peak * s / w : behind;
        EXPECT_NEAR(learningRateAt(o, step), static_cast<double>(wanted), 1e-18)
            << "schedule " << static_cast<int>(kind) << ", warm-up " << warmup << ", step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace internevo::trainer::testing
