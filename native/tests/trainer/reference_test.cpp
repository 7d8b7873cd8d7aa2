// One rank of the trainer against the plain float64 model.
#include <gtest/gtest.h>

#include <cmath>

#include "data_writers.h"
#include "internevo/collectives.h"
#include "reference.h"
#include "support.h"
#include "trainer/token_file.h"
#include "trainer/trainer.h"

namespace internevo::trainer::testing {
namespace {

constexpr std::uint32_t kVocabulary = 97;

Tensors collect(Trainer& trainer, Trainer::Quantity quantity) {
  Tensors result;
  for (int unit = 0; unit < trainer.wholeLayout().unitCount(); ++unit) {
    const std::vector<float> values = trainer.collect(unit, quantity);
    for (const LogicalTensor& t : trainer.wholeLayout().unit(unit).tensors) {
      result[t.name].assign(values.begin() + t.offset, values.begin() + t.offset + t.elements());
    }
  }
  return result;
}

double relative(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / size);
}

/// A bias begins as 0 and so is nothing but its updates, in which small gradients count like large ones.
double roundingOfWeights(const std::string& name) { return name.find("Bias") != std::string::npos ? 10 : 1; }

struct Variant {
  const char* name;
  bool tied, documents;
  ModelConfig model = smallConfig("").model;
};

class ReferenceTest : public ::testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    data_ = sampleTokens(3000, kVocabulary);
    config_ = smallConfig(directory_.file("d.tokens"));
    if (GetParam().documents) {
      const Packed packed = samplePacked(3000, kVocabulary);
      data_ = packed.tokens, documentOf_ = packed.documentOf;
      writeOwn(config_.data.path, packed.documents, kVocabulary, 2);
      config_.data.packing = DataConfig::Packing::documents;
    } else {
      writeTokenFile(config_.data.path, data_, kVocabulary);
    }
    config_.model = GetParam().model;
    config_.model.tiedEmbeddings = GetParam().tied;
    config_.plan.microBatchSize = 2, config_.plan.microBatches = 2;
    config_.optimizer.clipGlobalNorm = 0.5;  // below the norm, so that clipping acts
  }
  TemporaryDirectory directory_;
  std::vector<std::uint32_t> data_;
  std::vector<int> documentOf_;
  Config config_;
};

TEST_P(ReferenceTest, GradientsOfTheReferenceAreThoseOfFiniteDifferences) {
  config_.plan.microBatchSize = 1, config_.plan.microBatches = 1;
  Trainer trainer(config_, 0, {0});
  trainer.initializeWeights();
  Tensors weights = collect(trainer, Trainer::Quantity::weights);
  const Reference reference(config_.model, config_.sequenceLengthTokens, false);
  const Batch batch = batchOf(config_, data_, documentOf_, 1);
  Tensors gradients;
  batchLoss(reference, weights, batch, &gradients);
  for (auto& [name, values] : weights) {
    // The largest of the gradient: a place where the difference is not lost in rounding.
    std::size_t place = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::abs(gradients[name][i]) > std::abs(gradients[name][place])) place = i;
    }
    const double kept = values[place], step = 1e-4;
    values[place] = kept + step;
    const double above = batchLoss(reference, weights, batch, nullptr);
    values[place] = kept - step;
    const double below = batchLoss(reference, weights, batch, nullptr);
    values[place] = kept;
    EXPECT_NEAR((above - below) / (2 * step), gradients[name][place], 2e-6 * std::abs(gradients[name][place]))
        << name;
  }
}

TEST_P(ReferenceTest, ThreeStepsOfTheTrainerAreThoseOfTheReference) {
  Trainer trainer(config_, 0, {0});
  trainer.initializeWeights();
  Tensors weights = collect(trainer, Trainer::Quantity::weights);
  const Reference reference(config_.model, config_.sequenceLengthTokens, false);
  ReferenceOptimizer optimizer(config_.optimizer);
  for (std::int64_t step = 1; step <= 3; ++step) {
    Tensors gradients;
    const double loss = batchLoss(reference, weights, batchOf(config_, data_, documentOf_, step), &gradients);
    const double norm = optimizer.update(step, gradients, &weights);
    const StepResult result = trainer.step(step);
    EXPECT_NEAR(result.loss, loss, 1e-6 * loss) << "step " << step;
    EXPECT_NEAR(result.gradientNorm, norm, 2e-6 * norm) << "step " << step;
    EXPECT_GT(norm, config_.optimizer.clipGlobalNorm);
    for (const auto& [name, values] : collect(trainer, Trainer::Quantity::gradient)) {
      EXPECT_LT(relative(values, gradients.at(name)),
                (step == 1 ? 1e-6 : 3e-6) * roundingOf(config_.model, name))
          << name << " step " << step;
    }
    for (const auto& [name, values] : collect(trainer, Trainer::Quantity::weights)) {
      EXPECT_LT(relative(values, weights.at(name)), 1e-6 * roundingOfWeights(name))
          << name << " step " << step;
    }
  }
}

