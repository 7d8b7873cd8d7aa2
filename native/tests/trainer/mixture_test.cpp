// Mixtures of data: how much of each source is drawn and when, and that a run is trained on just these sequences.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "data_writers.h"
#include "reference.h"
#include "trainer/random.h"
#include "trainer/trainer.h"
#include "trainer/training_data.h"

namespace internevo::trainer::testing {
namespace {

using Shares = std::vector<std::int64_t>;

class MixturePatternTest : public ::testing::TestWithParam<Shares> {};

TEST_P(MixturePatternTest, EverySourceHasItsShareAfterEveryDraw) {
  const Shares& shares = GetParam();
  const MixturePattern pattern(shares);
  const std::int64_t cycle = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  ASSERT_EQ(pattern.cycle(), cycle);
  Shares given(shares.size(), 0);
  for (std::int64_t draw = 0; draw < 3 * cycle; ++draw) {
    const MixturePattern::Draw at = pattern.at(draw);
    // No sequence of a source is left out, and none comes twice.
    EXPECT_EQ(at.index, given[static_cast<std::size_t>(at.source)]++);
    for (std::size_t source = 0; source < shares.size(); ++source) {
      const double due = static_cast<double>(shares[source] * (draw + 1)) / static_cast<double>(cycle);
      // As close as whole sequences allow for two sources; of many, one may have to wait for several others.
      EXPECT_LT(std::abs(static_cast<double>(given[source]) - due), shares.size() == 2 ? 1 : 2)
          << "source " << source << " after draw " << draw;
    }
    if ((draw + 1) % cycle != 0) continue;
    for (std::size_t source = 0; source < shares.size(); ++source)
      EXPECT_EQ(given[source], (draw + 1) / cycle * shares[source]);
  }
}

INSTANTIATE_TEST_SUITE_P(Shares, MixturePatternTest,
                         ::testing::Values(Shares{1}, Shares{1, 1}, Shares{7, 3}, Shares{1, 9999},
                                           Shares{500, 300, 199, 1}, Shares{1, 1, 1, 1, 1, 1, 1},
                                           Shares{7000, 1000, 1000, 500, 499, 1}));

class MixtureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = smallConfig("");
    config_.data.path.clear();
    const std::int64_t shares[] = {6, 3, 1};
    for (std::int64_t source = 0; source < 3; ++source) {
      tokens_.push_back(sampleTokens(500 + 241 * source, static_cast<std::uint32_t>(97 - 7 * source)));
      const std::string path = directory_.file("source-" + std::to_string(source));
      writeTokenFile(path, tokens_.back(), 97);
      config_.data.sources.push_back({path, DataConfig::Format::own, shares[source]});
    }
    config_.plan.microBatchSize = 2, config_.plan.microBatches = 3;
  }

  TrainingData opened() const {
    TrainingData data;
    data.open(config_.data, 97, config_.sequenceLengthTokens);
    return data;
  }
  std::int64_t sequencesOf(std::size_t source) const {
    return (static_cast<std::int64_t>(tokens_[source].size()) - 1) / config_.sequenceLengthTokens;
  }

  /// The sequences of a step, told anew: the draws of all steps before it are counted one after another.
  Batch batchOfMixture(std::int64_t step) const {
    const std::int64_t size = config_.plan.globalBatchSequences(), length = config_.sequenceLengthTokens;
    std::vector<std::pair<std::size_t, std::int64_t>> order;
    Shares given(3, 0);
    for (std::int64_t draw = 0; draw < step * size; ++draw) {
      std::size_t most = 0;
      const auto lacks = [&](std::size_t source) {
        return config_.data.sources[source].share * (draw + 1) - 10 * given[source];
      };
      for (std::size_t source = 1; source < 3; ++source)
        if (lacks(source) > lacks(most)) most = source;
      order.emplace_back(most, given[most]++);
    }
    Batch batch;
    const std::uint64_t key =
        streamKey(config_.seed, "mixture") + mix64(static_cast<std::uint64_t>(step - 1));
    for (std::int64_t place = 0; place < size; ++place) {
      const std::uint64_t shuffled =
          permute(key, static_cast<std::uint64_t>(size), static_cast<std::uint64_t>(place));
      const auto& [source, index] =
          order[static_cast<std::size_t>((step - 1) * size) + static_cast<std::size_t>(shuffled)];
      const std::int64_t number = sequenceOfDraw(mix64(config_.seed + source), sequencesOf(source), index);
      const auto first = tokens_[source].begin() + number * length;
      batch.tokens.emplace_back(first, first + length);
      batch.targets.emplace_back(first + 1, first + length + 1);
      batch.documentStarts.emplace_back(static_cast<std::size_t>(length), 0);
    }
    return batch;
  }

