// Checkpoints of the trainer's program: resuming, under the same plan and others, damage, full disks, kills.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "checkpoint/file.h"
#include "checkpoint/manifest.h"
#include "checkpoint_tool/commands.h"
#include "hugging_face_model.h"
#include "program.h"
#include "trainer/token_file.h"

namespace internevo::trainer::testing {
namespace {

TEST_F(Program, ResumingIsBitwiseTheSameAsNotStopping) {
  const PlanConfig plans[] = {planOf(2, 2, false, 1, 1, 1, 1, 1), planOf(2, 2, true, 2, 1, 1, 2, 2),
                              planOf(4, 1, false, 1, 2, 2, 1, 1), planOf(2, 1, false, 2, 2, 2, 1, 2),
                              stagedPlan(2, 2, 1, 2, 1, 1),       stagedPlan(1, 2, 2, 1, 1, 2)};
  for (const PlanConfig& plan : plans) {
    for (const auto& [precision, gradients] :
         {std::pair{DataType::float32, DataType::float32}, std::pair{DataType::bfloat16, DataType::float32},
          std::pair{DataType::bfloat16, DataType::bfloat16}}) {
      use(plan);
      config_.precision = precision, config_.gradientPrecision = gradients;
      config_.steps = 6;
      const Result whole = run();
      ASSERT_EQ(whole.status, 0) << readFile(directory_.file("stderr"));
      const auto finalShards = shards(6);
      EXPECT_EQ(finalShards.size(), static_cast<std::size_t>(plan.worldSize()));
      fs::remove_all(config_.checkpoint->directory);

      config_.steps = 3;
      const Result before = run();
      config_.steps = 6;
      const Result after = run();
      ASSERT_EQ(after.status, 0);
      EXPECT_EQ(after.named("started")[0]["resumedFromStep"], 3);
      auto losses = before.losses();
      losses.merge(after.losses());
      EXPECT_EQ(losses, whole.losses());
      EXPECT_EQ(losses.size(), 6u);
      EXPECT_EQ(shards(6), finalShards);
      fs::remove_all(config_.checkpoint->directory);
    }
  }
}

TEST_F(Program, AnotherPlanAndPrecisionGoOnWhereTheFirstStopped) {
  use(planOf(2, 2, false, 2, 1, 1, 2, 2));
  const Result whole = run();
  ASSERT_EQ(whole.status, 0);
  fs::remove_all(config_.checkpoint->directory);
  config_.steps = 3;
  ASSERT_EQ(run().status, 0);
  config_.steps = 6;
  use(planOf(2, 2, true, 2, 2, 4, 1, 1));
  const Result after = run();
  ASSERT_EQ(after.status, 0) << readFile(directory_.file("stderr"));
  EXPECT_EQ(after.named("started")[0]["resumedFromStep"], 3);
  ASSERT_EQ(after.losses().size(), 3u);
  for (const auto& [step, loss] : after.losses())
    EXPECT_NEAR(loss, whole.losses()[step], 1e-6 * loss) << step;
  use(planOf(8, 1, false, 1, 1, 1, 1, 1));
  config_.precision = DataType::bfloat16;
  for (const DataType gradients : {DataType::float32, DataType::bfloat16}) {
    fs::remove_all(checkpointPath(6));
    config_.gradientPrecision = gradients;
    const Result rounded = run();
    ASSERT_EQ(rounded.status, 0);
    EXPECT_EQ(rounded.named("started")[0]["resumedFromStep"], 3);
    for (const auto& [step, loss] : rounded.losses())
      EXPECT_NEAR(loss, whole.losses()[step], 0.01 * loss) << step;
  }
}

TEST_F(Program, DamagedCheckpointsAreNamedAndNotPassedOver) {
  use(planOf(2, 1, false, 2, 1, 1, 1, 2));
  ASSERT_EQ(run().status, 0);
  config_.steps = 9;
  const std::string shard = checkpointPath(6) + "/shard-00001.safetensors",
                    manifest = checkpointPath(6) + "/manifest.json";
  const auto expectRefusal = [&](const std::string& path, const std::string& remedy) {
    const Result result = run();
    expectError(result, 5, "checkpoint_error", path);
    ASSERT_EQ(result.named("error").size(), 1u);
    EXPECT_EQ(result.named("error")[0].value("remedy", ""), remedy);
  };
  const auto damage = [&](const std::string& path, const std::string& remedy) {
    const std::string whole = readFile(path);
    writeFile(path, whole.substr(0, whole.size() / 2));
    expectRefusal(path, remedy);
    std::string flipped = whole;
    flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 4);
    writeFile(path, flipped);
    expectRefusal(path, remedy);
    fs::remove(path);
    expectRefusal(path, remedy);
    writeFile(path, whole);
  };
  for (const std::string& path : {shard, manifest})
    damage(path, "remove " + checkpointPath(6) + " to go on from step 3");
  fs::rename(checkpointPath(3), directory_.file("elsewhere"));
  for (const std::string& path : {shard, manifest}) {
    damage(path, "remove " + checkpointPath(6) + " to begin anew; there is no other checkpoint");
  }
  EXPECT_EQ(run().status, 0);
}

TEST_F(Program, AFileThatMayNotGrowIsToldAsAFullDiskIs) {
  config_.checkpoint->everySteps = 1;
  config_.checkpoint->stopOnFailure = true;
  config_.steps = 1000000;
  use(planOf(2, 1, false, 2, 1, 1, 1, 2));
  Process process(command(2), directory_.file("stderr"));
  ASSERT_TRUE(process.readUntil(
      [](const std::string& line) { return line.find("\"checkpoint\"") != std::string::npos; }));
  const rlimit limit{4096, 4096};
  for (const pid_t rank : process.children("internevo-trainer"))
    ASSERT_EQ(prlimit(rank, RLIMIT_FSIZE, &limit, nullptr), 0);
  EXPECT_EQ(process.finish(), 5) << readFile(directory_.file("stderr"));
  const Json error = Json::parse(process.lines().back(), nullptr, false);
  ASSERT_EQ(error.value("event", ""), "error") << process.lines().back();
  // Whichever of its files was being written at that moment: a shard or the manifest.
  EXPECT_NE(error.value("message", "").find(" cannot be written: File too large; it needs "),
            std::string::npos)
      << error;
  EXPECT_NE(error.value("remedy", ""), "");
}

bool beingWritten(const std::string& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == ".tmp") return true;
  }
  return false;
}

