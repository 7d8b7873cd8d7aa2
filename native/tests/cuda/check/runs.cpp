#include "cuda/check/runs.h"

#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <thread>

#include "../../trainer/process.h"
#include "internevo/device_library.h"
#include "trainer/memory_plan.h"

namespace internevo::check {

namespace {

/// Left to CUDA: kernels are loaded when they are first called.
constexpr std::int64_t kReserveBytes = std::int64_t{512} << 20;
/// What a number of layers leaves free: kernels are loaded in this process too, after plans were made.
constexpr std::int64_t kSpareBytes = std::int64_t{256} << 20;
constexpr std::int64_t kMemoryOfModelBytes = std::int64_t{1} << 40;

trainer::ModelConfig modelOf(bool small) {
  trainer::ModelConfig m;
  m.hiddenSize = small ? 64 : 4096, m.layers = small ? 2 : 32, m.heads = m.kvHeads = small ? 1 : 32;
  m.ffnHiddenSize = small ? 96 : 11008, m.vocabularySize = small ? 64 : 32000;
  return m;
}

}  // namespace

std::string lastLineOf(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

const Json* TrainerRun::named(const char* name) const {
  const auto found = std::find_if(events.begin(), events.end(), [&](const Json& event) { return event.value("event", "") == name; });
  return found == events.end() ? nullptr : &*found;
}

int TrainerRun::steps() const {
  return static_cast<int>(std::count_if(events.begin(), events.end(), [](const Json& event) { return event.value("event", "") == "step"; }));
}

std::optional<double> TrainerRun::stepSeconds() const {
  std::vector<double> seconds;
  for (const Json& event : events) {
    if (event.value("event", "") == "step" && event.at("step") > 1) seconds.push_back(event.at("stepTimeSeconds"));
  }
  if (seconds.empty()) return std::nullopt;
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

TrainerRuns::TrainerRuns(Backend& device, bool small) : device_(device), small_(small), model_(modelOf(small)) {
  const std::int64_t total = device.memory().occupancy().totalBytes;  // 0: a model of a device, whose memory is the process's
  limitBytes_ = total > 0 ? total - kReserveBytes : kMemoryOfModelBytes;
}

trainer::Config TrainerRuns::config(std::int64_t layers, std::int64_t sequence, bool recompute) const {
  trainer::Config c;
  c.model = model_;
  c.model.layers = layers;
  c.sequenceLengthTokens = sequence;
  c.precision = DataType::bfloat16;
  c.plan.recompute = recompute;
  c.mesh = trainer::testing::meshOf(c.plan);
  c.optimizer = {3e-4, 3e-5, 2, 100, 0.1, 0.9, 0.95, 1e-8, 1.0};
  c.seed = 1;
  c.device = trainer::DeviceKind::cuda;
  c.threadsPerRank = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 64u));
  c.memoryLimitBytes = limitBytes_;
  c.watchdog.reset();
  return c;
}

std::int64_t TrainerRuns::plannedBytes(const trainer::Config& config) {
  return planStages(config, cudaBackendSizes()).largest().arenaBytes();
}

std::int64_t TrainerRuns::mostLayers(std::int64_t sequence, bool recompute) const {
  std::int64_t layers = wholeLayers();
  while (layers > 0 && !fits(config(layers, sequence, recompute), small_ ? 0 : kSpareBytes)) --layers;
  return layers;
}

bool TrainerRuns::start(std::string* message) {
  if (runtimeBytes_ > 0) return true;
  takenBefore_ = takenBytes();
  const TrainerRun run = this->run(config(1, small_ ? 32 : 1024, false), 1, 120);
  const Json* const started = run.named("started");
  if (run.status != 0 || started == nullptr) return *message = "the trainer's program ended with status " + std::to_string(run.status) + ": " + run.message, false;
  runtimeBytes_ = started->at("memory").at("runtime");
  return true;
}

TrainerRun TrainerRuns::run(trainer::Config config, std::int64_t steps, double limitSeconds) {
  config.steps = steps;
  config.data.path = directory_.file("tokens");
  const auto vocabulary = static_cast<std::uint32_t>(config.model.vocabularySize);
  trainer::testing::writeTokenFile(config.data.path, trainer::testing::sampleTokens(steps * config.sequenceLengthTokens + 1, vocabulary), vocabulary);
  const std::string document = directory_.file("config.json"), errors = directory_.file("stderr");
  trainer::testing::writeFile(document, trainer::testing::documentOf(config));
  trainer::testing::writeFile(errors, "");
  std::string command = "timeout --kill-after=5 " + std::to_string(std::max(1, static_cast<int>(limitSeconds)));
  for (const std::string& each : trainer::testing::mpirunArguments(1)) command += " '" + each + "'";
  // One rank, all cores: initial weights are made by all of them.
  command += " --bind-to none '" INTERNEVO_TRAINER "' --config '" + document + "' 2>'" + errors + "'";
  TrainerRun result;
  std::FILE* const output = popen(command.c_str(), "r");
  if (output == nullptr) return result.status = 127, result.message = "no process can be started", result;
  char* line = nullptr;
  std::size_t room = 0;
  while (getline(&line, &room, output) >= 0) {
    if (Json event = Json::parse(line, nullptr, false); event.is_object()) result.events.push_back(std::move(event));
  }
  std::free(line);
  const int status = pclose(output);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const Json* const error = result.named("error");
  result.message = error != nullptr ? error->value("message", "") : lastLineOf(errors);
  return result;
}

double modelTeraFlops(const trainer::ModelConfig& m, std::int64_t sequence) {
  const auto tokens = static_cast<double>(sequence), h = static_cast<double>(m.hiddenSize);
  const double layer = h * (2 * h + 2 * static_cast<double>(m.kvWidth()) + 3 * static_cast<double>(m.ffnHiddenSize));
  const double weights = static_cast<double>(m.layers) * layer + h * static_cast<double>(m.vocabularySize);
  return 1e-12 * (6 * tokens * weights + static_cast<double>(m.layers) * 6 * tokens * tokens * h);
}

std::optional<double> dataSheetTeraFlops(const std::string& device) {
  struct Known {
    const char* part;
    double teraFlops;
  };
  // The more particular names first: a part is found anywhere in the driver's name of the GPU.
  for (const Known& each : {Known{"H100 PCIe", 756}, {"H100 NVL", 835}, {"H100", 989.4}, {"H200", 989.4}, {"H800", 989.4},
                            {"H20", 148}, {"A100", 312}, {"A800", 312}, {"B200", 2250}}) {
    if (device.find(each.part) != std::string::npos) return each.teraFlops;
  }
  return std::nullopt;
}

}  // namespace internevo::check
