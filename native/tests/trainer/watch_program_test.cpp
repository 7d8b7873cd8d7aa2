// The trainer's program under mpirun: lost ranks are named, the measured timeline and the memory map are written.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "program.h"

namespace internevo::trainer::testing {
namespace {

/// The rank of a process that mpirun started.
int rankOf(pid_t pid) {
  const std::string environment = readFile("/proc/" + std::to_string(pid) + "/environ");
  const std::string key = "OMPI_COMM_WORLD_RANK=";
  const std::size_t at = environment.find(key);
  return at == std::string::npos ? -1 : std::atoi(environment.c_str() + at + key.size());
}

TEST_F(Program, ALostRankIsNamedOnceAndEndsTheJob) {
  PlanConfig plan = planOf(2, 1, false, 3, 1, 3, 1, 1);
  plan.forwardOverlap = ForwardOverlap::interLayer, plan.backwardOverlap = BackwardOverlap::intraLayer;
  use(plan);
  config_.steps = 100000000;
  config_.checkpoint.reset();
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (int rank = 0; rank < 3; ++rank) {
      Process process(command(3), directory_.file("stderr"));
      ASSERT_TRUE(process.readUntil(
          [](const std::string& line) { return line.find("\"step\":5,") != std::string::npos; }));
      const std::vector<pid_t> ranks = process.children("internevo-trainer");
      ASSERT_EQ(ranks.size(), 3u);
      for (const pid_t pid : ranks) {
        if (rankOf(pid) == rank) kill(pid, signal);
      }
      EXPECT_NE(process.finish(), 0) << strsignal(signal) << " of rank " << rank;
      Result result;
      result.events = eventsOf(process.lines());
      ASSERT_EQ(result.named("error").size(), 1u)
          << strsignal(signal) << " of rank " << rank << Json(result.named("error"));
      const Json error = result.named("error")[0];
      EXPECT_EQ(error["code"], "communication_error");
      EXPECT_EQ(error["rank"], rank);
      EXPECT_NE(error["message"].get<std::string>().find("rank " + std::to_string(rank) + " on "),
                std::string::npos)
          << error;
      for (const pid_t pid : ranks) EXPECT_TRUE(Process::gone(pid)) << "a rank outlived the job";
    }
  }
}

TEST_F(Program, ATimelineSaysWhatEveryRankDidOnEveryLane) {
  PlanConfig plan = planOf(2, 2, false, 2, 1, 2, 1, 1);
  plan.forwardOverlap = ForwardOverlap::block, plan.backwardOverlap = BackwardOverlap::intraLayer;
  use(plan);
  config_.checkpoint.reset();
  config_.timeline = TimelineConfig{directory_.file("timeline.json"), 2, 2, 5000};
  const Result result = run();
  ASSERT_EQ(result.status, 0) << readFile(directory_.file("stderr"));
  const Json started = result.named("started")[0];
  EXPECT_GT(started["memory"]["timeline"], 5000 * 32);
  EXPECT_EQ(started["plannedPeakBytes"], result.named("step")[0]["peakMemoryBytes"]);
  const Json timeline = Json::parse(readFile(config_.timeline->path));
  std::map<std::string, int> counts;
  std::set<std::pair<int, int>> lanes;
  for (const Json& event : timeline["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++counts[event["name"]];
    lanes.insert({event["pid"].get<int>(), event["tid"].get<int>()});
  }
  EXPECT_EQ(lanes.size(), 6u) << "two ranks, three lanes";
  // Two steps, two ranks, two micro-batches, two layers.
  EXPECT_EQ(counts["attention forward"], 16);
  EXPECT_EQ(counts["linear backward down"], 16);
  EXPECT_EQ(counts["reduce-scatter gradients"], 2 * 2 * 2 * (2 * 4 + 2));
  // The first gathers of a step begin beside the update before it, so a step's are those between two norms.
  std::map<int, std::vector<double>> norms;
  for (const Json& event : timeline["traceEvents"]) {
    if (event["ph"] == "X" && event["name"] == "all-reduce loss and gradient norm")
      norms[event["pid"]].push_back(event["ts"]);
  }
  ASSERT_EQ(norms.size(), 2u);
  for (auto& [rank, at] : norms) {
    ASSERT_EQ(at.size(), 2u) << "of rank " << rank;
    std::sort(at.begin(), at.end());
    const auto gathered =
        std::count_if(timeline["traceEvents"].begin(), timeline["traceEvents"].end(), [&](const Json& event) {
          return event["ph"] == "X" && event["pid"] == rank && event["name"] == "all-gather parameters" &&
                 event["ts"] > at[0] && event["ts"] < at[1];
        });
    EXPECT_EQ(gathered, 2 * (2 * 8 + 2)) << "of rank " << rank;
  }
  // Training is worth more than its timeline.
  config_.timeline->path = "/proc/none/timeline.json";
  const Result without = run();
  EXPECT_EQ(without.status, 0);
  ASSERT_EQ(without.named("error").size(), 1u);
  const Json error = without.named("error")[0];
  EXPECT_EQ(error["code"], "checkpoint_error");
  EXPECT_EQ(error["continues"], true);
  EXPECT_NE(error["message"].get<std::string>().find("/proc/none/timeline.json"), std::string::npos) << error;
  EXPECT_EQ(without.named("done").size(), 1u);
}

TEST_F(Program, TheMemoryMapTilesTheArena) {
  PlanConfig plan = planOf(2, 1, false, 2, 2, 2, 1, 2);
  plan.backwardOverlap = BackwardOverlap::intraLayer;
  use(plan);
  std::vector<std::string> all = command(1);
  std::vector<std::string> arguments(all.end() - 3, all.end());
  arguments.insert(arguments.end(), {"--dry-run", "--memory-map"});
  Process process(arguments, directory_.file("stderr"));
  EXPECT_EQ(process.finish(), 0);
  const Json event = eventsOf(process.lines()).at(0), map = event["memoryMap"];
  std::int64_t end = 0, shared = 0;
  std::map<std::string, std::int64_t> lines;
  for (const Json& piece : map["pieces"]) {
    const std::int64_t offset = piece["offset"], bytes = piece["bytes"];
    EXPECT_EQ(offset % 64, 0);
    if (!piece.contains("uses")) {
      EXPECT_GE(offset, end) << piece;
      lines[piece["line"]] += (bytes + 63) / 64 * 64;
    } else {
      ++shared;
    }
    end = std::max(end, offset + bytes);
  }
  EXPECT_EQ(shared, 5);
  EXPECT_EQ((end + 63) / 64 * 64, map["arenaBytes"].get<std::int64_t>());
  for (const auto& [name, bytes] : event["memory"].items()) {
    if (name == "runtime" || name == "layerWorkspace") continue;
    EXPECT_EQ(lines[name], bytes.get<std::int64_t>()) << name;
  }
  EXPECT_LT(lines["layerWorkspace"], event["memory"]["layerWorkspace"].get<std::int64_t>());
}

TEST_F(Program, TheMemoryMapSaysWhenAPieceIsInUse) {
  config_.model.layers = 5;
  config_.data.path = directory_.file("absent");
  PlanConfig plan = stagedPlan(1, 4, 1, 1, 1, 1);
  plan.recomputeLayers = 1;
  use(plan);
  const auto mapOf = [&](const char* stage) -> Json {
    std::vector<std::string> all = command(1);
    std::vector<std::string> arguments(all.end() - 3, all.end());
    arguments.insert(arguments.end(), {"--dry-run", "--without-data", "--memory-map", "--stage", stage});
    Process process(arguments, directory_.file("stderr"));
    EXPECT_EQ(process.finish(), std::string(stage) == "2" ? 2 : 0);
    return eventsOf(process.lines()).at(0);
  };
  EXPECT_EQ(mapOf("2")["field"], "--stage");
  const Json first = mapOf("0")["memoryMap"], last = mapOf("1")["memoryMap"];
  EXPECT_EQ(first["stage"], 0);
  EXPECT_EQ(first["chunks"], Json::parse(R"([{"firstLayer": 0, "layers": 3, "inFlight": 2}])"));
  EXPECT_EQ(last["chunks"], Json::parse(R"([{"firstLayer": 3, "layers": 2, "inFlight": 1}])"));
  EXPECT_EQ(first["operations"].size(), 8u);
  EXPECT_EQ(first["operations"][0], Json::parse(R"({"pass": "forward", "microBatch": 0, "chunk": 0})"));
  std::map<std::string, Json> lifetimes;
  for (const Json& map : {first, last}) {
    std::set<std::string> phases(map["phases"].begin(), map["phases"].end());
    std::map<std::string, std::int64_t> keptUntil;
    for (const Json& piece : map["pieces"]) {
      lifetimes[std::to_string(map["stage"].get<int>()) + " " + piece["name"].get<std::string>()] =
          piece["lifetime"];
      const std::string kind = piece["lifetime"]["kind"];
      EXPECT_TRUE(kind == "step" || kind == "work" || kind == "kept") << piece;
      if (kind == "work") {
        for (const Json& phase : piece["lifetime"]["phases"]) EXPECT_EQ(phases.count(phase), 1u) << piece;
      }
      // All activations are kept for a backward pass, but those of the layer that is recomputed.
      if (piece["line"] == "activations") {
        EXPECT_EQ(kind == "kept", piece["name"].get<std::string>().rfind("recomputed", 0) != 0) << piece;
      }
    }
  }
  EXPECT_EQ(lifetimes["0 parameters"], Json::parse(R"({"kind": "step"})"));
  EXPECT_EQ(lifetimes["0 layers.1, in flight 1.gateUp"],
            Json::parse(R"({"kind": "kept", "chunk": 0, "place": 1,
    "from": {"layer": 1, "phase": "forward MLP"}, "until": {"layer": 1, "phase": "backward MLP"}})"));
  EXPECT_EQ(lifetimes["0 layers.2, in flight 0.input"],
            Json::parse(R"({"kind": "kept", "chunk": 0, "place": 0,
    "from": {"layer": 1, "phase": "forward MLP"}, "until": {"layer": 2, "phase": "backward attention"}})"));
  EXPECT_EQ(lifetimes["0 layers.0, in flight 0.input"]["from"],
            Json::parse(R"({"layer": 0, "phase": "embedding"})"));
  EXPECT_EQ(lifetimes["1 layers.3, in flight 0.input"]["from"],
            Json::parse(R"({"layer": 3, "phase": "forward attention"})"));
  EXPECT_EQ(lifetimes["1 output, in flight 0"]["until"], Json::parse(R"({"layer": 4, "phase": "head"})"));
  EXPECT_EQ(lifetimes["0 recomputed layer.qkv"]["layers"], Json::parse("[0]"));

  // What is made again is of the workspace that the blocks of all layers share, and no layer keeps it.
  plan.gateUp = GateUp::again;
  use(plan);
  int found = 0;
  const Json again = mapOf("0")["memoryMap"];
  for (const Json& piece : again["pieces"]) {
    const std::string name = piece["name"];
    if (name.find("gateUp") == std::string::npos) continue;
    ++found;
    EXPECT_EQ(name, "gateUp");
    EXPECT_EQ(piece["line"], "layerWorkspace");
    EXPECT_EQ(piece["uses"], Json::parse(R"(["forward MLP", "backward MLP"])"));
    EXPECT_EQ(piece["lifetime"],
              Json::parse(R"({"kind": "work", "phases": ["forward MLP", "backward MLP"]})"));
  }
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace internevo::trainer::testing
