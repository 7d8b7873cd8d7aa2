// Which checkpoints the trainer's program keeps, and which give way to newer ones.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "program.h"

namespace internevo::trainer::testing {
namespace {

TEST_F(Program, KeepsTheLastCheckpointsAndNothingHalfMade) {
  config_.checkpoint->everySteps = 1;
  fs::create_directories(checkpointPath(5) + ".tmp");
  fs::create_directories(checkpointPath(4) + ".removed.tmp");
  fs::create_directories(checkpointPath(9) + ".tmp");
  ASSERT_EQ(run().status, 0);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(config_.checkpoint->directory))
    names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"step-5", "step-6"}));
}

/// Whoever counts the steps may be far behind, and die: then the run goes on from the last checkpoint whose steps are counted, or from
/// the first where the count has not come so far yet.
TEST_F(Program, KeepsTheLastCheckpointWhoseStepsAreCounted) {
  config_.checkpoint->everySteps = 1;
  config_.checkpoint->keepLast = 2;
  fs::create_directories(config_.checkpoint->directory);
  const auto counted = [&](const std::string& text) {
    std::ofstream(config_.checkpoint->directory + "/counted-step") << text;
  };
  for (const auto& [text, kept] : std::vector<std::pair<std::string, std::vector<std::int64_t>>>{
           {"3\n", {3, 5, 6}}, {"0\n", {1, 5, 6}}, {"6\n", {5, 6}}, {"none\n", {5, 6}}}) {
    counted(text);
    ASSERT_EQ(run().status, 0);
    EXPECT_EQ(requireAllWhole(config_.checkpoint->directory), kept) << text;
    for (const std::int64_t step : kept) fs::remove_all(checkpointPath(step));
  }
}

/// One that was killed between its last checkpoint and the removal of what that replaces.
TEST_F(Program, WhatWasNotRemovedIsRemovedWhenTheRunGoesOnEvenWithNothingLeftToDo) {
  config_.checkpoint->everySteps = 1;
  config_.checkpoint->keepLast = 3;
  ASSERT_EQ(run().status, 0);
  ASSERT_EQ(requireAllWhole(config_.checkpoint->directory), (std::vector<std::int64_t>{4, 5, 6}));
  config_.checkpoint->keepLast = 2;
  const auto again = run();
  ASSERT_EQ(again.status, 0);
  EXPECT_EQ(again.named("started")[0]["resumedFromStep"], 6);
  EXPECT_EQ(requireAllWhole(config_.checkpoint->directory), (std::vector<std::int64_t>{5, 6}));
}

TEST_F(Program, AnEarlierCheckpointOfTheSameStepIsReplacedAndLaterOnesAreLeftAlone) {
  ASSERT_EQ(run().status, 0);
  const auto before = shards(6);
  config_.seed = 9;
  config_.checkpoint->resumeLatest = false;
  config_.checkpoint->keepLast = 1;
  config_.steps = 3;
  ASSERT_EQ(run().status, 0);
  EXPECT_EQ(requireAllWhole(config_.checkpoint->directory), (std::vector<std::int64_t>{3, 6}));
  config_.steps = 6;
  ASSERT_EQ(run().status, 0);
  EXPECT_EQ(requireAllWhole(config_.checkpoint->directory), std::vector<std::int64_t>{6});
  EXPECT_NE(shards(6), before);
}

}  // namespace
}  // namespace internevo::trainer::testing
