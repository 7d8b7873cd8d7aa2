import { relative } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/**
 * Test files that run whole jobs, services, browsers or native programs, roughly in the order of how long
 * they take. Vitest begins with the largest files until it has timed a checkout, and some of these are small:
 * one of them would run alone at the end.
 */
export const LONGEST: readonly string[] = [
  "apps/profiler/test/frozen-ranks.test.ts",
  "apps/profiler/test/profiler.test.ts",
  "apps/executor-supervisor/test/preempted-job.test.ts",
  "apps/executor-supervisor/test/packed-job.test.ts",
  "apps/executor-supervisor/test/whole-job.test.ts",
  "apps/executor-supervisor/test/gpu-job.test.ts",
  "apps/cli/test/cli.test.ts",
  "apps/executor-supervisor/test/shared-machine.test.ts",
  "apps/executor-supervisor/test/held-job.test.ts",
  "tools/reference/executor-parity.test.ts",
  "apps/api/test/advice.test.ts",
  "apps/cli/test/stack.test.ts",
  "tools/slurm/test/whole-job.test.ts",
  "apps/console/test/console.test.ts",
  "tools/reference/reference.test.ts",
  "libs/local-stack/test/stack.test.ts",
  "tools/chaos/checkpoints.test.ts",
  "tools/slurm/test/launch.test.ts",
  "apps/api/test/memory.test.ts",
  "libs/launcher/test/trainer.test.ts",
  "apps/console/test/advice.test.ts",
  "libs/launcher/src/mpirun/launch.test.ts",
  "apps/trial-runner/test/trial-runner.test.ts",
  "apps/console/test/access.test.ts",
  "apps/console/test/asked.test.ts",
  "apps/cli/test/profile-kit.test.ts",
  "libs/stages/test/search-thread.test.ts",
  "tools/testbed/src/testbed.test.ts",
  "apps/api/test/workers.test.ts",
  "apps/api/test/left-work.test.ts",
  "apps/api/test/held-open.test.ts",
  "libs/service-kit/test/kill.test.ts",
  "libs/store/src/answer-watch.test.ts",
  "tools/chaos/importers.test.ts",
  "apps/cli/test/project.test.ts",
  "apps/cli/test/webhook.test.ts",
  "apps/replanner/test/webhooks.test.ts",
  "apps/replanner/test/retention.test.ts",
  "apps/executor-supervisor/test/drift.test.ts",
  "apps/executor-supervisor/test/clusters-file.test.ts",
  "libs/trackers/test/tensorboard.test.ts",
  "apps/replanner/test/metrics.test.ts",
  "apps/replanner/test/shared-places.test.ts",
  "libs/search/test/search.test.ts",
  "apps/cli/test/login.test.ts",
  "libs/launcher/src/machine-lock.test.ts",
  "apps/cli/test/main.test.ts",
  "tools/slurm/test/rest.test.ts",
  "tools/chaos/routes.test.ts",
  "apps/cli/src/commands/advice.test.ts",
  "apps/executor-supervisor/test/data-roots.test.ts",
  "apps/api/test/rights.test.ts",
  "apps/api/test/routes.test.ts",
  "apps/console/test/submit.test.ts",
  "apps/console/test/compare.test.ts",
  "apps/cli/test/clone.test.ts",
  "apps/cli/test/compare.test.ts",
  "tools/slurm/test/not-startable.test.ts",
];

/**
 * Vitest's own order behind the files that are known to take long. Files that share their modules come one after the
 * other: a worker keeps the modules only until it gets a file of another project.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = (file: TestSpecification): number => {
      const at = LONGEST.indexOf(relative(file.project.config.root, file.moduleId));
      return at < 0 ? LONGEST.length : at;
    };
    const group = ({ project: { name, config } }: TestSpecification): string => (config.isolate ? "" : name);
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b) || group(a).localeCompare(group(b)));
  }
}
