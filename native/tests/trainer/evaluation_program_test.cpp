// The trainer's program under mpirun with held-out data: when it evaluates, stopping and resuming, refusals, memory.
#include <gtest/gtest.h>
#include <signal.h>

#include "program.h"

namespace internevo::trainer::testing {
namespace {

class EvaluatingProgram : public Program {
 protected:
  void SetUp() override {
    Program::SetUp();
    writeTokenFile(heldOut_, sampleTokens(600, 53), 61);
    config_.validation.emplace();
    config_.validation->data.path = heldOut_;
    config_.validation->everySteps = 2, config_.validation->batches = 3;
  }
  static std::map<int, double> validationsOf(const Result& result) {
    std::map<int, double> found;
    for (const Json& event : result.named("validation")) found[event["step"]] = event["loss"];
    return found;
  }

  const std::string heldOut_ = directory_.file("v.tokens");
};

TEST_F(EvaluatingProgram, EvaluatesBeforeTrainingEverySoManyStepsAndAtItsEnd) {
  use(stagedPlan(1, 4, 1, 1, 1, 1));
  config_.steps = 5;
  const Result result = run();
  ASSERT_EQ(result.status, 0) << readFile(directory_.file("stderr"));
  std::vector<std::string> order;
  for (const Json& event : result.events) {
    if (event["event"] == "step" || event["event"] == "validation")
      order.push_back(event["event"].get<std::string>()[0] + event["step"].dump());
  }
  EXPECT_EQ(order, (std::vector<std::string>{"v0", "s1", "s2", "v2", "s3", "s4", "v4", "s5", "v5"}));
  for (const Json& event : result.named("validation")) {
    EXPECT_EQ(event["tokens"], 3 * 4 * 24);
    EXPECT_GT(event["seconds"], 0);
  }
  EXPECT_EQ(result.named("evaluating").size(), 4u * 3);
  EXPECT_LT(validationsOf(result)[5], validationsOf(result)[0]);
}

TEST_F(EvaluatingProgram, TakesNoMemoryAndChangesNoLoss) {
  for (const PlanConfig& plan : {planOf(2, 1, false, 2, 1, 2, 1, 1), stagedPlan(1, 4, 1, 2, 1, 1)}) {
    fs::remove_all(config_.checkpoint->directory);
    use(plan);
    const Result with = run();
    const auto shardsWith = shards(6);
    const auto validation = std::exchange(config_.validation, std::nullopt);
    fs::remove_all(config_.checkpoint->directory);
    const Result without = run();
    config_.validation = validation;
    ASSERT_EQ(with.status, 0) << readFile(directory_.file("stderr"));
    EXPECT_EQ(with.losses(), without.losses());
    EXPECT_EQ(shards(6), shardsWith);
    for (const char* name : {"activations", "gatherPool", "dataBuffers", "logits", "pipelineBuffers"})
      EXPECT_EQ(with.named("started")[0]["memory"][name], without.named("started")[0]["memory"][name]);
    for (const Json& step : with.named("step"))
      EXPECT_EQ(step["peakMemoryBytes"], with.named("started")[0]["plannedPeakBytes"]);
  }
}

TEST_F(EvaluatingProgram, ARunThatIsResumedHasTheLossesOfOneThatWasNotStopped) {
  use(planOf(2, 1, false, 2, 1, 1, 1, 2));
  config_.steps = 40;
  config_.checkpoint->everySteps = 1000;
  const Result whole = run();
  ASSERT_EQ(whole.status, 0) << readFile(directory_.file("stderr"));
  const std::map<int, double> expected = validationsOf(whole);
  EXPECT_EQ(expected.size(), 21u);
  // Stopped in the middle of the evaluation of step 6, as likely as behind it: a step at which a checkpoint is due, and may
  // still be on its way, and one at which none is.
  for (const std::int64_t everySteps : {3, 1000}) {
    config_.checkpoint->everySteps = everySteps;
    fs::remove_all(config_.checkpoint->directory);
    Process process(command(2), directory_.file("stderr"));
    ASSERT_TRUE(process.readUntil([](const std::string& line) {
      return line.find("\"evaluating\"") != std::string::npos &&
             line.find("\"step\":6,\"batch\":1") != std::string::npos;
    }));
    for (const pid_t child : process.children("internevo-trainer")) kill(child, SIGTERM);
    process.finish();
    Result stopped;
    stopped.events = eventsOf(process.lines());
    ASSERT_EQ(stopped.named("done").size(), 1u);
    const int at = stopped.named("done")[0]["step"];
    EXPECT_GE(at, 6);
    const Result after = run();
    ASSERT_EQ(after.status, 0) << readFile(directory_.file("stderr"));
    EXPECT_EQ(after.named("started")[0]["resumedFromStep"], at) << "a checkpoint every " << everySteps;
    std::map<int, double> found = validationsOf(stopped);
    for (const auto& [step, loss] : validationsOf(after)) {
      EXPECT_GE(step, at);
      const auto [known, fresh] = found.emplace(step, loss);
      EXPECT_EQ(known->second, loss) << "step " << step << (fresh ? "" : " was evaluated before");
    }
    EXPECT_EQ(found, expected);
  }
}

TEST_F(EvaluatingProgram, AnEvaluationThatIsStoppedAtTheEndIsMadeUpFor) {
  use(planOf(2, 1, false, 2, 1, 1, 1, 1));
  config_.validation->everySteps = 1000;
  config_.validation->batches = 6;
  config_.steps = 3;
  Process process(command(2), directory_.file("stderr"));
  ASSERT_TRUE(process.readUntil([](const std::string& line) {
    return line.find("\"event\":\"step\"") != std::string::npos &&
           line.find("\"step\":3,") != std::string::npos;
  }));
  for (const pid_t child : process.children("internevo-trainer")) kill(child, SIGTERM);
  process.finish();
  Result stopped;
  stopped.events = eventsOf(process.lines());
  const Result after = run();
  EXPECT_EQ(after.status, 0) << readFile(directory_.file("stderr"));
  EXPECT_EQ(after.losses().size(), 0u);
  ASSERT_EQ(validationsOf(after).size(), 1u);
  EXPECT_EQ(validationsOf(after).begin()->first, 3);
}

TEST_F(EvaluatingProgram, BadHeldOutDataIsNamedByItsField) {
  use(planOf(2, 1, false, 2, 1, 1, 1, 1));
  config_.validation->batches = 7;
  const Result few = run();
  expectError(few, 4, "data_error", "has 24 sequences of 24 tokens; validation.batches 7");
  EXPECT_EQ(few.named("error")[0]["field"], "validation.batches");
  EXPECT_EQ(few.named("error")[0]["remedy"], "give more held-out data, or at most 6 batches");
  config_.validation->batches = 6;
  auto tokens = sampleTokens(600, 53);
  tokens[500] = 97;
  writeTokenFile(heldOut_, tokens, 61);
  const Result outside = run();
  expectError(outside, 4, "data_error", "token 97 at byte");
  EXPECT_EQ(outside.named("error")[0]["field"], "validation.data.path");
  EXPECT_TRUE(outside.named("step").empty());
  fs::remove(heldOut_);
  const Result none = run();
  expectError(none, 4, "data_error", heldOut_);
  EXPECT_EQ(none.named("error")[0]["field"], "validation.data.path");
}

TEST_F(EvaluatingProgram, ALostRankIsNamedWhileItEvaluates) {
  use(planOf(2, 1, false, 2, 1, 1, 1, 1));
  config_.validation->everySteps = 1;
  config_.validation->batches = 6;
  config_.steps = 1000000;
  Process process(command(2), directory_.file("stderr"));
  ASSERT_TRUE(process.readUntil([](const std::string& line) {
    return line.find("\"evaluating\"") != std::string::npos && line.find("\"step\":5,") != std::string::npos;
  }));
  const std::vector<pid_t> ranks = process.children("internevo-trainer");
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  EXPECT_NE(process.finish(), 0);
  Result result;
  result.events = eventsOf(process.lines());
  ASSERT_EQ(result.named("error").size(), 1u);
  EXPECT_NE(result.named("error")[0]["message"].get<std::string>().find("rank 1"), std::string::npos);
}

}  // namespace
}  // namespace internevo::trainer::testing