TEST_F(Program, KilledInTheMiddleOfWritingItLeavesTheLastCheckpointWhole) {
  config_.model = {128, 2, 4, 2, 256, 4000, false, 10000, 1e-5, 0.1};
  config_.checkpoint->everySteps = 1;
  config_.steps = 1000000;
  use(planOf(1, 1, false, 2, 1, 1, 1, 1));
  const char* const given = std::getenv("INTERNEVO_SEED");
  const auto seed = given != nullptr ? static_cast<unsigned>(std::stoul(given)) : std::random_device()();
  std::printf("INTERNEVO_SEED=%u\n", seed);
  std::mt19937 random(seed);
  int interrupted = 0;
  std::int64_t last = 0;
  for (int round = 0; round < 8; ++round) {
    Process process(command(2), directory_.file("stderr"));
    std::int64_t resumed = -1;
    ASSERT_TRUE(process.readUntil([&](const std::string& line) {
      const Json event = Json::parse(line, nullptr, false);
      if (event.value("event", "") == "started") resumed = event["resumedFromStep"].get<std::int64_t>();
      return event.value("event", "") == "checkpoint";
    })) << readFile(directory_.file("stderr"));
    EXPECT_EQ(resumed, last) << "round " << round << ", seed " << seed;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!beingWritten(config_.checkpoint->directory) && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    const std::vector<pid_t> ranks = process.children("internevo-trainer");
    if (round % 2 == 0) {
      process.send(SIGKILL);
    } else {
      for (const pid_t rank : ranks) kill(rank, SIGKILL);
    }
    process.finish();
    for (const pid_t rank : ranks) EXPECT_TRUE(Process::gone(rank));
    if (beingWritten(config_.checkpoint->directory)) ++interrupted;
    const std::vector<std::int64_t> steps = requireAllWhole(config_.checkpoint->directory);
    ASSERT_FALSE(steps.empty()) << "round " << round << ", seed " << seed;
    EXPECT_GE(steps.back(), last);
    last = steps.back();
  }
  std::printf("%d of 8 kills left a checkpoint half made\n", interrupted);
  config_.steps = last + 1;
  const Result after = run();
  EXPECT_EQ(after.status, 0);
  EXPECT_EQ(after.named("started")[0]["resumedFromStep"], last);
  EXPECT_FALSE(beingWritten(config_.checkpoint->directory));
}

