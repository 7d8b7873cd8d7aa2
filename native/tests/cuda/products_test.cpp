// Who computes a product: the fastest of what a library answers, the same on all ranks, within the planned scratch memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/communication_share.h"
#include "backend/cuda/product_trial.h"
#include "backend/cuda/sizes.h"
#include "backend/cuda/stream_stopwatch.h"
#include "emulator/model_backend.h"
#include "emulator/model_products.h"
#include "emulator/model_streams.h"

namespace internevo::cuda {
namespace {

/// A rank: its own library, clock and memory. Operands lie behind the scratch memory, of which every byte is looked at.
class Rank {
 public:
  explicit Rank(std::vector<ModelAnswer> answers, bool leads = true)
      : products_(createModelProducts(std::move(answers))),
        streams_(model::createModelStreams(false, model::StreamOrder::first)),
        stopwatch_(*streams_, current_),
        leads_(leads),
        memory_(static_cast<std::size_t>(kMatrixWorkspaceBytes) + (1 << 20)) {
    EXPECT_TRUE(streams_->create(&current_.queue).ok());
  }

  Status choose(ProductRequest request, const LargestOfRanks& largest, ProductChoices* chosen) {
    request.uses.linear = {{8, 12, 16, DataType::float32}};
    request.memory = {memory_.data(), static_cast<std::int64_t>(memory_.size())};
    return chooseProducts({products_, hostMemory(), stopwatch_, current_.queue, leads_}, request, largest,
                          chosen);
  }
  MatrixProducts& products() { return products_; }
  const Queue& queue() const { return current_.queue; }
  std::vector<std::byte>& memory() { return memory_; }

 private:
  MatrixProducts products_;
  std::unique_ptr<Streams> streams_;
  Current current_;
  StreamStopwatch stopwatch_;
  const bool leads_;
  std::vector<std::byte> memory_;
};

const LargestOfRanks kAlone = [](std::int64_t*, int) { return Status::success(); };

constexpr std::int64_t kTick =
    50000;  // microseconds: the CPU's own time of these products is nothing beside it

std::vector<ModelAnswer> answersOf(std::initializer_list<std::int64_t> ticks) {
  std::vector<ModelAnswer> answers;
  for (const std::int64_t each : ticks) answers.push_back({each * kTick});
  return answers;
}

/// Two ranks that call by turns: every call of `largest` is met by the other's of the same number.
struct Two {
  Rank first, second;

