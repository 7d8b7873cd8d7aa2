// The driver of the check survives its cases: kernels that trap or never end, processes that are killed, disks that are full, and its
// own end. On the model of a device.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "../installed.h"
#include "../trainer/process.h"
#include "../trainer/support.h"

namespace internevo::check {
namespace {

using Json = nlohmann::json;
using trainer::testing::Process;

const std::string kNvml = std::string("INTERNEVO_NVML_LIBRARY='") + built::kNvmlModel + "' ";

struct Ran {
  int status = 0;
  std::string said;         ///< on stdout
  std::vector<Json> lines;  ///< of the file
  std::map<std::string, Json> cases;
};

class CheckDriver : public ::testing::Test {
 protected:
  std::vector<std::string> command(const std::string& arguments, const std::string& before = "") {
    return {"/bin/sh", "-c",
            before + "exec '" + built::kGpuCheck + "' --model --out '" + out() + "' " + arguments};
  }
  std::string out() const { return folder_.file("results.jsonl"); }
  Ran run(const std::string& arguments, const std::string& before = "") {
    Process process(command(arguments, before), folder_.file("stderr"));
    Ran ran;
    ran.status = process.finish();
    for (const std::string& line : process.lines()) ran.said += line + "\n";
    ran.lines = linesNow();
    for (const Json& line : ran.lines) {
      if (line["event"] == "case") ran.cases[line["case"]] = line;
    }
    return ran;
  }
  /// Fails at a line that is not whole.
  std::vector<Json> linesNow() {
    std::vector<Json> lines;
    std::ifstream file(out());
    for (std::string line; std::getline(file, line);) {
      lines.push_back(Json::parse(line, nullptr, false));
      EXPECT_TRUE(lines.back().is_object()) << line;
    }
    return lines;
  }
  std::size_t count(const std::string& event, const std::string& name) {
    const std::vector<Json> lines = linesNow();
    return static_cast<std::size_t>(std::count_if(lines.begin(), lines.end(), [&](const Json& line) {
      return line["event"] == event && line.value("case", "") == name;
    }));
  }
  /// Starts the check and kills it, as a node that goes down does, when a case has begun.
  void killDuring(const std::string& name, const std::string& arguments) {
    const std::size_t before = std::filesystem::exists(out()) ? count("begun", name) : 0;
    Process process(command(arguments), folder_.file("stderr"));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < end) {
      std::string text;
      std::ifstream file(out());
      std::size_t begun = 0;
      for (std::string line; std::getline(file, line);)
        begun +=
            line.find("\"begun\"") != std::string::npos && line.find('"' + name + '"') != std::string::npos;
      if (begun > before) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const std::vector<pid_t> children = process.children("internevo-gpu-check");
    EXPECT_FALSE(children.empty());
    process.send(SIGKILL);
    EXPECT_EQ(process.finish(), 128 + SIGKILL);
    for (const pid_t each : children) EXPECT_TRUE(Process::gone(each)) << "a case outlives its driver";
  }

