// The commands of internevo-checkpoint. Each returns its result; errors are Failure badConfig or checkpointError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/disk_room.h"
#include "checkpoint_tool/report.h"

namespace internevo::trainer {

/// One checkpoint in full, or the list of those in a run's directory, or the model of a Hugging Face folder.
OrderedJson inspectCommand(const std::string& path);

/// Every checksum, every entry against the index, and that the slices cover every tensor exactly once; of one
/// checkpoint, or of all in a directory. "ok" tells; every problem is listed.
OrderedJson verifyCommand(const std::string& path);

struct ReshardOptions {
  std::string planPath;               ///< JSON of a plan: files as its ranks would write them
  std::optional<std::int64_t> files;  ///< else: so many files of equal size
  DiskMargin leaveFree;
};
/// Writes a checkpoint once more, cut as asked, to a directory that does not exist yet.
OrderedJson reshardCommand(const std::string& path, const std::string& output, const ReshardOptions& options);

struct ExportOptions {
  bool bf16 = false;
  std::int64_t largestFileBytes = std::int64_t{5} << 30;
  DiskMargin leaveFree;
};
/// Writes the weights of a checkpoint as a Hugging Face folder.
OrderedJson exportCommand(const std::string& path, const std::string& output, const ExportOptions& options);

/// Writes the weights of a Hugging Face folder as a checkpoint without moments, to begin with (initialWeights).
OrderedJson importCommand(const std::string& path, const std::string& output,
                          std::optional<std::int64_t> files, const DiskMargin& leaveFree = {});

}  // namespace internevo::trainer
