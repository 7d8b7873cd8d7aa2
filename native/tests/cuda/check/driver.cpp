#include "cuda/check/driver.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "cuda/check/children.h"
#include "cuda/check/installed.h"
#include "cuda/check/results.h"
#include "cuda/check/telemetry.h"

namespace internevo::check {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kDeviceSeconds = 90;      ///< to open the device once, from a cold disk
constexpr double kGraceSeconds = 1;        ///< between the two signals of a case that is ended
constexpr double kEndSeconds = 8;          ///< of the command, kept for ending its last case
constexpr std::size_t kKeptOutput = 4000;  ///< bytes of what a case that did not pass has said
constexpr int kMostDeaths = 2;             ///< times that a case may take its driver with it

volatile std::sig_atomic_t signalled = 0;
void onSignal(int number) { signalled = number; }

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string now() {
  char date[32] = "";
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&time, &utc));
  return date;
}

/// Of a file's bytes: two builds differ.
std::string fingerprint(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t hash = 14695981039346656037u;
  char buffer[1 << 16];
  while (file.read(buffer, sizeof buffer), file.gcount() > 0) {
    for (std::streamsize i = 0; i < file.gcount(); ++i)
      hash = (hash ^ static_cast<unsigned char>(buffer[i])) * 1099511628211u;
  }
  char text[17] = "";
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string lastPart(const std::string& text) {
  return text.size() <= kKeptOutput ? text : "…" + text.substr(text.size() - kKeptOutput);
}

class Driver {
 public:
  explicit Driver(const DriverOptions& options)
      : options_(options),
        work_(options.out + ".d"),
        own_(installed("internevo-gpu-check")),
        telemetry_({own_, "--telemetry"}) {}

  int run(const std::vector<CheckCase>& cases) {
    if (mkdir(work_.c_str(), 0755) != 0 && errno != EEXIST)
      std::fprintf(stderr, "%s cannot be made: timelines are not kept\n", work_.c_str());
    const Json device = once({"device", "", "", kDeviceSeconds / 3, checkDevice}, kDeviceSeconds);
    if (device.value("outcome", "") != "passed") {
      std::fprintf(stderr, "no device: %s%s\n", device.value("message", "").c_str(),
                   device.value("said", "").c_str());
      return 2;
    }
    std::string message;
    Json identity{
        {"build", fingerprint(own_)}, {"device", device["result"]["device"]}, {"small", options_.small}};
    if (!options_.kit.empty()) identity["kit"] = fingerprint(options_.kit);
    if (!results_.open(options_.out, options_.resume, identity, &message))
      return std::fprintf(stderr, "%s\n", message.c_str()), 2;
    results_.append({{"event", "run"},
                     {"at", now()},
                     {"identity", identity},
                     {"commandLine", options_.commandLine},
                     {"deadlineSeconds", deadline()},
                     {"memoryBytes", device["result"]["memoryBytes"]},
                     {"versions", device["versions"]},
                     {"gpu", telemetry_.about()}});
    std::printf("%s; %zu cases, %.0f s at most; results in %s\n",
                device["result"]["device"].get<std::string>().c_str(), cases.size(), deadline(),
                options_.out.c_str());
    std::fflush(stdout);
    for (const CheckCase& each : cases) {
      if (signalled != 0) break;
      consider(each);
    }
    return finish();
  }

 private:
  double deadline() const { return options_.deadlineSeconds; }
  double left() const { return deadline() - kEndSeconds - since(start_); }

  void consider(const CheckCase& each) {
    if (const Json* const before = results_.ended(each.name); before != nullptr &&
                                                              before->value("outcome", "") != "left-out" &&
                                                              before->value("outcome", "") != "interrupted") {
      ++resumed_;
      return;
    }
    Json line{{"event", "case"},
              {"case", each.name},
              {"command", each.command},
              {"what", each.what},
              {"plannedSeconds", each.plannedSeconds}};
    if (const int deaths = results_.begunOnly(each.name); deaths >= kMostDeaths) {
      line["outcome"] = "crashed", line["message"] = "the check itself ended " + std::to_string(deaths) +
                                                     " times while this case ran; it is not run again";
    } else if (left() < each.plannedSeconds) {
      line["outcome"] = "left-out",
      line["message"] = "the command's " + Json(deadline()).dump() + " s would not do; --resume runs it";
    } else {
      results_.append({{"event", "begun"}, {"case", each.name}, {"at", now()}});
      line.update(once(each, std::min(each.limitSeconds(), left())));
    }
    line["at"] = now();
    results_.append(line);
    tell(line);
  }

  void tell(const Json& line) {
    const std::string outcome = line["outcome"];
    ++counts_[outcome];
    std::printf("%-11s %-58s %6.1f s  %s\n", outcome.c_str(), line["case"].get<std::string>().c_str(),
                line.value("seconds", 0.), line.value("message", "").c_str());
    const Json result = line.value("result", Json::object());  // nothing of a case that crashed
    if (result.is_object() && result.contains("goals")) {
      for (const Json& goal : result["goals"]) {
        std::printf("            goal %s: %s of %s %s\n", goal["what"].get<std::string>().c_str(),
                    goal["value"].dump().c_str(), goal["goal"].dump().c_str(),
                    goal["unit"].get<std::string>().c_str());
      }
    }
    std::fflush(stdout);
  }

  /// A case in a process of its own: its outcome, its time, what it found, and what the GPU did meanwhile.
  Json once(const CheckCase& each, double limitSeconds) {
    telemetry_.begin();
    const auto begun = Clock::now();
    std::vector<std::string> arguments{
        own_, "--case", each.name, "--work", work_, "--limit", std::to_string(limitSeconds)};
    if (options_.small) arguments.push_back("--small");
    if (!options_.kit.empty()) arguments.insert(arguments.end(), {"--kit", options_.kit});
    Started child = start(arguments, false);
    if (child.pid < 0) return {{"outcome", "failed"}, {"message", "no process can be started"}};
    std::string said, found;
    int status = 0;
    bool over = false, late = false;
    while (!over) {
      pollfd ready[2] = {{child.output, POLLIN, 0}, {child.results, POLLIN, 0}};
      poll(ready, 2, 50);
      read(&child.output, &said), read(&child.results, &found);
      telemetry_.poll();
      over = waitpid(child.pid, &status, WNOHANG) == child.pid;
      late = !over && since(begun) > limitSeconds;
      if (late || (!over && signalled != 0)) break;
    }
    const double seconds = since(begun);
    bool stuck = false;
    if (!over) stuck = !endAll(child.pid, kGraceSeconds, &status);
    kill(-child.pid, SIGKILL);
    endOrphans({telemetry_.process()});
    read(&child.output, &said), read(&child.results, &found);
    for (const int descriptor : {child.output, child.results}) {
      if (descriptor >= 0) close(descriptor);
    }
    Json line = lastResult(found);
    const std::string outcome = line.value("outcome", "");
    const std::string message = line.value("message", "");
    line["seconds"] = seconds, line["limitSeconds"] = limitSeconds, line["gpu"] = telemetry_.summary();
    if (signalled != 0 && !over) {
      line["outcome"] = "interrupted";
    } else if (late) {
      line["outcome"] = "timed-out";
      line["message"] = "ended after " + std::to_string(static_cast<int>(limitSeconds)) + " s" +
                        (stuck ? ", and its process does not go" : "") +
                        (message.empty() ? "" : "; " + message);
    } else if (WIFSIGNALED(status) || outcome.empty()) {
      line["outcome"] = "crashed";
      line["message"] = "its process ended with " + statusText(status) +
                        (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                             ? ": someone killed it, or the host has no memory left"
                             : "") +
                        (message.empty() ? "" : "; " + message);
    }
    if (line["outcome"] != "passed" && !said.empty()) line["said"] = lastPart(said);
    return line;
  }

  static void read(int* descriptor, std::string* text) {
    if (*descriptor >= 0 && !drain(*descriptor, text)) close(*descriptor), *descriptor = -1;
    constexpr std::size_t kMost = 16 << 20;
    if (text->size() > 2 * kMost) text->erase(0, text->size() - kMost);
  }

  /// The last whole line: what the case had found when it ended, or was ended.
  static Json lastResult(const std::string& found) {
    Json last = Json::object();
    for (std::size_t at = 0, end; (end = found.find('\n', at)) != std::string::npos; at = end + 1) {
      if (Json each = Json::parse(found.substr(at, end - at), nullptr, false); each.is_object())
        last = std::move(each);
    }
    if (last.value("message", "").empty()) last.erase("message");
    return last;
  }

  int finish() {
    std::string text;
    for (const auto& [outcome, count] : counts_)
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + outcome;
    if (resumed_ > 0) text += (text.empty() ? "" : ", ") + std::to_string(resumed_) + " were there already";
    std::printf("%s; %.0f s\n", text.empty() ? "nothing ran" : text.c_str(), since(start_));
    results_.append({{"event", "end"}, {"at", now()}, {"seconds", since(start_)}, {"outcomes", counts_}});
    if (signalled != 0) return 128 + signalled;
    if (results_.lost() > 0) return 3;
    for (const auto& [outcome, count] : counts_) {
      if (outcome != "passed" && outcome != "absent") return 1;
    }
    return 0;
  }

  const DriverOptions options_;
  const std::string work_, own_;
  const Clock::time_point start_ = Clock::now();
  Telemetry telemetry_;
  Results results_;
  std::map<std::string, int> counts_;
  int resumed_ = 0;
};

bool names(const std::string& pattern, const CheckCase& each) {
  return pattern == each.name || pattern == each.command ||
         (pattern.back() == '.' && each.name.rfind(pattern, 0) == 0);
}

}  // namespace

