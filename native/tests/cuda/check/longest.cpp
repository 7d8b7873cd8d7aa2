// The longest sequence that the 7B model trains with on this GPU.
#include <cstdio>

#include "cuda/check/peer.h"
#include "cuda/check/runs.h"

namespace internevo::check {

namespace {

constexpr double kSeconds = 150, kPeerLeastSeconds = 30;
constexpr int kRefused = 3;        ///< status of the program for a plan that does not fit
constexpr int kMostAttempts = 4;   ///< a run may take a little more beside its arena than the one that was asked
constexpr std::int64_t kLayersAt = 8192;  ///< the model has as many layers as fit at this length, up to all

struct Lengths {
  std::int64_t first, unit;
};

/// Largest first + k · unit that the plan has room for; below first: not even that.
std::int64_t longestPlanned(const TrainerRuns& runs, std::int64_t layers, Lengths l) {
  const auto fits = [&](std::int64_t k) { return runs.fits(runs.config(layers, l.first + k * l.unit, true)); };
  if (!fits(0)) return l.first - l.unit;
  std::int64_t good = 0, bad = 1;
  while (fits(bad)) good = bad, bad *= 2;
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return l.first + good * l.unit;
}

/// Refused before anything was computed, by its plan.
bool refusedByPlan(const TrainerRun& run) { return run.status == kRefused && run.named("started") == nullptr && run.named("error") != nullptr; }

/// Steps of PyTorch's with everything recomputed, until its memory does not do.
void askPeer(const TrainerRuns& runs, std::int64_t layers, Lengths l, std::int64_t ours, const Budget& budget, Json* section) {
  const Peer peer(runs.small());
  if (!peer.absent().empty()) {
    std::printf("     absent: %s\n", peer.absent().c_str());
    (*section)["peer"] = {{"absent", peer.absent()}};
    return;
  }
  if (!runs.small() && budget.left() < kPeerLeastSeconds) {
    std::printf("     PyTorch's longest: left out: the section's time is over\n");
    (*section)["peer"] = {{"leftOut", "the section's time is over"}};
    return;
  }
  const trainer::ModelConfig& m = runs.model();
  const std::vector<std::string> arguments{
      "--hidden", std::to_string(m.hiddenSize), "--layers", std::to_string(layers), "--heads", std::to_string(m.heads), "--ffn",
      std::to_string(m.ffnHiddenSize), "--vocabulary", std::to_string(m.vocabularySize), "--batch", "1", "--precision", "bf16", "--attention", "fused",
      "--optimizer", "fused", "--checkpointing", "--longest", std::to_string(runs.small() ? 64 : ours), "--unit", std::to_string(runs.small() ? 16 : l.unit),
      "--seconds", std::to_string(static_cast<int>(budget.left()) - 15)};
  const PeerAnswer answer = peer.run(arguments, budget.left());
  if (answer.status != 0 || !answer.result.is_object()) {
    std::printf("     PyTorch's longest: not known: %s\n", answer.message.c_str());
    (*section)["peer"] = {{"version", peer.version()}, {"status", answer.status}, {"message", answer.message}};
    return;
  }
  const std::int64_t theirs = answer.result.at("longest");
  const bool complete = answer.result.at("complete"), reached = answer.result.at("searchedUpTo") == theirs;
  std::printf("     PyTorch %s: %ld tokens%s\n", peer.version().c_str(), static_cast<long>(theirs),
              !complete ? " at least: its time was over" : reached ? " at least: nothing longer was tried" : "");
  (*section)["peer"] = answer.result;
}

}  // namespace

bool checkLongest(TrainerRuns& runs, Json* report) {
  const Budget budget(kSeconds);
  Json& section = (*report)["longest"];
  const auto failed = [&](const std::string& why) {
    std::printf("FAIL longest: %s\n", why.c_str());
    section["failed"] = why;
    return false;
  };
  std::string message;
  if (!runs.start(&message)) return failed(message);
  const Lengths l = runs.small() ? Lengths{64, 4096} : Lengths{1024, 1024};
  const std::int64_t limit = runs.limitBytes();
  const auto planned = [&](std::int64_t sequence) { return TrainerRuns::plannedBytes(runs.config(runs.wholeLayers(), sequence, true)); };
  // A model of a device has no memory of its own: it gets a limit between two lengths.
  if (runs.small()) runs.setLimit(runs.runtimeBytes() + (planned(l.first) + planned(l.first + l.unit)) / 2);
  struct Restore {
    TrainerRuns& runs;
    std::int64_t limit;
    ~Restore() { runs.setLimit(limit); }
  } const restore{runs, limit};
  const std::int64_t layers = runs.mostLayers(runs.small() ? l.first : kLayersAt, true);
  if (layers == 0) {
    std::printf("     longest: left out: no layer fits into the GPU's memory\n");
    section["leftOut"] = "no layer fits into the GPU's memory";
    return true;
  }
  std::int64_t sequence = longestPlanned(runs, layers, l);
  TrainerRun run, beyond;
  for (int attempt = 0;; ++attempt) {
    run = runs.run(runs.config(layers, sequence, true), 1, budget.left());
    if (!refusedByPlan(run) || attempt == kMostAttempts || sequence <= l.first) break;
    beyond = run, sequence -= l.unit;
  }
  if (run.cutOff()) {
    std::printf("     longest: %ld tokens of %ld layers are planned; the section's time was over before their step\n", static_cast<long>(sequence), static_cast<long>(layers));
    section = {{"planned", sequence}, {"layers", layers}, {"leftOut", "the section's time was over before the step"}};
    return true;
  }
  if (run.status != 0) return failed(std::to_string(sequence) + " tokens fit by the plan, and the program ended with status " + std::to_string(run.status) + ": " + run.message);
  const auto runBeyond = [&] { return runs.run(runs.config(layers, sequence + l.unit, true), 1, std::max(10.0, budget.left())); };
  if (beyond.events.empty()) beyond = runBeyond();
  // Or a little less.
  for (int attempt = 0; beyond.status == 0 && attempt < kMostAttempts; ++attempt) run = beyond, sequence += l.unit, beyond = runBeyond();
  if (!refusedByPlan(beyond)) return failed(std::to_string(sequence + l.unit) + " tokens do not fit by the plan, and the program ended with status " + std::to_string(beyond.status) + ": " + beyond.message);
  const Json& step = *run.named("step");
  std::printf("ok   longest: %ld tokens with %ld of %ld layers, recomputed: one step %.1f s; %ld tokens are refused before they begin\n", static_cast<long>(sequence),
              static_cast<long>(layers), static_cast<long>(runs.wholeLayers()), step.at("stepTimeSeconds").get<double>(), static_cast<long>(sequence + l.unit));
  section = {{"sequenceLengthTokens", sequence}, {"layers", layers}, {"layersOfTheModel", runs.wholeLayers()}, {"stepSeconds", step.at("stepTimeSeconds")},
             {"plannedPeakBytes", run.named("started")->at("plannedPeakBytes")}, {"limitBytes", runs.limitBytes()}, {"refusedLengthTokens", sequence + l.unit},
             {"refusal", beyond.message}};
  askPeer(runs, layers, l, sequence, budget, &section);
  return true;
}

}  // namespace internevo::check
