#include "trainer/run.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include "internevo/device_library.h"
#include "internevo/host_use.h"
#include "trainer/agreement.h"
#include "trainer/checkpoint.h"
#include "trainer/events.h"
#include "trainer/products.h"
#include "trainer/run_watch.h"
#include "trainer/timeline.h"
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
  Checkpoints(Trainer& trainer, const CheckpointConfig& config)
      : trainer_(trainer), config_(config), writer_(trainer) {}

  std::int64_t word() const { return writer_.word(); }
  bool due(std::int64_t step) const { return step % config_.everySteps == 0; }

  void advance(std::int64_t largestWord) {
    if (writer_.advance(largestWord)) settle(config_.stopOnFailure);
  }
  /// Waits for the former one, and for this one too when it is the run's last or is not staged.
  void save(std::int64_t step, bool last) {
    finish(config_.stopOnFailure);
    writer_.begin(step), begun_ = step;
    if (last || trainer_.checkpointStaging().empty()) finish(last || config_.stopOnFailure);
  }
  void finish(bool stopOnFailure) {
    if (writer_.finish()) settle(stopOnFailure);
  }
  /// Leaves one of the step at which the run ends, whether or not it was due.
  void saveLast(std::int64_t step) {
    if (begun_ == step)
      finish(true);
    else
      save(step, true);
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
  std::int64_t begun_ = -1;  ///< the step of the newest
};

/// Records the timeline of the asked steps and writes it when they, or the run, are over.
class TimelineRecorder {
 public:
  TimelineRecorder(const Config& config, Activity& activity, const RunWatch& watch, int rank)
      : config_(config), activity_(activity), watch_(watch), rank_(rank) {
    if (!config_.timeline) return;
    const bool sameHost = watch.identity(rank).host == watch.identity(0).host;
    clockOffset_ = clockOffsetNanoseconds(MPI_COMM_WORLD, sameHost);
  }
  void beforeStep(std::int64_t step) {
    if (config_.timeline && !written_ && step >= config_.timeline->firstStep)
      activity_.record(true), begun_ = true;
  }
  void afterStep(std::int64_t step, bool last, Trainer& trainer) {
    if (!begun_ || written_) return;
    if (!last && step + 1 < config_.timeline->firstStep + config_.timeline->steps) return;
    trainer.parameters().settle();
    activity_.record(false);
    trainer.settleActivity();
    written_ = true;
    try {
      writeTimeline(MPI_COMM_WORLD, activity_, clockOffset_, watch_.identity(rank_), config_.timeline->path,
                    config_.leaveFree);
    } catch (const Failure& failure) {
      if (failure.problem().code != StatusCode::checkpointError) throw;
      emitError(failure.problem(), rank_, true);  // training is worth more than its timeline
    }
  }

 private:
  const Config& config_;
  Activity& activity_;
  const RunWatch& watch_;
  const int rank_;
  std::int64_t clockOffset_ = 0;
  bool begun_ = false, written_ = false;
};

struct Run {
  const Config& config;
  const int rank;
  const std::vector<std::string>& hosts;
  const std::atomic<bool>& terminate;
  Activity& activity;
  RunWatch& watch;
};

struct Progress {
  std::int64_t done = 0;
  double loss = 0;
  bool terminated = false;
};

/// Evaluates where training stands, if that is due. False: the run shall end, and nothing was evaluated.
bool evaluateIfDue(const Run& r, Trainer& trainer, std::int64_t step) {
  if (!evaluatesAt(r.config, step)) return true;
  // Every batch is a sign of life: whoever waits for the next step need not wait for all of them.
  const std::optional<Evaluation> evaluation = trainer.evaluate(r.terminate, [&](std::int64_t batch) {
    if (r.rank == 0) emitEvaluating(step, batch, r.config.validation->batches);
  });
  if (evaluation && r.rank == 0) emitValidation(step, *evaluation);
  return evaluation.has_value();
}

void trainSteps(const Run& r, Trainer& trainer, Checkpoints* checkpoints, Progress* progress) {
  const Config& config = r.config;
  progress->terminated = !evaluateIfDue(r, trainer, progress->done);
  bool dumped = false;
  const auto taken = [&] { return trainer.memory().occupancy().takenBytes; };
  std::optional<std::int64_t> takenBefore;  // of a device that several ranks communicate from
  if (communicatorBytes(config) > 0) takenBefore = taken();
  TimelineRecorder timeline(config, r.activity, r.watch, r.rank);
  while (progress->done < config.steps && !progress->terminated) {
    timeline.beforeStep(progress->done + 1);
    const StepResult result = trainer.step(progress->done + 1);
    progress->done = result.step, progress->loss = result.loss;
    if (config.gradientDumpPath && !dumped)
      trainer.dumpGradients(*config.gradientDumpPath, result.loss), dumped = true;
    const StepReport report =
        compare(trainer, r.terminate.load(), checkpoints != nullptr ? checkpoints->word() : 0);
    if (r.rank == 0) emitStep(result, report.peakMemoryBytes, report.residentPeakBytes);
    if (takenBefore) {
      const std::int64_t most = trainer.maximum(taken() - *takenBefore);
      if (r.rank == 0) emitCommunicators(communicatorBytes(config), std::max<std::int64_t>(most, 0));
      takenBefore.reset();
    }
    const bool last = progress->done >= config.steps;
    progress->terminated = report.terminate && !last;
    timeline.afterStep(progress->done, last || report.terminate, trainer);
    if (checkpoints != nullptr) {
      const Activity::Scope scope(r.activity, ActivityLane::compute, "checkpoint saving");
      checkpoints->advance(report.checkpointWord);
      if (last || report.terminate || checkpoints->due(progress->done)) {
        checkpoints->save(progress->done, last || report.terminate);
      }
    }
    if (progress->terminated || evaluateIfDue(r, trainer, progress->done)) continue;
    progress->terminated = true;
    if (checkpoints != nullptr) checkpoints->saveLast(progress->done);
  }
  trainer.parameters().settle();
}