/// A file system of its own, of a size; unmounted at the end.
class SmallFileSystem {
 public:
  SmallFileSystem(const std::string& path, std::int64_t bytes) : path_(path) {
    fs::create_directories(path);
    mounted_ = mount("tmpfs", path.c_str(), "tmpfs", 0, ("size=" + std::to_string(bytes)).c_str()) == 0;
  }
  ~SmallFileSystem() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  const std::string path_;
  bool mounted_ = false;
};

TEST_F(Program, AFullDiskIsToldWithFileAndBytesAndTheLastCheckpointStays) {
  SmallFileSystem disk(directory_.file("disk"), 900 << 10);
  if (!disk.mounted())
    GTEST_SKIP() << "no file system can be mounted here; FileWriter's own test uses /dev/full";
  config_.checkpoint->directory = directory_.file("disk") + "/ck";
  config_.checkpoint->everySteps = 2;
  use(planOf(2, 1, false, 2, 1, 1, 1, 2));
  for (const CheckpointWriting writing : {CheckpointWriting::asynchronous, CheckpointWriting::synchronous}) {
    config_.checkpoint->writing = writing;
    config_.checkpoint->stopOnFailure = false;
    config_.steps = 6;
    const Result result = run();
    EXPECT_EQ(result.status, 5) << "the last checkpoint could not be written";
    const auto errors = result.named("error");
    ASSERT_EQ(errors.size(), 2u) << "once at step 4, once at the end";
    EXPECT_EQ(errors[0].value("continues", false), true);
    EXPECT_FALSE(errors[1].contains("continues"));
    for (const Json& error : errors) {
      EXPECT_EQ(error["code"], "checkpoint_error");
      const std::string message = error["message"];
      EXPECT_NE(message.find(".safetensors cannot be written: No space left on device; it needs "),
                std::string::npos)
          << message;
      EXPECT_NE(message.find(" free"), std::string::npos) << message;
    }
    EXPECT_EQ(result.losses().size(), 6u) << "training went on";
    EXPECT_EQ(requireAllWhole(config_.checkpoint->directory), std::vector<std::int64_t>{2});
    EXPECT_FALSE(beingWritten(config_.checkpoint->directory));

    fs::remove_all(config_.checkpoint->directory);
    config_.checkpoint->stopOnFailure = true;
    config_.steps = 1000;
    const Result stopped = run();
    EXPECT_EQ(stopped.status, 5);
    ASSERT_EQ(stopped.named("error").size(), 1u);
    EXPECT_LT(stopped.losses().size(), 100u);
    EXPECT_EQ(requireAllWhole(config_.checkpoint->directory), std::vector<std::int64_t>{2});
    fs::remove_all(directory_.file("elsewhere"));
    fs::create_directories(directory_.file("elsewhere"));  // on the large file system
    fs::copy(checkpointPath(2), directory_.file("elsewhere") + "/step-2", fs::copy_options::recursive);
    const std::string full = config_.checkpoint->directory;
    config_.checkpoint->directory = directory_.file("elsewhere");
    config_.steps = 4;
    const Result after = run();
    EXPECT_EQ(after.status, 0);
    EXPECT_EQ(after.named("started")[0]["resumedFromStep"], 2);
    config_.checkpoint->directory = full;
    fs::remove_all(full);
  }
}

