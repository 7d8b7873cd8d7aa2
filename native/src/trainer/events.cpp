#include "trainer/events.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "comm/host_use_json.h"
#include "trainer/memory_map.h"

namespace internevo::trainer {

namespace {

using Json = nlohmann::ordered_json;

std::string isoTime() {
  const auto now = std::chrono::system_clock::now();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[80];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900, utc.tm_mon + 1,
                utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, static_cast<int>(milliseconds));
  return text;
}

bool writeLine(const std::string& line) {
  for (std::size_t at = 0; at < line.size();) {
    const ssize_t done = ::write(STDOUT_FILENO, line.data() + at, line.size() - at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return false;
    at += static_cast<std::size_t>(done);
  }
  return true;
}

std::string lineOf(const char* event, const Json& members) {
  Json object = {{"event", event}, {"at", isoTime()}};
  object.update(members);
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void emit(const char* event, const Json& members) {
  if (!writeLine(lineOf(event, members))) {
    throw Failure(StatusCode::internal, "standard output cannot be written; keep its reader alive");
  }
}

Json linesOf(const Config& config, const MemoryPlan& plan, std::int64_t runtimeBytes) {
  Json lines = Json::object();
  for (int i = 0; i < kMemoryLines; ++i) {
    const auto line = static_cast<MemoryLine>(i);
    const std::int64_t bytes = plan.lines[static_cast<std::size_t>(i)];
    const bool ofSomeRuns = line == MemoryLine::checkpointStaging || line == MemoryLine::offloadStaging;
    if (ofSomeRuns && bytes == 0) continue;
    lines[memoryLineName(line)] = bytes;
  }
  if (config.timeline) lines["timeline"] = timelineBytes(config);
  if (const std::int64_t bytes = communicatorBytes(config); bytes > 0) lines["communicators"] = bytes;
  lines["runtime"] = runtimeBytes;
  return lines;
}

}  // namespace

void emitStarted(const Trainer& t, const std::vector<std::string>& hosts, std::int64_t resumedFromStep) {
  emit("started", {{"worldSize", t.config().mesh.worldSize},
                   {"hosts", hosts},
                   {"parameters", t.wholeLayout().parameters()},
                   {"memory", linesOf(t.config(), t.memoryPlan(), t.runtimeBytes())},
                   {"plannedPeakBytes", t.plannedPeakBytes()},
                   {"hostMemoryBytes", t.hostBytes()},
                   {"resumedFromStep", resumedFromStep}});
}

void emitProducts(const ProductChoices& choices) {
  for (const ProductChoice& each : choices.products) {
    Json members = {{"library", choices.library}, {"product", each.product}, {"algorithm", each.algorithm},
                    {"answer", each.answer},      {"answers", each.answers}, {"recorded", each.recorded}};
    if (each.seconds > 0) members["seconds"] = each.seconds, members["firstSeconds"] = each.firstSeconds;
    emit("product", members);
  }
}

void emitPlan(const Config& config, const StagePlans& plans, std::int64_t runtimeBytes,
              std::optional<int> mapStage) {
  Json stages = Json::array();
  for (std::size_t stage = 0; stage < plans.plans.size(); ++stage) {
    const Layout layout(config.model, config.plan, {static_cast<int>(stage), 0});
    const MemoryPlan& plan = plans.plans[stage];
    stages.push_back({{"stage", stage},
                      {"layers", layout.stageLayers()},
                      {"memory", linesOf(config, plan, runtimeBytes)},
                      {"plannedPeakBytes", plan.arenaBytes() + besideArenaBytes(config) + runtimeBytes},
                      {"hostMemoryBytes", plan.offload.hostBytes}});
  }
  Json members = {
      {"worldSize", config.mesh.worldSize},
      {"parameters", Layout::whole(config.model).parameters()},
      {"memory", linesOf(config, plans.largest(), runtimeBytes)},
      {"plannedPeakBytes", plans.largest().arenaBytes() + besideArenaBytes(config) + runtimeBytes},
      {"hostMemoryBytes", hostBytesOf(plans)},
      {"stages", stages}};
  if (mapStage)
    members["memoryMap"] = memoryMapOf(config, *mapStage, plans.plans[static_cast<std::size_t>(*mapStage)]);
  emit("plan", members);
}

void emitCommunicators(std::int64_t plannedBytes, std::int64_t measuredBytes) {
  emit("communicators", {{"plannedBytes", plannedBytes}, {"measuredBytes", measuredBytes}});
}

void emitStep(const StepResult& r, std::int64_t peakMemoryBytes, std::int64_t residentPeakBytes) {
  emit("step", {{"step", r.step},
                {"loss", r.loss},
                {"gradientNorm", r.gradientNorm},
                {"learningRate", r.learningRate},
                {"tokens", r.tokens},
                {"stepTimeSeconds", r.stepTimeSeconds},
                {"tokensPerSecond", static_cast<double>(r.tokens) / r.stepTimeSeconds},
                {"computeSeconds", r.stepTimeSeconds - r.exposedCommunicationSeconds - r.bubbleSeconds},
                {"communicationSeconds", r.communicationSeconds},
                {"exposedCommunicationSeconds", r.exposedCommunicationSeconds},
                {"bubbleSeconds", r.bubbleSeconds},
                {"peakMemoryBytes", peakMemoryBytes},
                {"residentPeakBytes", residentPeakBytes}});
}

void emitEvaluating(std::int64_t step, std::int64_t batch, std::int64_t batches) {
  emit("evaluating", {{"step", step}, {"batch", batch}, {"batches", batches}});
}

void emitValidation(std::int64_t step, const Evaluation& e) {
  emit("validation", {{"step", step}, {"loss", e.loss}, {"tokens", e.tokens}, {"seconds", e.seconds}});
}

void emitCheckpoint(const CheckpointResult& r) {
  emit("checkpoint", {{"step", r.step},
                      {"path", r.path},
                      {"bytes", r.bytes},
                      {"seconds", r.seconds},
                      {"stallSeconds", r.stallSeconds}});
}

void emitHosts(const std::vector<HostUse>& hosts) { emit("hosts", {{"hosts", hostUseJson<Json>(hosts)}}); }

void emitDone(std::int64_t step, double loss, const std::string& reason) {
  emit("done", {{"step", step}, {"loss", loss}, {"reason", reason}});
}

void emitError(const Problem& p, int rank, bool continues) noexcept {
  try {
    Json members = {{"code", statusCodeName(p.code)}, {"message", p.message}, {"rank", rank}};
    if (!p.field.empty()) members["field"] = p.field;
    const Json value = Json::parse(p.valueJson, nullptr, false);
    if (!p.valueJson.empty() && !value.is_discarded()) members["value"] = value;
    if (!p.remedy.empty()) members["remedy"] = p.remedy;
    if (continues) members["continues"] = true;
    writeLine(lineOf("error", members));
  } catch (...) {
    writeLine(
        "{\"event\":\"error\",\"code\":\"internal\",\"message\":\"an error could not be described\"}\n");
  }
}

}  // namespace internevo::trainer
