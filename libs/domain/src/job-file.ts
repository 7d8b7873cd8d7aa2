import { ANY_HELD_OUT_DATA, plainPaths } from "./data.ts";
import { headroomFault } from "./headroom.ts";
import {
  DEFAULT_TRIAL_REPEATS,
  JobSpecSchema,
  REPLANNING_DEFAULTS,
  type Cluster,
  type JobSpec,
} from "./job.ts";
import { resolveCluster } from "./job-file/cluster.ts";
import { resolveLengths } from "./job-file/lengths.ts";
import { resolveModel } from "./job-file/model.ts";
import { tooManyPaths } from "./job-file/paths.ts";
import { checkAlsoTried, resolvePlan } from "./job-file/plan-limits.ts";
import { JobFileSchema, type JobFile } from "./job-file/schema.ts";
import {
  checkData,
  checkReplanning,
  checkWatchdog,
  resolveCheckpointing,
  resolveOptimizer,
  resolveTimeline,
  resolveValidation,
} from "./job-file/training.ts";
import { formatCounted } from "./figures.ts";
import { ProblemError, type ProblemDetail } from "./problem.ts";
import { formatBytes } from "./units.ts";
import { MOST_DETAILS, validate } from "./validate.ts";
import { modelWords } from "./words.ts";

export { tooManyPaths } from "./job-file/paths.ts";
export { JobFileSchema, type JobFile } from "./job-file/schema.ts";

const DEFAULT_STEPS = 100;

/**
 * What is wrong by the schema, and with it what makes no sense in the fields that are well-formed, so that
 * both are told at once.
 */
