#include "cuda/check/case.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "cuda/check/runs.h"
#include "internevo/device_library.h"

namespace internevo::check {

namespace {

constexpr double kLeastLimitSeconds = 25, kMostLimitSeconds = 150;

}  // namespace

const char* outcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::passed: return "passed";
    case Outcome::failed: return "failed";
    case Outcome::absent: return "absent";
  }
  return "failed";
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

double CheckCase::limitSeconds() const {
  return ownLimitSeconds > 0 ? ownLimitSeconds
                             : std::clamp(3 * plannedSeconds, kLeastLimitSeconds, kMostLimitSeconds);
}

CaseRun::CaseRun(bool small, std::string work, double limitSeconds, int resultDescriptor)
    : small_(small), work_(std::move(work)), limitSeconds_(limitSeconds), descriptor_(resultDescriptor) {}
CaseRun::~CaseRun() = default;

double CaseRun::leftSeconds() const {
  return limitSeconds_ - std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

Backend& CaseRun::device() {
  if (device_ == nullptr) {
    if (const Status status = openCudaBackend({}, &device_); !status.ok())
      throw CannotRun(Outcome::failed, status.message());
    versions_["device"] = device_->name();
    for (const LibraryVersion& each : device_->libraries()) versions_[each.name] = each.version;
  }
  return *device_;
}

TrainerRuns& CaseRun::runs() {
  if (runs_ == nullptr) {
    runs_ = std::make_unique<TrainerRuns>(device(), small_, work_);
    std::string why;
    if (!runs_->start(&why)) throw CannotRun(Outcome::failed, why);
  }
  return *runs_;
}

void CaseRun::write(const char* outcome) {
  Json line{{"message", message}, {"result", result}, {"versions", versions_}};
  if (outcome != nullptr) line["outcome"] = outcome;
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t count = ::write(descriptor_, text.data() + at, text.size() - at);
    if (count <= 0) return;
    at += static_cast<std::size_t>(count);
  }
}

void noteGoal(CaseRun& run, const std::string& what, double value, double goal, const char* unit) {
  run.result["goals"].push_back(
      {{"what", what}, {"value", number(value)}, {"goal", goal}, {"unit", unit}, {"reached", value >= goal}});
}

}  // namespace internevo::check
