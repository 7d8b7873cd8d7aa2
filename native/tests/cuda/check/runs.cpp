#include "cuda/check/runs.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

#include "cuda/check/children.h"
#include "cuda/check/installed.h"
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

const Json* TrainerRun::named(const char* name) const {
  const auto found = std::find_if(events.begin(), events.end(),
                                  [&](const Json& event) { return event.value("event", "") == name; });
  return found == events.end() ? nullptr : &*found;
}

int TrainerRun::steps() const {
  return static_cast<int>(std::count_if(
      events.begin(), events.end(), [](const Json& event) { return event.value("event", "") == "step"; }));
}

std::optional<double> TrainerRun::stepSeconds() const {
  std::vector<double> seconds;
  for (const Json& event : events) {
    if (event.value("event", "") == "step" && event.at("step") > 1)
      seconds.push_back(event.at("stepTimeSeconds"));
  }
  if (seconds.empty()) return std::nullopt;
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

TrainerRuns::TrainerRuns(Backend& device, bool small, std::string work)
    : device_(device), small_(small), work_(std::move(work)), model_(modelOf(small)) {
  const std::int64_t total =
      device.memory().occupancy().totalBytes;  // 0: a model of a device, whose memory is the process's
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

void TrainerRuns::recompute(trainer::Config* config, std::int64_t layers) {
  config->plan.recompute = layers == config->model.layers;
  config->plan.recomputeLayers = config->plan.recompute ? 0 : layers;
}

TrainerRuns::Fitted TrainerRuns::fitted(std::int64_t sequence, std::int64_t microBatches,
                                        std::int64_t most) const {
  const std::int64_t spare = small_ ? 0 : kSpareBytes;
  const auto fitsWith = [&](std::int64_t layers, std::int64_t recomputed) {
    trainer::Config c = config(layers, sequence, false);
    c.plan.microBatches = microBatches;
    recompute(&c, recomputed);
    return fits(c, spare);
  };
  Fitted result;
  result.layers = most == 0 ? wholeLayers() : std::min(most, wholeLayers());
  while (result.layers > 0 && !fitsWith(result.layers, result.layers)) --result.layers;
  std::int64_t bad = -1;
  result.recomputed = result.layers;
  while (result.recomputed - bad > 1) {
    const std::int64_t middle = bad + (result.recomputed - bad) / 2;
    (fitsWith(result.layers, middle) ? result.recomputed : bad) = middle;
  }
  return result;
}

bool TrainerRuns::start(std::string* message) {
  if (runtimeBytes_ > 0) return true;
  takenBefore_ = takenBytes();
  // It is the same for every case of a device: the first to ask leaves it for the others.
  const std::string kept = work_ + "/runtime-bytes";
  if (std::ifstream(kept) >> runtimeBytes_ && runtimeBytes_ > 0) return true;
  const TrainerRun run = this->run(config(1, small_ ? 32 : 1024, false), 1, 60);
  const Json* const started = run.named("started");
  if (run.status != 0 || started == nullptr)
    return *message =
               "the trainer's program ended with status " + std::to_string(run.status) + ": " + run.message,
           false;
  runtimeBytes_ = started->at("memory").at("runtime");
  std::ofstream(kept) << runtimeBytes_ << "\n";
  return true;
}

TrainerRun TrainerRuns::run(trainer::Config config, std::int64_t steps, double limitSeconds) {
  config.steps = steps;
  config.data.path = directory_.file("tokens");
  const auto vocabulary = static_cast<std::uint32_t>(config.model.vocabularySize);
  const std::int64_t tokens = steps * config.plan.globalBatchSequences() * config.sequenceLengthTokens + 1;
  trainer::testing::writeTokenFile(config.data.path, trainer::testing::sampleTokens(tokens, vocabulary),
                                   vocabulary);
  const std::string document = directory_.file("config.json");
  trainer::testing::writeFile(document, trainer::testing::documentOf(config));
  std::vector<std::string> arguments = trainer::testing::mpirunArguments(1);
  // One rank, all cores: initial weights are made by all of them.
  for (const std::string& each : {std::string("--bind-to"), std::string("none"), installed(built::kTrainer),
                                  std::string("--config"), document})
    arguments.push_back(each);
  TrainerRun result;
  const Ended ended = check::run(arguments, limitSeconds, [&](const std::string& line) {
    if (Json event = Json::parse(line, nullptr, false); event.is_object())
      result.events.push_back(std::move(event));
  });
  result.status = ended.status;
  const Json* const error = result.named("error");
  result.message = error != nullptr ? error->value("message", "") : ended.lastError();
  return result;
}

double modelTeraFlops(const trainer::ModelConfig& m, std::int64_t sequence) {
  const auto tokens = static_cast<double>(sequence), h = static_cast<double>(m.hiddenSize);
  const double layer =
      h * (2 * h + 2 * static_cast<double>(m.kvWidth()) + 3 * static_cast<double>(m.ffnHiddenSize));
  const double weights = static_cast<double>(m.layers) * layer + h * static_cast<double>(m.vocabularySize);
  return 1e-12 * (6 * tokens * weights + static_cast<double>(m.layers) * 6 * tokens * tokens * h);
}

std::optional<double> dataSheetTeraFlops(const std::string& device) {
  struct Known {
    const char* part;
    double teraFlops;
  };
  // The more particular names first: a part is found anywhere in the driver's name of the GPU.
  for (const Known& each : {Known{"H100 PCIe", 756},
                            {"H100 NVL", 835},
                            {"H100", 989.4},
                            {"H200", 989.4},
                            {"H800", 989.4},
                            {"H20", 148},
                            {"A100", 312},
                            {"A800", 312},
                            {"B200", 2250}}) {
    if (device.find(each.part) != std::string::npos) return each.teraFlops;
  }
  return std::nullopt;
}

}  // namespace internevo::check
