#include <algorithm>
#include <cmath>
#include <filesystem>

#include "checkpoint/hugging_face.h"
#include "checkpoint/tensor_source.h"
#include "checkpoint_tool/commands.h"
#include "trainer/held.h"

namespace internevo::trainer {

namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kPieceElements = std::int64_t{4} << 20;
constexpr std::int64_t kFileElements = std::int64_t{1} << 30;  // of files whose number is not given

using FilePieces = std::vector<std::vector<SavedPiece>>;

void refuseNew(const std::string& output) {
  if (fs::exists(output))
    refuseFile(output, "exists already", "give the path of a directory that does not exist");
}

/// So many files of equal size, each a flat range of all tensors one behind the other.
FilePieces evenPieces(const std::vector<std::pair<std::string, TensorShape>>& tensors, std::int64_t files) {
  std::int64_t total = 0, start = 0;
  for (const auto& [name, shape] : tensors) total += shape.elements();
  const std::int64_t each = (total + files - 1) / files;
  FilePieces result(static_cast<std::size_t>(files));
  for (const auto& [name, shape] : tensors) {
    for (std::int64_t at = 0; at < shape.elements();) {
      const std::int64_t file = (start + at) / each;
      Slice slice = wholeOf(shape);
      slice.begin = at, slice.end = at = std::min(shape.elements(), (file + 1) * each - start);
      result[static_cast<std::size_t>(file)].push_back({name, slice, {}});
    }
    start += shape.elements();
  }
  return result;
}

/// As the ranks of a plan would write them.
FilePieces planPieces(const ModelConfig& model, const PlanConfig& p) {
  const int stageRanks = p.dataParallel * p.sequenceParallel,
            replicas = p.replicaRanks() / (p.parameterSharding * p.optimizerStateSharding);
  FilePieces result;
  for (int rank = 0; rank < p.worldSize(); ++rank) {
    const int place = rank % stageRanks / p.tensorParallel;
    const Layout layout(model, p, {rank / stageRanks, rank % p.tensorParallel});
    result.emplace_back();
    for (const HeldPart& part : savedParts(
             layout, {place % p.parameterSharding, place / p.parameterSharding % p.optimizerStateSharding,
                      place / (p.parameterSharding * p.optimizerStateSharding), replicas})) {
      result.back().push_back({part.tensor, part.slice, {}});
    }
  }
  return result;
}

std::string fileName(std::size_t index) {
  char name[48];
  std::snprintf(name, sizeof name, "shard-%05zu.safetensors", index);
  return name;
}

/// Fills in the offsets, and copies slice by slice. `sources`: one for each of holds.
SavedFile writeFile(const std::string& directory, const std::string& name, std::vector<SavedPiece> pieces,
                    const Manifest& m, const std::vector<TensorSource>& sources, const DiskMargin& leaveFree,
                    ProgressReport* progress) {
  const std::map<std::string, TensorShape> shapes(m.tensors.begin(), m.tensors.end());
  SafetensorsHeader header;
  header.metadata = {{"format", "internevo-shard"}, {"step", std::to_string(m.step)}};
  std::int64_t bytes = 0;
  for (const std::string& holds : m.holds) {
    for (const SavedPiece& piece : pieces) {
      header.tensors.push_back({entryName(piece.tensor, holds), ElementType::float32,
                                entryShape(shapes.at(piece.tensor), piece.slice), 0});
      bytes += header.tensors.back().bytes();
    }
  }
  const std::string text = layoutSafetensors(&header);
  FileWriter file(directory + "/" + name, static_cast<std::int64_t>(text.size()) + bytes, leaveFree);
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  std::vector<float> values(static_cast<std::size_t>(kPieceElements));
  for (std::size_t holds = 0; holds < m.holds.size(); ++holds) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      pieces[i].offsets.push_back(header.tensors[holds * pieces.size() + i].offset);
      Slice part = pieces[i].slice;
      for (std::int64_t at = part.begin; at < pieces[i].slice.end; at = part.end) {
        part.begin = at, part.end = std::min(pieces[i].slice.end, at + kPieceElements);
        readSlices(sources[holds], {{pieces[i].tensor, part, values.data()}});
        file.write(values.data(), 4 * part.elements());
        progress->add(4 * part.elements());
      }
    }
  }
  return {name, file.finish(), std::move(pieces)};
}

