#include "trainer/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/clock.h"
#include "trainer/safetensors.h"

namespace internevo::trainer {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& path, const std::string& what, const std::string& remedy) {
  throw Failure(Problem{StatusCode::checkpointError, path + " " + what, "checkpoint.directory",
                        Json(path).dump(-1, ' ', false, Json::error_handler_t::replace), remedy});
}

std::string stepPath(const CheckpointConfig& c, std::int64_t step) {
  return c.directory + "/step-" + std::to_string(step);
}

/// "shard-<parameter>-<optimizer>", with the stage and tensor index before them where there are several.
std::string shardNameOf(const Config& c, int rank) {
  const auto place = [&](const Groups& groups) {
    const std::vector<int>& group = groupOf(groups, rank);
    return std::to_string(std::find(group.begin(), group.end(), rank) - group.begin());
  };
  std::string name = "shard-";
  if (c.plan.pipelineParallel > 1) name += "stage" + place(c.mesh.pipelineParallel) + "-";
  if (c.plan.tensorParallel > 1) name += "tensor" + place(c.mesh.tensorParallel) + "-";
  return name + place(c.mesh.parameterSharding) + "-" + place(c.mesh.optimizerStateSharding) + ".safetensors";
}

/// Steps of the complete checkpoints in a directory, ascending. Unfinished ones (.tmp) do not count.
std::vector<std::int64_t> stepsIn(const std::string& directory) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::string digits = name.rfind("step-", 0) == 0 ? name.substr(5) : "";
    if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) continue;
    steps.push_back(std::stoll(digits));
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    refuse(directory, "cannot be read: " + error.message(), "give a readable directory");
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

/// What must be the same for a run to go on from a checkpoint.
Json identityOf(const Trainer& trainer) {
  const Config& c = trainer.config();
  return {{"model", Json::parse(modelJson(c.model))},
          {"sequenceLengthTokens", c.sequenceLengthTokens},
          {"precision", c.bf16() ? "bf16" : "fp32"},
          {"plan", Json::parse(planJson(c.plan))},
          {"seed", c.seed},
          {"dataTokens", trainer.data().tokenCount()}};
}

/// Where each logical tensor lies: unit, offset and shape.
Json tensorIndex(const Layout& layout) {
  Json index = Json::object();
  for (const Unit& unit : layout.units()) {
    for (const LogicalTensor& t : unit.tensors) {
      index[t.name] = {{"unit", unit.name}, {"offset", t.offset}, {"rows", t.rows}, {"columns", t.columns}};
    }
  }
  return index;
}

FileSummary writeShard(Trainer& trainer, const std::string& path) {
  ParameterStore& store = trainer.parameters();
  const Layout& layout = trainer.layout();
  std::vector<SafetensorsEntry> entries;
  for (int u = 0; u < layout.unitCount(); ++u) {
    const std::string& name = layout.unit(u).name;
    const std::vector<std::int64_t> shape{layout.optimizerShard(u)};
    entries.push_back({name + ":weights", shape, store.weights(u).as<float>()});
    entries.push_back({name + ":firstMoment", shape, store.firstMoment(u).as<float>()});
    entries.push_back({name + ":secondMoment", shape, store.secondMoment(u).as<float>()});
  }
  return writeSafetensors(path, entries, {{"format", "internevo-shard"}});
}

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// {"checksum": of the text of "content", "content": …}: canonical, so that any changed byte shows.
std::string manifestText(const Json& content) {
  return Json{{"checksum", hex(checksumOf(content.dump()))}, {"content", content}}.dump() + "\n";
}

Json readManifest(const std::string& path) {
  const std::string text = readTextFile(path);
  const Json document = Json::parse(text, nullptr, false);
  const bool sound = document.is_object() && document.contains("content") && manifestText(document["content"]) == text;
  if (!sound) refuse(path, "is damaged", "remove this checkpoint's directory to go on from the one before it");
  return document["content"];
}

void removeOthers(const CheckpointConfig& c) {
  const std::vector<std::int64_t> steps = stepsIn(c.directory);
  const auto keep = static_cast<std::size_t>(c.keepLast);
  for (std::size_t i = 0; i + keep < steps.size(); ++i) {
    std::error_code error;
    fs::remove_all(stepPath(c, steps[i]), error);
    if (error) refuse(stepPath(c, steps[i]), "cannot be removed: " + error.message(), "make it removable");
  }
}

/// Creates an empty step-<N>.tmp.
void prepareDirectory(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) fs::create_directories(path, error);
  if (error) refuse(path, "cannot be created: " + error.message(), "give a directory that can be written");
}

void publish(const std::string& temporary, const std::string& path, const std::string& directory) {
  std::error_code error;
  fs::remove_all(path, error);  // one of the same step, from before a restart
  if (!error) fs::rename(temporary, path, error);
  if (error) refuse(path, "cannot be put in place: " + error.message(), "give a directory that can be written");
  syncDirectory(directory);
}

/// Sizes and checksums of all shards, from the ranks that wrote them, on every rank.
std::vector<FileSummary> shareSummaries(Trainer& trainer, const FileSummary& own) {
  const std::int64_t words[2] = {own.bytes, static_cast<std::int64_t>(own.checksum)};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(trainer.groups().world.size()));
  require(trainer.groups().world.allGather(ConstView(words, DataType::int64), {all.data(), DataType::int64}, 2));
  std::vector<FileSummary> summaries;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    summaries.push_back({all[i], static_cast<std::uint64_t>(all[i + 1])});
  }
  return summaries;
}

}  // namespace

