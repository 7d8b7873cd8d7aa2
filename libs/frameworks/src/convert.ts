import { ProblemError, type JobFile, type ProblemDetail } from "@internevo/domain";
import { planOfJob, type PlanOfJob } from "@internevo/plan";
import {
  assertDeepSpeed,
  DEEPSPEED_FIELDS,
  DEEPSPEED_NEVER,
  expressDeepSpeed,
  writeDeepSpeed,
} from "./deepspeed.ts";
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
  type NeverSaid,
} from "./framework.ts";
import { assertForm } from "./form.ts";
import {
  assertInternEvo,
  expressInternEvo,
  INTERNEVO_BEHIND_DECAY,
  INTERNEVO_FIELDS,
  INTERNEVO_NEVER,
  writeInternEvo,
} from "./internevo.ts";
import { importInternEvo } from "./internevo-import.ts";
import { unsaidFields, type FieldDecisions } from "./job-fields.ts";
import {
  assertMegatron,
  expressMegatron,
  MEGATRON_FIELDS,
  MEGATRON_NEVER,
  writeMegatron,
} from "./megatron.ts";
import { importMegatron } from "./megatron-import.ts";
import {
  assertTorchtitan,
  expressTorchtitan,
  TORCHTITAN_BEHIND_DECAY,
  TORCHTITAN_FIELDS,
  TORCHTITAN_NEVER,
  writeTorchtitan,
} from "./torchtitan.ts";
import { importTorchtitan } from "./torchtitan-import.ts";

interface Dialect {
  /** Fields that it has no word for: every plan that it says has their defaults. */
  readonly never: NeverSaid;
  /** Refuses what it cannot say of a job, whatever the plan. */
  readonly assertJob: (job: ExportedJob) => void;
  /** What it says of each field of a job. */
  readonly fields: FieldDecisions;
  readonly express: (plan: PlanOfJob, job: ExportedJob) => Expression;
  readonly write: (job: ExportedJob, plan: PlanOfJob) => FrameworkFile[];
  readonly read: (files: readonly FrameworkFile[], asked: Launch | null) => ImportedConfiguration;
}

