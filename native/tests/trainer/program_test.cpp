// The trainer's program under mpirun, as it is installed: resuming, signals, lost ranks, damaged files, refusals.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>

#include "program.h"

namespace internevo::trainer::testing {
namespace {

TEST_F(Program, TerminationSavesACheckpointFromWhichTheRunGoesOn) {
  use(planOf(2, 1, false, 2, 1, 1, 1, 2));
  config_.steps = 40;
  const Result whole = run();
  ASSERT_EQ(whole.status, 0);
  const auto finalShards = shards(40);
  for (const int signal : {SIGTERM, SIGUSR1}) {
    fs::remove_all(config_.checkpoint->directory);
    config_.steps = 1000000;
    Process process(command(2), directory_.file("stderr"));
    ASSERT_TRUE(process.readUntil(
        [](const std::string& line) { return line.find("\"step\":5,") != std::string::npos; }));
    if (signal == SIGTERM) {
      for (const pid_t child : process.children("internevo-trainer")) kill(child, SIGTERM);
    } else {
      process.send(SIGUSR1);  // mpirun passes it on
    }
    EXPECT_EQ(process.finish(), 75);
    Result stopped;
    stopped.events = eventsOf(process.lines());
    ASSERT_EQ(stopped.named("done").size(), 1u);
    EXPECT_EQ(stopped.named("done")[0]["reason"], "terminated");
    const int at = stopped.named("done")[0]["step"];
    EXPECT_TRUE(fs::exists(checkpointPath(at) + "/manifest.json"));
    if (at >= 40) continue;  // too late to compare with the shorter run
    config_.steps = 40;
    const Result after = run();
    EXPECT_EQ(after.status, 0);
    EXPECT_EQ(after.named("started")[0]["resumedFromStep"], at);
    EXPECT_EQ(shards(40), finalShards);
  }
}

TEST_F(Program, TerminationOfAPipelineSavesACheckpointFromWhichTheRunGoesOn) {
  use(stagedPlan(1, 4, 1, 1, 1, 1));
  config_.steps = 1000000;
  Process process(command(2), directory_.file("stderr"));
  ASSERT_TRUE(process.readUntil(
      [](const std::string& line) { return line.find("\"step\":5,") != std::string::npos; }));
  for (const pid_t child : process.children("internevo-trainer")) kill(child, SIGTERM);
  EXPECT_EQ(process.finish(), 75);
  Result stopped;
  stopped.events = eventsOf(process.lines());
  ASSERT_EQ(stopped.named("done").size(), 1u);
  const int at = stopped.named("done")[0]["step"];
  config_.steps = at + 2;
  const Result after = run();
  EXPECT_EQ(after.status, 0);
  EXPECT_EQ(after.named("started")[0]["resumedFromStep"], at);
  EXPECT_EQ(after.losses().size(), 2u);
}

TEST_F(Program, ALostStageEndsTheJob) {
  use(stagedPlan(1, 4, 1, 1, 1, 1));
  config_.steps = 1000000;
  config_.checkpoint.reset();
  Process process(command(2), directory_.file("stderr"));
  ASSERT_TRUE(process.readUntil(
      [](const std::string& line) { return line.find("\"step\":5,") != std::string::npos; }));
  const std::vector<pid_t> ranks = process.children("internevo-trainer");
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  EXPECT_NE(process.finish(), 0);
  for (const pid_t rank : ranks) EXPECT_TRUE(Process::gone(rank)) << "a rank outlived the job";
}

TEST_F(Program, ALostRankEndsTheJobAndTheCheckpointBeforeItHolds) {
  use(planOf(2, 1, false, 2, 1, 2, 1, 1));
  config_.steps = 1000000;
  config_.checkpoint->everySteps = 2;
  Process process(command(2), directory_.file("stderr"));
  ASSERT_TRUE(process.readUntil([](const std::string& line) {
    return line.find("\"event\":\"checkpoint\"") != std::string::npos &&
           line.find("\"step\":4,") != std::string::npos;
  }));
  const std::vector<pid_t> ranks = process.children("internevo-trainer");
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  EXPECT_NE(process.finish(), 0);
  for (const pid_t rank : ranks) EXPECT_TRUE(Process::gone(rank)) << "a rank outlived the job";
  config_.steps = 1;  // whatever was saved is beyond it: nothing is left to do but to load
  const Result after = run();
  EXPECT_EQ(after.status, 0) << readFile(directory_.file("stderr"));
  EXPECT_GE(after.named("started")[0]["resumedFromStep"].get<int>(), 4);
}

TEST_F(Program, BadDataIsNamedOnce) {
  use(planOf(2, 1, false, 2, 1, 1, 1, 1));
  auto tokens = sampleTokens(1500, 61);
  for (std::size_t i = 700; i < 1500; ++i) tokens[i] = 97;
  writeTokenFile(data_, tokens, 61);
  expectError(run(), 4, "data_error", "token 97 at byte");
  const std::string whole = readFile(data_);
  writeFile(data_, whole.substr(0, whole.size() - 3));
  expectError(run(), 4, "data_error", "truncated");
  fs::remove(data_);
  expectError(run(), 4, "data_error", data_);
}

/// It comes again under every start: whoever starts the ranks must be able to tell.
TEST_F(Program, ALossThatIsNotFiniteHasItsOwnCode) {
  config_.checkpoint.reset();
  config_.optimizer.peakLearningRate = 10, config_.optimizer.weightDecay = 10;
  config_.optimizer.warmupSteps = 0, config_.optimizer.clipGlobalNorm = 0;
  config_.steps = 100;
  const Result result = run();
  EXPECT_EQ(result.status, 70);
  ASSERT_EQ(result.named("error").size(), 1u);
  EXPECT_EQ(result.named("error")[0]["code"], "not_finite");
  EXPECT_EQ(result.named("error")[0]["field"], "optimizer.peakLearningRate");
}

TEST_F(Program, APlanThatDoesNotFitIsRefusedBeforeTheRun) {
  use(planOf(2, 1, false, 2, 1, 1, 1, 1));
  config_.memoryLimitBytes = 1 << 20;
  const Result result = run();
  expectError(result, 3, "out_of_memory", "activations");
  EXPECT_TRUE(result.named("started").empty());
}

TEST_F(Program, ConfigurationsThatCannotRunEndWithStatusTwo) {
  use(planOf(2, 1, false, 2, 1, 1, 1, 1));
  expectError(run(1), 2, "bad_config", "mesh.worldSize");
  config_.plan.pipelineParallel = 3, config_.mesh = meshOf(config_.plan);
  expectError(run(), 2, "bad_config", "pipelineParallel");
}

TEST_F(Program, ADryRunNeedsNoRanksAndSaysWhatARankNeeds) {
  use(planOf(2, 1, false, 4, 2, 2, 1, 2));
  std::vector<std::string> all = command(1);
  std::vector<std::string> arguments(all.end() - 3, all.end());
  arguments.push_back("--dry-run");
  Process process(arguments, directory_.file("stderr"));
  EXPECT_EQ(process.finish(), 0);
  const auto events = eventsOf(process.lines());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["event"], "plan");
  EXPECT_EQ(events[0]["worldSize"], 8);
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : events[0]["memory"].items()) sum += bytes.get<std::int64_t>();
  EXPECT_EQ(events[0]["plannedPeakBytes"], sum);
  EXPECT_EQ(events[0]["stages"].size(), 1u);
}

