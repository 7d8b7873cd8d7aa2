// Checkpoints: DIRECTORY/step-<N>/ with one safetensors shard for each distinct optimizer shard and manifest.json, which
// is written last. A directory appears under its final name only when everything in it is on disk.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/trainer.h"

namespace internevo::trainer {

struct CheckpointResult {
  std::string path;
  std::int64_t bytes = 0;  ///< of all files
  double seconds = 0;
};

/// Saves weights (float32), moments, data position and seed after `step` steps, then removes all but the last keepLast
/// checkpoints. Collective. Errors: AgreedFailure checkpointError naming the file.
CheckpointResult saveCheckpoint(Trainer& trainer, std::int64_t step);

/// Loads the latest checkpoint and returns its step; 0 when the directory holds none. Collective.
/// Errors: AgreedFailure checkpointError: a damaged file (named; an older checkpoint is not taken instead), or one of
/// another model, plan, precision, sequence length, seed or data (the first difference is named).
std::int64_t loadLatestCheckpoint(Trainer& trainer);

}  // namespace internevo::trainer
