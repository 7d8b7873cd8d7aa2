// The trainer's program on one GPU with LLaMA-7B's layers: its steps, its kernels alone, ten steps against the CPU, plans, and the
// planner's points.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "cuda/check/children.h"
#include "cuda/check/installed.h"
#include "cuda/check/runs.h"
#include "cuda/check/step_kernels.h"
#include "cuda/check/timing.h"
#include "cuda/check/verdicts.h"

namespace internevo::check {

namespace {

constexpr std::int64_t kSteps = 5, kStepsOfMany = 3;
constexpr double kShareGoal = 85, kMfuGoal = 55;  ///< %

/// The probe's peak: a square product that fills the GPU. TFLOP/s.
double squareFigure(Backend& device, bool small) {
  std::vector<Measured> results;
  Timer timer(device, small, &results);
  Operands o(device.memory());
  const std::int64_t n = small ? 32 : 8192;
  const View x = o.take(n * n), w = o.take(n * n), y = o.take(n * n);
  const Workspace scratch = o.scratch(device.linearWorkspaceBytes());
  timer.time("square", 2e-12 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n),
             "TFLOP", o, [&] {
               return device.linearForward({n, n, n}, x, w, y, scratch);
             });
  return results[0].figure;
}

/// Of matrix products, with those that are computed again; modelTeraFlops without attention otherwise.
double expectedProducts(const trainer::ModelConfig& m, std::int64_t sequence, std::int64_t recomputed) {
  const auto tokens = static_cast<double>(sequence), h = static_cast<double>(m.hiddenSize),
             layers = static_cast<double>(m.layers);
  const double again =
      h * (2 * h + 2 * static_cast<double>(m.kvWidth()) + 2 * static_cast<double>(m.ffnHiddenSize));
  return modelTeraFlops(m, sequence) - 6e-12 * layers * tokens * tokens * h +
         2e-12 * tokens * again * static_cast<double>(recomputed);
}

std::int64_t sized(const CaseRun& run, std::int64_t sequence) {
  return run.small() ? sequence / 256 : sequence;
}

Json stepsOf(const TrainerRun& run) {
  Json steps = Json::array();
  for (const Json& event : run.events) {
    if (event.value("event", "") == "step") steps.push_back(event);
  }
  return steps;
}

Outcome failed(CaseRun& run, const TrainerRun& of) {
  run.message = of.cutOff() ? "the case's time was over"
                            : "the trainer's program ended with status " + std::to_string(of.status) + ": " +
                                  of.message;
  return Outcome::failed;
}

TrainerRuns::Fitted fitted(CaseRun& run, std::int64_t sequence, std::int64_t microBatches) {
  const TrainerRuns::Fitted result = run.runs().fitted(sequence, microBatches);
  if (result.layers == 0) throw CannotRun(Outcome::absent, "no layer fits into the GPU's memory");
  return result;
}

}  // namespace

Outcome timeKernelsOfStep(CaseRun& run, std::int64_t asked) {
  const std::int64_t sequence = sized(run, asked);
  const auto [layers, recomputed] = fitted(run, sequence, 1);
  const trainer::Config config = run.runs().config(layers, sequence, false);
  const double peak = squareFigure(run.device(), run.small());
  run.result = {{"sequenceLengthTokens", sequence},
                {"layers", layers},
                {"recomputedLayers", recomputed},
                {"profiledTeraFlopsPerSecond", peak}};
  run.noteNow();
  const StepKernels kernels = timeStepKernels(run.device(), config.model, sequence, recomputed, run.small());
  run.result["kernelSeconds"] = number(kernels.seconds);
  for (std::size_t i = 0; i < kernels.each.size(); ++i) {
    Json row = jsonOf(kernels.each[i]);
    row["callsAStep"] = kernels.callsAStep[i];
    run.result["times"].push_back(row);
  }
  if (!kernels.message.empty()) return run.message = kernels.message, Outcome::failed;
  if (std::abs(kernels.productTeraFlops / expectedProducts(config.model, sequence, recomputed) - 1) > 1e-9) {
    return run.message = "the kernels that are timed alone are not those of a step", Outcome::failed;
  }
  return Outcome::passed;
}

Outcome timeStep(CaseRun& run, const StepWanted& wanted) {
  const std::int64_t sequence = sized(run, wanted.sequence);
  const auto [layers, recomputed] = fitted(run, sequence, wanted.microBatches);
  trainer::Config config = run.runs().config(layers, sequence, false);
  TrainerRuns::recompute(&config, recomputed);
  config.plan.microBatches = wanted.microBatches, config.deterministic = wanted.deterministic;
  const std::string timeline = run.work() + "/timeline-" + std::to_string(wanted.sequence) + "-n" +
                               std::to_string(wanted.microBatches) +
                               (wanted.deterministic ? "" : "-unordered") + ".json";
  const std::int64_t steps = wanted.microBatches > 1 ? kStepsOfMany : kSteps;
  config.timeline = trainer::TimelineConfig{timeline, steps, 1,
                                            50000};  // the last step, so that the others are timed without
  run.result = {{"sequenceLengthTokens", sequence},
                {"microBatches", wanted.microBatches},
                {"deterministic", wanted.deterministic},
                {"layers", layers},
                {"layersOfTheModel", run.runs().wholeLayers()},
                {"recomputedLayers", recomputed},
                {"plannedBytes", TrainerRuns::plannedBytes(config)}};
  run.noteNow();
  const TrainerRun ran = run.runs().run(config, steps, run.leftSeconds() - 3);
  run.result["steps"] = stepsOf(ran);
  const std::optional<double> seconds = ran.stepSeconds();
  if (seconds) {
    const double flops = modelTeraFlops(config.model, sequence) * static_cast<double>(wanted.microBatches);
    const auto sheet = dataSheetTeraFlops(run.device().name());
    run.result["medianStepSeconds"] = *seconds,
    run.result["tokensPerSecond"] = static_cast<double>(sequence * wanted.microBatches) / *seconds;
    run.result["modelTeraFlops"] = flops,
    run.result["mfuOfDataSheet"] = sheet ? Json(flops / *seconds / *sheet) : Json();
    if (sheet)
      noteGoal(run,
               "7B, " + std::to_string(sequence) + " tokens, n = " + std::to_string(wanted.microBatches) +
                   ": causal MFU",
               100 * flops / *seconds / *sheet, kMfuGoal, "%");
  }
  if (ran.status != 0) return failed(run, ran);
  run.result["timeline"] = timeline.substr(timeline.rfind('/') + 1);
  if (const Json* const started = ran.named("started")) run.result["memory"] = started->at("memory");
  return seconds ? Outcome::passed : Outcome::failed;
}

