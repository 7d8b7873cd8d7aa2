import {
  atEndOfSpread,
  CostModel,
  hasSpread,
  totalSeconds,
  type CostModelOptions,
} from "@internevo/cost-model";
import {
  formatBytes,
  type Candidate,
  type JobSpec,
  type Plan,
  type PlanningResult,
  type Prediction,
  type Profile,
  type TimeModelName,
} from "@internevo/domain";
import { isRunnable, placementOf, planFault, planOfJob, type PlanOfJob } from "@internevo/plan";
import { countFamilies, search, type Ranked, type SearchOptions } from "./search.ts";
import type { Scored } from "./top.ts";
import { unmetConstraints } from "./unmet.ts";
import { countFamiliesOfWholePlans, isOfWholePlans, searchWholePlans } from "./whole-plans.ts";

export interface PlanJobOptions {
  /** Plans of each list; 10 as in the paper. */
  readonly top?: number;
  /** Only the candidates of these ranks, up to `top`: the others are neither predicted nor listed. */
  readonly ranks?: readonly number[];
  /** Default: the job's. */
  readonly memoryModel?: JobSpec["memoryModel"];
  /** Default: the job's. */
  readonly timeModel?: TimeModelName;
  /** A plan whose rank, or reason of rejection, is asked for: it need not divide the job. */
  readonly locate?: Plan;
  readonly threadsPerRank?: number;
  /** Also list so many of the best plans whatever their family. */
  readonly plans?: number;
  readonly exhaustive?: boolean;
  readonly onProgress?: SearchOptions["onProgress"];
  readonly isCancelled?: SearchOptions["isCancelled"];
  readonly maximumSteps?: number;
}

type Located = NonNullable<PlanningResult["located"]>;

/**
 * Plans a job: the best plans of the complete space with their predictions, counts of everything rejected,
 * and where a given plan stands. Pure: the same job, profile and options give the same answer.
 */
export function planJob(job: JobSpec, profile: Profile, options: PlanJobOptions = {}): PlanningResult {
  const memoryModel = options.memoryModel ?? job.memoryModel;
  const timeModel = options.timeModel ?? job.timeModel ?? "executor";
  const settings = {
    memoryModel,
    timeModel,
    ...(options.threadsPerRank === undefined ? {} : { threadsPerRank: options.threadsPerRank }),
  };
  const model = new CostModel(job, profile, settings);
  const rangeOf = stepTimeRanges(job, profile, settings);
  const limit = job.cluster.memoryPerGpuBytes;
  const asked = options.locate === undefined ? undefined : locate(model, options.locate, limit);
  const {
    top = 10,
    memoryModel: _memory,
    timeModel: _time,
    locate: _plan,
    threadsPerRank: _threads,
    ...how
  } = options;
  const wanted = { ...how, top, ...(asked?.scored ? { locate: asked.scored } : {}) };
  const found = isOfWholePlans(model)
    ? searchWholePlans(model, wanted)
    : { ...search(model, wanted), leftOut: 0 };
  const candidate = ({ plan, rank, tied }: Omit<Ranked, "seconds" | "bytes">): Candidate => {
    const { runnable, reason } = isRunnable(plan, job);
    const own = planOfJob(plan, job);
    return {
      rank,
      plan,
      placement: placementOf(plan, job.cluster),
      predicted: withRange(model.predict(own), rangeOf?.(own)),
      runnable,
      notRunnableReason: reason,
      ...(tied > 0 ? { tied } : {}),
    };
  };
  const candidates = found.best.map(candidate);
  const runnableCandidates = candidates.filter(({ runnable }) => runnable);
  const unmet = found.evaluated === 0 ? unmetConstraints(job) : undefined;
  const closest = found.closest && {
    plan: found.closest,
    memory: model.memory(planOfJob(found.closest, job)),
  };
  return {
    schemaVersion: 1,
    job: job.name,
    profile: profile.name,
    memoryModel,
    ...(timeModel === "executor" ? {} : { timeModel }),
    memoryLimitBytes: limit,
    candidates,
    runnableCandidates,
    ...(options.plans === undefined
      ? {}
      : { plans: found.plans.map(({ plan }, index) => candidate({ plan, rank: index + 1, tied: 0 })) }),
    counts: {
      evaluated: found.evaluated,
      feasible: found.feasible,
      rejected: found.rejected,
      pruned: found.pruned,
    },
    closest: closest && {
      plan: closest.plan,
      peakMemoryBytes: closest.memory.bytes,
      memory: closest.memory.lines,
    },
    ...(unmet === undefined ? {} : { unmet }),
    warnings: [...clusterWarnings(job, profile), ...leftOutWarnings(found.leftOut), ...model.warnings],
    ...(asked ? { located: { ...asked.located, rank: asked.scored ? found.rank : null } } : {}),
  };
}

