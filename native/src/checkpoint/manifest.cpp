#include "checkpoint/manifest.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kVersion = 2;

Json shapeJson(const TensorShape& s) { return s.rows == 1 ? Json{s.columns} : Json{s.rows, s.columns}; }

TensorShape shapeOf(const Json& json) {
  if (json.size() == 1) return {1, json.at(0).get<std::int64_t>()};
  return {json.at(0).get<std::int64_t>(), json.at(1).get<std::int64_t>()};
}

Json pieceJson(const SavedPiece& piece) {
  const Rectangle& r = piece.slice.rectangle;
  return {{"tensor", piece.tensor},
          {"rectangle", {r.row, r.column, r.rows, r.columns}},
          {"range", {piece.slice.begin, piece.slice.end}},
          {"offsets", piece.offsets}};
}

SavedPiece pieceOf(const Json& json) {
  const auto r = json.at("rectangle").get<std::vector<std::int64_t>>();
  const auto range = json.at("range").get<std::vector<std::int64_t>>();
  SavedPiece piece;
  piece.tensor = json.at("tensor").get<std::string>();
  piece.slice = {{r.at(0), r.at(1), r.at(2), r.at(3)}, range.at(0), range.at(1)};
  piece.offsets = json.at("offsets").get<std::vector<std::int64_t>>();
  return piece;
}

Json fileJson(const SavedFile& file) {
  Json pieces = Json::array();
  for (const SavedPiece& piece : file.pieces) pieces.push_back(pieceJson(piece));
  return {{"name", file.name},
          {"bytes", file.summary.bytes},
          {"xxh3", hexOf(file.summary.checksum)},
          {"pieces", pieces}};
}

SavedFile fileOf(const Json& json, const std::string& path) {
  SavedFile file;
  file.name = json.at("name").get<std::string>();
  // A manifest names files of its own directory only.
  if (file.name.empty() || file.name.find('/') != std::string::npos)
    refuseFile(path, "is damaged: it names a file elsewhere");
  file.summary = {json.at("bytes").get<std::int64_t>(),
                  checksumOfHex(json.at("xxh3").get<std::string>(), path)};
  for (const Json& piece : json.at("pieces")) file.pieces.push_back(pieceOf(piece));
  return file;
}

Json contentOf(const Manifest& m) {
  Json tensors = Json::array(), files = Json::array();
  for (const auto& [name, shape] : m.tensors)
    tensors.push_back({{"name", name}, {"shape", shapeJson(shape)}});
  for (const SavedFile& file : m.files) files.push_back(fileJson(file));
  return {{"format", "internevo-checkpoint"},
          {"version", kVersion},
          {"step", m.step},
          {"dataPosition", m.dataPosition},
          {"identity", m.identity},
          {"plan", m.plan},
          {"precision", m.precision},
          {"holds", m.holds},
          {"tensors", tensors},
          {"files", files}};
}

std::string documentText(const Json& content) {
  return Json{{"checksum", hexOf(checksumOf(content.dump()))}, {"content", content}}.dump() + "\n";
}

/// What a sound document can still get wrong: entries outside their file, tensors that are not there.
void checkPieces(const Manifest& m, const std::string& path) {
  const std::map<std::string, TensorShape> shapes(m.tensors.begin(), m.tensors.end());
  for (const SavedFile& file : m.files) {
    for (const SavedPiece& piece : file.pieces) {
      const auto shape = shapes.find(piece.tensor);
      bool sound = shape != shapes.end() && piece.offsets.size() == m.holds.size() &&
                   piece.slice.rectangle.columns > 0 && piece.slice.begin >= 0 &&
                   piece.slice.begin < piece.slice.end && piece.slice.end <= shape->second.elements();
      for (const std::int64_t offset : piece.offsets) {
        sound = sound && offset >= 0 && offset <= file.summary.bytes - 4 * piece.slice.elements();
      }
      if (!sound)
        refuseFile(path, "is damaged: " + file.name + " cannot hold " + piece.tensor + " as it says");
    }
  }
}

/// The step of a checkpoint's directory name; -1 for other names.
std::int64_t stepOfName(const std::string& name) {
  const std::string digits = name.rfind("step-", 0) == 0 ? name.substr(5) : "";
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos)
    return -1;
  return std::stoll(digits);
}

/// step-<N>.tmp and step-<N>.removed.tmp.
bool isLeftover(const std::string& name) {
  for (const std::string ending : {".removed.tmp", ".tmp"}) {
    if (name.size() > ending.size() &&
        name.compare(name.size() - ending.size(), ending.size(), ending) == 0 &&
        stepOfName(name.substr(0, name.size() - ending.size())) >= 0) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> namesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    refuseFile(directory, "cannot be read: " + error.message(), "give a readable directory");
  }
  return names;
}

}  // namespace

std::int64_t Manifest::bytes() const {
  std::int64_t sum = 0;
  for (const SavedFile& file : files) sum += file.summary.bytes;
  return sum;
}

std::int64_t Manifest::parameters() const {
  std::int64_t sum = 0;
  for (const auto& [name, shape] : tensors) sum += shape.elements();
  return sum;
}

std::string manifestText(const Manifest& manifest) { return documentText(contentOf(manifest)); }