TEST_P(ReferenceTest, Bfloat16ErrsAtMostTwiceAsMuchAsAPlainImplementation) {
  config_.precision = DataType::bfloat16;
  Trainer trainer(config_, 0, {0});
  trainer.initializeWeights();
  const Tensors weights = collect(trainer, Trainer::Quantity::weights);
  const Batch batch = batchOf(config_, data_, documentOf_, 1);
  Tensors exact, plain;
  const double loss =
      batchLoss(Reference(config_.model, config_.sequenceLengthTokens, false), weights, batch, &exact);
  const double plainLoss =
      batchLoss(Reference(config_.model, config_.sequenceLengthTokens, true), weights, batch, &plain);
  const StepResult result = trainer.step(1);
  // A single loss can be right by luck; the scale of its error is that of rounding one logit.
  EXPECT_LT(std::abs(result.loss - loss), 2 * std::abs(plainLoss - loss) + 0x1p-9 * loss / 8);
  for (const auto& [name, values] : collect(trainer, Trainer::Quantity::gradient)) {
    EXPECT_LT(relative(values, exact.at(name)),
              2 * roundingOf(config_.model, name) * relative(plain.at(name), exact.at(name)))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, ReferenceTest,
                         ::testing::Values(Variant{"Untied", false, false}, Variant{"Tied", true, false},
                                           Variant{"UntiedDocuments", false, true},
                                           Variant{"TiedDocuments", true, true},
                                           Variant{"Qwen2Documents", false, true, qwen2Model()},
                                           Variant{"Qwen3", true, false, qwen3Model()},
                                           Variant{"Qwen3Documents", false, true, qwen3Model()},
                                           Variant{"Llama3", false, false, llama3Model()},
                                           Variant{"MistralDocuments", false, true, mistralModel()}),
                         [](const auto& variant) { return std::string(variant.param.name); });

TEST(Splits, WholeBlocksOfRowsGiveTheSameBitsInOneMicroBatchOrSeveral) {
  TemporaryDirectory directory;
  writeTokenFile(directory.file("d.tokens"), sampleTokens(3000, kVocabulary), kVocabulary);
  Config config = smallConfig(directory.file("d.tokens"));
  config.sequenceLengthTokens = kSumBlockRows;
  std::vector<std::vector<float>> gradients;
  std::vector<double> losses;
  for (const std::int64_t count : {1, 2, 4}) {
    config.plan.microBatchSize = 4 / count, config.plan.microBatches = count;
    Trainer trainer(config, 0, {0});
    trainer.initializeWeights();
    losses.push_back(trainer.step(1).loss);
    std::vector<float> all;
    for (int unit = 0; unit < trainer.layout().unitCount(); ++unit) {
      const std::vector<float> part = trainer.collect(unit, Trainer::Quantity::gradient);
      all.insert(all.end(), part.begin(), part.end());
    }
    gradients.push_back(all);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_EQ(gradients[0], gradients[2]);
}

TEST(Threads, DoNotChangeABit) {
  TemporaryDirectory directory;
  writeTokenFile(directory.file("d.tokens"), sampleTokens(3000, kVocabulary), kVocabulary);
  Config config = smallConfig(directory.file("d.tokens"));
  std::vector<Tensors> weights;
  for (const int threads : {1, 2, 3}) {
    config.threadsPerRank = threads;
    Trainer trainer(config, 0, {0});
    trainer.initializeWeights();
    trainer.step(1);
    trainer.step(2);
    weights.push_back(collect(trainer, Trainer::Quantity::weights));
  }
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(weights[0], weights[2]);
}

}  // namespace
}  // namespace internevo::trainer::testing