const DIALECTS: Readonly<Record<Framework, Dialect>> = {
  internevo: {
    never: INTERNEVO_NEVER,
    assertJob: assertInternEvo,
    fields: INTERNEVO_FIELDS,
    express: expressInternEvo,
    write: writeInternEvo,
    read: importInternEvo,
  },
  megatron: {
    never: MEGATRON_NEVER,
    assertJob: assertMegatron,
    fields: MEGATRON_FIELDS,
    express: expressMegatron,
    write: writeMegatron,
    read: importMegatron,
  },
  deepspeed: {
    never: DEEPSPEED_NEVER,
    assertJob: assertDeepSpeed,
    fields: DEEPSPEED_FIELDS,
    express: expressDeepSpeed,
    write: writeDeepSpeed,
    read: importDeepSpeed,
  },
  torchtitan: {
    never: TORCHTITAN_NEVER,
    assertJob: assertTorchtitan,
    fields: TORCHTITAN_FIELDS,
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
  assertJobSaid(framework, job);
  const asked = normalPlan(plan, job.model);
  const { express, fields } = DIALECTS[framework];
  const expression = express(planOfJob(asked, job), job);
  // What is written must be a plan of the job too: its batch and its ranks are what the files start.
  const expressed = planOfJob(normalPlan(expression.plan, job.model), job);
  const inexpressible = [
    ...inexpressibleFields(asked, { ...expression, plan: expressed }),
    ...unsaidFields(fields, job, expressed),
  ];
  return { plan: expressed, inexpressible };
}

/**
 * Refuses what a framework cannot say of a job, whatever the plan.
 * @throws ProblemError `plan-invalid` with the fields of the job
 */
export function assertJobSaid(framework: Framework, job: ExportedJob): void {
  DIALECTS[framework].assertJob(job);
}

/** Fields of a plan that a framework has no word for, each with what it does instead. */
export const fieldsNeverWritten = (framework: Framework): NeverSaid => DIALECTS[framework].never;

const PLAN_PREFIX = "plan.";

/** Whether a field of an export is one of the plan's. */
export const isOfPlan = (field: string): boolean => field.startsWith(PLAN_PREFIX);

/** Whether every field of the plan was written as it is. */
export const isExact = (written: Pick<ExportedConfiguration, "inexpressible">): boolean =>
  !written.inexpressible.some(({ field }) => isOfPlan(field));

/** What a framework does not say of a plan as it is. */
export interface NotWritten {
  /** Fields of the plan that it says otherwise, or not exactly; null where it says nothing near. */
  readonly fields: readonly string[] | null;
  /** In its words; without a remedy where it says something near. */
  readonly reasons: readonly Omit<ProblemDetail, "remedy">[];
}

/** What of a plan a framework does not say as it is. */
export function notWritten(framework: Framework, job: ExportedJob, plan: PlanOfJob): NotWritten {
  try {
    const { inexpressible } = expressedPlan(framework, job, plan);
    const ofPlan = inexpressible.filter(({ field }) => isOfPlan(field));
    return {
      fields: ofPlan.map(({ field }) => field.slice(PLAN_PREFIX.length)),
      reasons: ofPlan.map(({ field, value, reason }) => ({ field, value, message: reason })),
    };
  } catch (error) {
    if (error instanceof ProblemError && error.code === "plan-invalid")
      return { fields: null, reasons: error.details };
    throw error;
  }
}

/** Whether a framework can say every field of a plan. */
export const isWrittenExactly = (framework: Framework, job: ExportedJob, plan: PlanOfJob): boolean =>
  notWritten(framework, job, plan).fields?.length === 0;

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
  return withDecayOfJob(withAnnealingOfJob(withWarmupOfJob(DIALECTS[framework].read(files, launch))));
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

const ANNEALING_OPTIONS: Readonly<Record<Framework, string>> = {
  internevo: "lr_scheduler",
  megatron: "--lr-wsd-decay-iters",
  deepspeed: "--lr-wsd-decay-iters",
  torchtitan: "lr_scheduler.decay_ratio",
};

/** A job's wsd has a step at least in which it falls, and none of them is in its warm-up. */
function withAnnealingOfJob(imported: ImportedConfiguration): ImportedConfiguration {
  const { framework, steps = UNSAID_STEPS, takenAs } = imported;
  const { annealingSteps, schedule, ...rest } = imported.optimizer;
  if (schedule !== "wsd" || annealingSteps === undefined) return imported;
  const { warmupSteps = 0, decaySteps = steps } = rest;
  const room = decaySteps - warmupSteps;
  const kept = Math.min(Math.max(annealingSteps, 1), room);
  if (kept === annealingSteps) return imported;
  const as =
    room < 1
      ? "none: the decay ends with the warm-up"
      : `${kept} steps: a job's wsd falls over a step at least, behind its warm-up`;
  return {
    ...imported,
    optimizer: room < 1 ? rest : { ...rest, schedule, annealingSteps: kept },
    takenAs: [...takenAs, { option: ANNEALING_OPTIONS[framework], value: annealingSteps, as }],
  };
}

/** What programs do that do not stay at the least rate behind their schedule, as a job does. */
const BEHIND_DECAY: Readonly<Partial<Record<Framework, string>>> = {
  internevo: INTERNEVO_BEHIND_DECAY,
  torchtitan: TORCHTITAN_BEHIND_DECAY,
};

/** Says that a job stays at the least rate where its program does not. */
function withDecayOfJob(imported: ImportedConfiguration): ImportedConfiguration {
  const { framework, optimizer, steps = UNSAID_STEPS, takenAs } = imported;
  const { decaySteps = steps } = optimizer;
  const behind = BEHIND_DECAY[framework];
  if (behind === undefined || decaySteps >= steps) return imported;
  const as = `${decaySteps} steps of decay, then the least rate; in ${framework} ${behind}`;
  return {
    ...imported,
    takenAs: [...takenAs, { option: "lr_scheduler.total_steps", value: decaySteps, as }],
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
  const { data, validation, checkpointing, initialWeights } = imported;
  return {
    name,
    model: { ...model },
    sequenceLengthTokens,
    globalBatchTokens,
    precision,
    optimizer: { ...optimizer },
    steps: steps ?? UNSAID_STEPS,
    ...(seed === undefined ? {} : { seed }),
    ...(data === undefined ? {} : { data }),
    ...(validation === undefined ? {} : { validation }),
    ...(checkpointing === undefined ? {} : { checkpointing }),
    ...(initialWeights === undefined ? {} : { initialWeights }),
    // All of the frameworks train on GPUs.
    cluster: { ...launch, device: "cuda", memoryPerGpu, ...(profile === undefined ? {} : { profile }) },
  };
}
