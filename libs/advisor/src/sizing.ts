import {
  formatCounted,
  plannedMemoryBytes,
  ProblemError,
  withoutDocuments,
  type Candidate,
  type JobSpec,
  type Profile,
} from "@internevo/domain";
import { fewestSequences, planJob } from "@internevo/search";
import { memoryReason, sweep } from "./sweep.ts";

export interface LargestSequenceOptions {
  /** Lengths tried are multiples of this; default 1024. */
  readonly unitTokens?: number;
  /** Sequences of a step that must fit at a time; default 1: the longest sequence at all. */
  readonly sequences?: number;
  readonly signal?: AbortSignal;
}

export interface LargestSequence {
  /** 0 when not even one unit fits. */
  readonly sequenceLengthTokens: number;
  /** Of the step that was planned, in place of the job's own: `sequences` of that length. */
  readonly globalBatchTokens: number;
  readonly best: Candidate | null;
  /** One unit further: what ends it. */
  readonly next: {
    readonly sequenceLengthTokens: number;
    readonly reason: string;
    readonly leastBytes: number | null;
    /** Where a step of so few sequences cannot be divided: the fewest that can. */
    readonly leastSequences?: number;
  };
  readonly tried: number;
}

/** No model is asked for longer ones: 2^40 tokens. */
const MOST_TOKENS = 2 ** 40;

/** That no plan divides a step, and what the job itself asks of plans. */
function undividedReason({ plan, cluster }: JobSpec, sequences: number): string {
  const asked = Object.entries(plan ?? {}).map(
    ([field, values]) => `${field} ${[values].flat().join(" or ")}`,
  );
  const what = `a step of ${formatCounted(sequences, "sequence")} over ${formatCounted(cluster.nodes * cluster.gpusPerNode, "GPU")}`;
  return asked.length === 0
    ? `no plan divides ${what}`
    : `the job's plan (${asked.join(", ")}) does not divide ${what}`;
}

/**
 * The longest sequence for which some plan fits, with its fastest plan. The batch is `sequences` sequences.
 * Memory grows with the length, but which factors divide it does not: lengths are powers of two of the unit
 * while they fit, then halved steps between, each power of two finer, so the answer is the largest multiple
 * of the unit that these steps reach, and every length it names was planned.
 * @throws ProblemError `job-invalid` for a unit or a batch that is not a positive whole number.
 */
export function largestSequence(
  job: JobSpec,
  profile: Profile,
  { unitTokens = 1024, sequences = 1, signal }: LargestSequenceOptions = {},
): LargestSequence {
  for (const [field, value] of [
    ["unitTokens", unitTokens],
    ["sequences", sequences],
  ] as const) {
    if (!Number.isSafeInteger(value) || value < 1)
      throw new ProblemError("job-invalid", `${field} ${value} is not a positive whole number`, [
        { field, value, message: "is not a positive whole number", remedy: "give 1 or more" },
      ]);
  }
  let tried = 0;
  const at = (units: number) => {
    signal?.throwIfAborted();
    tried += 1;
    const sequenceLengthTokens = units * unitTokens;
    const result = planJob(
      { ...withoutDocuments(job), sequenceLengthTokens, globalBatchTokens: sequenceLengthTokens * sequences },
      profile,
      { top: 1 },
    );
    return {
      sequenceLengthTokens,
      best: result.candidates[0] ?? null,
      leastBytes: result.closest?.peakMemoryBytes ?? null,
    };
  };
  let good: ReturnType<typeof at> | null = null;
  let units = 0;
  let bad: ReturnType<typeof at> | null = null;
  for (let next = 1; next * unitTokens <= MOST_TOKENS; next *= 2) {
    const tryNext = at(next);
    if (tryNext.best === null) {
      bad = tryNext;
      break;
    }
    [good, units] = [tryNext, next];
  }
  for (let step = units / 2; step >= 1; step /= 2) {
    const tryNext = at(units + step);
    if (tryNext.best === null)
      bad = bad === null || tryNext.sequenceLengthTokens < bad.sequenceLengthTokens ? tryNext : bad;
    else [good, units] = [tryNext, units + step];
  }
  const end = bad ?? at(units + 1);
  const leastSequences =
    good === null && end.leastBytes === null
      ? fewestSequences({ ...withoutDocuments(job), sequenceLengthTokens: end.sequenceLengthTokens })
      : undefined;
  const reason =
    end.leastBytes === null
      ? undividedReason(job, sequences)
      : memoryReason(end.leastBytes, plannedMemoryBytes(job));
  return {
    sequenceLengthTokens: good?.sequenceLengthTokens ?? 0,
    globalBatchTokens: (good?.sequenceLengthTokens ?? 0) * sequences,
    best: good?.best ?? null,
    next: {
      sequenceLengthTokens: end.sequenceLengthTokens,
      reason,
      leastBytes: end.leastBytes,
      ...(leastSequences === undefined ? {} : { leastSequences }),
    },
    tried,
  };
}

export interface Deadline {
  /** Tokens to train on. */
  readonly tokens: number;
  readonly seconds: number;
  /** Of one GPU for an hour, in any currency. */
  readonly pricePerGpuHour?: number;
  /** Sizes considered; default: 1 to the job's nodes in powers of two, and the job's. */
  readonly nodes?: readonly number[];
}

export interface ClusterChoice {
  readonly nodes: number;
  readonly gpus: number;
  readonly best: Candidate;
  readonly seconds: number;
  readonly gpuHours: number;
  readonly cost: number | null;
  readonly meetsDeadline: boolean;
}

/**
 * Numbers of nodes that are considered where none are given: powers of two up to the job's, and the job's.
 */
export function clusterSizes(job: JobSpec): number[] {
  const powers: number[] = [];
  for (let nodes = 1; nodes < job.cluster.nodes; nodes *= 2) powers.push(nodes);
  return [...powers, job.cluster.nodes];
}

/**
 * Clusters by what training on so many tokens takes there, and the cheapest (fewest GPU hours) that meets the
 * deadline. Time is that of the steps alone: checkpoints and lost ranks come on top.
 */
export function cheapestCluster(
  job: JobSpec,
  profile: Profile,
  deadline: Deadline,
  signal?: AbortSignal,
): { cheapest: ClusterChoice | null; considered: ClusterChoice[] } {
  for (const [field, value] of [
    ["tokens", deadline.tokens],
    ["seconds", deadline.seconds],
  ] as const) {
    if (!(value > 0) || !Number.isFinite(value))
      throw new ProblemError("job-invalid", `${field} ${value} is not a positive number`, [
        {
          field,
          value,
          message: "is not a positive number",
          remedy: "give the tokens to train on and the seconds they may take",
        },
      ]);
  }
  const sizes = deadline.nodes ?? clusterSizes(job);
  const considered: ClusterChoice[] = [];
  for (const row of sweep(job, profile, "nodes", sizes, signal)) {
    if (row.best === null) continue;
    const gpus = row.value * job.cluster.gpusPerNode;
    const seconds = deadline.tokens / row.tokensPerSecond;
    const gpuHours = (gpus * seconds) / 3600;
    considered.push({
      nodes: row.value,
      gpus,
      best: row.best,
      seconds,
      gpuHours,
      cost: deadline.pricePerGpuHour === undefined ? null : gpuHours * deadline.pricePerGpuHour,
      meetsDeadline: seconds <= deadline.seconds,
    });
  }
  const inTime = considered
    .filter(({ meetsDeadline }) => meetsDeadline)
    .sort((a, b) => a.gpuHours - b.gpuHours || a.gpus - b.gpus);
  return { cheapest: inTime[0] ?? null, considered };
}