Manifest readManifest(const std::string& directory) {
  const std::string path = directory + "/" + kManifestName;
  const std::string text = readTextFile(path);
  const Json document = Json::parse(text, nullptr, false);
  if (!document.is_object() || !document.contains("content") || !document["content"].is_object() ||
      documentText(document["content"]) != text) {
    refuseFile(path, "is damaged");
  }
  const Json& content = document["content"];
  if (content.value("format", Json()) != "internevo-checkpoint") refuseFile(path, "is of another format");
  if (content.value("version", Json()) != kVersion) {
    refuseFile(path,
               "is of version " + content.value("version", Json()).dump() + "; version " +
                   std::to_string(kVersion) + " is read",
               "begin in another checkpoint directory");
  }
  try {
    Manifest m;
    m.step = content.at("step").get<std::int64_t>();
    m.dataPosition = content.at("dataPosition").get<std::int64_t>();
    m.identity = content.at("identity");
    m.plan = content.at("plan");
    m.precision = content.at("precision").get<std::string>();
    m.holds = content.at("holds").get<std::vector<std::string>>();
    for (const Json& tensor : content.at("tensors")) {
      m.tensors.emplace_back(tensor.at("name").get<std::string>(), shapeOf(tensor.at("shape")));
    }
    for (const Json& file : content.at("files")) m.files.push_back(fileOf(file, path));
    checkPieces(m, path);
    return m;
  } catch (const Json::exception&) {
    refuseFile(path, "is damaged: a member is missing or of another type");
  } catch (const std::out_of_range&) {
    refuseFile(path, "is damaged: a list is too short");
  }
}

std::string fileRecordText(const SavedFile& file) { return fileJson(file).dump(); }

SavedFile readFileRecord(const std::string& path, const std::string& name) {
  const Json document = Json::parse(readTextFile(path), nullptr, false);
  try {
    SavedFile file = fileOf(document, path);
    if (file.name == name) return file;
  } catch (const std::exception&) {
  }
  refuseFile(path, "is damaged");
}

std::string coverageProblem(const Manifest& m) {
  std::map<std::string, std::vector<Slice>> slices;
  for (const SavedFile& file : m.files) {
    for (const SavedPiece& piece : file.pieces) slices[piece.tensor].push_back(piece.slice);
  }
  for (const auto& [name, shape] : m.tensors) {
    const std::string problem = coverageProblem(shape, slices[name]);
    if (!problem.empty()) return name + ": " + problem;
  }
  return "";
}

std::string entryName(const std::string& tensor, const std::string& holds) { return tensor + "." + holds; }

std::vector<std::int64_t> entryShape(const TensorShape& tensor, const Slice& slice) {
  const std::int64_t columns = slice.rectangle.columns;
  if (tensor.rows == 1 || slice.begin % columns != 0 || slice.end % columns != 0) return {slice.elements()};
  return {slice.elements() / columns, columns};
}

// ---- directories ---------------------------------------------------------------------------------------------------

std::string stepPath(const std::string& directory, std::int64_t step) {
  return directory + "/step-" + std::to_string(step);
}

std::string temporaryPath(const std::string& directory, std::int64_t step) {
  return stepPath(directory, step) + ".tmp";
}

std::vector<std::int64_t> stepsIn(const std::string& directory) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : namesIn(directory)) {
    if (const std::int64_t step = stepOfName(name); step >= 0) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void removeLeftovers(const std::string& directory) {
  for (const std::string& name : namesIn(directory)) {
    if (!isLeftover(name)) continue;
    std::error_code error;
    fs::remove_all(directory + "/" + name, error);
    if (error)
      refuseFile(directory + "/" + name, "cannot be removed: " + error.message(), "make it removable");
  }
}

namespace {

/// What the owner of the run has written there; none where it is missing or no number.
std::optional<std::int64_t> countedStep(const std::string& directory) {
  std::ifstream file(directory + "/" + kCountedName);
  std::int64_t step = 0;
  return file >> step ? std::optional(step) : std::nullopt;
}

/// What of ascending steps the owner would go on from, or could as soon as it has counted on; 0 where there is no owner.
std::int64_t keptForTheOwner(const std::string& directory, const std::vector<std::int64_t>& steps) {
  const std::optional<std::int64_t> counted = countedStep(directory);
  if (!counted || steps.empty()) return 0;
  const auto beyond = std::upper_bound(steps.begin(), steps.end(), *counted);
  return beyond == steps.begin() ? steps.front() : *(beyond - 1);
}

}  // namespace

void removeOlder(const std::string& directory, std::int64_t step, std::int64_t keep) {
  std::vector<std::int64_t> steps = stepsIn(directory);
  steps.erase(std::upper_bound(steps.begin(), steps.end(), step), steps.end());
  const std::int64_t kept = keptForTheOwner(directory, steps);
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < steps.size(); ++i) {
    if (steps[i] == kept) continue;
    const std::string path = stepPath(directory, steps[i]), doomed = path + ".removed.tmp";
    std::error_code error;
    fs::remove_all(doomed, error);
    if (!error) fs::rename(path, doomed, error);
    if (!error) fs::remove_all(doomed, error);
    if (error) refuseFile(path, "cannot be removed: " + error.message(), "make it removable");
  }
}

}  // namespace internevo::trainer
