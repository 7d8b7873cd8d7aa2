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

constexpr std::int64_t kSteps = 5, kStepsOfMany = 3, kPlanLayers = 8, kPlanSequence = 4096;
constexpr double kShareGoal = 85, kMfuGoal = 55;  ///< %
constexpr int kRefused = 3;                       ///< status of the program for a plan that does not fit

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

Outcome timePlan(CaseRun& run, std::int64_t microBatchSize, std::int64_t microBatches, bool recompute) {
  const std::int64_t sequence = sized(run, kPlanSequence);
  trainer::Config config =
      run.runs().config(std::min(kPlanLayers, run.runs().wholeLayers()), sequence, recompute);
  config.plan.microBatchSize = microBatchSize, config.plan.microBatches = microBatches;
  run.result = {{"sequenceLengthTokens", sequence}, {"layers", config.model.layers},
                {"microBatchSize", microBatchSize}, {"microBatches", microBatches},
                {"recompute", recompute},           {"plannedBytes", TrainerRuns::plannedBytes(config)}};
  const TrainerRun ran = run.runs().run(config, kStepsOfMany, run.leftSeconds() - 3);
  if (ran.status == kRefused) return run.message = ran.message, run.result["refused"] = true, Outcome::passed;
  run.result["steps"] = stepsOf(ran);
  if (ran.status != 0) return failed(run, ran);
  const std::optional<double> seconds = ran.stepSeconds();
  run.result["medianStepSeconds"] = seconds ? Json(*seconds) : Json();
  if (const Json* const started = ran.named("started")) run.result["memory"] = started->at("memory");
  return seconds ? Outcome::passed : Outcome::failed;
}

Outcome checkTenSteps(CaseRun& run, const std::string& kernels) {
  trainer::Config config = run.runs().config(2, run.small() ? 64 : 512, false);
  config.model.hiddenSize = run.small() ? 64 : 512,
  config.model.heads = config.model.kvHeads = run.small() ? 1 : 4;
  config.model.ffnHiddenSize = run.small() ? 96 : 1408, config.model.vocabularySize = run.small() ? 64 : 2048;
  config.memoryLimitBytes.reset();
  constexpr std::int64_t kTenSteps = 10;
  // bfloat16 on the device is at most twice as far from the CPU's float32 as the CPU's own bfloat16, but for what ten steps of rounding do.
  const auto losses = [&](trainer::DeviceKind device, DataType precision) {
    config.device = device, config.precision = precision;
    const TrainerRun ran = run.runs().run(config, kTenSteps, run.leftSeconds() - 2);
    if (ran.status != 0)
      throw CannotRun(ran.message.find("INTERNEVO_CUDA_ATTENTION") != std::string::npos && kernels != "warp"
                          ? Outcome::absent
                          : Outcome::failed,
                      ran.message);
    std::vector<double> values;
    for (const Json& event : stepsOf(ran)) values.push_back(event.at("loss"));
    return values;
  };
  setenv("INTERNEVO_CUDA_ATTENTION", kernels.c_str(), 1);
  const std::vector<double> device = losses(trainer::DeviceKind::cuda, DataType::bfloat16);
  unsetenv("INTERNEVO_CUDA_ATTENTION");
  run.result["losses"] = device;
  run.noteNow();
  const std::vector<double> exact = losses(trainer::DeviceKind::cpu, DataType::float32);
  double worst = 0;
  for (std::size_t i = 0; i < device.size(); ++i)
    worst = std::max(worst, std::abs(device[i] - exact[i]) / exact[i]);
  constexpr double kLimit = 1. / 256;  // one rounding of the loss
  run.result["reference"] = exact, run.result["largestDifference"] = number(worst),
  run.result["limit"] = kLimit;
  if (device.size() == kTenSteps && worst <= kLimit) return Outcome::passed;
  run.message = "a loss differs by " + number(worst).dump() + " of at most " + Json(kLimit).dump();
  return Outcome::failed;
}

Outcome probeModel(CaseRun& run, std::int64_t asked) {
  const std::int64_t rows = sized(run, asked);
  const trainer::ModelConfig m = run.runs().model();
  Json modules = Json::array();
  const auto add = [&](const char* module, Json sizes, std::initializer_list<const char*> passes) {
    for (const char* const pass : passes) {
      Json point = sizes;
      point["module"] = module, point["pass"] = pass, point["precision"] = "bf16";
      modules.push_back(point);
    }
  };
  const std::int64_t h = m.hiddenSize, f = m.ffnHiddenSize;
  for (const auto& [inputs, outputs] : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
           {h, h + 2 * m.kvWidth()}, {h, h}, {h, 2 * f}, {f, h}}) {
    add("linear", {{"rows", rows}, {"inputs", inputs}, {"outputs", outputs}}, {"forward", "backward"});
  }
  add("attention",
      {{"batch", 1},
       {"sequence", rows},
       {"heads", m.heads},
       {"kvHeads", m.kvHeads},
       {"headSize", m.headSize()}},
      {"forward", "backward"});
  add("rmsnorm", {{"rows", rows}, {"width", h}}, {"forward", "backward"});
  add("swiglu", {{"rows", rows}, {"width", f}}, {"forward", "backward"});
  add("residual-add", {{"rows", rows}, {"width", h}}, {"forward", "backward"});
  add("rope", {{"rows", rows}, {"heads", m.heads}, {"headSize", m.headSize()}}, {"forward", "backward"});
  add("embedding", {{"rows", rows}, {"width", h}, {"vocabulary", m.vocabularySize}}, {"forward", "backward"});
  add("head-loss", {{"rows", rows}, {"width", h}, {"vocabulary", m.vocabularySize}}, {"forward-backward"});
  const std::int64_t elements = h * (2 * h + 2 * m.kvWidth() + 3 * f + 2);
  for (const char* const update : {"adamw", "squared-norm", "accumulate"})
    add(update, {{"elements", elements}}, {"update"});
  const Json document{{"protocol", 1},
                      {"deviceKind", "cuda"},
                      {"threadsPerRank", 1},
                      {"minimumSamples", 5},
                      {"maximumSeconds", run.small() ? 0.02 : 0.4},
                      {"targetRelativeSpread", 0.03},
                      {"collectives", Json::array()},
                      {"modules", modules},
                      {"overlaps", Json::array()},
                      {"device", true}};
  const trainer::testing::TemporaryDirectory folder;
  trainer::testing::writeFile(folder.file("probe.json"), document.dump());
  std::vector<std::string> arguments = trainer::testing::mpirunArguments(1);
  for (const std::string& each : {std::string("--bind-to"), std::string("none"), installed(built::kProbe),
                                  std::string("--config"), folder.file("probe.json")})
    arguments.push_back(each);
  run.result = {{"sequenceLengthTokens", rows}, {"modules", modules.size()}, {"events", Json::array()}};
  const Ended ended = check::run(arguments, run.leftSeconds() - 3, [&](const std::string& line) {
    if (Json event = Json::parse(line, nullptr, false); event.is_object())
      run.result["events"].push_back(std::move(event));
  });
  if (ended.status == 0) return Outcome::passed;
  run.message = ended.status == kTimedOut ? "the case's time was over"
                                          : "the probe ended with status " + std::to_string(ended.status) +
                                                ": " + ended.lastError();
  return Outcome::failed;
}

}  // namespace internevo::check
