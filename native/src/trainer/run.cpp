#include "trainer/run.h"

#include <memory>
#include <numeric>

#include "trainer/checkpoint.h"
#include "trainer/events.h"
#include "trainer/run_watch.h"
#include "trainer/timeline.h"
#include "trainer/trainer.h"

namespace internevo::trainer {

namespace {

/// Values that the ranks compare at the end of a step.
struct StepReport {
  bool terminate = false;
  std::int64_t peakMemoryBytes = 0, residentPeakBytes = 0;
};

StepReport compare(Trainer& trainer, bool terminate) {
  std::int64_t words[3] = {terminate ? 1 : 0, trainer.peakMemoryBytes(), residentPeakBytes()};
  require(trainer.groups().world.allReduce({words, DataType::int64}, 3, ReduceOperation::maximum,
                                           trainer.reduceWorkspace()));
  return {words[0] != 0, words[1], words[2]};
}

bool checkpointDue(const Config& c, std::int64_t step, bool last) {
  return c.checkpoint && (last || step % c.checkpoint->everySteps == 0);
}

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
    if (config_.timeline && !written_ && step >= config_.timeline->firstStep) activity_.record(true), begun_ = true;
  }
  void afterStep(std::int64_t step, bool last) {
    if (!begun_ || written_) return;
    if (!last && step + 1 < config_.timeline->firstStep + config_.timeline->steps) return;
    activity_.record(false);
    written_ = true;
    writeTimeline(MPI_COMM_WORLD, activity_, clockOffset_, watch_.identity(rank_), config_.timeline->path);
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

RunEnd train(const Run& r, Trainer& trainer) {
  const Config& config = r.config;
  const bool first = r.rank == 0;
  std::int64_t done = 0;
  if (config.checkpoint && config.checkpoint->resumeLatest) {
    const Activity::Scope scope(r.activity, ActivityLane::compute, "checkpoint loading");
    done = loadLatestCheckpoint(trainer);
  }
  if (done == 0) trainer.initializeWeights();
  if (first) emitStarted(trainer, r.hosts, done);

  StepResult result;
  bool dumped = false;
  TimelineRecorder timeline(config, r.activity, r.watch, r.rank);
  while (done < config.steps) {
    timeline.beforeStep(done + 1);
    result = trainer.step(done + 1);
    done = result.step;
    if (config.gradientDumpPath && !dumped) trainer.dumpGradients(*config.gradientDumpPath, result.loss), dumped = true;
    const StepReport report = compare(trainer, r.terminate.load());
    if (first) emitStep(result, report.peakMemoryBytes, report.residentPeakBytes);
    const bool last = done >= config.steps;
    timeline.afterStep(done, last || report.terminate);
    if (checkpointDue(config, done, last || report.terminate)) {
      const Activity::Scope scope(r.activity, ActivityLane::compute, "checkpoint saving");
      const CheckpointResult saved = saveCheckpoint(trainer, done);
      if (first) emitCheckpoint(done, saved);
    }
    if (report.terminate && !last) {
      if (first) emitDone(done, result.loss, "terminated");
      return RunEnd::terminated;
    }
  }
  if (first) emitDone(done, result.loss, "completed");
  return RunEnd::completed;
}

}  // namespace

RunEnd run(const Config& config, int rank, const std::vector<std::string>& hosts, const std::atomic<bool>& terminate,
           const Abandon& abandon) {
  std::vector<int> ranks(static_cast<std::size_t>(config.mesh.worldSize));
  std::iota(ranks.begin(), ranks.end(), 0);
  Activity activity(config.timeline ? config.timeline->capacityEvents : 0);
  RunWatch watch(config, rank, activity, abandon);
  // Outlives the handlers: its end would wait for a lane that waits for ranks which are gone.
  std::unique_ptr<Trainer> trainer;
  try {
    trainer = std::make_unique<Trainer>(config, rank, ranks, &activity);
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

void dryRun(const Config& config, bool memoryMap) {
  const auto backend = createCpuBackend(config.threadsPerRank);
  const StagePlans plans = planStages(config, *backend);
  TokenFile data;
  data.open(config.dataPath, config.model.vocabularySize, config.sequenceLengthTokens);
  const std::int64_t runtime = residentBytes();
  requireFits(config, plans.largest(), runtime);
  emitPlan(config, plans, runtime, memoryMap);
}

}  // namespace internevo::trainer