  TemporaryDirectory directory_;
  std::vector<std::vector<std::uint32_t>> tokens_;
  Config config_;
};

TEST_F(MixtureTest, StepsAreThoseOfTheReferenceOnTheSequencesDrawn) {
  Trainer trainer(config_, 0, {0});
  trainer.initializeWeights();
  Tensors weights;
  for (int unit = 0; unit < trainer.wholeLayout().unitCount(); ++unit) {
    const std::vector<float> values = trainer.collect(unit, Trainer::Quantity::weights);
    for (const LogicalTensor& t : trainer.wholeLayout().unit(unit).tensors)
      weights[t.name].assign(values.begin() + t.offset, values.begin() + t.offset + t.elements());
  }
  const Reference reference(config_.model, config_.sequenceLengthTokens, false);
  ReferenceOptimizer optimizer(config_.optimizer);
  for (std::int64_t step = 1; step <= 4; ++step) {
    Tensors gradients;
    const double loss = batchLoss(reference, weights, batchOfMixture(step), &gradients);
    optimizer.update(step, gradients, &weights);
    EXPECT_NEAR(trainer.step(step).loss, loss, 2e-6 * loss) << "step " << step;
  }
}

TEST_F(MixtureTest, EverySourceIsReadWholeBeforeItComesAgain) {
  const TrainingData data = opened();
  const std::int64_t size = config_.plan.globalBatchSequences();
  std::map<std::int64_t, std::vector<std::int64_t>> seen;
  std::set<std::vector<std::int64_t>> orders;
  for (std::int64_t batch = 0; batch < 200; ++batch) {
    std::vector<std::int64_t> order;
    for (std::int64_t place = 0; place < size; ++place) {
      const TrainingData::Sequence at = data.at(config_.seed, batch, place, size);
      ASSERT_TRUE(at.source);
      order.push_back(*at.source);
      seen[*at.source].push_back(at.number);
    }
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 20u) << "a place of a batch does not always hold the same source";
  for (auto& [source, numbers] : seen) {
    const std::int64_t count = sequencesOf(static_cast<std::size_t>(source));
    std::map<std::int64_t, std::int64_t> times;
    for (const std::int64_t number : numbers) ++times[number];
    const std::int64_t epochs = static_cast<std::int64_t>(numbers.size()) / count;
    EXPECT_GT(epochs, 1);
    EXPECT_EQ(static_cast<std::int64_t>(times.size()), count);
    // The last epoch is not complete.
    for (const auto& [number, often] : times) {
      EXPECT_GE(often, epochs) << number;
      EXPECT_LE(often, epochs + 1) << number;
    }
  }
}

TEST_F(MixtureTest, ASourceThatCannotBeReadIsNamedByItsField) {
  const auto problem = [&] {
    try {
      opened();
    } catch (const Failure& failure) {
      return failure.problem();
    }
    ADD_FAILURE() << "nothing was refused";
    return Problem{};
  };
  config_.data.sources[1].path = directory_.file("none");
  EXPECT_EQ(problem().field, "data.sources.1.path");
  EXPECT_NE(problem().message.find(directory_.file("none")), std::string::npos);
  config_.data.sources[1].path = config_.data.sources[0].path;
  config_.data.packing = DataConfig::Packing::documents;
  EXPECT_EQ(problem().field, "data.sources.0.path");
}

TEST_F(MixtureTest, ATokenOutsideTheVocabularyIsNamedByItsField) {
  auto tokens = tokens_[2];
  std::fill(tokens.begin(), tokens.end(), 200u);
  writeTokenFile(config_.data.sources[2].path, tokens, 97);
  Trainer trainer(config_, 0, {0});
  trainer.initializeWeights();
  try {
    for (std::int64_t step = 1; step <= 3; ++step) trainer.step(step);
    FAIL() << "nothing was refused";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.problem().field, "data.sources.2.path");
    EXPECT_NE(failure.problem().message.find("token 200 at byte"), std::string::npos);
  }
}

TEST_F(MixtureTest, ADigestTellsSharesSourcesAndTheirOrderApart) {
  std::set<std::string> digests{opened().digest()};
  config_.data.sources[0].share = 5;
  digests.insert(opened().digest());
  std::swap(config_.data.sources[0], config_.data.sources[1]);
  digests.insert(opened().digest());
  config_.data.sources.pop_back();
  digests.insert(opened().digest());
  EXPECT_EQ(digests.size(), 4u);
  EXPECT_EQ(opened().words(), "the mixture of 2 files, first " + config_.data.sources[0].path + ",");
}

}  // namespace
}  // namespace internevo::trainer::testing
