import { ProblemError, type JobFile, type PlanExtension } from "@internevo/domain";
import { planOfJob, type PlanOfJob } from "@internevo/plan";
import { DEEPSPEED_NEVER, expressDeepSpeed, writeDeepSpeed } from "./deepspeed.ts";
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
import { expressInternEvo, INTERNEVO_NEVER, writeInternEvo } from "./internevo.ts";
import { importInternEvo } from "./internevo-import.ts";
import { expressMegatron, MEGATRON_NEVER, writeMegatron } from "./megatron.ts";
import { importMegatron } from "./megatron-import.ts";
import { expressTorchtitan, TORCHTITAN_NEVER, writeTorchtitan } from "./torchtitan.ts";
import { importTorchtitan } from "./torchtitan-import.ts";

interface Dialect {
  /** Fields that it has no word for: every plan that it says has their defaults. */
  readonly never: readonly PlanExtension[];
  readonly express: (plan: PlanOfJob, job: ExportedJob) => Expression;
  readonly write: (job: ExportedJob, plan: PlanOfJob) => FrameworkFile[];
  readonly read: (files: readonly FrameworkFile[], asked: Launch | null) => ImportedConfiguration;
}

const DIALECTS: Readonly<Record<Framework, Dialect>> = {
  internevo: {
    never: INTERNEVO_NEVER,
    express: expressInternEvo,
    write: writeInternEvo,
    read: importInternEvo,
  },
  megatron: { never: MEGATRON_NEVER, express: expressMegatron, write: writeMegatron, read: importMegatron },
  deepspeed: {
    never: DEEPSPEED_NEVER,
    express: expressDeepSpeed,
    write: writeDeepSpeed,
    read: importDeepSpeed,
  },
  torchtitan: {
    never: TORCHTITAN_NEVER,
    express: expressTorchtitan,
    write: writeTorchtitan,
    read: importTorchtitan,
  },
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
  const { plan: expressed, inexpressible } = expressedPlan(framework, job, plan);
  return {
    framework,
    version: FRAMEWORK_VERSIONS[framework],
    files: DIALECTS[framework].write(job, expressed),
    plan: expressed,
    inexpressible,
  };
}

/** @throws ProblemError `plan-invalid` when nothing near can be said. */
function expressedPlan(
  framework: Framework,
  job: ExportedJob,
  plan: PlanOfJob,
): Pick<ExportedConfiguration, "plan" | "inexpressible"> {
  const asked = normalPlan(plan, job.model);
  const expression = DIALECTS[framework].express(planOfJob(asked, job), job);
  // What is written must be a plan of the job too: its batch and its ranks are what the files start.
  const expressed = planOfJob(normalPlan(expression.plan, job.model), job);
  return { plan: expressed, inexpressible: inexpressibleFields(asked, { ...expression, plan: expressed }) };
}

/** Fields of a plan that a framework has no word for. */
export const fieldsNeverWritten = (framework: Framework): readonly PlanExtension[] =>
  DIALECTS[framework].never;

const PLAN_PREFIX = "plan.";

/** Whether every field of the plan was written as it is. */
export const isExact = (written: Pick<ExportedConfiguration, "inexpressible">): boolean =>
  otherFields(written).length === 0;

/** Fields of the plan that were written otherwise, or not exactly. */
const otherFields = ({ inexpressible }: Pick<ExportedConfiguration, "inexpressible">): string[] =>
  inexpressible.flatMap(({ field }) =>
    field.startsWith(PLAN_PREFIX) ? [field.slice(PLAN_PREFIX.length)] : [],
  );

/** Fields of a plan that a framework says otherwise, or null where it says nothing near. */
export function fieldsNotWritten(
  framework: Framework,
  job: ExportedJob,
  plan: PlanOfJob,
): readonly string[] | null {
  try {
    return otherFields(expressedPlan(framework, job, plan));
  } catch (error) {
    if (error instanceof ProblemError && error.code === "plan-invalid") return null;
    throw error;
  }
}

/** Whether a framework can say every field of a plan. */
export const isWrittenExactly = (framework: Framework, job: ExportedJob, plan: PlanOfJob): boolean =>
  fieldsNotWritten(framework, job, plan)?.length === 0;

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
