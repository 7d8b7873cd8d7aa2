#include "cuda/check/peer.h"

#include <algorithm>
#include <cstdlib>

#include "cuda/check/children.h"
#include "cuda/check/installed.h"
#include "cuda/check/runs.h"

namespace internevo::check {

namespace {

constexpr std::int64_t kLayers = 8, kSteps = 5;
constexpr double kStartSeconds = 60;  ///< Python and PyTorch from a cold disk
constexpr int kOutOfMemory = 3;

std::string lastLine(std::string text) {
  text.erase(text.find_last_not_of(" \n") + 1);
  return text.substr(text.rfind('\n') + 1);
}

std::int64_t lengthOf(const CaseRun& run, std::int64_t sequence) {
  return run.small() ? sequence / 256 : sequence;
}
std::int64_t layersOf(CaseRun& run) { return std::min(kLayers, run.runs().wholeLayers()); }

std::vector<std::string> modelArguments(CaseRun& run, std::int64_t layers) {
  const trainer::ModelConfig& m = run.runs().model();
  return {"--hidden",     std::to_string(m.hiddenSize),
          "--layers",     std::to_string(layers),
          "--heads",      std::to_string(m.heads),
          "--ffn",        std::to_string(m.ffnHiddenSize),
          "--vocabulary", std::to_string(m.vocabularySize),
          "--batch",      "1",
          "--precision",  "bf16",
          "--optimizer",  "fused"};
}

Peer peerOf(const CaseRun& run) {
  Peer peer(run.small(), "torch_llama.py");
  if (!peer.absent().empty()) throw CannotRun(Outcome::absent, peer.absent());
  return peer;
}

PeerAnswer ask(CaseRun& run, const Peer& peer, std::vector<std::string> arguments,
               std::initializer_list<std::string> more) {
  arguments.insert(arguments.end(), more);
  return peer.run(arguments, run.leftSeconds() - 3);
}

/// Largest first + k · unit that the plan has room for; below first: not even that.
std::int64_t longestPlanned(const TrainerRuns& runs, std::int64_t layers, std::int64_t first,
                            std::int64_t unit) {
  const auto fits = [&](std::int64_t k) { return runs.fits(runs.config(layers, first + k * unit, true)); };
  if (!fits(0)) return first - unit;
  std::int64_t good = 0, bad = 1;
  while (fits(bad)) good = bad, bad *= 2;
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return first + good * unit;
}

/// Refused before anything was computed, by its plan.
bool refusedByPlan(const TrainerRun& run) {
  return run.status == kOutOfMemory && run.named("started") == nullptr && run.named("error") != nullptr;
}

constexpr std::int64_t kLayersAt =
    8192;  ///< the model of the longest sequence has as many layers as fit at this length

}  // namespace

Peer::Peer(bool small, const std::string& script) : script_(installed(built::kPeerScripts) + "/" + script) {
  const char* const given = std::getenv("INTERNEVO_PYTHON");
  python_ = given == nullptr || *given == '\0' ? "python3" : given;
  const Ended ended = check::run(
      {python_, "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"}, kStartSeconds);
  const std::string said = lastLine(ended.output);
  if (ended.status != 0) {
    absent_ = python_ + " has no PyTorch (" +
              (ended.status == kTimedOut ? "no answer in time" : ended.lastError()) + ")";
    return;
  }
  version_ = said.substr(0, said.find(' '));
  const bool gpu = said.find("True") != std::string::npos;
  if (!gpu && !small) absent_ = "PyTorch " + version_ + " of " + python_ + " finds no GPU";
  device_ = small ? "cpu" : "cuda";
}

PeerAnswer Peer::run(const std::vector<std::string>& arguments, double limitSeconds) const {
  std::vector<std::string> command{python_, script_, "--device", device_};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const Ended ended = check::run(command, limitSeconds);
  PeerAnswer answer;
  answer.status = ended.status;
  answer.result = Json::parse(lastLine(ended.output), nullptr, false);
  answer.message = ended.status == kTimedOut ? "the case's time was over" : ended.lastError();
  return answer;
}

Outcome timeOurs(CaseRun& run, std::int64_t asked) {
  const std::int64_t sequence = lengthOf(run, asked), layers = layersOf(run);
  const TrainerRun ran =
      run.runs().run(run.runs().config(layers, sequence, false), kSteps, run.leftSeconds() - 3);
  const std::optional<double> seconds = ran.stepSeconds();
  run.result = {{"sequenceLengthTokens", sequence},
                {"layers", layers},
                {"medianStepSeconds", seconds ? Json(*seconds) : Json()}};
  if (const Json* const started = ran.named("started"))
    run.result["parameters"] = started->at("parameters"),
    run.result["plannedPeakBytes"] = started->at("plannedPeakBytes");
  if (ran.status == 0 && seconds) return Outcome::passed;
  run.message = ran.cutOff() ? "the case's time was over" : ran.message;
  return Outcome::failed;
}

Outcome timeTorch(CaseRun& run, std::int64_t asked, const std::string& attention) {
  const Peer peer = peerOf(run);
  const std::int64_t sequence = lengthOf(run, asked), layers = layersOf(run);
  const PeerAnswer answer =
      ask(run, peer, modelArguments(run, layers),
          {"--sequence", std::to_string(sequence), "--warmup", "2", "--steps", std::to_string(kSteps),
           "--attention", run.small() ? "fused" : attention, "--compile", run.small() ? "none" : "default",
           "--seconds", std::to_string(std::max(1, static_cast<int>(run.leftSeconds()) - 10))});
  run.result = {{"sequenceLengthTokens", sequence},
                {"layers", layers},
                {"attention", attention},
                {"torch", peer.version()}};
  if (answer.status == kOutOfMemory)
    return run.message = "the GPU's memory did not do: " + answer.message, run.result["outOfMemory"] = true,
           Outcome::passed;
  if (answer.status != 0 || !answer.result.is_object())
    return run.message = "PyTorch: " + answer.message, Outcome::failed;
  for (const auto& [name, value] : answer.result.items()) run.result[name] = value;
  return Outcome::passed;
}

Outcome findLongest(CaseRun& run) {
  TrainerRuns& runs = run.runs();
  const std::int64_t first = run.small() ? 64 : 1024, unit = run.small() ? 4096 : 1024;
  const auto planned = [&](std::int64_t sequence) {
    return TrainerRuns::plannedBytes(runs.config(runs.wholeLayers(), sequence, true));
  };
  // A model of a device has no memory of its own: it gets a limit between two lengths.
  if (run.small()) runs.setLimit(runs.runtimeBytes() + (planned(first) + planned(first + unit)) / 2);
  const std::int64_t layers = runs.fitted(run.small() ? first : kLayersAt, 1).layers;
  if (layers == 0) throw CannotRun(Outcome::absent, "no layer fits into the GPU's memory");
  std::int64_t sequence = longestPlanned(runs, layers, first, unit);
  run.result = {
      {"layers", layers}, {"layersOfTheModel", runs.wholeLayers()}, {"plannedLengthTokens", sequence}};
  run.noteNow();
  constexpr int kMostAttempts =
      4;  // a run may take a little more or less beside its arena than the one that was asked
  TrainerRun ran, beyond;
  for (int attempt = 0;; ++attempt) {
    ran = runs.run(runs.config(layers, sequence, true), 1, run.leftSeconds() - 3);
    if (!refusedByPlan(ran) || attempt == kMostAttempts || sequence <= first) break;
    beyond = ran, sequence -= unit;
  }
  if (ran.status != 0) {
    run.message =
        std::to_string(sequence) + " tokens fit by the plan, and " +
        (ran.cutOff() ? "the case's time was over before their step"
                      : "the program ended with status " + std::to_string(ran.status) + ": " + ran.message);
    return Outcome::failed;
  }
  const auto runBeyond = [&] {
    return runs.run(runs.config(layers, sequence + unit, true), 1, run.leftSeconds() - 2);
  };
  if (beyond.events.empty()) beyond = runBeyond();
  for (int attempt = 0; beyond.status == 0 && attempt < kMostAttempts; ++attempt)
    ran = beyond, sequence += unit, beyond = runBeyond();
  run.result["sequenceLengthTokens"] = sequence, run.result["refusedLengthTokens"] = sequence + unit,
  run.result["limitBytes"] = runs.limitBytes();
  run.result["stepSeconds"] = ran.named("step")->at("stepTimeSeconds"),
  run.result["plannedPeakBytes"] = ran.named("started")->at("plannedPeakBytes");
  run.result["refusal"] = beyond.message;
  if (refusedByPlan(beyond)) return Outcome::passed;
  run.message = std::to_string(sequence + unit) +
                " tokens do not fit by the plan, and the program ended with status " +
                std::to_string(beyond.status) + ": " + beyond.message;
  return Outcome::failed;
}

Outcome findTorchsLongest(CaseRun& run) {
  const Peer peer = peerOf(run);
  const std::int64_t unit = run.small() ? 16 : 1024;
  const std::int64_t layers = run.runs().fitted(lengthOf(run, kLayersAt), 1).layers;
  const std::int64_t ours = run.small() ? 64 : longestPlanned(run.runs(), layers, unit, unit);
  const PeerAnswer answer = ask(run, peer, modelArguments(run, layers),
                                {"--attention", "fused", "--checkpointing", "--longest", std::to_string(ours),
                                 "--unit", std::to_string(unit), "--seconds",
                                 std::to_string(std::max(1, static_cast<int>(run.leftSeconds()) - 15))});
  run.result = {{"layers", layers}, {"torch", peer.version()}};
  if (answer.status != 0 || !answer.result.is_object())
    return run.message = "PyTorch: " + answer.message, Outcome::failed;
  for (const auto& [name, value] : answer.result.items()) run.result[name] = value;
  return Outcome::passed;
}

}  // namespace internevo::check
