// Checks and times the CUDA backend on the GPU of this host. Usage and exit codes: see usage() and driver.h.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <sstream>

#include "cuda/check/children.h"
#include "cuda/check/driver.h"
#include "cuda/check/installed.h"
#include "cuda/check/kit.h"
#include "cuda/check/telemetry.h"

namespace internevo::check {
namespace {

int usage(const std::string& problem) {
  std::fprintf(
      stderr,
      "%s\n"
      "usage: gpu-check [truth|step|peers ...] [--only NAMES] [--without NAMES] [--out FILE] [--resume] "
      "[--deadline SECONDS] [--list] [--json]\n"
      "                 [--kit FILE] [--model]\n"
      "  truth, step, peers   a command of at most nine minutes; all three without one\n"
      "  --only, --without    names of cases, separated by commas; a name that ends with a dot means all "
      "that begin so\n"
      "  --out                the file of results, a line of JSON for each case (gpu-check.jsonl); FILE.d "
      "gets timelines\n"
      "  --resume             go on with a file that is there: what it has is not run again\n"
      "  --deadline           seconds for everything; what would not do in them is left out, and said to be\n"
      "  --list               the cases and their planned seconds; --json: as JSON\n"
      "  --kit                measurements and plans of `internevo profile prepare`, cases of step; a bundle "
      "has "
      "one\n"
      "  --model              on the model of a GPU, in small\n",
      problem.c_str());
  return 2;
}

std::vector<std::string> separated(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream all(text);
  for (std::string each; std::getline(all, each, ',');) {
    if (!each.empty()) parts.push_back(each);
  }
  return parts;
}

void list(const std::vector<CheckCase>& cases, const Json& kit, bool json) {
  Json document{{"cases", Json::array()}, {"commands", Json::array()}};
  for (const CheckCommand& command : kCommands) {
    double seconds = 0;
    int count = 0;
    for (const CheckCase& each : cases) {
      if (each.command != command.name) continue;
      if (!json)
        std::printf("%-6s %5.1f s  %-72s %s\n", command.name, each.plannedSeconds, each.name.c_str(),
                    each.what.c_str());
      document["cases"].push_back({{"case", each.name},
                                   {"command", each.command},
                                   {"plannedSeconds", each.plannedSeconds},
                                   {"limitSeconds", each.limitSeconds()},
                                   {"what", each.what}});
      seconds += each.plannedSeconds, ++count;
    }
    document["commands"].push_back({{"command", command.name},
                                    {"what", command.what},
                                    {"cases", count},
                                    {"plannedSeconds", seconds},
                                    {"deadlineSeconds", kCommandSeconds}});
  }
  document["kit"] = kit.is_null() ? Json() : kit.at("about");
  if (json) return static_cast<void>(std::printf("%s\n", document.dump().c_str()));
  if (kit.is_null())
    std::printf("no kit: step has no probe and no plans; make one with `internevo profile prepare`\n");
  for (const Json& each : document["commands"]) {
    std::printf("%-6s %5.0f s planned of %.0f, %d cases: %s\n", each["command"].get<std::string>().c_str(),
                each["plannedSeconds"].get<double>(), kCommandSeconds, each["cases"].get<int>(),
                each["what"].get<std::string>().c_str());
  }
}

/// A case in this process: what the driver starts.
int runCase(const CheckCase& each, bool small, const std::string& work, double limitSeconds) {
  adoptOrphans();
  CaseRun run(small, work, limitSeconds, kResultDescriptor);
  Outcome outcome = Outcome::failed;
  try {
    outcome = each.run(run);
  } catch (const CannotRun& reason) {
    outcome = reason.outcome, run.message = reason.what();
  } catch (const std::exception& error) {
    run.message = error.what();
  }
  run.finish(outcome);
  std::printf("%s %s\n", outcomeName(outcome), run.message.c_str());
  std::fflush(stdout);
  return outcome == Outcome::failed ? 1 : 0;
}

struct Arguments {
  DriverOptions driver;
  std::string caseName, work = ".";
  double limitSeconds = 600;
  bool list = false, json = false, telemetry = false;
};

/// The kit that is given, or that of the bundle, which is for GPUs. Null where there is none; false with *problem.
bool kitOf(DriverOptions* options, Json* kit, std::string* problem) {
  const std::string own = installed("../share/kit.json");
  if (options->kit.empty() && !options->small && std::ifstream(own)) options->kit = own;
  return options->kit.empty() || readKit(options->kit, kit, problem);
}

/// False with *problem.
bool read(int argc, char** argv, Arguments* a, std::string* problem) {
  for (int i = 0; i < argc; ++i) a->driver.commandLine += std::string(i == 0 ? "" : " ") + argv[i];
  if (const char* const given = std::getenv("INTERNEVO_CHECK_COMMAND"); given != nullptr)
    a->driver.commandLine = given;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : (*problem = name + " needs a value", ""); };
    if (name == "truth" || name == "step" || name == "peers")
      a->driver.commands.push_back(name);
    else if (name == "1" || name == "2" || name == "3")
      a->driver.commands.push_back(kCommands[name[0] - '1'].name);
    else if (name == "--only")
      for (const std::string& each : separated(value())) a->driver.only.push_back(each);
    else if (name == "--without")
      a->driver.without = separated(value());
    else if (name == "--out")
      a->driver.out = value();
    else if (name == "--kit")
      a->driver.kit = value();
    else if (name == "--deadline")
      a->driver.deadlineSeconds = std::strtod(value(), nullptr);
    else if (name == "--case")
      a->caseName = value();
    else if (name == "--work")
      a->work = value();
    else if (name == "--limit")
      a->limitSeconds = std::strtod(value(), nullptr);
    else if (name == "--resume")
      a->driver.resume = true;
    else if (name == "--small" || name == "--model")
      a->driver.small = true;
    else if (name == "--list")
      a->list = true;
    else if (name == "--json")
      a->json = true;
    else if (name == "--telemetry")
      a->telemetry = true;
    else
      *problem = name + " is not known";
    if (name == "--deadline" && !(a->driver.deadlineSeconds > 0))
      *problem = "--deadline needs a number of seconds above 0";
    if (name == "--model") {
      setenv("INTERNEVO_CUDA_LIBRARY", installed(built::kModelLibrary).c_str(), 1);
      setenv("INTERNEVO_NCCL_LIBRARY", installed(built::kNcclModel).c_str(), 1);
    }
  }
  return problem->empty();
}