  trainer::testing::TemporaryDirectory folder_;
};

TEST_F(CheckDriver, AFaultCostsItsCaseOnly) {
  const Ran ran = run("--only fault.,instructions.cvt,instructions.mma");
  EXPECT_EQ(ran.status, 1);
  ASSERT_EQ(ran.cases.size(), 10u) << ran.said;
  const auto expect = [&](const std::string& name, const std::string& outcome, const std::string& message) {
    const Json& line = ran.cases.at(name);
    EXPECT_EQ(line["outcome"], outcome) << line;
    EXPECT_NE(line.value("message", "").find(message), std::string::npos) << line;
    EXPECT_TRUE(line["seconds"].is_number() && line["limitSeconds"].is_number() && line["gpu"].is_object())
        << line;
  };
  expect("fault.trap", "crashed", "signal 4");
  expect("fault.endless", "timed-out", "ended after 3 s");
  expect("fault.killed", "crashed", "someone killed it, or the host has no memory left");
  expect("fault.thrown", "failed", "thrown by a case");
  expect("fault.memory", "failed", "70368744177664 bytes");
  expect("fault.children", "passed", "");
  expect("fault.partial", "timed-out", "ended after 3 s");
  // A wrong instruction is named by where its results differ.
  expect("fault.bits", "failed", "product[0, 0] is ");
  const Json& bits = ran.cases.at("fault.bits")["result"];
  EXPECT_EQ(bits["firstDifference"]["tensor"], "product");
  EXPECT_EQ(bits["firstDifference"]["row"], 0);
  EXPECT_EQ(bits["tensors"][0]["rows"], (Json{0, 63})) << bits;
  EXPECT_EQ(bits["tensors"][0]["columns"], (Json{0, 31})) << bits;
  expect("instructions.mma", "passed", "");
  expect("instructions.cvt", "passed", "");
  EXPECT_EQ(ran.cases.at("fault.partial")["result"]["figure"], 42)
      << "what a case had found before it was ended is kept";
  EXPECT_NE(ran.cases.at("fault.partial")["said"].get<std::string>().find("said before it hangs"),
            std::string::npos);
  // The grandchild of fault.children left its group and its parent.
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    EXPECT_FALSE(line.find(out()) != std::string::npos && line.find("fault.children") != std::string::npos)
        << entry.path();
  }
}

TEST_F(CheckDriver, AFullDiskLosesNoResult) {
  const Ran ran = run("--only instructions.", "ulimit -f 6; ");  // blocks of 512 bytes in dash
  EXPECT_EQ(ran.status, 3);
  std::set<std::string> found;
  for (const auto& [name, line] : ran.cases) found.insert(name);
  EXPECT_FALSE(found.empty()) << "nothing came to the file";
  std::istringstream said(ran.said);
  std::size_t told = 0;
  for (std::string line; std::getline(said, line);) {
    const Json each = Json::parse(line, nullptr, false);
    if (each.is_object() && each["event"] == "case") found.insert(each["case"]), ++told;
  }
  EXPECT_GT(told, 0u);
  EXPECT_EQ(found.size(), 14u) << "every case is in the file or on stdout";
}

TEST_F(CheckDriver, ResumesAfterItWasKilled) {
  const std::string cases = "--only instructions.mma,fault.partial,instructions.cvt";
  killDuring("fault.partial", cases);
  EXPECT_EQ(count("case", "instructions.cvt"), 1u) << "a line is there when its case has ended";
  EXPECT_EQ(count("case", "fault.partial"), 0u);
  EXPECT_EQ(run(cases).status, 2) << "a file with results is not overwritten";
  std::ofstream(out(), std::ios::app)
      << "{\"event\":\"case\",\"case\":\"instr";  // a line that was being written
  const Ran ran = run(cases + " --resume");
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(ran.cases.at("fault.partial")["outcome"], "timed-out");
  EXPECT_EQ(count("begun", "instructions.mma"), 1u) << "what ended is not run again";
  EXPECT_EQ(count("begun", "fault.partial"), 2u);
  EXPECT_NE(ran.said.find("2 were there already"), std::string::npos) << ran.said;
}

TEST_F(CheckDriver, ACaseThatEndsTheNodeTwiceIsNotRunAgain) {
  killDuring("fault.partial", "--only fault.partial");
  killDuring("fault.partial", "--only fault.partial --resume");
  const Ran ran = run("--only fault.partial,fault.thrown --resume");
  EXPECT_EQ(ran.cases.at("fault.partial")["outcome"], "crashed");
  EXPECT_NE(ran.cases.at("fault.partial")["message"].get<std::string>().find("ended 2 times"),
            std::string::npos);
  EXPECT_EQ(count("begun", "fault.partial"), 2u);
  EXPECT_EQ(ran.cases.at("fault.thrown")["outcome"], "failed");
}

TEST_F(CheckDriver, WhatTheTimeDoesNotDoForIsSaidAndResumed) {
  const Ran ran = run("--only instructions.mma,benchmark.memory --deadline 11");
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(ran.cases.at("instructions.mma")["outcome"], "passed");
  EXPECT_EQ(ran.cases.at("benchmark.memory")["outcome"], "left-out");
  const Ran again = run("--only instructions.mma,benchmark.memory --resume");
  EXPECT_EQ(again.status, 0) << again.said;
  EXPECT_EQ(again.cases.at("benchmark.memory")["outcome"], "passed");
}

TEST_F(CheckDriver, AFileOfAnotherBuildIsRefused) {
  std::ofstream(out()) << R"({"event":"run","identity":{"build":"another","device":"x","small":true}})"
                       << "\n";
  EXPECT_EQ(run("--only instructions.mma --resume").status, 2);
  EXPECT_NE(trainer::testing::readFile(folder_.file("stderr")).find("name another file"), std::string::npos);
}

TEST_F(CheckDriver, ClocksStandBesideEveryFigure) {
  const Ran ran = run("--only instructions.mma", kNvml);
  ASSERT_EQ(ran.status, 0) << ran.said;
  EXPECT_EQ(ran.lines.at(0)["gpu"]["device"], "the model of a GPU");
  EXPECT_EQ(ran.lines.at(0)["gpu"]["largestSmClockMhz"], 1980);
  // A case of no time may see no sample.
  const Ran slow = run("--only fault.partial --resume", kNvml);
  const Json& gpu = slow.cases.at("fault.partial")["gpu"];
  EXPECT_GE(gpu["samples"], 5);
  EXPECT_EQ(gpu["smClockMhz"], (Json{{"least", 1500}, {"median", 1600}, {"largest", 1700}}));
  EXPECT_EQ(gpu["powerWatts"]["median"], 350.5);
  EXPECT_EQ(gpu["temperatureCelsius"]["median"], 41);
  EXPECT_EQ(gpu["throttled"], Json::array({"softwarePowerCap"}));
  const Ran none = run("--only fault.thrown --resume", "INTERNEVO_NVML_LIBRARY=/nowhere/libnvidia-ml.so.1 ");
  EXPECT_NE(none.cases.at("fault.thrown")["gpu"]["absent"].get<std::string>().find("/nowhere"),
            std::string::npos);
}

TEST_F(CheckDriver, TheKitsPiecesAreCasesOfStep) {
  const Ran ran = run("--only profile.runtime,profile.probe.2,plan.1 --kit '" INTERNEVO_SMALL_KIT "'");
  EXPECT_EQ(ran.status, 0) << ran.said;
  ASSERT_EQ(ran.cases.size(), 3u) << ran.said;
  const Json kit = Json::parse(trainer::testing::readFile(INTERNEVO_SMALL_KIT));
  for (const auto& [name, line] : ran.cases) {
    EXPECT_EQ(line["command"], "step");
    EXPECT_EQ(line["result"]["kit"], kit["about"]) << "an answer says what it answers: " << name;
    EXPECT_FALSE(line["result"]["piece"].contains("config"));
  }
  EXPECT_GT(ran.cases.at("plan.1")["result"]["medianStepSeconds"], 0);
  EXPECT_GT(ran.cases.at("plan.1")["result"]["peakMemoryBytes"], 0);
  const Json& events = ran.cases.at("profile.probe.2")["result"]["events"];
  EXPECT_TRUE(
      std::any_of(events.begin(), events.end(), [](const Json& e) { return e["event"] == "module"; }));
  // Another kit's answers do not go into this file.
  const std::string other = folder_.file("other.json");
  Json changed = kit;
  changed["about"]["madeAt"] = "another time";
  trainer::testing::writeFile(other, changed.dump());
  EXPECT_EQ(run("--only profile.slice.1 --resume --kit '" + other + "'").status, 2);
}

TEST_F(CheckDriver, AKitThatCannotBeReadIsNamed) {
  const auto refused = [&](const std::string& text) {
    trainer::testing::writeFile(folder_.file("bad.json"), text);
    EXPECT_EQ(run("--only profile.runtime --kit '" + folder_.file("bad.json") + "'").status, 2);
    return trainer::testing::readFile(folder_.file("stderr"));
  };
  EXPECT_NE(refused("{").find("bad.json is not JSON; make one with `internevo profile prepare"),
            std::string::npos);
  EXPECT_NE(refused("{}").find("is no measurement kit"), std::string::npos);
  Json kit = Json::parse(trainer::testing::readFile(INTERNEVO_SMALL_KIT));
  kit["about"]["version"] = 2;
  EXPECT_NE(refused(kit.dump()).find("is a kit of version 2, and this check runs 1"), std::string::npos);
  EXPECT_EQ(run("--only instructions.mma --kit /nowhere/kit.json").status, 2);
  EXPECT_NE(trainer::testing::readFile(folder_.file("stderr")).find("/nowhere/kit.json cannot be read"),
            std::string::npos);
}

TEST_F(CheckDriver, EachCommandFitsItsTime) {
  Process process({built::kGpuCheck, "--list", "--json"}, folder_.file("stderr"));
  ASSERT_EQ(process.finish(), 0);
  const Json listed = Json::parse(process.lines().at(0));
  ASSERT_EQ(listed["commands"].size(), 3u);
  for (const Json& command : listed["commands"])
    EXPECT_LE(command["plannedSeconds"], 0.95 * command["deadlineSeconds"].get<double>()) << command;
  std::set<std::string> names;
  for (const Json& each : listed["cases"]) EXPECT_TRUE(names.insert(each["case"]).second) << each;
  EXPECT_EQ(run("--only nothing.").status, 2);
}

}  // namespace
}  // namespace internevo::check