function withSenseOf(written: unknown, faults: ProblemError): ProblemError {
  if (
    typeof written !== "object" ||
    written === null ||
    Array.isArray(written) ||
    faults.details.length >= MOST_DETAILS
  )
    return faults;
  const faulty = new Set(faults.details.map(({ field }) => field.split(/[.[]/, 1)[0]));
  const job = written as Record<string, unknown>;
  const known = (...fields: (keyof JobFile)[]): boolean =>
    fields.every((field) => !faulty.has(field) && Object.hasOwn(job, field) && job[field] !== undefined);
  const file = written as JobFile;
  const details: ProblemDetail[] = [];
  const model = known("model") ? resolveModel(file.model, details) : undefined;
  if (known("cluster")) resolveCluster(file.cluster, details);
  const lengths = known("sequenceLengthTokens", "globalBatchTokens")
    ? resolveLengths(file, details)
    : undefined;
  if (known("data") && file.data) checkData(file.data, model, details);
  const stepsKnown = !faulty.has("steps");
  if (known("optimizer") && stepsKnown)
    resolveOptimizer(file.optimizer, file.steps ?? DEFAULT_STEPS, details);
  if (known("validation") && stepsKnown)
    resolveValidation(
      file.validation,
      known("data") ? file.data : undefined,
      file.steps ?? DEFAULT_STEPS,
      details,
    );
  if (known("timeline") && stepsKnown) resolveTimeline(file.timeline, file.steps ?? DEFAULT_STEPS, details);
  if (known("watchdog")) checkWatchdog(file.watchdog, details);
  if (known("headroom", "cluster")) checkHeadroom(file, resolveCluster(file.cluster, []), details);
  if (known("replanning", "cluster")) checkReplanning(file, file.cluster, details);
  if (known("plan", "cluster")) resolvePlan(file, lengths, model, details);
  if (known("trials", "cluster")) checkAlsoTried(file, undefined, lengths, model, details);
  return details.length === 0
    ? faults
    : new ProblemError(faults.code, faults.message, [...faults.details, ...details].slice(0, MOST_DETAILS), {
        cause: faults,
      });
}

/** Nothing is said of a headroom where the memory of a GPU is not known. */
function checkHeadroom(
  { headroom }: Pick<JobFile, "headroom">,
  { memoryPerGpuBytes }: Pick<Cluster, "memoryPerGpuBytes">,
  details: ProblemDetail[],
): void {
  const fault = headroom === undefined ? undefined : headroomFault(headroom, memoryPerGpuBytes);
  if (fault !== undefined && memoryPerGpuBytes > 0) details.push(fault);
}

/** A headroom that is a number is read as its text, so that it is refused as a headroom without a unit is. */
function withTextHeadroom(written: unknown): unknown {
  if (typeof written !== "object" || written === null) return written;
  const { headroom } = written as { readonly headroom?: unknown };
  return typeof headroom === "number" ? { ...written, headroom: String(headroom) } : written;
}

const notValid = (details: readonly ProblemDetail[]): ProblemError =>
  new ProblemError(
    "job-invalid",
    `the job is not valid: ${details[0]?.field}: ${details[0]?.message}`,
    details,
  );

/**
 * Resolves a job as written: named models, units, defaults, and every check that needs no cluster.
 * @param written a parsed YAML or JSON document, not trusted.
 * @throws ProblemError `job-invalid`, with one detail a fault.
 */
export function resolveJob(written: unknown): JobSpec {
  let file: JobFile;
  // Before any path is looked at: what is too many is told alone.
  const tooMany = tooManyPaths(written);
  if (tooMany !== undefined) throw notValid([tooMany]);
  const job = withTextHeadroom(written);
  try {
    file = validate(JobFileSchema, job, "job-invalid", "the job");
  } catch (error) {
    throw error instanceof ProblemError ? withSenseOf(job, error) : error;
  }
  const details: ProblemDetail[] = [];
  const model = resolveModel(file.model, details);
  const cluster = resolveCluster(file.cluster, details);
  const lengths = resolveLengths(file, details);
  const plainPath = plainPaths();
  if (file.data) checkData(file.data, model, details, plainPath);
  const steps = file.steps ?? DEFAULT_STEPS;
  const optimizer = resolveOptimizer(file.optimizer, steps, details);
  const validation = resolveValidation(file.validation, file.data, steps, details, plainPath);
  const timeline = resolveTimeline(file.timeline, steps, details);
  checkWatchdog(file.watchdog, details);
  checkReplanning(file, cluster, details);
  const plan = resolvePlan(file, lengths, model, details);
  checkAlsoTried(file, plan, lengths, model, details);
  checkHeadroom(file, cluster, details);
  if (details.length > 0 || model === undefined || lengths === undefined) throw notValid(details);
  const spec: JobSpec = {
    name: file.name,
    model,
    ...lengths,
    precision: file.precision ?? "bf16",
    optimizer,
    data: file.data ?? null,
    steps,
    seed: file.seed ?? 0,
    cluster,
    ...(validation === undefined ? {} : { validation }),
    checkpointing: resolveCheckpointing(file.checkpointing, steps),
    trials: { count: 10, warmupSteps: 2, steps: 5, repeats: DEFAULT_TRIAL_REPEATS, ...file.trials },
    ...(file.initialWeights === undefined ? {} : { initialWeights: file.initialWeights }),
    ...(timeline === undefined ? {} : { timeline }),
    ...(file.watchdog === undefined ? {} : { watchdog: file.watchdog }),
    ...(file.headroom === undefined ? {} : { headroom: file.headroom }),
    memoryModel: file.memoryModel ?? "executor",
    // As without it where it says what is so without it.
    ...(file.timeModel === undefined || file.timeModel === "executor" ? {} : { timeModel: file.timeModel }),
    ...(file.measureAgain === undefined ? {} : { measureAgain: file.measureAgain }),
    ...(file.until === undefined ? {} : { until: file.until }),
    ...(plan === undefined ? {} : { plan }),
    ...(file.project === undefined ? {} : { project: file.project }),
    // As without it where it says what is so without it.
    ...(file.priority === undefined || file.priority === "normal" ? {} : { priority: file.priority }),
    ...(file.preemptible === true ? { preemptible: true } : {}),
    ...(file.replanning === undefined ? {} : { replanning: { ...REPLANNING_DEFAULTS, ...file.replanning } }),
    ...(file.tracking === false ? { tracking: false } : {}),
    ...(file.labels === undefined ? {} : { labels: file.labels }),
  };
  // Data is as it was written, and was looked at with the file.
  const inShort = {
    ...spec,
    data: null,
    ...(validation === undefined ? {} : { validation: { ...validation, data: ANY_HELD_OUT_DATA } }),
  };
  validate(JobSpecSchema, inShort, "job-invalid", "the job");
  return spec;
}

/** One line about a job, for people. */
export const describeJob = (spec: JobSpec): string =>
  `${modelWords(spec.model)} at ${formatCounted(spec.sequenceLengthTokens, "token")}, ${formatCounted(spec.globalBatchTokens, "token")} a step, ` +
  `${spec.cluster.nodes} × ${spec.cluster.gpusPerNode} ranks of ${formatBytes(spec.cluster.memoryPerGpuBytes)}, ${spec.precision}`;
