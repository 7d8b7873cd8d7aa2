import type { TSchema } from "typebox";
import { ANY_HELD_OUT_DATA } from "./data.ts";
import { JobFileSchema, resolveJob, type JobFile } from "./job-file.ts";
import type { JobSpec } from "./job.ts";
import { writtenJob } from "./written-job.ts";

/** Fields whose defaults follow from others; `keepLast`, so that a block of defaults alone goes as a whole. */
const FOLLOWING: readonly (readonly [string, string])[] = [
  ["model", "kvHeads"],
  ["model", "ffnHiddenSize"],
  ["optimizer", "minLearningRate"],
  ["optimizer", "annealingSteps"],
  ["optimizer", "warmupSteps"],
  ["optimizer", "decaySteps"],
  ["checkpointing", "everySteps"],
  ["checkpointing", "keepLast"],
  ["validation", "everySteps"],
  ["timeline", "firstStep"],
  ["cluster", "name"],
];

function without(job: JobFile, [field, inner]: readonly [string, string]): JobFile {
  const { [field]: value, ...others } = job as Record<string, unknown>;
  if (typeof value !== "object" || value === null) return job;
  const { [inner]: _, ...rest } = value as Record<string, unknown>;
  if (Object.keys(rest).length === 0) return others as JobFile;
  // In its place, so that the file reads in its usual order.
  return { ...job, [field]: rest };
}

const pathName = (path: readonly [string, string]): string => path.join(".");

function states(file: JobFile, [field, inner]: readonly [string, string]): boolean {
  const value = (file as Readonly<Record<string, unknown>>)[field];
  if (typeof value !== "object" || value === null) return false;
  return (value as Readonly<Record<string, unknown>>)[inner] !== undefined;
}

/**
 * The fields that a job file states itself, of those whose defaults follow from others: `optimizer.warmupSteps`.
 * A resolved job no longer tells them from defaults, so they are kept beside it.
 */
export const statedFields = (file: JobFile): string[] =>
  FOLLOWING.filter((path) => states(file, path)).map(pathName);

interface SchemaParts {
  readonly properties?: Readonly<Record<string, SchemaParts>>;
  readonly anyOf?: readonly SchemaParts[];
}

/** Fields of a schema in their order, those of all alternatives. */
const partsOf = ({ properties = {}, anyOf = [] }: SchemaParts): Readonly<Record<string, SchemaParts>> =>
  Object.assign({}, ...anyOf.map(partsOf), properties) as Record<string, SchemaParts>;

function inOrderOf(schema: SchemaParts, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const parts = partsOf(schema);
  const order = Object.keys(parts);
  const placeOf = (name: string): number => (order.includes(name) ? order.indexOf(name) : order.length);
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => placeOf(a) - placeOf(b))
      .map(([name, inner]) => [name, inOrderOf(parts[name] ?? {}, inner)]),
  );
}

/** A job file with its fields in the order in which people write them, whatever a database made of it. */
export const arrangedJob = (file: JobFile): JobFile => inOrderOf(JobFileSchema as TSchema, file) as JobFile;

/** Fields by their names: a database keeps them in an order of its own. */
const ordered = (_: string, value: unknown): unknown =>
  typeof value === "object" && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
    : value;

/** Without its data, from which nothing follows: ten thousand paths would be read again for each field. */
function withoutData({ data: _, validation, ...rest }: JobFile): JobFile {
  return {
    ...rest,
    ...(validation === undefined ? {} : { validation: { ...validation, data: ANY_HELD_OUT_DATA } }),
  };
}

/** What a file stands for besides its data, as text; undefined where it stands for no job. */
function meaning(job: JobFile): string | undefined {
  try {
    return JSON.stringify(resolveJob(withoutData(job)), ordered);
  } catch {
    // A job of an earlier version may break a rule of today: its file is written as it is.
    return undefined;
  }
}

/**
 * That everything is measured again was asked of one job. Its copies use what is measured by now, but for those that
 * do nothing else than measure.
 */
function withoutMeasureAgain(file: JobFile): JobFile {
  const { measureAgain: _, ...rest } = file;
  return file.until === "profiling" ? file : rest;
}

/**
 * The job file of a job, to be changed and submitted again. It stands for the job as {@link writtenJob} does, and
 * leaves out what follows from other fields: with other steps, checkpoints and decay come at other steps too. Nor does
 * it ask to measure again what was measured for the job.
 * @param stated fields that somebody chose, as {@link statedFields} names them: they stay, whatever their value.
 */
export function jobToChange(spec: JobSpec, stated: readonly string[]): JobFile {
  const whole = arrangedJob(withoutMeasureAgain(writtenJob(spec)));
  const meant = meaning(whole);
  if (meant === undefined) return whole;
  return FOLLOWING.reduce((job, path) => {
    // Jobs of before have stated `checkpointing` as a whole.
    if (stated.includes(pathName(path)) || stated.includes(path[0])) return job;
    const shorter = without(job, path);
    return meaning(shorter) === meant ? shorter : job;
  }, whole);
}
