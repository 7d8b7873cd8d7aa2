#include "support.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace internevo::trainer::testing {

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "internevo-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

namespace {

Groups groupsOf(int world, int size, int stride) {
  Groups groups;
  for (int block = 0; block < world; block += size * stride) {
    for (int offset = 0; offset < stride; ++offset) {
      std::vector<int> group;
      for (int k = 0; k < size; ++k) group.push_back(block + offset + k * stride);
      groups.push_back(group);
    }
  }
  return groups;
}

}  // namespace

MeshConfig meshOf(const PlanConfig& p) {
  const int world = p.worldSize();
  MeshConfig m;
  m.worldSize = world;
  m.tensorParallel = groupsOf(world, p.tensorParallel, 1);
  m.sequenceParallel = groupsOf(world, p.sequenceParallel, 1);
  m.dataParallel = groupsOf(world, p.dataParallel, p.sequenceParallel);
  m.pipelineParallel = groupsOf(world, p.pipelineParallel, p.dataParallel * p.sequenceParallel);
  const int tp = p.tensorParallel;
  m.parameterSharding = groupsOf(world, p.parameterSharding, tp);
  m.optimizerStateSharding = groupsOf(world, p.optimizerStateSharding, tp * p.parameterSharding);
  m.gradientReplicas = groupsOf(world, p.replicaRanks() / p.parameterSharding, tp * p.parameterSharding);
  return m;
}

std::vector<std::uint32_t> sampleTokens(std::int64_t count, std::uint32_t vocabulary) {
  std::vector<std::uint32_t> tokens;
  std::uint64_t state = 1;
  std::uint32_t last = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const auto random = static_cast<std::uint32_t>(state >> 40);
    last = random % 3 == 0 ? random / 3 % vocabulary : (last * 5 + 3) % vocabulary;
    tokens.push_back(last);
  }
  return tokens;
}

void writeTokenFile(const std::string& path, const std::vector<std::uint32_t>& tokens,
                    std::uint32_t vocabulary, std::uint32_t bytesPerToken) {
  std::string bytes(64 + tokens.size() * bytesPerToken, '\0');
  const std::uint32_t version = 1;
  const std::uint64_t count = tokens.size();
  std::memcpy(bytes.data(), "IEVOTOK", 8);
  std::memcpy(bytes.data() + 8, &version, 4);
  std::memcpy(bytes.data() + 12, &bytesPerToken, 4);
  std::memcpy(bytes.data() + 16, &count, 8);
  std::memcpy(bytes.data() + 24, &vocabulary, 4);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::memcpy(bytes.data() + 64 + i * bytesPerToken, &tokens[i], bytesPerToken);
  }
  writeFile(path, bytes);
}

Config smallConfig(const std::string& dataPath) {
  Config c;
  c.model = {48, 3, 4, 2, 80, 97, false, 10000, 1e-5, 0.1};
  c.sequenceLengthTokens = 24;
  c.plan.microBatchSize = 8;
  c.mesh = meshOf(c.plan);
  // An epsilon of the size of the gradients: with a tiny one AdamW turns the rounding of gradients that are nearly zero
  // into differences of whole steps, and later steps could be compared only loosely.
  c.optimizer = {1e-3, 1e-4, 2, 20, 0.1, 0.9, 0.95, 1e-4, 1.0};
  c.data.path = dataPath;
  c.seed = 5;
  c.steps = 3;
  return c;
}

ModelConfig qwen2Model() {
  ModelConfig model = smallConfig("").model;
  model.queryKeyValueBias = true;
  model.ropeScaling = {.kind = RopeScalingKind::yarn, .factor = 4, .originalPositions = 8, .betaFast = 2};
  return model;
}

ModelConfig qwen3Model() {
  ModelConfig model = smallConfig("").model;
  model.queryKeyNorm = true, model.givenHeadSize = 20;
  return model;
}

ModelConfig llama3Model() {
  ModelConfig model = smallConfig("").model;
  model.ropeTheta = 50;
  model.ropeScaling = {.kind = RopeScalingKind::llama3, .factor = 8, .originalPositions = 40};
  return model;
}

ModelConfig mistralModel() {
  ModelConfig model = smallConfig("").model;
  model.slidingWindowTokens = 7, model.givenHeadSize = 8;
  model.ropeScaling = {.kind = RopeScalingKind::linear, .factor = 2};
  return model;
}

double roundingOf(const ModelConfig& model, const std::string& tensor) {
  for (const char* const each : {"queryNorm", "keyNorm", "keyBias"}) {
    if (tensor.find(each) != std::string::npos) return 3;
  }
  return model.queryKeyNorm ? 2 : 1;
}

namespace {

nlohmann::json dataOf(const DataConfig& data) {
  if (data.sources.empty()) return {{"path", data.path}};
  nlohmann::json sources = nlohmann::json::array();
  for (const DataConfig::Source& source : data.sources)
    sources.push_back({{"path", source.path}, {"share", source.share}});
  return {{"sources", sources}};
}

}  // namespace