OrderedJson writeCheckpoint(Manifest m, const FilePieces& files, const std::vector<TensorSource>& sources,
                            const std::string& output, const DiskMargin& leaveFree) {
  const std::string temporary = output + ".tmp";
  std::error_code ignored;
  fs::remove_all(temporary, ignored);
  const std::int64_t needed = m.parameters() * 4 * static_cast<std::int64_t>(m.holds.size());
  requireRoom(output, needed, leaveFree);
  createDirectories(temporary);
  ProgressReport progress(needed);
  m.files.clear();
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!files[i].empty())
      m.files.push_back(writeFile(temporary, fileName(i), files[i], m, sources, leaveFree, &progress));
  }
  if (const std::string problem = coverageProblem(m); !problem.empty()) {
    throw Failure(StatusCode::internal, "the new files do not make the model: " + problem);
  }
  writeTextFile(temporary + "/" + kManifestName, manifestText(m));
  syncDirectory(temporary);
  publishDirectory(temporary, output);
  return {{"path", output},
          {"step", m.step},
          {"fileCount", m.files.size()},
          {"bytes", m.bytes()},
          {"parameters", m.parameters()}};
}

/// What a copy is made from must be sound: its files are verified first.
Manifest verifiedManifest(const std::string& path) {
  Manifest m = readManifest(path);
  if (const std::string problem = coverageProblem(m); !problem.empty()) {
    refuseFile(path + "/" + kManifestName, "is of no whole model: " + problem, "give another checkpoint");
  }
  for (const SavedFile& file : m.files) verifyFile(path + "/" + file.name, file.summary);
  return m;
}

ModelConfig modelIn(const Manifest& m, const std::string& path) {
  try {
    return parseModel(m.identity.at("model").dump());
  } catch (const std::exception&) {
    refuseFile(path + "/" + kManifestName, "describes no model");
  }
}

std::int64_t fileCountFor(const Manifest& m) { return (m.parameters() + kFileElements - 1) / kFileElements; }

}  // namespace

OrderedJson reshardCommand(const std::string& path, const std::string& output,
                           const ReshardOptions& options) {
  refuseNew(output);
  const std::string from = checkpointAt(path);
  Manifest m = verifiedManifest(from);
  FilePieces pieces;
  if (options.planPath.empty()) {
    pieces = evenPieces(m.tensors, options.files.value_or(fileCountFor(m)));
  } else {
    Config config;
    config.model = modelIn(m, from);
    config.plan = parsePlan(readTextFile(options.planPath));
    config.sequenceLengthTokens = m.identity.value("sequenceLengthTokens", std::int64_t{1});
    validateFactors(config);
    pieces = planPieces(config.model, config.plan);
    m.plan = nlohmann::json::parse(planJson(config.plan));
  }
  std::vector<TensorSource> sources;
  for (const std::string& holds : m.holds) sources.push_back(sourceOf(m, from, holds));
  OrderedJson result = writeCheckpoint(m, pieces, sources, output, options.leaveFree);
  result["from"] = from;
  return result;
}

OrderedJson exportCommand(const std::string& path, const std::string& output, const ExportOptions& options) {
  refuseNew(output);
  const std::string from = checkpointAt(path);
  const Manifest m = verifiedManifest(from);
  const ModelConfig model = modelIn(m, from);
  ExportSettings settings;
  settings.type = options.bf16 ? ElementType::bfloat16 : ElementType::float32;
  settings.largestFileBytes = options.largestFileBytes;
  settings.leaveFree = options.leaveFree;
  settings.maximumPositions = m.identity.value("sequenceLengthTokens", std::int64_t{2048});
  ProgressReport progress(m.parameters() * bytesOf(settings.type));
  const std::int64_t bytes = exportHuggingFace(sourceOf(m, from, kWeight), model, settings, output,
                                               [&](std::int64_t done) { progress.add(done); });
  return {{"path", output},
          {"from", from},
          {"step", m.step},
          {"precision", options.bf16 ? "bf16" : "fp32"},
          {"parameters", m.parameters()},
          {"bytes", bytes}};
}

OrderedJson importCommand(const std::string& path, const std::string& output,
                          std::optional<std::int64_t> files, const DiskMargin& leaveFree) {
  refuseNew(output);
  const ModelConfig model = huggingFaceFolder(path).model;
  Manifest m;
  m.identity = {{"model", nlohmann::json::parse(modelJson(model))}};
  m.precision = "fp32";
  m.holds = {kWeight};
  m.tensors = logicalTensors(model);
  OrderedJson result = writeCheckpoint(m, evenPieces(m.tensors, files.value_or(fileCountFor(m))),
                                       {openHuggingFace(path, model)}, output, leaveFree);
  result["from"] = path;
  return result;
}

}  // namespace internevo::trainer