/// Weights to begin with. Returns the step that they are of.
std::int64_t prepareWeights(Trainer& trainer) {
  const Config& config = trainer.config();
  if (config.checkpoint) {
    prepareCheckpointDirectory(trainer);
    agree(trainer.groups().world, trainer.reduceWorkspace(), [&] {
      if (trainer.rank() == 0) recordProducts(config, trainer.products());
    });
  }
  if (config.checkpoint && config.checkpoint->resumeLatest) {
    if (const std::int64_t step = loadLatestCheckpoint(trainer); step > 0) {
      removeReplacedCheckpoints(trainer, step);
      return step;
    }
  }
  if (config.initialWeightsPath) {
    loadInitialWeights(trainer, *config.initialWeightsPath);
  } else {
    trainer.initializeWeights();
  }
  return 0;
}

RunEnd train(const Run& r, Trainer& trainer) {
  Progress progress;
  {
    const Activity::Scope scope(r.activity, ActivityLane::compute, "checkpoint loading");
    progress.done = prepareWeights(trainer);
  }
  std::optional<Checkpoints> checkpoints;
  if (r.config.checkpoint) checkpoints.emplace(trainer, *r.config.checkpoint);
  if (r.rank == 0) emitStarted(trainer, r.hosts, progress.done), emitProducts(trainer.products());
  const HostUseMeter meter;
  try {
    trainSteps(r, trainer, checkpoints ? &*checkpoints : nullptr, &progress);
  } catch (const AgreedFailure&) {
    if (checkpoints)
      checkpoints->finish(false);  // all ranks came here: what is being written can still be put in place
    throw;
  } catch (...) {
    trainer.abandon();  // the writing thread would wait for a copy behind what waits for ranks that are gone
    throw;
  }
  const std::vector<HostUse> hosts = meter.end();
  if (r.rank == 0) emitHosts(hosts);
  if (r.rank == 0) emitDone(progress.done, progress.loss, progress.terminated ? "terminated" : "completed");
  return progress.terminated ? RunEnd::terminated : RunEnd::completed;
}

}  // namespace

RunEnd run(const Config& config, int rank, const std::vector<std::string>& hosts,
           const std::atomic<bool>& terminate, const Abandon& abandon) {
  std::vector<int> ranks(static_cast<std::size_t>(config.mesh.worldSize));
  std::iota(ranks.begin(), ranks.end(), 0);
  Activity activity(config.timeline ? config.timeline->capacityEvents : 0);
  RunWatch watch(config, rank, activity, abandon);
  // Outlives the handlers: its end would wait for a lane that waits for ranks which are gone.
  std::unique_ptr<Trainer> trainer;
  try {
    trainer = std::make_unique<Trainer>(config, rank, ranks, &activity);
    watch.beforeTheEnd([&trainer] { trainer->abandon(); });
    const RunEnd end = train({config, rank, hosts, terminate, activity, watch}, *trainer);
    watch.end();
    return end;
  } catch (const AgreedFailure&) {
    watch.end();
    throw;
  } catch (const Failure& failure) {
    watch.fail(failure.problem());
  } catch (const std::exception& error) {
    watch.fail({StatusCode::internal, error.what(), "", "", ""});
  }
}

void dryRun(const Config& config, const DryRunOptions& options) {
  if (options.stage && *options.stage >= config.plan.pipelineParallel) {
    const std::string stage = std::to_string(*options.stage);
    throw Failure(Problem{StatusCode::badConfig, "--stage " + stage + " is not one of the plan's stages",
                          "--stage", stage,
                          "give a number from 0 to " + std::to_string(config.plan.pipelineParallel - 1)});
  }
  const auto cpu = createCpuBackend(config.threadsPerRank);
  const bool onDevice = config.device != DeviceKind::cpu;
  StagePlans plans = planStages(config, onDevice ? cudaBackendSizes() : *cpu);
  if (options.withData) {
    TrainingData data;
    data.open(config.data, config.model.vocabularySize, config.sequenceLengthTokens);
    TokenFile validation;
    openValidationData(config, &validation);
  }
  const std::int64_t runtime = residentBytes();
  if (!onDevice) addCheckpointStaging(config, runtime, &plans);
  requireFits(config, plans.largest(), runtime);
  emitPlan(config, plans, runtime,
           options.memoryMap ? std::optional(static_cast<int>(options.stage.value_or(plans.fullest)))
                             : std::nullopt);
}

}  // namespace internevo::trainer
