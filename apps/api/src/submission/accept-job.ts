import {
  asPartOf,
  DataSchema,
  heldOutData,
  ProblemError,
  resolveJob,
  tooManyPaths,
  validate,
  type Data,
  type JobSpec,
} from "@internevo/domain";
import { assertTrainerRuns, clusterRanks } from "@internevo/plan";
import type { CheckedData, DataTask } from "./check-data.ts";
import type { WeightsTask } from "./check-weights.ts";
import type { WeightsOfJob } from "./kept-weights.ts";

/** Weights as a job names them: whose they are is for the check to find out. */
export type NamedWeights = Omit<WeightsTask, "ofJob">;

/** What is checked of a job beyond its own text; each throws ProblemError. */
export interface JobChecks {
  /** Whether it may be submitted into its project, and fits the project's quotas. */
  readonly project: (spec: JobSpec) => Promise<void>;
  readonly cluster: (spec: JobSpec) => Promise<void>;
  readonly profile: (spec: JobSpec) => Promise<void>;
  /** Whether any plan can fit; asked of jobs that have no other fault. */
  readonly fit: (spec: JobSpec) => Promise<void>;
  readonly room: (spec: JobSpec, textBytes: number) => Promise<void>;
  readonly data: (task: DataTask) => Promise<CheckedData>;
  /** @returns whose they are; undefined where they are no job's */
  readonly weights: (weights: NamedWeights) => Promise<WeightsOfJob | undefined>;
}

export interface AcceptedJob {
  readonly spec: JobSpec;
  /** Tokens of its data; undefined where the job reads none. */
  readonly dataTokens: number | undefined;
  /** Of its text, training and held-out data together. */
  readonly textBytes: number;
  /** The job whose files it begins with; undefined where there is none. */
  readonly weights: WeightsOfJob | undefined;
}

const MOST_DETAILS = 40;

/** The data of a job that is not valid otherwise; undefined when it is what is wrong. */
function dataOf(written: unknown): Data | null | undefined {
  if (typeof written !== "object" || written === null || Array.isArray(written)) return undefined;
  if (tooManyPaths(written) !== undefined) return undefined;
  const { data } = written as { readonly data?: unknown };
  if (data === undefined || data === null) return null;
  try {
    return validate(DataSchema, data, "job-invalid", "the data");
  } catch {
    return undefined;
  }
}

/** What held-out data leaves of attention is not asked for: only training is planned. */
const heldOutTask = (spec: JobSpec): DataTask => ({
  ...dataTask(spec),
  data: heldOutData(spec),
  evaluated: spec,
  trained: spec.data,
});

const dataTask = (spec: JobSpec): DataTask => ({
  data: spec.data,
  vocabularySize: spec.model.vocabularySize,
  sequenceLengthTokens: spec.sequenceLengthTokens,
  counting: {
    ranks: clusterRanks(spec),
    ...(spec.model.slidingWindowTokens === undefined
      ? {}
      : { slidingWindowTokens: spec.model.slidingWindowTokens }),
  },
});

const textBytesOf = (...data: readonly (CheckedData | undefined)[]): number =>
  data.reduce((sum, one) => sum + (one?.textBytes ?? 0), 0);

/**
 * Resolves a submitted job and checks everything that can be checked now, so that all of its faults are told
 * at once: those of the job file, of what it asks of this installation, and of its data.
 * @throws ProblemError with the code of the first fault, and the details of all.
 */
export async function acceptJob(written: unknown, checks: JobChecks): Promise<AcceptedJob> {
  const problems: ProblemError[] = [];
  const noting = async <T>(check: () => T | Promise<T>): Promise<T | undefined> => {
    try {
      return await check();
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      problems.push(error);
      return undefined;
    }
  };
  let checked: CheckedData | undefined;
  let heldOut: CheckedData | undefined;
  let ofJob: WeightsOfJob | undefined;
  const spec = await noting(() => resolveJob(written));
  if (spec) {
    await noting(() => checks.project(spec));
    await noting(() => assertTrainerRuns(spec));
    await noting(() => checks.cluster(spec));
    await noting(() => checks.profile(spec));
    // What only measures reads no data.
    if (spec.until === undefined) checked = await noting(() => checks.data(dataTask(spec)));
    if (spec.until === undefined && spec.validation !== undefined)
      heldOut = await noting(() => asPartOf("validation", () => checks.data(heldOutTask(spec))));
    const { initialWeights, model } = spec;
    if (initialWeights !== undefined) ofJob = await noting(() => checks.weights({ initialWeights, model }));
    await noting(() => checks.room(spec, textBytesOf(checked, heldOut)));
    if (problems.length === 0) await noting(() => checks.fit(spec));
  } else {
    const data = dataOf(written);
    if (data !== undefined) await noting(() => checks.data({ data }));
  }
  const [first] = problems;
  if (first)
    throw problems.length === 1
      ? first
      : new ProblemError(
          first.code,
          first.message,
          problems.flatMap((problem) => problem.details).slice(0, MOST_DETAILS),
          { cause: first },
        );
  if (!spec) throw new Error("a job was neither resolved nor refused");
  const documents = checked?.documents;
  return {
    spec: documents ? { ...spec, documents } : spec,
    dataTokens: checked?.tokens,
    textBytes: textBytesOf(checked, heldOut),
    weights: ofJob,
  };
}
