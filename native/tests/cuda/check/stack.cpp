// The trainer's program on one GPU with LLaMA-7B's layers: its step beside its kernels alone.
#include <cstdio>

#include "cuda/check/runs.h"
#include "cuda/check/step_kernels.h"
#include "cuda/check/timing.h"

namespace internevo::check {

namespace {

constexpr double kSeconds = 130;      ///< for the section
constexpr double kLeastSeconds = 12;  ///< that a length is begun with
constexpr std::int64_t kSteps = 4;
/// With fewer layers than this, layers are recomputed so that there is room for more.
constexpr std::int64_t kFewLayers = 4;

/// The probe's peak: a square product that fills the GPU.
double squareFigure(Backend& device, bool small) {
  std::vector<Measured> results;
  Timer timer(device, small, &results);
  Operands o(device.memory());
  const std::int64_t n = small ? 32 : 8192;
  const View x = o.take(n * n), w = o.take(n * n), y = o.take(n * n);
  const Workspace scratch = o.scratch(device.linearWorkspaceBytes());
  timer.time("square", 2e-12 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n), "TFLOP", o,
             [&] { return device.linearForward({n, n, n}, x, w, y, scratch); });
  return results[0].figure;
}

/// Of matrix products, with those that are computed again; modelTeraFlops without attention otherwise.
double expectedProducts(const trainer::ModelConfig& m, std::int64_t sequence, std::int64_t recomputed) {
  const auto tokens = static_cast<double>(sequence), h = static_cast<double>(m.hiddenSize), layers = static_cast<double>(m.layers);
  const double again = h * (2 * h + 2 * static_cast<double>(m.kvWidth()) + 2 * static_cast<double>(m.ffnHiddenSize));
  return modelTeraFlops(m, sequence) - 6e-12 * layers * tokens * tokens * h + 2e-12 * tokens * again * static_cast<double>(recomputed);
}

struct Peaks {
  double profiled;
  std::optional<double> dataSheet;
};

class Stack {
 public:
  Stack(Backend& device, TrainerRuns& runs, Json* report) : device_(device), runs_(runs), report_(*report) {
    peaks_ = {squareFigure(device, runs.small()), dataSheetTeraFlops(device.name())};
    report_["stack"]["peaks"] = {{"profiledTeraFlopsPerSecond", peaks_.profiled}, {"dataSheetTeraFlopsPerSecond", peaks_.dataSheet ? Json(*peaks_.dataSheet) : Json()}};
    report_["stack"]["lengths"] = Json::array();
  }

  /// False where the program or a kernel fails.
  bool length(std::int64_t sequence, const Budget& budget) {
    bool recompute = false;
    std::int64_t layers = runs_.mostLayers(sequence, recompute);
    if (layers < std::min(kFewLayers, runs_.wholeLayers())) layers = runs_.mostLayers(sequence, recompute = true);
    if (layers == 0) return leftOut(sequence, "no layer fits into the GPU's memory");
    const trainer::Config config = runs_.config(layers, sequence, recompute);
    const std::int64_t recomputed = recompute ? layers : 0;
    const StepKernels kernels = timeStepKernels(device_, config.model, sequence, recomputed, runs_.small());
    if (!kernels.message.empty()) return failed(sequence, kernels.message);
    if (std::abs(kernels.productTeraFlops / expectedProducts(config.model, sequence, recomputed) - 1) > 1e-9) {
      return failed(sequence, "the kernels that are timed alone are not those of a step");
    }
    const TrainerRun run = runs_.run(config, kSteps, budget.left());
    const std::optional<double> step = run.stepSeconds();
    if (run.status != 0 && !run.cutOff()) return failed(sequence, "the trainer's program ended with status " + std::to_string(run.status) + ": " + run.message);
    if (!step) return leftOut(sequence, "the section's time was over before a second step");
    note(config, recomputed, *step, run.steps() - 1, kernels);
    return true;
  }

  bool leftOut(std::int64_t sequence, const std::string& why) {
    std::printf("     stack, %ld tokens: left out: %s\n", static_cast<long>(sequence), why.c_str());
    report_["stack"]["leftOut"].push_back({{"sequenceLengthTokens", sequence}, {"why", why}});
    return true;
  }

 private:
  bool failed(std::int64_t sequence, const std::string& why) {
    std::printf("FAIL stack, %ld tokens: %s\n", static_cast<long>(sequence), why.c_str());
    report_["stack"]["failed"].push_back({{"sequenceLengthTokens", sequence}, {"why", why}});
    return false;
  }

  void note(const trainer::Config& config, std::int64_t recomputed, double step, int steps, const StepKernels& kernels) {
    const std::int64_t sequence = config.sequenceLengthTokens;
    const double flops = modelTeraFlops(config.model, sequence), share = kernels.seconds / step;
    const double profiled = flops / step / peaks_.profiled;
    std::printf("ok   stack, %6ld tokens, %2ld layers%s: %8.1f ms a step, %9.0f tokens/s, MFU %.1f%% of the profiled peak", static_cast<long>(sequence),
                static_cast<long>(config.model.layers), recomputed > 0 ? " (recomputed)" : "", 1e3 * step, static_cast<double>(sequence) / step, 100 * profiled);
    if (peaks_.dataSheet) std::printf(", %.1f%% of the data sheet's", 100 * flops / step / *peaks_.dataSheet);
    std::printf("; %.1f%% of speed of light\n", 100 * share);
    Json row{{"sequenceLengthTokens", sequence}, {"layers", config.model.layers}, {"recomputedLayers", recomputed}, {"medianStepSeconds", step},
             {"measuredSteps", steps}, {"tokensPerSecond", static_cast<double>(sequence) / step}, {"modelTeraFlops", flops},
             {"mfuOfProfiledPeak", profiled}, {"mfuOfDataSheet", peaks_.dataSheet ? Json(flops / step / *peaks_.dataSheet) : Json()},
             {"kernelSeconds", kernels.seconds}, {"shareOfSpeedOfLight", share}};
    for (std::size_t i = 0; i < kernels.each.size(); ++i) {
      const Measured& m = kernels.each[i];
      row["kernels"].push_back({{"name", m.name}, {"callsAStep", kernels.callsAStep[i]}, {"seconds", m.seconds}, {"figure", m.figure}, {"unit", m.unit + "/s"}});
    }
    report_["stack"]["lengths"].push_back(row);
    const std::string what = "stack, " + std::to_string(sequence) + " tokens: ";
    noteGoal(what + "share of speed of light", 100 * share, 85, "%", &report_);
    noteGoal(what + "causal MFU of the profiled peak", 100 * profiled, 55, "%", &report_);
  }

  Backend& device_;
  TrainerRuns& runs_;
  Json& report_;
  Peaks peaks_{};
};

}  // namespace

bool checkStack(Backend& device, TrainerRuns& runs, Json* report) {
  const Budget budget(kSeconds);
  std::string message;
  if (!runs.start(&message)) return std::printf("FAIL stack: %s\n", message.c_str()), false;
  Stack stack(device, runs, report);
  bool passed = true;
  // The lengths that say most come first.
  const std::vector<std::int64_t> lengths = runs.small() ? std::vector<std::int64_t>{32} : std::vector<std::int64_t>{16384, 65536, 8192, 32768};
  for (const std::int64_t sequence : lengths) {
    if (budget.left() < kLeastSeconds) {
      stack.leftOut(sequence, "the section's " + std::to_string(static_cast<int>(budget.seconds())) + " s are over");
    } else {
      passed = stack.length(sequence, budget) && passed;
    }
  }
  return passed;
}

}  // namespace internevo::check