/**
 * How many families of plans have one that fits: what the ranks of {@link planJob} count. It needs memory
 * alone, so it does not depend on what a search prunes.
 */
export function feasibleFamilies(
  job: JobSpec,
  profile: Profile,
  { memoryModel, timeModel, threadsPerRank }: Pick<PlanJobOptions, keyof CostModelOptions> = {},
): number {
  const model = new CostModel(job, profile, {
    memoryModel: memoryModel ?? job.memoryModel,
    ...(timeModel === undefined ? {} : { timeModel }),
    ...(threadsPerRank === undefined ? {} : { threadsPerRank }),
  });
  return isOfWholePlans(model) ? countFamiliesOfWholePlans(model) : countFamilies(model);
}

type Range = NonNullable<Prediction["stepTimeRangeSeconds"]>;

/** A profile at both ends of its spread, made once: jobs share what is computed of it. */
const ends = new WeakMap<Profile, readonly [low: Profile, high: Profile]>();

function endsOf(profile: Profile): readonly [low: Profile, high: Profile] {
  let both = ends.get(profile);
  if (!both)
    ends.set(profile, (both = [atEndOfSpread(profile, "p10Seconds"), atEndOfSpread(profile, "p90Seconds")]));
  return both;
}

/** Step times at the two ends of the profile's spread; undefined when it has none. */
export function stepTimeRanges(
  job: JobSpec,
  profile: Profile,
  settings: ConstructorParameters<typeof CostModel>[2] = {},
): ((plan: PlanOfJob) => Range) | undefined {
  if (!hasSpread(profile)) return undefined;
  const [low, high] = endsOf(profile).map((end) => new CostModel(job, end, settings)) as [
    CostModel,
    CostModel,
  ];
  return (plan) => ({ low: totalSeconds(low.time(plan)), high: totalSeconds(high.time(plan)) });
}

/**
 * Curves are made monotone and overlap is chosen anew at each end, so the middle may lie outside by a little:
 * the range holds it always.
 */
export const withRange = (predicted: Prediction, range: Range | undefined): Prediction =>
  range === undefined
    ? predicted
    : {
        ...predicted,
        stepTimeRangeSeconds: {
          low: Math.min(range.low, predicted.stepTimeSeconds),
          high: Math.max(range.high, predicted.stepTimeSeconds),
        },
      };

function locate(
  model: CostModel,
  plan: Plan,
  limit: number,
): { located: Omit<Located, "rank">; scored: Scored | null } {
  const fault = planFault(plan, model.job);
  if (fault)
    return {
      located: { feasible: false, reason: `${fault.reason}: ${fault.message}`, predicted: null },
      scored: null,
    };
  const predicted = model.predict(planOfJob(plan, model.job));
  if (predicted.peakMemoryBytes > limit) {
    const reason = `memory-exceeded: needs ${formatBytes(predicted.peakMemoryBytes)}, a GPU has ${formatBytes(limit)}`;
    return { located: { feasible: false, reason, predicted }, scored: null };
  }
  return {
    located: { feasible: true, reason: null, predicted },
    scored: { plan, seconds: totalSeconds(predicted.time), bytes: predicted.peakMemoryBytes },
  };
}

const leftOutWarnings = (plans: number): string[] =>
  plans === 0
    ? []
    : [
        `plans that fit and that the published planner leaves out, because the profile has no attention of their size: ${plans}`,
      ];

function clusterWarnings(job: JobSpec, profile: Profile): string[] {
  const { nodes, gpusPerNode } = job.cluster;
  const measured = profile.cluster;
  if (gpusPerNode !== measured.gpusPerNode)
    return [
      `profile ${profile.name} was measured with ${measured.gpusPerNode} GPUs a node, the job has ${gpusPerNode}`,
    ];
  if (nodes > measured.nodes)
    return [
      `profile ${profile.name} was measured on ${measured.nodes} nodes, the job has ${nodes}: larger groups are extrapolated`,
    ];
  return [];
}
