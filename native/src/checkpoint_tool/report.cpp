#include "checkpoint_tool/report.h"

#include <cstdio>
#include <filesystem>

#include "checkpoint/manifest.h"
#include "trainer/clock.h"

namespace internevo::trainer {

void emitLine(const OrderedJson& event) {
  const std::string line = event.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() || std::fflush(stdout) != 0) {
    throw Failure(StatusCode::internal, "standard output cannot be written; keep its reader alive");
  }
}

void emitProblem(const Problem& p) {
  OrderedJson event = {{"event", "error"}, {"code", statusCodeName(p.code)}, {"message", p.message}};
  if (!p.field.empty()) event["field"] = p.field;
  const OrderedJson value = OrderedJson::parse(p.valueJson, nullptr, false);
  if (!p.valueJson.empty() && !value.is_discarded()) event["value"] = value;
  if (!p.remedy.empty()) event["remedy"] = p.remedy;
  emitLine(event);
}

void ProgressReport::add(std::int64_t bytes) {
  done_ += bytes;
  const double now = secondsNow();
  if (now - lastSeconds_ < 0.2 && done_ < total_) return;
  lastSeconds_ = now;
  emitLine({{"event", "progress"}, {"doneBytes", done_}, {"totalBytes", total_}});
}

std::string checkpointAt(const std::string& path) {
  if (std::filesystem::exists(path + "/" + kManifestName)) return path;
  if (!std::filesystem::is_directory(path))
    refuseFile(path, "is no directory", "give the directory of a checkpoint, or of a run's checkpoints");
  const std::vector<std::int64_t> steps = stepsIn(path);
  if (steps.empty())
    refuseFile(path, "holds no checkpoint", "give the directory of a checkpoint, or of a run's checkpoints");
  return stepPath(path, steps.back());
}

}  // namespace internevo::trainer