CheckpointResult saveCheckpoint(Trainer& trainer, std::int64_t step) {
  const double start = secondsNow();
  const CheckpointConfig& c = *trainer.config().checkpoint;
  const PlanConfig& plan = trainer.config().plan;
  GroupSet& groups = trainer.groups();
  const std::string path = stepPath(c, step), temporary = path + ".tmp";
  const bool first = groups.world.index() == 0;
  const auto together = [&](const std::function<void()>& work) { agree(groups.world, trainer.reduceWorkspace(), work); };

  together([&] {
    if (first) prepareDirectory(temporary);
  });
  FileSummary own;
  CheckpointResult result{path, 0, 0};
  try {
    together([&] {
      if (groups.replicas.index() != 0) return;
      own = writeShard(trainer, temporary + "/" + shardNameOf(trainer.config(), trainer.rank()));
    });
    const std::vector<FileSummary> summaries = shareSummaries(trainer, own);
    together([&] {
      if (!first) return;
      Json content = {{"format", "internevo-checkpoint"},
                      {"version", 1},
                      {"step", step},
                      {"dataPosition", step * plan.globalBatchSequences()},
                      {"identity", identityOf(trainer)},
                      {"tensors", tensorIndex(trainer.wholeLayout())}};
      for (std::size_t i = 0; i < summaries.size(); ++i) {
        if (summaries[i].bytes == 0) continue;  // a replica
        const std::string name = shardNameOf(trainer.config(), static_cast<int>(i));
        content["files"][name] = {{"bytes", summaries[i].bytes}, {"xxh3", hex(summaries[i].checksum)}};
        result.bytes += summaries[i].bytes;
      }
      const std::string text = manifestText(content);
      result.bytes += static_cast<std::int64_t>(text.size());
      writeTextFile(temporary + "/manifest.json", text);
      syncDirectory(temporary);
      publish(temporary, path, c.directory);
      removeOthers(c);
    });
  } catch (const AgreedFailure&) {
    std::error_code ignored;
    if (first) fs::remove_all(temporary, ignored);
    throw;
  }
  result.seconds = secondsNow() - start;
  return result;
}

namespace {

void requireSame(const Json& saved, const Json& now, const std::string& path, const std::string& manifest) {
  for (const auto& [name, value] : now.items()) {
    const std::string field = path.empty() ? name : path + "." + name;
    const Json before = saved.is_object() && saved.contains(name) ? saved[name] : Json();
    if (value.is_object()) {
      requireSame(before, value, field, manifest);
    } else if (before != value) {
      throw Failure(Problem{StatusCode::checkpointError,
                            manifest + " was saved with " + field + " " + before.dump() + "; the run has " + value.dump(),
                            field, value.dump(),
                            field.rfind("plan.", 0) == 0
                                ? "continue with the same plan (moving a checkpoint to another plan is not supported), or "
                                  "give another checkpoint directory"
                                : "continue with the same value, or give another checkpoint directory"});
    }
  }
}

void loadShard(Trainer& trainer, const std::string& directory, const Json& manifest) {
  const std::string name = shardNameOf(trainer.config(), trainer.rank());
  const std::string path = directory + "/" + name;
  if (!manifest.contains("files") || !manifest["files"].contains(name)) {
    refuse(path, "is not in the manifest", "remove this checkpoint's directory");
  }
  const Json& file = manifest["files"][name];
  const FileSummary expected{file["bytes"].get<std::int64_t>(),
                             std::stoull(file["xxh3"].get<std::string>(), nullptr, 16)};
  ParameterStore& store = trainer.parameters();
  const Layout& layout = trainer.layout();
  std::vector<SafetensorsTarget> targets;
  for (int u = 0; u < layout.unitCount(); ++u) {
    const std::string& unit = layout.unit(u).name;
    const std::int64_t elements = layout.optimizerShard(u);
    targets.push_back({unit + ":weights", elements, store.weights(u).as<float>()});
    targets.push_back({unit + ":firstMoment", elements, store.firstMoment(u).as<float>()});
    targets.push_back({unit + ":secondMoment", elements, store.secondMoment(u).as<float>()});
  }
  readSafetensors(path, expected, targets);
}

}  // namespace

std::int64_t loadLatestCheckpoint(Trainer& trainer) {
  const CheckpointConfig& c = *trainer.config().checkpoint;
  const Communicator& world = trainer.groups().world;
  std::int64_t step = 0;
  agree(world, trainer.reduceWorkspace(), [&] {
    if (world.index() != 0) return;
    const std::vector<std::int64_t> steps = stepsIn(c.directory);
    if (!steps.empty()) step = steps.back();
  });
  step = trainer.maximum(step);
  if (step == 0) return 0;
  const std::string directory = stepPath(c, step), manifestPath = directory + "/manifest.json";
  agree(world, trainer.reduceWorkspace(), [&] {
    const Json manifest = readManifest(manifestPath);
    if (manifest.value("step", std::int64_t{-1}) != step) refuse(manifestPath, "is of another step", "remove it");
    requireSame(manifest.value("identity", Json::object()), identityOf(trainer), "", manifestPath);
    loadShard(trainer, directory, manifest);
  });
  trainer.parameters().weightsLoaded();
  return step;
}

}  // namespace internevo::trainer