namespace {

constexpr std::int64_t kTenSteps = 10;
constexpr double kLossLimit = 1. / 256;  ///< one rounding of the loss

/// Losses of ten steps with one kind of attention's kernels. Throws CannotRun, absent, where this machine does not have it.
std::vector<double> lossesOf(CaseRun& run, const trainer::Config& config, const std::string& kernels) {
  if (!kernels.empty()) setenv("INTERNEVO_CUDA_ATTENTION", kernels.c_str(), 1);
  const TrainerRun ran = run.runs().run(config, kTenSteps, run.leftSeconds() - 2);
  unsetenv("INTERNEVO_CUDA_ATTENTION");
  if (ran.status != 0)
    throw CannotRun(ran.message.find("INTERNEVO_CUDA_ATTENTION") != std::string::npos && kernels != "warp"
                        ? Outcome::absent
                        : Outcome::failed,
                    ran.message);
  std::vector<double> values;
  for (const Json& event : stepsOf(ran)) values.push_back(event.at("loss"));
  return values;
}

/// The largest difference of two curves, over the second; 1 where a step is missing or a loss is no number.
double largestDifference(const std::vector<double>& losses, const std::vector<double>& reference) {
  double worst = losses.size() == kTenSteps && reference.size() == kTenSteps ? 0 : 1;
  for (std::size_t i = 0; i < std::min(losses.size(), reference.size()); ++i) {
    const double difference = std::abs(losses[i] - reference[i]) / std::abs(reference[i]);
    worst = std::isfinite(difference) ? std::max(worst, difference) : 1;
  }
  return worst;
}

}  // namespace

Outcome checkTenSteps(CaseRun& run, const std::string& kernels) {
  trainer::Config config = run.runs().config(2, run.small() ? 64 : 512, false);
  config.model.hiddenSize = run.small() ? 64 : 512,
  config.model.heads = config.model.kvHeads = run.small() ? 1 : 4;
  config.model.ffnHiddenSize = run.small() ? 96 : 1408, config.model.vocabularySize = run.small() ? 64 : 2048;
  config.memoryLimitBytes.reset();
  // bfloat16 on the device is at most twice as far from the CPU's float32 as the CPU's own bfloat16, but for what ten steps of rounding do.
  const std::vector<double> device = lossesOf(run, config, kernels);
  run.result["losses"] = device;
  run.noteNow();
  config.device = trainer::DeviceKind::cpu, config.precision = DataType::float32;
  const std::vector<double> exact = lossesOf(run, config, "");
  const double worst = largestDifference(device, exact);
  run.result["reference"] = exact, run.result["largestDifference"] = number(worst),
  run.result["limit"] = kLossLimit;
  if (worst <= kLossLimit) return Outcome::passed;
  run.message = "a loss differs by " + number(worst).dump() + " of at most " + Json(kLossLimit).dump();
  return Outcome::failed;
}

Outcome compareTenSteps(CaseRun& run, const std::string& kernels) {
  const std::int64_t sequence = sized(run, 2048 * (run.small() ? 8 : 1));
  const trainer::Config config =
      run.runs().config(std::min<std::int64_t>(2, run.runs().wholeLayers()), sequence, false);
  // Each kind of kernels leaves its losses for those that come after it.
  const auto kept = [&](const std::string& of) { return run.work() + "/losses-of-two-layers-" + of; };
  const std::vector<double> own = lossesOf(run, config, kernels);
  run.result = {{"kernels", kernels},
                {"layers", config.model.layers},
                {"sequenceLengthTokens", sequence},
                {"losses", own},
                {"limit", kLossLimit}};
  run.noteNow();
  std::ofstream(kept(kernels)) << Json(own).dump() << "\n";
  Outcome outcome = Outcome::passed;
  for (const std::string other : {"warp", "warpgroup", "cudnn"}) {
    std::ifstream file(kept(other));
    std::string line;
    if (other == kernels || !std::getline(file, line)) continue;
    const Json losses = Json::parse(line, nullptr, false);
    if (!losses.is_array()) continue;
    const double worst = largestDifference(own, losses.get<std::vector<double>>());
    run.result["beside"].push_back(
        {{"kernels", other}, {"losses", losses}, {"largestDifference", number(worst)}});
    if (worst <= kLossLimit) continue;
    outcome = Outcome::failed;
    run.message = "a loss differs from that by " + other + " by " + number(worst).dump() + " of at most " +
                  Json(kLossLimit).dump();
  }
  if (own.size() != kTenSteps)
    outcome = Outcome::failed, run.message = std::to_string(own.size()) + " of 10 steps";
  return outcome;
}

}  // namespace internevo::check