std::vector<CheckCase> chosen(const std::vector<CheckCase>& all, const DriverOptions& options,
                              std::string* message) {
  for (const auto* const list : {&options.only, &options.without}) {
    for (const std::string& pattern : *list) {
      if (std::any_of(all.begin(), all.end(), [&](const CheckCase& each) { return names(pattern, each); }))
        continue;
      *message = "no case is named " + pattern +
                 "; --list shows them (a name that ends with a dot means all that begin so)";
      return {};
    }
  }
  std::vector<CheckCase> result;
  for (const CheckCase& each : all) {
    const auto named = [&](const std::string& pattern) { return names(pattern, each); };
    const auto anyOf = [&](const std::vector<std::string>& list) {
      return list.empty() || std::any_of(list.begin(), list.end(), named);
    };
    const bool wanted = anyOf(options.commands) && anyOf(options.only);
    if (wanted && std::none_of(options.without.begin(), options.without.end(), named)) result.push_back(each);
  }
  return result;
}

int drive(const std::vector<CheckCase>& cases, const DriverOptions& given) {
  DriverOptions options = given;
  if (options.deadlineSeconds == 0) {
    std::set<std::string> commands;
    for (const CheckCase& each : cases) commands.insert(each.command);
    options.deadlineSeconds =
        kCommandSeconds * static_cast<double>(std::max<std::size_t>(commands.size(), 1));
  }
  adoptOrphans();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a write that fails
  struct sigaction action {};
  action.sa_handler = onSignal;
  for (const int each : {SIGINT, SIGTERM, SIGHUP}) sigaction(each, &action, nullptr);
  return Driver(options).run(cases);
}

}  // namespace internevo::check
