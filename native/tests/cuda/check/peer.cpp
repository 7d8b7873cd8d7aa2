#include "cuda/check/peer.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cuda/check/harness.h"
#include "cuda/check/runs.h"

namespace internevo::check {

namespace {

constexpr double kSeconds = 150;      ///< for the section
constexpr double kLeastSeconds = 60;  ///< that a setting of PyTorch's is begun with: it compiles
constexpr double kGoal = 1.1;
constexpr int kOutOfMemory = 3;
constexpr std::int64_t kLayers = 8, kSteps = 4;

/// Output and status of a command of the shell.
int output(const std::string& command, std::string* text) {
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return 127;
  char piece[4096];
  for (std::size_t count = 0; (count = std::fread(piece, 1, sizeof piece, pipe)) > 0;) text->append(piece, count);
  const int status = pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string lastLine(std::string text) {
  text.erase(text.find_last_not_of("\n") + 1);
  return text.substr(text.rfind('\n') + 1);
}

struct Row {
  std::int64_t sequence, layers;
  double ours = 0, theirs = 0;  ///< seconds a step; 0: none
  std::string setting;          ///< of theirs
  Json settings = Json::array();
};

class Comparison {
 public:
  Comparison(const Peer& peer, TrainerRuns& runs, const Budget& budget) : peer_(peer), runs_(runs), budget_(budget) {}

  /// Both on one model, with fewer layers where PyTorch's memory asks for that. False with *why where there is nothing to compare.
  bool length(Row* row, std::string* why) {
    for (; row->layers > 0; row->layers /= 2) {
      const TrainerRun own = runs_.run(runs_.config(row->layers, row->sequence, false), kSteps, budget_.left());
      if (!own.stepSeconds()) return *why = own.cutOff() ? "the section's time is over" : own.message, false;
      row->ours = *own.stepSeconds();
      const Outcome outcome = theirs(own.named("started")->at("parameters"), row, why);
      if (outcome != Outcome::tooLarge) return outcome == Outcome::measured;
    }
    return *why = "PyTorch has no room for one layer", false;
  }

 private:
  enum class Outcome { measured, none, tooLarge };

  Outcome theirs(std::int64_t parameters, Row* row, std::string* why) {
    const trainer::ModelConfig& m = runs_.model();
    bool tooLarge = false;
    // The attention that was the better at the length before comes first, and alone when time is short.
    std::stable_sort(attentions_.begin(), attentions_.end(), [&](const std::string& a, const std::string&) { return a == best_; });
    for (const std::string& attention : attentions_) {
      if (!runs_.small() && budget_.left() < kLeastSeconds) {
        if (row->theirs == 0) *why = "the section's time is over";
        row->settings.push_back({{"attention", attention}, {"leftOut", "the section's time is over"}});
        continue;
      }
      const std::vector<std::string> arguments{
          "--hidden", std::to_string(m.hiddenSize), "--layers", std::to_string(row->layers), "--heads", std::to_string(m.heads), "--ffn",
          std::to_string(m.ffnHiddenSize), "--vocabulary", std::to_string(m.vocabularySize), "--sequence", std::to_string(row->sequence),
          "--batch", "1", "--warmup", "1", "--steps", std::to_string(kSteps - 1), "--precision", "bf16", "--attention", attention,
          "--optimizer", "fused", "--compile", runs_.small() ? "none" : "default"};
      const PeerAnswer answer = peer_.run(arguments, budget_.left());
      tooLarge = tooLarge || answer.status == kOutOfMemory;
      if (answer.status != 0 || !answer.result.is_object()) {
        row->settings.push_back({{"attention", attention}, {"status", answer.status}, {"message", answer.message}});
        if (row->theirs == 0) *why = "PyTorch, " + attention + ": " + (answer.status == 124 ? "the section's time is over" : answer.message);
        continue;
      }
      if (answer.result.at("parameters") != parameters) {
        *why = "PyTorch's model has " + answer.result.at("parameters").dump() + " parameters, the trainer's " + std::to_string(parameters);
        mismatch_ = true;
        return Outcome::none;
      }
      const double seconds = answer.result.at("medianStepSeconds");
      row->settings.push_back({{"attention", attention}, {"medianStepSeconds", seconds}, {"peakMemoryBytes", answer.result.at("devicePeakBytes")}});
      if (row->theirs == 0 || seconds < row->theirs) row->theirs = seconds, row->setting = attention, best_ = attention;
    }
    if (row->theirs > 0) return Outcome::measured;
    return tooLarge ? Outcome::tooLarge : Outcome::none;
  }

  const Peer& peer_;
  TrainerRuns& runs_;
  const Budget& budget_;
  std::vector<std::string> attentions_ = runs_.small() ? std::vector<std::string>{"fused"} : std::vector<std::string>{"cudnn", "flash"};
  std::string best_;

 public:
  bool mismatch_ = false;  ///< the two models were not the same
};

}  // namespace

Peer::Peer(bool small) {
  const char* const given = std::getenv("INTERNEVO_PYTHON");
  python_ = given == nullptr ? "python3" : given;
  std::string text;
  const int status = output("'" + python_ + "' -c 'import torch; print(torch.__version__, torch.cuda.is_available())' 2>&1", &text);
  const std::string said = lastLine(text);
  if (status != 0) {
    absent_ = python_ + " has no PyTorch (" + said + ")";
    return;
  }
  version_ = said.substr(0, said.find(' '));
  const bool gpu = said.find("True") != std::string::npos;
  if (!gpu && !small) absent_ = "PyTorch " + version_ + " of " + python_ + " finds no GPU";
  device_ = small ? "cpu" : "cuda";
}

PeerAnswer Peer::run(const std::vector<std::string>& arguments, double limitSeconds) const {
  const trainer::testing::TemporaryDirectory directory;
  const std::string errors = directory.file("stderr");
  std::string command = "timeout --kill-after=5 " + std::to_string(std::max(1, static_cast<int>(limitSeconds))) + " '" + python_ + "' '" INTERNEVO_PEER_SCRIPT "' --device " + device_;
  for (const std::string& each : arguments) command += " " + each;
  PeerAnswer answer;
  std::string text;
  answer.status = output(command + " 2>'" + errors + "'", &text);
  answer.result = Json::parse(lastLine(text), nullptr, false);
  answer.message = lastLineOf(errors);
  return answer;
}

bool checkPeer(TrainerRuns& runs, Json* report) {
  const Budget budget(kSeconds);
  Json& section = (*report)["peer"];
  const Peer peer(runs.small());
  if (!peer.absent().empty()) {
    std::printf("     absent: %s\n", peer.absent().c_str());
    section["absent"] = peer.absent();
    return true;
  }
  section["peer"] = "PyTorch " + peer.version();
  std::string message;
  if (!runs.start(&message)) return std::printf("FAIL peer: %s\n", message.c_str()), false;
  Comparison comparison(peer, runs, budget);
  bool any = false;
  const std::vector<std::int64_t> lengths = runs.small() ? std::vector<std::int64_t>{32} : std::vector<std::int64_t>{16384, 65536, 8192, 32768};
  for (const std::int64_t sequence : lengths) {
    Row row{sequence, std::min(runs.mostLayers(sequence, false), kLayers), 0, 0, "", Json::array()};
    std::string why = "no layer fits into the GPU's memory";
    const bool inTime = runs.small() || budget.left() >= kLeastSeconds;
    if (!inTime) why = "the section's " + std::to_string(static_cast<int>(kSeconds)) + " s are over";
    if (!inTime || row.layers == 0 || !comparison.length(&row, &why)) {
      std::printf("     peer, %ld tokens: left out: %s\n", static_cast<long>(sequence), why.c_str());
      section["leftOut"].push_back({{"sequenceLengthTokens", sequence}, {"why", why}, {"settings", row.settings}});
      continue;
    }
    any = true;
    const double ratio = row.theirs / row.ours;
    std::printf("ok   peer, %6ld tokens, %2ld layers: %8.1f ms a step, PyTorch %s (%s%s) %8.1f ms: %.2f times as fast\n", static_cast<long>(sequence),
                static_cast<long>(row.layers), 1e3 * row.ours, peer.version().c_str(), row.setting.c_str(), runs.small() ? "" : ", compiled", 1e3 * row.theirs, ratio);
    section["lengths"].push_back({{"sequenceLengthTokens", sequence}, {"layers", row.layers}, {"medianStepSeconds", row.ours}, {"peerMedianStepSeconds", row.theirs},
                                  {"peerSetting", row.setting}, {"ratio", ratio}, {"settings", row.settings}});
    noteGoal("peer, " + std::to_string(sequence) + " tokens: times as fast as PyTorch", ratio, kGoal, "times", report);
  }
  if (!any || comparison.mismatch_) std::printf("FAIL peer: %s\n", comparison.mismatch_ ? "the two models differ" : "nothing could be compared");
  return any && !comparison.mismatch_;
}

}  // namespace internevo::check