/// Bytes that a file system has free.
std::int64_t freeBytes(const std::string& path) {
  struct statvfs info {};
  EXPECT_EQ(statvfs(path.c_str(), &info), 0);
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

TEST_F(Program, CheckpointsNeverTakeWhatStaysFreeOfADisk) {
  const std::string path = directory_.file("disk");
  SmallFileSystem disk(path, 4 << 20);
  if (!disk.mounted())
    GTEST_SKIP() << "no file system can be mounted here; FileWriter's own test has a margin";
  config_.checkpoint->directory = path + "/ck";
  config_.checkpoint->everySteps = 1, config_.checkpoint->keepLast = 1000;
  config_.leaveFree = {0.5, 1 << 20};
  config_.steps = 12;
  use(planOf(2, 1, false, 2, 1, 1, 1, 2));
  for (const CheckpointWriting writing : {CheckpointWriting::asynchronous, CheckpointWriting::synchronous}) {
    config_.checkpoint->writing = writing;
    const Result result = run();
    EXPECT_EQ(result.status, 5) << "the last checkpoint had no room";
    EXPECT_EQ(result.losses().size(), 12u) << "training went on";
    EXPECT_GE(freeBytes(path), 1 << 20);
    const std::vector<std::int64_t> written = requireAllWhole(config_.checkpoint->directory);
    ASSERT_GE(written.size(), 2u);
    EXPECT_EQ(written.back(), static_cast<std::int64_t>(written.size())) << "all before the disk was full";
    EXPECT_FALSE(beingWritten(config_.checkpoint->directory));
    const auto errors = result.named("error");
    ASSERT_EQ(errors.size(), 12 - written.size());
    for (const Json& error : errors) {
      EXPECT_EQ(error["code"], "checkpoint_error");
      EXPECT_EQ(error.value("continues", false), error != errors.back());
      const std::string message = error["message"];
      EXPECT_NE(message.find(" is not written: it needs "), std::string::npos) << message;
      EXPECT_NE(message.find(" free, of which 1048576 stay free for everything else"), std::string::npos)
          << message;
      EXPECT_NE(message.find("/ck/step-"), std::string::npos) << message;
      EXPECT_EQ(message.find("shard-"), std::string::npos) << "the whole is refused: " << message;
      EXPECT_NE(error["remedy"].get<std::string>().find("free space"), std::string::npos);
    }
    fs::remove_all(config_.checkpoint->directory);
  }
}

TEST_F(Program, WritingInTheBackgroundIsAPlannedLineAndGivesTheSameFiles) {
  // So large that the runtime's memory, which differs between runs, decides nothing.
  config_.model.hiddenSize = 320, config_.model.ffnHiddenSize = 960;
  use(planOf(2, 1, false, 2, 1, 1, 1, 1));
  config_.checkpoint->writing = CheckpointWriting::asynchronous;
  config_.checkpoint->everySteps = 1;
  const Result background = run();
  ASSERT_EQ(background.status, 0);
  const auto files = shards(6);
  EXPECT_EQ(background.named("checkpoint").size(), 6u);
  const Json memory = background.named("started")[0]["memory"];
  const std::int64_t staging = memory["checkpointStaging"];
  EXPECT_GE(staging * 2, background.named("started")[0]["parameters"].get<std::int64_t>() * 12)
      << "two ranks share it";
  EXPECT_EQ(background.named("started")[0]["plannedPeakBytes"],
            background.named("step")[5]["peakMemoryBytes"]);

  fs::remove_all(config_.checkpoint->directory);
  config_.checkpoint->writing = CheckpointWriting::automatic;
  config_.memoryLimitBytes =
      background.named("started")[0]["plannedPeakBytes"].get<std::int64_t>() - staging / 2;
  const Result inStep = run();
  ASSERT_EQ(inStep.status, 0) << "a checkpoint never makes a plan too large by itself";
  EXPECT_FALSE(inStep.named("started")[0]["memory"].contains("checkpointStaging"));
  EXPECT_EQ(shards(6), files);
  config_.checkpoint->writing = CheckpointWriting::asynchronous;
  expectError(run(), 3, "out_of_memory", "checkpointStaging");
}

TEST_F(Program, AnotherModelOrSeedOrBatchIsRefusedByName) {
  use(planOf(2, 1, false, 2, 1, 1, 1, 2));
  ASSERT_EQ(run().status, 0);
  const Config kept = config_;
  use(planOf(2, 2, false, 2, 1, 2, 1, 1));
  expectError(run(), 5, "checkpoint_error", "globalBatchSequences");
  config_ = kept, config_.seed = 6;
  expectError(run(), 5, "checkpoint_error", "seed");
  config_ = kept, config_.model.ropeTheta = 20000;
  expectError(run(), 5, "checkpoint_error", "model.ropeTheta");
  config_ = kept, config_.checkpoint->directory = "/proc/none";
  config_.checkpoint->resumeLatest = false;
  expectError(run(), 5, "checkpoint_error", "/proc/none");
}

/// Losses of the run's first steps as the plain model of a folder has them.
std::vector<double> plainLosses(const std::string& folder, const Config& c,
                                const std::vector<std::uint32_t>& data) {
  const HuggingFaceModel model(folder);
  std::vector<double> losses;
  const std::int64_t batch = c.plan.globalBatchSequences(), length = c.sequenceLengthTokens;
  for (std::int64_t step = 0; step < c.steps; ++step) {
    double total = 0;
    for (std::int64_t i = 0; i < batch; ++i) {
      const std::int64_t sequences = (static_cast<std::int64_t>(data.size()) - 1) / length;
      const auto first = data.begin() + sequenceOfDraw(c.seed, sequences, step * batch + i) * length;
      total += model.loss({first, first + length}, {first + 1, first + length + 1});
    }
    losses.push_back(total / static_cast<double>(batch));
  }
  return losses;
}

/// The data is not the checkpoint's fault: the file is named, and what to do.
TEST_F(Program, OtherDataIsRefusedWhenARunGoesOn) {
  ASSERT_EQ(run().status, 0);
  config_.steps = 9;
  const auto refused = [&](const std::string& what) {
    const Result result = run();
    EXPECT_EQ(result.status, 4);
    ASSERT_EQ(result.named("error").size(), 1u);
    const Json error = result.named("error")[0];
    EXPECT_EQ(error["code"], "data_error");
    EXPECT_EQ(error["field"], "data.path");
    EXPECT_EQ(error["message"],
              "token file " + data_ + " " + what + " when " + checkpointPath(6) + " was written");
    EXPECT_NE(error["remedy"].get<std::string>().find("put the data back"), std::string::npos);
  };
  const std::string before = readFile(data_);
  writeTokenFile(data_, sampleTokens(1400, 61), 61);
  refused("has 1400 tokens; it had 1500");
  std::string other = before;
  std::swap(other[64], other[66]);
  ASSERT_NE(other, before);
  writeFile(data_, other);
  refused("has other content than it had");
  // A checkpoint of before digests were written takes any data of its length, under any plan.
  const std::string path = checkpointPath(6) + "/" + kManifestName;
  Json content = Json::parse(readFile(path))["content"];
  ASSERT_TRUE(content["identity"]["dataDigest"].is_string());
  content["identity"].erase("dataDigest");
  writeFile(path, Json{{"checksum", hexOf(checksumOf(content.dump()))}, {"content", content}}.dump() + "\n");
  use(planOf(1, 2, false, 2, 1, 1, 1, 1));
  const Result after = run();
  EXPECT_EQ(after.status, 0) << readFile(directory_.file("stderr"));
  EXPECT_EQ(after.named("started")[0]["resumedFromStep"], 6);
}

TEST_F(Program, AMixtureGoesOnUnderAnotherPlanAndWithTheSameSharesOnly) {
  const std::string other = directory_.file("other.tokens");
  writeTokenFile(other, sampleTokens(700, 53), 61);
  config_.data.sources = {{data_, DataConfig::Format::own, 7}, {other, DataConfig::Format::own, 3}};
  config_.steps = 9;
  config_.checkpoint->everySteps = 1000;
  const std::map<int, double> whole = run().losses();
  ASSERT_EQ(whole.size(), 9u) << readFile(directory_.file("stderr"));
  const auto begin = [&](const PlanConfig& plan, int steps) {
    use(plan);
    config_.steps = steps;
    return run();
  };
  fs::remove_all(config_.checkpoint->directory);
  ASSERT_EQ(begin(planOf(2, 2, false, 1, 1, 1, 1, 1), 4).status, 0);
  ASSERT_EQ(begin(planOf(2, 2, false, 1, 1, 1, 1, 1), 9).losses(),
            (std::map<int, double>(whole.find(5), whole.end())));
  for (const PlanConfig& plan : {planOf(1, 2, false, 2, 1, 2, 1, 1), planOf(2, 2, true, 1, 2, 1, 1, 2),
                                 stagedPlan(1, 4, 1, 2, 1, 1)}) {
    fs::remove_all(config_.checkpoint->directory);
    const Result result = begin(plan, 9);
    ASSERT_EQ(result.losses().size(), 9u) << readFile(directory_.file("stderr"));
    for (const auto& [step, loss] : result.losses()) EXPECT_NEAR(loss, whole.at(step), 1e-6 * loss) << step;
  }
  config_.data.sources[0].share = 6;
  const Result refused = begin(planOf(2, 2, false, 1, 1, 1, 1, 1), 12);
  expectError(refused, 4, "data_error",
              "the mixture of 2 files, first " + data_ + ", has other content than it had");
  EXPECT_EQ(refused.named("error")[0]["field"], "data.sources");
  EXPECT_FALSE(refused.named("error")[0].contains("value"));
}

TEST_F(Program, WeightsOfAHuggingFaceFolderGiveTheLossesOfItsPublishedArchitecture) {
  const auto data = sampleTokens(1500, 61);
  config_.steps = 4;
  // So small that no weight changes by it: every step measures the weights of the folder.
  config_.optimizer.peakLearningRate = config_.optimizer.minLearningRate = 1e-30;
  for (const bool tied : {false, true}) {
    config_.model.tiedEmbeddings = tied;
    config_.model.ropeTheta = 500, config_.model.normEpsilon = 1e-6;
    const ModelConfig& m = config_.model;
    const std::string folder = directory_.file(tied ? "tied" : "untied");
    fs::create_directories(folder);
    writeRandomFolder(folder,
                      {{"model_type", "llama"},
                       {"hidden_size", m.hiddenSize},
                       {"num_hidden_layers", m.layers},
                       {"num_attention_heads", m.heads},
                       {"num_key_value_heads", m.kvHeads},
                       {"intermediate_size", m.ffnHiddenSize},
                       {"vocab_size", m.vocabularySize},
                       {"tie_word_embeddings", tied},
                       {"rope_theta", m.ropeTheta},
                       {"rms_norm_eps", m.normEpsilon}},
                      11);
    config_.initialWeightsPath = folder;
    PlanConfig stages = planOf(1, 4, false, 1, 2, 1, 1, 1);
    stages.pipelineParallel = 2, stages.tensorParallel = 2;
    for (const PlanConfig& plan :
         {planOf(4, 1, false, 1, 1, 1, 1, 1), planOf(1, 2, false, 2, 2, 2, 1, 2), stages}) {
      use(plan);
      fs::remove_all(config_.checkpoint->directory);
      const Result result = run();
      ASSERT_EQ(result.status, 0) << readFile(directory_.file("stderr"));
      EXPECT_EQ(result.named("started")[0]["resumedFromStep"], 0);
      const std::vector<double> expected = plainLosses(folder, config_, data);
      for (int step = 1; step <= 4; ++step) {
        EXPECT_NEAR(result.losses()[step], expected[static_cast<std::size_t>(step - 1)],
                    1e-5 * result.losses()[step])
            << step;
      }
      // Out again: the same numbers under the same names.
      const std::string out = directory_.file("out");
      fs::remove_all(out);
      exportCommand(config_.checkpoint->directory, out, {});
      EXPECT_EQ(tensorsOf(out + "/model.safetensors"), tensorsOf(folder + "/model.safetensors"));
      EXPECT_EQ(plainLosses(out, config_, data), expected);
    }
    // A checkpoint of one's own serves as well, and what was resumed comes before it.
    config_.initialWeightsPath = checkpointPath(4);
    config_.steps = 6;
    EXPECT_EQ(run().named("started")[0]["resumedFromStep"], 4);
    config_.checkpoint->directory = directory_.file("second");
    config_.steps = 1;
    const Result again = run();
    EXPECT_EQ(again.named("started")[0]["resumedFromStep"], 0);
    EXPECT_NEAR(again.losses()[1], plainLosses(folder, config_, data)[0], 1e-5 * again.losses()[1]);
    fs::remove_all(config_.checkpoint->directory);
    config_.checkpoint->directory = directory_.file("ck");
    config_.steps = 4;
  }
  config_.initialWeightsPath = directory_.file("untied");
  fs::remove_all(config_.checkpoint->directory);
  expectError(run(), 5, "checkpoint_error", "tie_word_embeddings");
  config_.initialWeightsPath = directory_.file("none");
  expectError(run(), 5, "checkpoint_error", directory_.file("none"));
}

}  // namespace
}  // namespace internevo::trainer::testing
