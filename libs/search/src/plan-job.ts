import {
  CostModel,
  spreadFactors,
  totalSeconds,
  unpricedHost,
  type CostModelOptions,
  type SpreadFactors,
} from "@internevo/cost-model";
import {
  documentsWords,
  formatBytes,
  usesGpus,
  type Candidate,
  type JobSpec,
  type Plan,
  type PlanningResult,
  type Prediction,
  type Profile,
  type TimeModelName,
} from "@internevo/domain";
import { isRunnable, placementOf, planFault, planOfJob } from "@internevo/plan";
import { countFamilies, search, type Ranked, type SearchOptions } from "./search.ts";
import type { Scored } from "./top.ts";
import { unmetOf } from "./unmet.ts";
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
  readonly accepts?: SearchOptions["accepts"];
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
  const factorsOf = spreadFactors(job, profile, settings);
  const limit = model.job.cluster.memoryPerGpuBytes;
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
      predicted: withRange(model.predict(own), factorsOf?.(own)),
      runnable,
      notRunnableReason: reason,
      ...(tied > 0 ? { tied } : {}),
    };
  };
  const candidates = found.best.map(candidate);
  const runnableCandidates = candidates.filter(({ runnable }) => runnable);
  const nothing = found.feasible === 0 && found.closest === null;
  const unmet = nothing ? (hostUnmet(model) ?? unmetOf(job)?.message) : undefined;
  const documents = documentsWords(job);
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
    ...(documents === undefined ? {} : { documents }),
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
  {
    memoryModel,
    timeModel,
    threadsPerRank,
  }: Pick<PlanJobOptions, Exclude<keyof CostModelOptions, "timesEstimates">> = {},
): number {
  const model = new CostModel(job, profile, {
    memoryModel: memoryModel ?? job.memoryModel,
    ...(timeModel === undefined ? {} : { timeModel }),
    ...(threadsPerRank === undefined ? {} : { threadsPerRank }),
  });
  return isOfWholePlans(model) ? countFamiliesOfWholePlans(model) : countFamilies(model);
}

/** A prediction with the range of its step time; @param factors undefined where the profile says no spread. */
export const withRange = (predicted: Prediction, factors: SpreadFactors | undefined): Prediction =>
  factors === undefined
    ? predicted
    : {
        ...predicted,
        stepTimeRangeSeconds: {
          low: factors.low * predicted.stepTimeSeconds,
          high: factors.high * predicted.stepTimeSeconds,
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
  const unpriced = unpricedHost(model, plan);
  if (unpriced !== null)
    return {
      located: { feasible: false, reason: `gate-up-not-possible: ${unpriced}`, predicted: null },
      scored: null,
    };
  const predicted = model.predict(planOfJob(plan, model.job));
  const own = planOfJob(plan, model.job);
  if (predicted.peakMemoryBytes > limit || model.memoryFault(own) !== null) {
    const reason =
      predicted.peakMemoryBytes > limit
        ? `memory-exceeded: needs ${formatBytes(predicted.peakMemoryBytes)}, a GPU has ${formatBytes(limit)}`
        : `memory-exceeded: ${model.memoryFault(own) ?? ""}`;
    return { located: { feasible: false, reason, predicted }, scored: null };
  }
  return {
    located: { feasible: true, reason: null, predicted },
    scored: { plan, seconds: totalSeconds(predicted.time), bytes: predicted.peakMemoryBytes },
  };
}

/** Whether the job asks for nothing but plans that keep gate and up on the host. */
const asksForHost = ({ plan }: JobSpec): boolean => {
  const asked = [plan?.gateUp ?? []].flat();
  return asked.length > 0 && asked.every((one) => one === "host");
};

/** Where none of the plans that it asks for is searched: why. */
const hostUnmet = ({ job, hostFault }: CostModel): string | undefined =>
  hostFault !== null && asksForHost(job)
    ? `no plan keeps gate and up in the host's memory: ${hostFault}`
    : undefined;

const leftOutWarnings = (plans: number): string[] =>
  plans === 0
    ? []
    : [
        `plans that fit and that the published planner leaves out, because the profile has no attention of their size: ${plans}`,
      ];

/** What a cluster's ranks are counted as, where the profile is of something else; undefined: of the same. */
export const deviceWarning = ({ cluster, memoryModel }: JobSpec, { name, device }: Profile) =>
  device.kind === "gpu" && !usesGpus(cluster) && memoryModel === "executor"
    ? `profile ${name} is of GPUs, and the job does not say cluster.device: cuda: its ranks are counted as processor cores, without the memory that NCCL takes for itself`
    : undefined;

function clusterWarnings(job: JobSpec, profile: Profile): string[] {
  const device = deviceWarning(job, profile);
  return [...(device === undefined ? [] : [device]), ...sizeWarnings(job, profile)];
}

function sizeWarnings(job: JobSpec, profile: Profile): string[] {
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
