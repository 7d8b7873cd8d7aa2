// The choice among the compilations of the CPU backend, and what they have in common.
#include "backend/cpu/processor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "ops/support.h"

namespace internevo::test {
namespace {

TEST(Processor, RunsThePortableVariantInAnyCase) {
  const auto all = cpu::variantsOfThisProcessor();
  ASSERT_FALSE(all.empty());
  EXPECT_STREQ(all.back()->name, "portable");
  std::set<std::string> names;
  for (const cpu::Variant* const each : all) EXPECT_TRUE(names.insert(each->name).second) << each->name;
}

TEST(Processor, TakesTheBestUnlessOneIsNamed) {
  const auto all = cpu::variantsOfThisProcessor();
  const cpu::Variant* found = nullptr;
  ASSERT_TRUE(cpu::chooseVariant("", &found).ok());
  EXPECT_EQ(found, all.front());
  for (const cpu::Variant* const each : all) {
    ASSERT_TRUE(cpu::chooseVariant(each->name, &found).ok());
    EXPECT_EQ(found, each);
  }
}

TEST(Processor, RefusesANameThatItDoesNotRun) {
  const cpu::Variant* found = nullptr;
  const Status status = cpu::chooseVariant("sse9", &found);
  EXPECT_EQ(status.code(), StatusCode::badConfig);
  EXPECT_NE(status.message().find("INTERNEVO_CPU is \"sse9\""), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("portable"), std::string::npos) << status.message();
}

/// A plan's bytes may not depend on the machine that it runs on.
TEST(Processor, EveryVariantNeedsTheSameScratch) {
  const auto portable = std::unique_ptr<Backend>(cpu::variantsOfThisProcessor().back()->createBackend(2));
  for (const cpu::Variant* const each : cpu::variantsOfThisProcessor()) {
    const auto backend = std::unique_ptr<Backend>(each->createBackend(2));
    EXPECT_EQ(backend->linearWorkspaceBytes(), portable->linearWorkspaceBytes()) << each->name;
    for (const std::int64_t sequence : {1, 95, 96, 4096}) {
      for (const std::int64_t head : {24, 64, 128}) {
        const AttentionShape shape{1, sequence, 2, 1, head};
        EXPECT_EQ(backend->attentionWorkspaceBytes(shape), portable->attentionWorkspaceBytes(shape))
            << each->name << " " << sequence << " " << head;
      }
    }
    const HeadLossShape loss{300, 64, 1000};
    EXPECT_EQ(backend->headLossWorkspaceBytes(loss), portable->headLossWorkspaceBytes(loss)) << each->name;
  }
}

/// Ranks of one run may be on different machines: what replicas compute each for themselves must be the same bits.
TEST(Processor, UpdatesAndSumsHaveTheSameBitsInEveryVariant) {
  constexpr std::int64_t kElements = 1003;
  const auto filled = [](int seed) { return randomValues(kElements, static_cast<unsigned>(seed)); };
  std::vector<Values> found;
  for (const cpu::Variant* const each : cpu::variantsOfThisProcessor()) {
    const auto backend = std::unique_ptr<Backend>(each->createBackend(1));
    const Buffer weights(DataType::bfloat16, filled(1)), master(DataType::float32, filled(2)),
        gradient(DataType::float32, filled(3)), first(DataType::float32, filled(4)),
        second(DataType::float32, Values(kElements, 0.25));
    AdamwSettings settings;
    settings.step = 3;
    ASSERT_TRUE(backend
                    ->adamw(kElements, settings, weights.view(), master.view(), gradient.view(), first.view(),
                            second.view())
                    .ok());
    ExactSum norm;
    ASSERT_TRUE(backend->squaredNorm(kElements, gradient.view(), &norm).ok());
    const Buffer a(DataType::bfloat16, filled(5)), b(DataType::bfloat16, filled(6)),
        c(DataType::bfloat16, filled(7)), sum(DataType::bfloat16, Values(kElements));
    const void* const inputs[] = {a.view().data, b.view().data, c.view().data};
    each->reduceTree(DataType::bfloat16, ReduceOperation::sum, inputs, 3, 0, kElements, sum.view().data);
    Values all;
    for (const Buffer* const buffer : {&weights, &master, &first, &second, &sum}) {
      const Values values = buffer->values();
      all.insert(all.end(), values.begin(), values.end());
    }
    all.push_back(norm.value());
    found.push_back(all);
    EXPECT_EQ(found.back(), found.front()) << each->name;
  }
}

}  // namespace
}  // namespace internevo::test
