#include "trainer/run.h"

#include <numeric>
#include <optional>

#include "trainer/checkpoint.h"
#include "trainer/events.h"
#include "trainer/trainer.h"

namespace internevo::trainer {

namespace {

/// Values that the ranks compare at the end of a step.
struct StepReport {
  bool terminate = false;
  std::int64_t peakMemoryBytes = 0, residentPeakBytes = 0, checkpointWord = 0;
};

StepReport compare(Trainer& trainer, bool terminate, std::int64_t checkpointWord) {
  std::int64_t words[4] = {terminate ? 1 : 0, trainer.peakMemoryBytes(), residentPeakBytes(), checkpointWord};
  require(trainer.groups().world.allReduce({words, DataType::int64}, 4, ReduceOperation::maximum,
                                           trainer.reduceWorkspace()));
  return {words[0] != 0, words[1], words[2], words[3]};
}

/// The checkpoints of a run, as it makes them: begun when due, put in place while it goes on.
class Checkpoints {
 public:
  Checkpoints(Trainer& trainer, const CheckpointConfig& config) : trainer_(trainer), config_(config), writer_(trainer) {}

  std::int64_t word() const { return writer_.word(); }
  bool due(std::int64_t step) const { return step % config_.everySteps == 0; }

  void advance(std::int64_t largestWord) {
    if (writer_.advance(largestWord)) settle(config_.stopOnFailure);
  }
  /// Waits for the former one, and for this one too when it is the run's last or is not staged.
  void save(std::int64_t step, bool last) {
    finish(config_.stopOnFailure);
    writer_.begin(step);
    if (last || trainer_.checkpointStaging().empty()) finish(last || config_.stopOnFailure);
  }
  void finish(bool stopOnFailure) {
    if (writer_.finish()) settle(stopOnFailure);
  }

 private:
  /// Tells how a checkpoint ended. Errors: its AgreedFailure when the run stops for it.
  void settle(bool stopOnFailure) {
    const CheckpointWriter::Outcome outcome = writer_.take();
    if (!outcome.failure) {
      if (trainer_.rank() == 0) emitCheckpoint(outcome.result);
    } else if (stopOnFailure) {
      throw AgreedFailure(*outcome.failure);
    } else if (outcome.failure->reporter()) {
      emitError(outcome.failure->problem(), trainer_.rank(), true);
    }
  }

  Trainer& trainer_;
  const CheckpointConfig config_;
  CheckpointWriter writer_;
};

struct Progress {
  std::int64_t done = 0;
  double loss = 0;
  bool terminated = false;
};

void trainSteps(Trainer& trainer, Checkpoints* checkpoints, const std::atomic<bool>& terminate, Progress* progress) {
  const Config& config = trainer.config();
  bool dumped = false;
  while (progress->done < config.steps && !progress->terminated) {
    const StepResult result = trainer.step(progress->done + 1);
    progress->done = result.step, progress->loss = result.loss;
    if (config.gradientDumpPath && !dumped) trainer.dumpGradients(*config.gradientDumpPath, result.loss), dumped = true;
    const StepReport report = compare(trainer, terminate.load(), checkpoints != nullptr ? checkpoints->word() : 0);
    if (trainer.rank() == 0) emitStep(result, report.peakMemoryBytes, report.residentPeakBytes);
    const bool last = progress->done >= config.steps;
    progress->terminated = report.terminate && !last;
    if (checkpoints == nullptr) continue;
    checkpoints->advance(report.checkpointWord);
    if (last || report.terminate || checkpoints->due(progress->done)) {
      checkpoints->save(progress->done, last || report.terminate);
    }
  }
}

/// Weights to begin with. Returns the step that they are of.
std::int64_t prepareWeights(Trainer& trainer) {
  const Config& config = trainer.config();
  if (config.checkpoint) prepareCheckpointDirectory(trainer);
  if (config.checkpoint && config.checkpoint->resumeLatest) {
    if (const std::int64_t step = loadLatestCheckpoint(trainer); step > 0) return step;
  }
  if (config.initialWeightsPath) {
    loadInitialWeights(trainer, *config.initialWeightsPath);
  } else {
    trainer.initializeWeights();
  }
  return 0;
}

}  // namespace

RunEnd run(const Config& config, int rank, const std::vector<std::string>& hosts, const std::atomic<bool>& terminate) {
  std::vector<int> ranks(static_cast<std::size_t>(config.mesh.worldSize));
  std::iota(ranks.begin(), ranks.end(), 0);
  Trainer trainer(config, rank, ranks);
  Progress progress;
  progress.done = prepareWeights(trainer);
  std::optional<Checkpoints> checkpoints;
  if (config.checkpoint) checkpoints.emplace(trainer, *config.checkpoint);
  if (rank == 0) emitStarted(trainer, hosts, progress.done);
  try {
    trainSteps(trainer, checkpoints ? &*checkpoints : nullptr, terminate, &progress);
  } catch (const AgreedFailure&) {
    if (checkpoints) checkpoints->finish(false);  // all ranks came here: what is being written can still be put in place
    throw;
  }
  if (rank == 0) emitDone(progress.done, progress.loss, progress.terminated ? "terminated" : "completed");
  return progress.terminated ? RunEnd::terminated : RunEnd::completed;
}

void dryRun(const Config& config) {
  const auto backend = createCpuBackend(config.threadsPerRank);
  StagePlans plans = planStages(config, *backend);
  TokenFile data;
  data.open(config.dataPath, config.model.vocabularySize, config.sequenceLengthTokens);
  const std::int64_t runtime = residentBytes();
  addCheckpointStaging(config, runtime, &plans);
  requireFits(config, plans.largest(), runtime);
  emitPlan(config, plans, runtime);
}

}  // namespace internevo::trainer