std::string documentOf(const Config& c) {
  using Json = nlohmann::json;
  const MeshConfig& m = c.mesh;
  const OptimizerConfig& o = c.optimizer;
  Json checkpoint;
  if (c.checkpoint) {
    static constexpr const char* kWriting[] = {"automatic", "asynchronous", "synchronous"};
    checkpoint = {{"directory", c.checkpoint->directory},
                  {"writing", kWriting[static_cast<int>(c.checkpoint->writing)]},
                  {"onFailure", c.checkpoint->stopOnFailure ? "stop" : "continue"},
                  {"everySteps", c.checkpoint->everySteps},
                  {"keepLast", c.checkpoint->keepLast},
                  {"resume", c.checkpoint->resumeLatest ? "latest" : "none"}};
  }
  Json document{{"protocol", 1},
                {"model", Json::parse(modelJson(c.model))},
                {"sequenceLengthTokens", c.sequenceLengthTokens},
                {"precision", c.precisionName()},
                {"plan", Json::parse(planJson(c.plan))},
                {"mesh",
                 {{"worldSize", m.worldSize},
                  {"sequenceParallel", m.sequenceParallel},
                  {"dataParallel", m.dataParallel},
                  {"tensorParallel", m.tensorParallel},
                  {"pipelineParallel", m.pipelineParallel},
                  {"parameterSharding", m.parameterSharding},
                  {"optimizerStateSharding", m.optimizerStateSharding},
                  {"gradientReplicas", m.gradientReplicas}}},
                {"optimizer",
                 {{"peakLearningRate", o.peakLearningRate},
                  {"minLearningRate", o.minLearningRate},
                  {"warmupSteps", o.warmupSteps},
                  {"decaySteps", o.decaySteps},
                  {"weightDecay", o.weightDecay},
                  {"beta1", o.beta1},
                  {"beta2", o.beta2},
                  {"epsilon", o.epsilon},
                  {"clipGlobalNorm", o.clipGlobalNorm}}},
                {"data", dataOf(c.data)},
                {"seed", c.seed},
                {"steps", c.steps},
                {"checkpoint", checkpoint},
                {"initialWeights", c.initialWeightsPath ? Json{{"path", *c.initialWeightsPath}} : Json()},
                {"memoryLimitBytes", c.memoryLimitBytes ? Json(*c.memoryLimitBytes) : Json()},
                {"threadsPerRank", c.threadsPerRank},
                {"deterministic", c.deterministic},
                {"gradientDumpPath", c.gradientDumpPath ? Json(*c.gradientDumpPath) : Json()}};
  static constexpr const char* kSchedules[] = {"cosine", "linear", "constant", "wsd"};
  if (o.schedule != LearningRateSchedule::cosine)
    document["optimizer"]["schedule"] = kSchedules[static_cast<int>(o.schedule)];
  if (o.annealingSteps > 0) document["optimizer"]["annealingSteps"] = o.annealingSteps;
  if (c.validation) {
    const ValidationConfig& v = *c.validation;
    document["validation"] = {
        {"data", {{"path", v.data.path}}}, {"everySteps", v.everySteps}, {"batches", v.batches}};
    if (v.data.endOfDocumentToken)
      document["validation"]["data"]["endOfDocumentToken"] = *v.data.endOfDocumentToken;
  }
  if (c.device == DeviceKind::cuda) document["device"] = "cuda";
  if (c.leaveFree.bytes > 0)
    document["leaveFree"] = {{"share", c.leaveFree.share}, {"bytes", c.leaveFree.bytes}};
  if (c.packsDocuments()) document["data"]["packing"] = "documents";
  if (c.data.endOfDocumentToken) document["data"]["endOfDocumentToken"] = *c.data.endOfDocumentToken;
  if (c.timeline) {
    const TimelineConfig& t = *c.timeline;
    document["timeline"] = {{"path", t.path},
                            {"firstStep", t.firstStep},
                            {"steps", t.steps},
                            {"capacityEvents", t.capacityEvents}};
  }
  document["watchdog"] = nullptr;
  if (c.watchdog) {
    const WatchdogLimits& w = *c.watchdog;
    document["watchdog"] = {{"beatSeconds", w.beatSeconds},
                            {"silenceSeconds", w.silenceSeconds},
                            {"stallSeconds", w.stallSeconds},
                            {"stallFactor", w.stallFactor},
                            {"firstStepSeconds", w.firstStepSeconds}};
  }
  return document.dump();
}

void writeFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!(file << text).flush()) throw std::runtime_error("cannot write " + path);
}

std::string readFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) throw std::runtime_error("cannot read " + path);
  return text.str();
}

namespace {

template <typename T>
double error(const float* a, const T* b, std::int64_t count) {
  double difference = 0, size = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    difference += (x - y) * (x - y);
    size += y * y;
  }
  return difference == 0 ? 0 : std::sqrt(difference / size);
}

}  // namespace

double relativeError(const float* a, const double* b, std::int64_t count) { return error(a, b, count); }
double relativeError(const float* a, const float* b, std::int64_t count) { return error(a, b, count); }

}  // namespace internevo::trainer::testing
