#include "cuda/check/kit.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <random>

#include "cuda/check/children.h"
#include "cuda/check/installed.h"
#include "trainer/support.h"

namespace internevo::check {

namespace {

constexpr int kRefused = 3;  ///< status of the program for what does not fit the memory

/// The piece without what was to be run: what an answer repeats of it.
Json named(Json piece) {
  for (const char* const each : {"config", "tokens", "what", "plannedSeconds"}) piece.erase(each);
  return piece;
}

struct Said {
  int status = 0;
  Json events = Json::array();
  std::string message;
  double seconds = 0;
};

/// A program with one configuration, on all ranks of the kit.
Said start(const char* program, const Json& config, std::int64_t ranks, double limitSeconds) {
  const trainer::testing::TemporaryDirectory folder;
  trainer::testing::writeFile(folder.file("config.json"), config.dump());
  std::vector<std::string> arguments = trainer::testing::mpirunArguments(static_cast<int>(ranks));
  for (const std::string& each : {std::string("--bind-to"), std::string("none"), installed(program),
                                  std::string("--config"), folder.file("config.json")})
    arguments.push_back(each);
  Said said;
  const auto begun = std::chrono::steady_clock::now();
  const Ended ended = check::run(arguments, limitSeconds, [&](const std::string& line) {
    if (Json event = Json::parse(line, nullptr, false); event.is_object())
      said.events.push_back(std::move(event));
  });
  said.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  said.status = ended.status;
  said.message = ended.status == kTimedOut ? "the case's time was over" : ended.lastError();
  for (const Json& event : said.events) {
    if (event.value("event", "") == "error") said.message = event.value("message", said.message);
  }
  return said;
}

/// Tokens at random: as in a text all rows of the embedding are read.
void writeTokens(const std::string& path, const Json& tokens) {
  const auto vocabulary = tokens.at("vocabularySize").get<std::uint32_t>();
  std::mt19937 engine(1);
  std::vector<std::uint32_t> values(tokens.at("count").get<std::size_t>());
  for (std::uint32_t& v : values) v = static_cast<std::uint32_t>(engine() % vocabulary);
  trainer::testing::writeTokenFile(path, values, vocabulary, vocabulary <= 1u << 16 ? 2 : 4);
}

Said train(const Json& about, const Json& piece, const std::string& timeline, double limitSeconds) {
  const trainer::testing::TemporaryDirectory folder;
  writeTokens(folder.file("tokens"), piece.at("tokens"));
  Json config = piece.at("config");
  config["data"]["path"] = folder.file("tokens");
  if (!timeline.empty()) config["timeline"]["path"] = timeline;
  return start(built::kTrainer, config, about.at("ranks"), limitSeconds);
}

Outcome ended(CaseRun& run, const Said& said, const char* program) {
  if (said.status == 0) return Outcome::passed;
  run.message =
      std::string(program) + " ended with status " + std::to_string(said.status) + ": " + said.message;
  return Outcome::failed;
}

Outcome runRuntime(CaseRun& run, const Json& about, const Json& piece) {
  const Said said = train(about, piece, "", run.leftSeconds() - 2);
  run.result["events"] = said.events;
  return ended(run, said, "the trainer's program");
}

Outcome runProbe(CaseRun& run, const Json& about, const Json& piece) {
  const Said said = start(built::kProbe, piece.at("config"), about.at("ranks"), run.leftSeconds() - 2);
  run.result["events"] = said.events, run.result["seconds"] = said.seconds;
  return ended(run, said, "the probe");
}

Outcome runSlice(CaseRun& run, const Json& about, const Json& piece) {
  run.result["rounds"] = Json::array();
  const auto rounds = piece.at("rounds").get<int>();
  for (int round = 1; round <= rounds; ++round) {
    const std::string name = piece.at("id").get<std::string>() + "-round-" + std::to_string(round) + ".json";
    const Said said = train(about, piece, run.work() + "/" + name, run.leftSeconds() - 2);
    if (said.status == kRefused) {
      run.result["noRoom"] = true, run.result["rounds"] = Json::array();
      return run.message = said.message, Outcome::passed;
    }
    if (const Outcome outcome = ended(run, said, "the trainer's program"); outcome != Outcome::passed)
      return outcome;
    run.result["rounds"].push_back({{"events", said.events}, {"timeline", name}});
    run.noteNow();
  }
  return Outcome::passed;
}

Outcome runPlan(CaseRun& run, const Json& about, const Json& piece) {
  const Said said = train(about, piece, "", run.leftSeconds() - 2);
  std::vector<double> seconds;
  std::int64_t peak = 0;
  for (const Json& event : said.events) {
    if (event.value("event", "") == "started") {
      run.result["memory"] = event.at("memory"),
      run.result["plannedPeakBytes"] = event.at("plannedPeakBytes");
    }
    if (event.value("event", "") != "step") continue;
    run.result["steps"].push_back(event);
    peak = std::max(peak, event.at("peakMemoryBytes").get<std::int64_t>());
    // The first step chooses algorithms and loads kernels.
    if (event.at("step") > 1) seconds.push_back(event.at("stepTimeSeconds"));
  }
  if (said.status == kRefused)
    return run.result["refused"] = true, run.message = said.message, Outcome::passed;
  if (!seconds.empty()) {
    // Of two the slower: a mean would hide that they differ.
    std::sort(seconds.begin(), seconds.end());
    run.result["medianStepSeconds"] = seconds[seconds.size() / 2], run.result["peakMemoryBytes"] = peak;
  }
  if (said.status == 0 && seconds.empty()) return run.message = "the run has no second step", Outcome::failed;
  return ended(run, said, "the trainer's program");
}

Outcome runPiece(CaseRun& run, const Json& about, const Json& piece) {
  run.result = {{"kit", about}, {"piece", named(piece)}};
  run.noteNow();
  const std::string kind = piece.at("kind");
  if (kind == "runtime") return runRuntime(run, about, piece);
  if (kind == "probe") return runProbe(run, about, piece);
  return kind == "slice" ? runSlice(run, about, piece) : runPlan(run, about, piece);
}

/// What is wrong with a document; empty: nothing.
std::string faultOf(const Json& kit) {
  if (!kit.is_object() || !kit.contains("about") || !kit["about"].is_object() ||
      kit["about"].value("format", "") != kKitFormat)
    return "is no measurement kit";
  if (kit["about"].value("version", Json()) != kKitVersion)
    return "is a kit of version " + kit["about"].value("version", Json()).dump() + ", and this check runs " +
           std::to_string(kKitVersion);
  if (!kit["about"].contains("ranks") || !kit["about"]["ranks"].is_number_integer() ||
      !kit.contains("pieces") || !kit["pieces"].is_array())
    return "has no about.ranks or no pieces";
  for (const Json& each : kit["pieces"]) {
    const std::string kind = each.is_object() ? each.value("kind", "") : "";
    if (kind != "runtime" && kind != "probe" && kind != "slice" && kind != "plan")
      return "has a piece of kind " + (kind.empty() ? "none" : kind);
    if (!each.contains("id") || !each["id"].is_string() || !each.contains("config") ||
        !each["plannedSeconds"].is_number() || (kind != "probe" && !each.contains("tokens")))
      return "has a piece without id, config, tokens or plannedSeconds";
  }
  return "";
}

}  // namespace

bool readKit(const std::string& path, Json* kit, std::string* problem) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return *problem = "--kit " + path + " cannot be read", false;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  *kit = Json::parse(text, nullptr, false);
  const std::string fault = kit->is_discarded() ? "is not JSON" : faultOf(*kit);
  if (fault.empty()) return true;
  return *problem =
             "--kit " + path + " " + fault + "; make one with `internevo profile prepare JOB --out FILE`",
         false;
}

std::vector<CheckCase> kitCases(const Json& kit) {
  std::vector<CheckCase> cases;
  for (const Json& piece : kit.at("pieces")) {
    CheckCase each;
    const std::string id = piece.at("id");
    each.name = piece.at("kind") == "plan" ? id : "profile." + id;
    each.command = "step", each.what = piece.value("what", "");
    each.plannedSeconds = piece.at("plannedSeconds");
    each.run = [about = kit.at("about"), piece](CaseRun& run) { return runPiece(run, about, piece); };
    cases.push_back(std::move(each));
  }
  return cases;
}

}  // namespace internevo::check
