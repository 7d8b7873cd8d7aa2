#include <filesystem>
#include <map>

#include "checkpoint/hugging_face.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint_tool/commands.h"

namespace internevo::trainer {

namespace {

namespace fs = std::filesystem;

OrderedJson summaryOf(const Manifest& m, const std::string& path) {
  return {{"path", path},
          {"step", m.step},
          {"dataPosition", m.dataPosition},
          {"parameters", m.parameters()},
          {"bytes", m.bytes()},
          {"fileCount", m.files.size()},
          {"precision", m.precision},
          {"plan", OrderedJson(m.plan)},
          {"holds", m.holds},
          {"identity", OrderedJson(m.identity)}};
}

OrderedJson checkpointDetails(const std::string& path) {
  const Manifest m = readManifest(path);
  std::map<std::string, std::int64_t> pieces;
  OrderedJson files = OrderedJson::array(), tensors = OrderedJson::array();
  for (const SavedFile& file : m.files) {
    std::int64_t elements = 0;
    for (const SavedPiece& piece : file.pieces) elements += piece.slice.elements(), ++pieces[piece.tensor];
    files.push_back({{"name", file.name},
                     {"bytes", file.summary.bytes},
                     {"xxh3", hexOf(file.summary.checksum)},
                     {"slices", file.pieces.size()},
                     {"elements", elements}});
  }
  for (const auto& [name, shape] : m.tensors) {
    const OrderedJson size =
        shape.rows == 1 ? OrderedJson{shape.columns} : OrderedJson{shape.rows, shape.columns};
    tensors.push_back(
        {{"name", name}, {"shape", size}, {"elements", shape.elements()}, {"slices", pieces[name]}});
  }
  OrderedJson result = summaryOf(m, path);
  result["files"] = files, result["tensors"] = tensors;
  return result;
}

OrderedJson problemOf(const std::string& file, const std::string& message) {
  return {{"file", file}, {"message", message}};
}

/// Problems of one file: its bytes, and its entries against the index.
void verifyOne(const Manifest& m, const SavedFile& file, const std::string& directory,
               ProgressReport* progress, OrderedJson* problems) {
  const std::string path = directory + "/" + file.name;
  try {
    verifyFile(path, file.summary);
    const FileReader reader(path);
    std::map<std::string, SafetensorsTensor> entries;
    for (const SafetensorsTensor& tensor : readSafetensorsHeader(reader).tensors)
      entries[tensor.name] = tensor;
    if (entries.size() != file.pieces.size() * m.holds.size()) {
      problems->push_back(problemOf(file.name, "has " + std::to_string(entries.size()) +
                                                   " entries; the index lists " +
                                                   std::to_string(file.pieces.size() * m.holds.size())));
    }
    for (const SavedPiece& piece : file.pieces) {
      for (std::size_t i = 0; i < m.holds.size(); ++i) {
        const auto entry = entries.find(entryName(piece.tensor, m.holds[i]));
        if (entry == entries.end() || entry->second.offset != piece.offsets[i] ||
            entry->second.elements() != piece.slice.elements() ||
            entry->second.type != ElementType::float32) {
          problems->push_back(problemOf(
              file.name, "does not hold " + entryName(piece.tensor, m.holds[i]) + " where the index says"));
        }
      }
    }
  } catch (const Failure& failure) {
    problems->push_back(problemOf(file.name, failure.problem().message));
  }
  progress->add(file.summary.bytes);
}

OrderedJson verifyCheckpoint(const std::string& path, const std::optional<Manifest>& manifest,
                             const std::string& damage, ProgressReport* progress) {
  OrderedJson problems = OrderedJson::array();
  OrderedJson result = {{"path", path}};
  if (!manifest) {
    problems.push_back(problemOf(kManifestName, damage));
  } else {
    result["step"] = manifest->step, result["bytes"] = manifest->bytes(),
    result["fileCount"] = manifest->files.size();
    if (const std::string problem = coverageProblem(*manifest); !problem.empty()) {
      problems.push_back(problemOf(kManifestName, problem));
    }
    for (const SavedFile& file : manifest->files) verifyOne(*manifest, file, path, progress, &problems);
  }
  result["ok"] = problems.empty(), result["problems"] = problems;
  return result;
}

/// The checkpoint at a path, or all of a run's.
std::vector<std::string> checkpointsAt(const std::string& path) {
  if (fs::exists(path + "/" + kManifestName)) return {path};
  checkpointAt(path);  // refuses where there is none
  std::vector<std::string> paths;
  for (const std::int64_t step : stepsIn(path)) paths.push_back(stepPath(path, step));
  return paths;
}

}  // namespace

OrderedJson inspectCommand(const std::string& path) {
  if (fs::exists(path + "/" + kManifestName)) {
    OrderedJson result = {{"kind", "checkpoint"}};
    result.update(checkpointDetails(path));
    return result;
  }
  if (isHuggingFace(path)) {
    const ModelConfig model = huggingFaceFolder(path).model;
    const TensorSource source = openHuggingFace(path, model);
    std::int64_t parameters = 0;
    for (const auto& [name, tensor] : source.tensors) parameters += tensor.shape.elements();
    return {{"kind", "huggingFace"},
            {"path", path},
            {"model", OrderedJson::parse(modelJson(model))},
            {"parameters", parameters},
            {"fileCount", source.paths.size()}};
  }
  OrderedJson list = OrderedJson::array();
  for (const std::string& each : checkpointsAt(path)) {
    try {
      list.push_back(summaryOf(readManifest(each), each));
    } catch (const Failure& failure) {
      list.push_back({{"path", each}, {"problem", failure.problem().message}});
    }
  }
  return {{"kind", "directory"}, {"path", path}, {"checkpoints", list}};
}

OrderedJson verifyCommand(const std::string& path) {
  const std::vector<std::string> paths = checkpointsAt(path);
  std::vector<std::optional<Manifest>> manifests;
  std::vector<std::string> damages;
  std::int64_t bytes = 0;
  for (const std::string& each : paths) {
    damages.emplace_back();
    try {
      manifests.emplace_back(readManifest(each));
      bytes += manifests.back()->bytes();
    } catch (const Failure& failure) {
      manifests.emplace_back(std::nullopt);
      damages.back() = failure.problem().message;
    }
  }
  ProgressReport progress(bytes);
  OrderedJson list = OrderedJson::array();
  bool ok = true;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    list.push_back(verifyCheckpoint(paths[i], manifests[i], damages[i], &progress));
    ok = ok && list.back()["ok"].get<bool>();
  }
  return {{"path", path}, {"ok", ok}, {"checkpoints", list}};
}

}  // namespace internevo::trainer
