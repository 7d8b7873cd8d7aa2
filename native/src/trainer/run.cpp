#include "trainer/run.h"

#include <numeric>

#include "trainer/checkpoint.h"
#include "trainer/events.h"
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

}  // namespace

RunEnd run(const Config& config, int rank, const std::vector<std::string>& hosts, const std::atomic<bool>& terminate) {
  std::vector<int> ranks(static_cast<std::size_t>(config.mesh.worldSize));
  std::iota(ranks.begin(), ranks.end(), 0);
  Trainer trainer(config, rank, ranks);
  const bool first = rank == 0;
  std::int64_t done = 0;
  if (config.checkpoint && config.checkpoint->resumeLatest) done = loadLatestCheckpoint(trainer);
  if (done == 0) trainer.initializeWeights();
  if (first) emitStarted(trainer, hosts, done);

  StepResult result;
  bool dumped = false;
  while (done < config.steps) {
    result = trainer.step(done + 1);
    done = result.step;
    if (config.gradientDumpPath && !dumped) trainer.dumpGradients(*config.gradientDumpPath, result.loss), dumped = true;
    const StepReport report = compare(trainer, terminate.load());
    if (first) emitStep(result, report.peakMemoryBytes, report.residentPeakBytes);
    const bool last = done >= config.steps;
    if (checkpointDue(config, done, last || report.terminate)) {
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

void dryRun(const Config& config) {
  const Layout layout(config.model, config.plan);
  const auto backend = createCpuBackend(config.threadsPerRank);
  const MemoryPlan plan = planMemory(config, layout, *backend);
  TokenFile data;
  data.open(config.data, config.model.vocabularySize, config.sequenceLengthTokens);
  const std::int64_t runtime = residentBytes();
  requireFits(config, plan, runtime);
  emitPlan(config, layout, plan, runtime);
}

}  // namespace internevo::trainer
