// Runs of the trainer's program under mpirun, as it is installed, with a small model and data.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../installed.h"
#include "checkpoint/manifest.h"
#include "process.h"
#include "support.h"

namespace internevo::trainer::testing {

using Json = nlohmann::json;
namespace fs = std::filesystem;

struct Result {
  int status = 0;
  std::vector<Json> events;

  std::vector<Json> named(const std::string& name) const {
    std::vector<Json> found;
    for (const Json& event : events) {
      if (event["event"] == name) found.push_back(event);
    }
    return found;
  }
  /// Losses of the steps, by step.
  std::map<int, double> losses() const {
    std::map<int, double> found;
    for (const Json& event : named("step")) found[event["step"]] = event["loss"];
    return found;
  }
};

inline std::vector<Json> eventsOf(const std::vector<std::string>& lines) {
  std::vector<Json> events;
  for (const std::string& line : lines) {
    const Json event = Json::parse(line, nullptr, false);
    EXPECT_TRUE(event.is_object() && event.contains("event") && event.contains("at")) << line;
    if (event.is_object()) events.push_back(event);
  }
  return events;
}

class Program : public ::testing::Test {
 protected:
  void SetUp() override {
    writeTokenFile(data_, sampleTokens(1500, 61), 61);
    config_ = smallConfig(data_);
    config_.model.layers = 2;
    config_.plan.microBatchSize = 2, config_.plan.microBatches = 2;
    config_.checkpoint = CheckpointConfig{directory_.file("ck"), 3, 2, true};
    config_.steps = 6;
  }

  void use(const PlanConfig& plan) { config_.plan = plan, config_.mesh = meshOf(plan); }
  static PlanConfig planOf(std::int64_t b, std::int64_t n, bool a, int dp, int sp, int ps, int gs, int oss) {
    PlanConfig p;
    p.microBatchSize = b, p.microBatches = n, p.recompute = a, p.dataParallel = dp, p.sequenceParallel = sp;
    p.parameterSharding = ps, p.gradientSharding = gs, p.optimizerStateSharding = oss;
    return p;
  }

  /// Two stages of `tp` tensor ranks.
  static PlanConfig stagedPlan(std::int64_t b, std::int64_t n, int dp, int tp, int ps, int oss) {
    PlanConfig p = planOf(b, n, false, dp, tp, ps, 1, oss);
    p.pipelineParallel = 2, p.tensorParallel = tp;
    return p;
  }

  std::vector<std::string> command(int ranks) {
    const std::string path = directory_.file("config.json");
    writeFile(path, documentOf(config_));
    std::vector<std::string> arguments = mpirunArguments(ranks);
    arguments.insert(arguments.end(), {located(built::kTrainer), "--config", path});
    return arguments;
  }
  Result run(int ranks = 0) {
    Process process(command(ranks == 0 ? config_.plan.worldSize() : ranks), directory_.file("stderr"));
    Result result;
    result.status = process.finish();
    result.events = eventsOf(process.lines());
    return result;
  }
  /// Bytes of every shard of the checkpoint of a step.
  std::map<std::string, std::string> shards(int step) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(checkpointPath(step))) {
      if (entry.path().extension() == ".safetensors") files[entry.path().filename()] = readFile(entry.path());
    }
    return files;
  }
  std::string checkpointPath(int step) {
    return config_.checkpoint->directory + "/step-" + std::to_string(step);
  }
  void expectError(const Result& result, int status, const std::string& code, const std::string& part) {
    EXPECT_EQ(result.status, status);
    ASSERT_EQ(result.named("error").size(), 1u) << "an error is written once";
    const Json error = result.named("error")[0];
    EXPECT_EQ(error["code"], code);
    EXPECT_NE(error["message"].get<std::string>().find(part), std::string::npos) << error;
    EXPECT_TRUE(result.named("done").empty());
  }

  TemporaryDirectory directory_;
  const std::string data_ = directory_.file("d.tokens");
  Config config_;
};

/// Every checkpoint that is there by its name is whole. Returns their steps.
inline std::vector<std::int64_t> requireAllWhole(const std::string& directory) {
  const std::vector<std::int64_t> steps = stepsIn(directory);
  for (const std::int64_t step : steps) {
    const std::string path = stepPath(directory, step);
    const Manifest manifest = readManifest(path);
    EXPECT_EQ(manifest.step, step);
    EXPECT_EQ(coverageProblem(manifest), "");
    for (const SavedFile& file : manifest.files) verifyFile(path + "/" + file.name, file.summary);
  }
  return steps;
}

/// Name -> values of a safetensors file of float32.
inline std::map<std::string, std::vector<float>> tensorsOf(const std::string& path) {
  const std::string bytes = readFile(path);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  std::map<std::string, std::vector<float>> tensors;
  const Json header = Json::parse(bytes.substr(8, length));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    std::vector<float> values((end - begin) / 4);
    std::memcpy(values.data(), bytes.data() + 8 + length + begin, end - begin);
    tensors[name] = values;
  }
  return tensors;
}

}  // namespace internevo::trainer::testing