TEST_F(Program, ADryRunOfAPipelineListsItsStagesAndReportsTheFullest) {
  config_.model.layers = 5;
  use(stagedPlan(2, 4, 2, 2, 1, 2));
  std::vector<std::string> all = command(1);
  std::vector<std::string> arguments(all.end() - 3, all.end());
  arguments.push_back("--dry-run");
  Process process(arguments, directory_.file("stderr"));
  EXPECT_EQ(process.finish(), 0);
  const auto events = eventsOf(process.lines());
  ASSERT_EQ(events.size(), 1u);
  const Json stages = events[0]["stages"];
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0]["layers"], 3);
  EXPECT_EQ(stages[1]["layers"], 2);
  EXPECT_GT(stages[0]["memory"]["activations"], stages[1]["memory"]["activations"]);
  EXPECT_GT(stages[1]["memory"]["tensorParallelStaging"], stages[0]["memory"]["tensorParallelStaging"]);
  EXPECT_EQ(events[0]["plannedPeakBytes"], std::max(stages[0]["plannedPeakBytes"].get<std::int64_t>(),
                                                    stages[1]["plannedPeakBytes"].get<std::int64_t>()));
}

TEST_F(Program, GradientsOfFourRanksAreThoseOfOne) {
  config_.checkpoint.reset();
  config_.steps = 1;
  config_.gradientDumpPath = directory_.file("one.safetensors");
  use(planOf(4, 1, false, 1, 1, 1, 1, 1));
  const Result one = run();
  ASSERT_EQ(one.status, 0);
  const auto expected = tensorsOf(directory_.file("one.safetensors"));
  EXPECT_EQ(expected.size(), 2u * 9 + 3 + 1);
  for (const PlanConfig& plan : {planOf(1, 2, true, 2, 2, 2, 2, 2), stagedPlan(1, 4, 1, 2, 1, 1)}) {
    config_.gradientDumpPath = directory_.file("four.safetensors");
    use(plan);
    const Result four = run();
    ASSERT_EQ(four.status, 0) << readFile(directory_.file("stderr"));
    EXPECT_NEAR(four.losses()[1], one.losses()[1], 1e-6 * one.losses()[1]);
    const auto found = tensorsOf(directory_.file("four.safetensors"));
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, values] : expected) {
      ASSERT_EQ(found.at(name).size(), values.size());
      EXPECT_LE(relativeError(found.at(name).data(), values.data(), static_cast<std::int64_t>(values.size())),
                1e-6)
          << name;
    }
    const Json step = four.named("step")[0], started = four.named("started")[0];
    EXPECT_EQ(started["worldSize"], 4);
    EXPECT_EQ(started["parameters"], one.named("started")[0]["parameters"]);
    EXPECT_EQ(started["plannedPeakBytes"], step["peakMemoryBytes"]);
    EXPECT_GT(step["communicationSeconds"], 0);
    EXPECT_EQ(step["bubbleSeconds"] > 0, plan.pipelineParallel > 1);
    EXPECT_GT(step["computeSeconds"], 0);
    EXPECT_NEAR(step["computeSeconds"].get<double>() + step["exposedCommunicationSeconds"].get<double>() +
                    step["bubbleSeconds"].get<double>(),
                step["stepTimeSeconds"].get<double>(), 1e-9);
    EXPECT_EQ(step["tokens"], 4 * 24);
  }
}

}  // namespace
}  // namespace internevo::trainer::testing
