import { ProblemError, type JobFile } from "@internevo/domain";
import { planOfJob, type PlanOfJob } from "@internevo/plan";
import { expressDeepSpeed, writeDeepSpeed } from "./deepspeed.ts";
import { importDeepSpeed } from "./deepspeed-import.ts";
import {
  FRAMEWORK_VERSIONS,
  inexpressibleFields,
  normalPlan,
  type ExportedConfiguration,
  type ExportedJob,
  type Expression,
  type Framework,
  type FrameworkFile,
  type ImportedConfiguration,
  type Launch,
} from "./framework.ts";
import { assertForm } from "./form.ts";
import { expressInternEvo, writeInternEvo } from "./internevo.ts";
import { importInternEvo } from "./internevo-import.ts";
import { expressMegatron, writeMegatron } from "./megatron.ts";
import { importMegatron } from "./megatron-import.ts";
import { expressTorchtitan, writeTorchtitan } from "./torchtitan.ts";
import { importTorchtitan } from "./torchtitan-import.ts";

interface Dialect {
  readonly express: (plan: PlanOfJob, job: ExportedJob) => Expression;
  readonly write: (job: ExportedJob, plan: PlanOfJob) => FrameworkFile[];
  readonly read: (files: readonly FrameworkFile[], asked: Launch | null) => ImportedConfiguration;
}

const DIALECTS: Readonly<Record<Framework, Dialect>> = {
  internevo: { express: expressInternEvo, write: writeInternEvo, read: importInternEvo },
  megatron: { express: expressMegatron, write: writeMegatron, read: importMegatron },
  deepspeed: { express: expressDeepSpeed, write: writeDeepSpeed, read: importDeepSpeed },
  torchtitan: { express: expressTorchtitan, write: writeTorchtitan, read: importTorchtitan },
};

/**
 * A plan as working configuration of another framework: the plan itself, or the nearest that it can say, with
 * every field named that it cannot.
 * @throws ProblemError `plan-invalid` when nothing near can be said.
 */
export function exportConfiguration(
  framework: Framework,
  job: ExportedJob,
  plan: PlanOfJob,
): ExportedConfiguration {
  const { express, write } = DIALECTS[framework];
  const asked = normalPlan(plan, job.model);
  const expression = express(planOfJob(asked, job), job);
  // What is written must be a plan of the job too: its batch and its ranks are what the files start.
  const expressed = planOfJob(normalPlan(expression.plan, job.model), job);
  return {
    framework,
    version: FRAMEWORK_VERSIONS[framework],
    files: write(job, expressed),
    plan: expressed,
    inexpressible: inexpressibleFields(asked, { ...expression, plan: expressed }),
  };
}

/**
 * Reads a configuration of another framework as model, workload and plan.
 * @param files the configuration, then files that it names.
 * @param launch the ranks; null: as the configuration says.
 * @throws ProblemError `bad-request`: options that are unknown, contradict one another or stand for no plan,
 * each with a remedy.
 */
export function importConfiguration(
  framework: Framework,
  files: readonly [FrameworkFile, ...FrameworkFile[]],
  launch: Launch | null = null,
): ImportedConfiguration {
  const [{ name, text }] = files;
  if (text.trim() === "")
    throw new ProblemError("bad-request", `${name} is empty`, [
      { field: "file", value: name, message: "is empty", remedy: "give a configuration" },
    ]);
  assertForm(framework, files[0]);
  return withWarmupOfJob(DIALECTS[framework].read(files, launch));
}

/** Steps of a job whose configuration says none. */
const UNSAID_STEPS = 100;

const WARMUP_OPTIONS: Readonly<Record<Framework, string>> = {
  internevo: "lr_scheduler.warmup_ratio",
  megatron: "--lr-warmup-iters",
  deepspeed: "--lr-warmup-iters",
  torchtitan: "lr_scheduler.warmup_steps",
};

/** A schedule may be written for another number of steps than the run's; a job's warm-up ends with it. */
function withWarmupOfJob(imported: ImportedConfiguration): ImportedConfiguration {
  const { framework, optimizer, steps = UNSAID_STEPS, takenAs } = imported;
  const { warmupSteps = 0, decaySteps = steps } = optimizer;
  const most = Math.min(steps, decaySteps);
  if (warmupSteps <= most) return imported;
  const end = steps <= decaySteps ? `its ${steps} steps` : `its decay of ${decaySteps} steps`;
  const as = `${most} steps: a job's warm-up ends with ${end}`;
  return {
    ...imported,
    optimizer: { ...optimizer, warmupSteps: most },
    takenAs: [...takenAs, { option: WARMUP_OPTIONS[framework], value: warmupSteps, as }],
  };
}

/** An imported configuration as a job on a cluster. */
export function importedJob(
  imported: ImportedConfiguration,
  name: string,
  memoryPerGpu: string | number,
  profile?: string,
): JobFile {
  const { model, sequenceLengthTokens, globalBatchTokens, precision, optimizer, steps, seed, launch } =
    imported;
  return {
    name,
    model: { ...model },
    sequenceLengthTokens,
    globalBatchTokens,
    precision,
    optimizer: { ...optimizer },
    steps: steps ?? UNSAID_STEPS,
    ...(seed === undefined ? {} : { seed }),
    cluster: { ...launch, memoryPerGpu, ...(profile === undefined ? {} : { profile }) },
  };
}