  /// The first rank's words are recorded, then met by the second's; what both then have is what the first is told when it asks again.
  void agree(const ProductRequest& request, ProductChoices* a, ProductChoices* b) {
    std::vector<std::vector<std::int64_t>> own;
    // Once with nobody else to hear what it has to say; the answers of its clock are then kept for the exchange.
    const auto record = [&](std::int64_t* words, int count) {
      own.emplace_back(words, words + count);
      return Status::success();
    };
    ASSERT_TRUE(first.choose(request, record, a).ok());
    std::size_t call = 0;
    std::vector<std::vector<std::int64_t>> both;
    ASSERT_TRUE(second
                    .choose(
                        request,
                        [&](std::int64_t* words, int count) {
                          const auto& theirs = own[call++];
                          EXPECT_EQ(theirs.size(), static_cast<std::size_t>(count));
                          for (int i = 0; i < count; ++i)
                            words[i] = std::max(words[i], theirs[static_cast<std::size_t>(i)]);
                          both.emplace_back(words, words + count);
                          return Status::success();
                        },
                        b)
                    .ok());
    call = 0;
    ASSERT_TRUE(first
                    .choose(
                        request,
                        [&](std::int64_t* words, int count) {
                          std::copy(both[call].begin(), both[call].end(), words);
                          EXPECT_EQ(both[call].size(), static_cast<std::size_t>(count));
                          return ++call, Status::success();
                        },
                        a)
                    .ok());
  }
};

std::vector<int> answersTaken(const ProductChoices& chosen) {
  std::vector<int> taken;
  for (const ProductChoice& each : chosen.products) taken.push_back(each.answer);
  return taken;
}

TEST(Products, TheFastestOfEightAnswersIsTaken) {
  Rank rank(answersOf({8, 7, 6, 5, 1, 4, 3, 2}));
  ProductChoices chosen;
  ASSERT_TRUE(rank.choose({}, kAlone, &chosen).ok());
  EXPECT_EQ(answersTaken(chosen), (std::vector<int>{4, 4, 4}));
  for (const ProductChoice& each : chosen.products) {
    EXPECT_EQ(each.answers, 8);
    EXPECT_NEAR(each.seconds, 1e-6 * kTick, 0.5e-6 * kTick) << each.product;
    EXPECT_NEAR(each.firstSeconds, 8e-6 * kTick, 0.5e-6 * kTick);
  }
}

TEST(Products, NoMoreThanEightAreAskedFor) {
  Rank rank(answersOf({8, 7, 6, 5, 4, 3, 3, 2, 1}));
  ProductChoices chosen;
  ASSERT_TRUE(rank.choose({}, kAlone, &chosen).ok());
  EXPECT_EQ(answersTaken(chosen), (std::vector<int>{7, 7, 7}));
}

TEST(Products, AnAnswerThatIsHardlyFasterIsNotTaken) {
  Rank rank(std::vector<ModelAnswer>{{1000 * kTick}, {980 * kTick}});
  ProductChoices chosen;
  ASSERT_TRUE(rank.choose({}, kAlone, &chosen).ok());
  EXPECT_EQ(answersTaken(chosen), (std::vector<int>{0, 0, 0}));
}

TEST(Products, AnAnswerThatIsNotSupportedIsSkipped) {
  std::vector<ModelAnswer> answers = answersOf({4, 1, 2, 3});
  answers[1].computes = false;
  answers[2].fails = true;
  Rank rank(answers);
  ProductChoices chosen;
  ASSERT_TRUE(rank.choose({}, kAlone, &chosen).ok());
  EXPECT_EQ(answersTaken(chosen), (std::vector<int>{3, 3, 3}));
}

TEST(Products, WithoutAnyAnswerTheProductIsNamed) {
  std::vector<ModelAnswer> answers = answersOf({2, 1});
  for (ModelAnswer& each : answers) each.computes = false;
  Rank rank(answers);
  ProductChoices chosen;
  const Status status = rank.choose({}, kAlone, &chosen);
  EXPECT_EQ(status.code(), StatusCode::internal);
  EXPECT_NE(status.message().find("fp32 TN 16 x 8 x 12"), std::string::npos) << status.message();
}

TEST(Products, ThePlannedScratchMemoryIsNeverExceeded) {
  std::vector<ModelAnswer> answers = answersOf({3, 1, 2});
  answers[1].scratchBytes = kMatrixWorkspaceBytes + 1;
  answers[2].scratchBytes = kMatrixWorkspaceBytes;
  Rank rank(answers);
  ProductChoices chosen;
  ASSERT_TRUE(rank.choose({}, kAlone, &chosen).ok());
  EXPECT_EQ(answersTaken(chosen), (std::vector<int>{2, 2, 2}));
  EXPECT_TRUE(std::all_of(rank.memory().begin(), rank.memory().end(),
                          [](std::byte each) { return each == std::byte{0}; }));
  // A call with less than was planned is another problem, and gets an algorithm that needs no more.
  std::vector<float> values(12 * 16 + 12 * 8 + 16 * 8, 1.f);
  const MatrixProduct small =
      forwardProduct({8, 12, 16, 12, 16}, {values.data(), DataType::float32},
                     {values.data() + 96, DataType::float32}, {values.data() + 288, DataType::float32});
  EXPECT_TRUE(rank.products().multiply(rank.queue(), small, {rank.memory().data(), 64}).ok());
}

TEST(Products, RanksTakeTheSameThoughTheirOwnTimesDiffer) {
  // Each rank by itself would take another: the slowest rank's time counts.
  Two two{Rank(answersOf({8, 1, 3, 9})), Rank(answersOf({8, 9, 4, 1}), false)};
  ProductChoices a, b;
  two.agree({}, &a, &b);
  EXPECT_EQ(answersTaken(a), (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(answersTaken(b), answersTaken(a));
  for (std::size_t i = 0; i < a.products.size(); ++i)
    EXPECT_EQ(a.products[i].algorithm, b.products[i].algorithm);
}

TEST(Products, WhatOneRankLacksNobodyTakes) {
  std::vector<ModelAnswer> lacking = answersOf({8, 2, 3});
  lacking[1].computes = false;
  Two two{Rank(answersOf({8, 1, 3})), Rank(lacking, false)};
  ProductChoices a, b;
  two.agree({}, &a, &b);
  EXPECT_EQ(answersTaken(a), (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(answersTaken(b), (std::vector<int>{2, 2, 2}));
}

TEST(Products, WhatIsRecordedIsTakenWithoutTiming) {
  Rank before(answersOf({3, 1, 2}));
  ProductChoices chosen, again;
  ASSERT_TRUE(before.choose({}, kAlone, &chosen).ok());
  // Now another answer would be the fastest.
  Rank after(answersOf({3, 2, 1}));
  ProductRequest request;
  request.recorded = chosen;
  ASSERT_TRUE(after.choose(request, kAlone, &again).ok());
  for (std::size_t i = 0; i < chosen.products.size(); ++i) {
    EXPECT_TRUE(again.products[i].recorded);
    EXPECT_EQ(again.products[i].algorithm, chosen.products[i].algorithm);
    EXPECT_EQ(again.products[i].seconds, 0);
  }
  // Algorithms of another release mean nothing to this one.
  request.recorded.library = "another";
  ASSERT_TRUE(after.choose(request, kAlone, &again).ok());
  EXPECT_EQ(answersTaken(again), (std::vector<int>{2, 2, 2}));
  request.search = ProductSearch::fixed;
  EXPECT_EQ(after.choose(request, kAlone, &again).code(), StatusCode::badConfig);
  request.recorded = chosen, request.recorded.products.pop_back();
  const Status lacking = after.choose(request, kAlone, &again);
  EXPECT_EQ(lacking.code(), StatusCode::badConfig);
  EXPECT_NE(lacking.message().find(chosen.products.back().product), std::string::npos) << lacking.message();
}

TEST(Products, TheFirstAnswerIsTakenWhereThatIsAskedFor) {
  Rank rank(answersOf({3, 1, 2}));
  ProductRequest request;
  request.search = ProductSearch::first;
  ProductChoices chosen;
  ASSERT_TRUE(rank.choose(request, kAlone, &chosen).ok());
  EXPECT_EQ(answersTaken(chosen), (std::vector<int>{0, 0, 0}));
}

TEST(Products, AProductIsComputedAsItWasChosen) {
  Rank rank(answersOf({3, 1, 2})), first(answersOf({1}));
  ProductChoices chosen;
  ASSERT_TRUE(rank.choose({}, kAlone, &chosen).ok());
  alignas(64) float x[96], w[192], y[128], expected[128];
  for (int i = 0; i < 96; ++i) x[i] = 1.f / static_cast<float>(i + 3);
  for (int i = 0; i < 192; ++i) w[i] = 1.f / static_cast<float>(7 * i + 1);
  const auto product = [&](float* target) {
    return forwardProduct({8, 12, 16, 12, 16}, {x, DataType::float32}, {w, DataType::float32},
                          {target, DataType::float32});
  };
  const Workspace scratch{rank.memory().data(), kMatrixWorkspaceBytes};
  ASSERT_TRUE(rank.products().multiply(rank.queue(), product(y), scratch).ok());
  // The second answer's order of terms.
  ProductAlgorithm second;
  ASSERT_TRUE(algorithmOf(chosen.products[0].algorithm, &second));
  ASSERT_TRUE(rank.products()
                  .library()
                  .multiply(rank.queue(), rank.products().problemOf(product(expected), kMatrixWorkspaceBytes),
                            product(expected), second, scratch.data)
                  .ok());
  EXPECT_TRUE(std::equal(y, y + 128, expected));
  ASSERT_TRUE(first.products().multiply(first.queue(), product(expected), scratch).ok());
  EXPECT_FALSE(std::equal(y, y + 128, expected)) << "the model's answers have bits of their own";
}

TEST(Products, BesideCommunicationTheyAreChosenForFewerMultiprocessors) {
  Rank rank(answersOf({2, 1}));
  ProductChoices all, fewer;
  ASSERT_TRUE(rank.choose({}, kAlone, &all).ok());
  rank.products().setMultiprocessors(blocksBesideCommunication(kModelMultiprocessors));
  ASSERT_TRUE(rank.choose({}, kAlone, &fewer).ok());
  for (std::size_t i = 0; i < all.products.size(); ++i)
    EXPECT_EQ(fewer.products[i].product, all.products[i].product + ", on 116 multiprocessors");
  EXPECT_EQ(blocksBesideCommunication(14), 7) << "a slice of a GPU keeps half of its own";
}

TEST(Products, AlgorithmsAreWrittenDownAndReadBack) {
  ProductAlgorithm algorithm, read;
  for (std::size_t i = 0; i < algorithm.words.size(); ++i) algorithm.words[i] = ~std::uint64_t{0} / (i + 1);
  ASSERT_TRUE(algorithmOf(textOf(algorithm), &read));
  EXPECT_EQ(read, algorithm);
  EXPECT_FALSE(algorithmOf("12", &read));
  EXPECT_FALSE(algorithmOf(std::string(128, 'g'), &read));
}

}  // namespace
}  // namespace internevo::cuda
