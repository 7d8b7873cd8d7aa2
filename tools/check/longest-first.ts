import { relative } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/**
 * Test files that run whole jobs, services, browsers or native programs, roughly in the order of how long
 * they take. Vitest begins with the largest files until it has timed a checkout, and some of these are small:
 * one of them would run alone at the end.
 */
export const LONGEST: readonly string[] = [
  "apps/profiler/test/profiler.test.ts",
  "apps/executor-supervisor/test/gpu-job.test.ts",
  "apps/executor-supervisor/test/packed-job.test.ts",
  "apps/executor-supervisor/test/killed-services.test.ts",
  "apps/executor-supervisor/test/preempted-job.test.ts",
  "tools/slurm/test/nodes-lost.test.ts",
  "apps/executor-supervisor/test/whole-job.test.ts",
  "apps/executor-supervisor/test/shared-machine.test.ts",
  "apps/api/test/memory.test.ts",
  "tools/slurm/test/launch.test.ts",
  "apps/cli/test/stack.test.ts",
  "apps/cli/test/cli.test.ts",
  "libs/local-stack/test/stack.test.ts",
  "apps/trial-runner/test/trial-runner.test.ts",
  "libs/launcher/src/mpirun/launch.test.ts",
  "apps/console/test/console.test.ts",
  "tools/slurm/test/whole-job.test.ts",
  "tools/chaos/checkpoints.test.ts",
  "libs/service-kit/test/kill.test.ts",
  "tools/chaos/importers.test.ts",
  "apps/console/test/advice.test.ts",
  "tools/testbed/src/testbed.test.ts",
  "libs/launcher/test/trainer.test.ts",
  "apps/cli/test/profile-kit.test.ts",
  "tools/slurm/test/rest.test.ts",
  "libs/service-kit/test/command.test.ts",
  "tools/slurm/test/not-startable.test.ts",
  "apps/api/test/held-open.test.ts",
  "tools/reference/executor-parity.test.ts",
  "apps/cli/src/main.test.ts",
  "apps/executor-supervisor/test/data-roots.test.ts",
  "apps/api/test/workers.test.ts",
  "libs/launcher/src/machine-lock.test.ts",
];

/** Vitest's own order behind the files that are known to take long. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = (file: TestSpecification): number => {
      const at = LONGEST.indexOf(relative(file.project.config.root, file.moduleId));
      return at < 0 ? LONGEST.length : at;
    };
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
  }
}
