// A whole run: from the last checkpoint, or from the seed, to the asked number of steps.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/run_watch.h"

namespace internevo::trainer {

enum class RunEnd { completed, terminated };

/// Trains and emits events. Collective over MPI_COMM_WORLD, whose size must be the plan's.
/// `terminate` becomes true when the run shall end after the step in progress (SIGTERM).
/// Errors: AgreedFailure; Failure badConfig, planUnsupported.
/// Errors that only this rank knows of, and lost ranks, end the job through `abandon`.
RunEnd run(const Config& config, int rank, const std::vector<std::string>& hosts,
           const std::atomic<bool>& terminate, const Abandon& abandon);

/// Checks everything that can be checked without ranks (data header included) and emits what the fullest rank would
/// need, and a rank of every stage.
/// Errors: Failure badConfig, planUnsupported, dataError, outOfMemory.
struct DryRunOptions {
  bool memoryMap = false;             ///< the event has every piece of a rank's arena too,
  std::optional<std::int64_t> stage;  ///< of a rank of this stage, or of the fullest
  bool withData = true;               ///< false: data is not opened; no byte of the plan depends on it
};
void dryRun(const Config& config, const DryRunOptions& options);

}  // namespace internevo::trainer
