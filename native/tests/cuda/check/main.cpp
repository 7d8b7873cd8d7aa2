// Checks and times the CUDA backend on the GPU of this host: internevo-gpu-check [--sections a,b,…] [--report FILE] [--small]
// --small: sizes for a model of a device. Exit codes: 0 all passed (goals that were missed are told), 1 a check failed, 2 arguments,
// or no device.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cuda/check/harness.h"
#include "cuda/check/runs.h"
#include "internevo/device_library.h"

namespace internevo::check {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr const char* kSections[] = {"operators", "attention", "training", "ranks", "benchmark", "stack", "peer", "longest"};
constexpr double kAimSeconds = 480;  ///< of all sections, without the build

struct Options {
  std::set<std::string> sections{std::begin(kSections), std::end(kSections)};
  std::string report, command;
  bool small = false;
};

bool read(int argc, char** argv, Options* options) {
  const char* const given = std::getenv("INTERNEVO_CHECK_COMMAND");
  for (int i = 0; i < argc; ++i) options->command += std::string(i == 0 ? "" : " ") + argv[i];
  if (given != nullptr) options->command = given;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--small") {
      options->small = true;
    } else if (name == "--report" && i + 1 < argc) {
      options->report = argv[++i];
    } else if (name == "--sections" && i + 1 < argc) {
      const std::set<std::string> known = options->sections;
      options->sections.clear();
      std::istringstream list(argv[++i]);
      for (std::string each; std::getline(list, each, ',');) {
        if (known.count(each) == 0) return false;
        options->sections.insert(each);
      }
    } else {
      return false;
    }
  }
  return !options->sections.empty();
}

/// Of a number that JSON has no word for: null.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

bool checkOperators(Backend& device, bool small, Json* report) {
  const auto cpu = createCpuBackend(static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
  bool passed = true;
  for (const Case& each : operatorCases(small)) {
    for (const DataType precision : {DataType::float32, DataType::bfloat16}) {
      const Verdict v = compare(each, precision, *cpu, device);
      passed = passed && v.passed;
      std::printf("%s %-44s %s  error %.2e of at most %.2e  %s\n", v.passed ? "ok  " : "FAIL", v.name.c_str(), v.precision.c_str(),
                  v.error, v.limit, v.message.c_str());
      (*report)["operators"].push_back({{"name", v.name}, {"precision", v.precision}, {"passed", v.passed},
                                        {"error", number(v.error)}, {"limit", number(v.limit)}, {"message", v.message}});
    }
  }
  return passed;
}

/// Tests of the trainer's program, on this library instead of the model.
bool checkProgram(const std::string& section, const char* filter, const char* what, Json* report) {
  const auto start = Clock::now();
  const std::string command = std::string("\"" INTERNEVO_PROGRAM_TEST "\" --gtest_filter='") + filter + "' --gtest_brief=1 1>&2";
  const bool passed = std::system(command.c_str()) == 0;
  std::printf("%s %s  %.0f s\n", passed ? "ok  " : "FAIL", what, since(start));
  (*report)[section] = {{"passed", passed}, {"seconds", since(start)}};
  return passed;
}

bool measure(Backend& device, bool small, Json* report) {
  bool passed = true;
  for (const Measured& m : benchmarks(device, small)) {
    passed = passed && m.message.empty();
    std::printf("%-52s %10.3f ms  %9.2f %s/s  %3.0f%%  %s\n", m.name.c_str(), 1e3 * m.seconds, m.figure, m.unit.c_str(),
                100 * m.share, m.message.c_str());
    (*report)["benchmark"].push_back({{"name", m.name}, {"seconds", number(m.seconds)}, {"figure", number(m.figure)},
                                      {"unit", m.unit + "/s"}, {"share", number(m.share)}, {"message", m.message}});
  }
  return passed;
}

bool runSection(const std::string& section, const Options& options, Backend& device, TrainerRuns& runs, Json* report) {
  if (section == "operators") return checkOperators(device, options.small, report);
  if (section == "attention") return checkAttention(options.small, report);
  if (section == "training") {
    return checkProgram(section, "DeviceProgram*TheModel*-*SeveralRanks*", "training against the CPU's curve, checkpoints", report);
  }
  if (section == "ranks") {
    return checkProgram(section, "DeviceProgram.SeveralRanksOnTheModel*", "several ranks on this GPU: plans, resuming, a rank that is killed", report);
  }
  if (section == "benchmark") return measure(device, options.small, report);
  if (section == "stack") return checkStack(device, runs, report);
  if (section == "peer") return checkPeer(runs, report);
  return checkLongest(runs, report);
}

/// What the figures were measured on, and how.
Json provenance(Backend& device, const Options& options) {
  char date[32] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  Json libraries = Json::object();
  for (const LibraryVersion& each : device.libraries()) libraries[each.name] = each.version;
  return {{"device", device.name()}, {"date", date}, {"libraries", libraries}, {"command", options.command}};
}

int run(const Options& options) {
  std::unique_ptr<Backend> device;
  if (const Status status = openCudaBackend({}, &device); !status.ok()) {
    std::cerr << status.message() << "\n";
    return 2;
  }
  Json report = provenance(*device, options);
  std::printf("%s, %s", report["device"].get<std::string>().c_str(), report["date"].get<std::string>().c_str());
  for (const auto& [name, version] : report["libraries"].items()) std::printf(", %s %s", name.c_str(), version.get<std::string>().c_str());
  std::printf("\n");
  TrainerRuns runs(*device, options.small);
  bool passed = true;
  const auto start = Clock::now();
  for (const char* const section : kSections) {
    if (options.sections.count(section) == 0) continue;
    const auto begun = Clock::now();
    bool good = false;
    try {
      good = runSection(section, options, *device, runs, &report);
    } catch (const std::exception& error) {  // the other sections and the report are still worth having
      std::printf("FAIL %s: %s\n", section, error.what());
    }
    passed = passed && good;
    report["sections"][section] = {{"passed", good}, {"seconds", since(begun)}};
    std::fflush(stdout);
  }
  for (const auto& [section, told] : report["sections"].items()) std::printf("%-12s %4.0f s\n", section.c_str(), told["seconds"].get<double>());
  std::printf("all sections %4.0f s; the aim is %.0f s\n", since(start), kAimSeconds);
  report["seconds"] = since(start), report["aimSeconds"] = kAimSeconds, report["passed"] = passed;
  if (!options.report.empty() && !(std::ofstream(options.report) << report.dump(2) << "\n")) {
    std::cerr << "cannot write " << options.report << "\n";
    return 1;
  }
  std::printf("%s\n", passed ? "passed" : "FAILED");
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace internevo::check

int main(int argc, char** argv) {
  internevo::check::Options options;
  if (!internevo::check::read(argc, argv, &options)) {
    std::cerr << "usage: internevo-gpu-check [--sections operators,attention,training,ranks,benchmark,stack,peer,longest] [--report FILE] [--small]\n";
    return 2;
  }
  return internevo::check::run(options);
}
