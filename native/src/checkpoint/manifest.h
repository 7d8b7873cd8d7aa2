// The manifest of a checkpoint: what was saved, under which plan, and where every slice of every logical tensor lies.
// README.md has the format. Errors are Failure checkpointError and name the file.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/slices.h"

namespace internevo::trainer {

/// What an entry holds of its tensor; the names in files.
constexpr const char* kWeight = "weight";
constexpr const char* kFirstMoment = "firstMoment";
constexpr const char* kSecondMoment = "secondMoment";

/// A slice of a logical tensor in a file: one entry "<tensor>.<what it holds>" for each of Manifest::holds.
struct SavedPiece {
  std::string tensor;
  Slice slice;
  std::vector<std::int64_t>
      offsets;  ///< byte in the file of each entry's data, in the order of Manifest::holds
};

struct SavedFile {
  std::string name;
  FileSummary summary;
  std::vector<SavedPiece> pieces;
};

struct Manifest {
  std::int64_t step = 0;          ///< optimizer steps done
  std::int64_t dataPosition = 0;  ///< sequences drawn
  nlohmann::json identity;        ///< what must be equal for a run to go on: model, data, seed, …
  nlohmann::json plan;            ///< under which it was saved; null when no run saved it
  std::string precision;          ///< of that run's parameters; what is saved is float32
  std::vector<std::string> holds;
  std::vector<std::pair<std::string, TensorShape>> tensors;  ///< in the model's order
  std::vector<SavedFile> files;

  std::int64_t bytes() const;       ///< of all files but the manifest
  std::int64_t parameters() const;  ///< elements of all tensors
};

constexpr const char* kManifestName = "manifest.json";

/// {"checksum": of the text of "content", "content": …}, so that any changed byte shows.
std::string manifestText(const Manifest& manifest);
Manifest readManifest(const std::string& directory);

/// The part of the manifest that one file gives: what its writer leaves beside it for whoever writes the manifest.
std::string fileRecordText(const SavedFile& file);
SavedFile readFileRecord(const std::string& path, const std::string& name);

/// The first tensor whose slices do not cover it exactly once, and why; empty when there is none.
std::string coverageProblem(const Manifest& manifest);

/// Name of an entry of a file.
std::string entryName(const std::string& tensor, const std::string& holds);
/// Shape of an entry: that of the tensor, of whole rows of it, or flat.
std::vector<std::int64_t> entryShape(const TensorShape& tensor, const Slice& slice);

// ---- directories ---------------------------------------------------------------------------------------------------

/// DIRECTORY/step-<N>, and the name under which it is made.
std::string stepPath(const std::string& directory, std::int64_t step);
std::string temporaryPath(const std::string& directory, std::int64_t step);
/// Steps of the complete checkpoints in a directory, ascending; none when it does not exist.
std::vector<std::int64_t> stepsIn(const std::string& directory);
/// Removes what an interrupted run left half made or half removed.
void removeLeftovers(const std::string& directory);
/// A file in the directory of checkpoints, where whoever owns the run writes up to which step it has counted the steps.
inline constexpr const char* kCountedName = "counted-step";
/// Removes all but the `keep` newest checkpoints up to `step`, and the newest that is not beyond the counted step, or else the oldest:
/// an owner that has fallen behind, and then dies, goes on from there. One that a run of another history made later is kept.
/// A checkpoint changes its name before it is removed: half of one is never found.
void removeOlder(const std::string& directory, std::int64_t step, std::int64_t keep);

}  // namespace internevo::trainer