int main(int argc, char** argv) {
  Arguments a;
  std::string problem;
  if (!read(argc, argv, &a, &problem)) return usage(problem);
  if (a.telemetry) return sampleGpu();
  const std::vector<CheckCase> faults = faultCases();
  Json kit;
  if (!kitOf(&a.driver, &kit, &problem)) return usage(problem);
  std::vector<CheckCase> all = checkCases(a.driver.small, kit);
  if (a.list) return list(all, kit, a.json), 0;
  // Faults are not among what runs unasked.
  bool wantsFaults = a.caseName.rfind("fault.", 0) == 0;
  for (const std::string& each : a.driver.only) wantsFaults = wantsFaults || each.rfind("fault.", 0) == 0;
  if (wantsFaults) all.insert(all.end(), faults.begin(), faults.end());
  all.push_back({"device", "", "", 1, checkDevice});
  if (!a.caseName.empty()) {
    for (const CheckCase& each : all) {
      if (each.name == a.caseName) return runCase(each, a.driver.small, a.work, a.limitSeconds);
    }
    return usage("no case is named " + a.caseName);
  }
  all.pop_back();
  const std::vector<CheckCase> cases = chosen(all, a.driver, &problem);
  return problem.empty() ? drive(cases, a.driver) : usage(problem);
}

}  // namespace
}  // namespace internevo::check

int main(int argc, char** argv) { return internevo::check::main(argc, argv); }
