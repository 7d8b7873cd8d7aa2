import { isRunnable, NO_TIME, sequencesPerStep, stepBreakdown, totalSeconds, type CostModel, type Layout, type Sharding, type ShardTime, type SliceTime, type StageBytes, type StepShape } from "@internevo/cost-model";
import { REJECTION_REASONS, type JobSpec, type Plan, type RejectionReason } from "@internevo/domain";
import { layoutsOf, shardingsOf, type LayoutSpace } from "./enumerate.ts";
import { compareScored, Top, type Scored } from "./top.ts";

export interface SearchOptions {
  readonly top: number;
  /** A feasible plan whose rank is asked for. */
  readonly locate?: Scored;
}

export interface Ranked extends Scored {
  /** Place among all feasible plans, from 1. */
  readonly rank: number;
}

export interface SearchResult {
  readonly best: readonly Ranked[];
  readonly bestRunnable: readonly Ranked[];
  readonly evaluated: number;
  readonly feasible: number;
  readonly rejected: Readonly<Record<RejectionReason, number>>;
  /** Rank of the located plan among the feasible ones. */
  readonly rank: number | null;
  /** The plan that needs the least memory, when none fits but some divide. */
  readonly closest: Plan | null;
}

/** The shardings of a (s_pp, s_tp), with their bytes on every stage that can be the fullest, without and with recomputation. */
interface Shards {
  readonly list: readonly Sharding[];
  readonly kept: readonly StageBytes[];
  readonly recomputed: readonly StageBytes[];
}

/** All plans of one layout, micro-batch size and recomputation. */
interface Batch {
  readonly space: LayoutSpace;
  readonly microBatchSize: number;
  readonly microBatches: number;
  readonly recompute: boolean;
  readonly shards: readonly Sharding[];
  /** Bytes that each sharding decides, and those that the batch decides. */
  readonly shardBytes: readonly StageBytes[];
  readonly bytes: StageBytes;
  readonly runnable: boolean;
  readonly slice: SliceTime;
  readonly step: StepShape;
  /** No plan of the batch is faster. */
  readonly bound: number;
}

/** A sharding that costs no time: what remains is a lower bound, because every term of the step grows with each of its own. */
const FREE: ShardTime = {
  gather: NO_TIME,
  scatter: NO_TIME,
  stage: NO_TIME,
  stageReduced: NO_TIME,
  reduce: NO_TIME,
  reduceOnceSeconds: 0,
  shareOnceSeconds: 0,
  updateSeconds: 0,
  updateRooflineSeconds: 0,
};

/** Sums of the bound and of the time round differently: far more than their error is given away. */
const ROUNDING = 1 - 1e-9;

const fullest = (a: StageBytes, b: StageBytes): number => {
  let most = 0;
  for (let stage = 0; stage < a.length; stage += 1) most = Math.max(most, (a[stage] as number) + (b[stage] as number));
  return most;
};

/**
 * Exact top-k over the complete space of a job. Memory is checked for every plan; time only where the lower bound of a
 * batch (no cost of sharding) is not above what is still of interest, so nothing is lost.
 */
export function search(model: CostModel, options: SearchOptions): SearchResult {
  const job = model.job;
  const { forwardOverlap, backwardOverlap } = model.profile.executor;
  const overlap = { forwardOverlap, backwardOverlap };
  const limit = job.cluster.memoryPerGpuBytes;
  const rejected = Object.fromEntries(REJECTION_REASONS.map((reason) => [reason, 0])) as Record<RejectionReason, number>;
  const shardsOf = memoizedShards(model, overlap);
  const batches: Batch[] = [];
  let evaluated = 0;
  let feasible = 0;
  for (const space of layoutsOf(job)) {
    const { fault, microBatchSizes } = space;
    const below = shardingCount(space.replicas);
    if (fault !== null || microBatchSizes === null) {
      const plans = below * 2 * (microBatchSizes?.length ?? 1);
      evaluated += plans;
      rejected[fault ?? "batch-not-divisible"] += plans;
      continue;
    }
    const shards = shardsOf(space);
    for (const batch of batchesOf(model, space, shards, overlap)) {
      evaluated += shards.list.length;
      const fitting = countFitting(batch, limit);
      feasible += fitting;
      rejected["memory-exceeded"] += shards.list.length - fitting;
      batches.push(batch);
    }
  }
  const best = new Top(options.top);
  const bestRunnable = new Top(options.top);
  if (feasible > 0) {
    batches.sort((a, b) => a.bound - b.bound);
    for (const batch of batches) {
      const runnableBound = batch.runnable ? bestRunnable.bound : -Infinity;
      if (batch.bound > Math.max(best.bound, runnableBound)) continue;
      for (const scored of scoredPlans(model, batch, overlap, limit)) {
        best.offer(scored);
        if (batch.runnable) bestRunnable.offer(scored);
      }
    }
  }
  const located = options.locate === undefined ? [] : [options.locate];
  const ranks = ranksOf([...bestRunnable.best, ...located], best.best, batches, (batch) => scoredPlans(model, batch, overlap, limit));
  return {
    best: best.best.map((scored, index) => ({ ...scored, rank: index + 1 })),
    bestRunnable: bestRunnable.best.map((scored, index) => ({ ...scored, rank: ranks[index] as number })),
    evaluated,
    feasible,
    rejected,
    rank: ranks[bestRunnable.best.length] ?? null,
    closest: feasible === 0 ? leastMemory(batches, overlap) : null,
  };
}

/** Index of the first of some ordered plans that another is ahead of. */
function firstBehind(scored: Scored, ordered: readonly Scored[]): number {
  let low = 0;
  let high = ordered.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compareScored(scored, ordered[middle] as Scored) < 0) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Places of some plans among all feasible ones. Those of the best are known; for the others every plan that may be ahead of one is scored. */
function ranksOf(asked: readonly Scored[], best: readonly Scored[], batches: readonly Batch[], plansOf: (batch: Batch) => Iterable<Scored>): number[] {
  const known = asked.map((plan) => best.findIndex((other) => compareScored(other, plan) === 0) + 1);
  const beyond = asked.filter((_, index) => known[index] === 0).sort(compareScored);
  const slowest = beyond.at(-1);
  if (slowest === undefined) return known;
  // ahead[i]: plans ahead of beyond[i] and of no plan before it.
  const ahead = beyond.map(() => 0);
  for (const batch of batches) {
    if (batch.bound > slowest.seconds) continue;
    for (const scored of plansOf(batch)) {
      const first = firstBehind(scored, beyond);
      if (first < beyond.length) ahead[first] = (ahead[first] as number) + 1;
    }
  }
  const rankOf = new Map<Scored, number>();
  let sum = 0;
  for (const [index, plan] of beyond.entries()) {
    sum += ahead[index] as number;
    rankOf.set(plan, sum + 1);
  }
  return asked.map((plan, index) => known[index] || (rankOf.get(plan) as number));
}

type Overlap = Pick<Plan, "forwardOverlap" | "backwardOverlap">;

const counts = new Map<number, number>();

/** How many shardings R ranks have. */
function shardingCount(ranks: number): number {
  let count = counts.get(ranks);
  if (count === undefined) {
    count = shardingsOf(ranks).length;
    counts.set(ranks, count);
  }
  return count;
}

function memoizedShards(model: CostModel, overlap: Overlap): (space: LayoutSpace) => Shards {
  const known = new Map<string, Shards>();
  return ({ layout, replicas }) => {
    const key = `${layout.pipelineParallel} ${layout.tensorParallel}`;
    let shards = known.get(key);
    if (!shards) {
      const list = shardingsOf(replicas);
      const bytes = (recompute: boolean) => list.map((sharding) => model.shardBytes(layout, sharding, { ...overlap, recompute }));
      shards = { list, kept: bytes(false), recomputed: bytes(true) };
      known.set(key, shards);
    }
    return shards;
  };
}

function* batchesOf(model: CostModel, space: LayoutSpace, shards: Shards, overlap: Overlap): Generator<Batch> {
  const { layout } = space;
  const job: JobSpec = model.job;
  for (const microBatchSize of space.microBatchSizes ?? []) {
    const microBatches = sequencesPerStep(job) / layout.dataParallel / microBatchSize;
    const slice = model.sliceTime(microBatchSize, layout);
    const boundarySeconds = model.boundarySeconds(microBatchSize, layout);
    for (const recompute of [false, true]) {
      const batching = { microBatchSize, microBatches, recompute };
      const step: StepShape = {
        microBatches,
        pipelineParallel: layout.pipelineParallel,
        chunks: 1,
        layers: job.model.layers,
        recompute,
        reduceEveryMicroBatch: false,
        boundarySeconds,
        overlap: model.overlap(overlap),
      };
      const bytes = model.batchBytes(layout, batching, overlap);
      const { runnable } = isRunnable(planOf(layout, batching, shards.list[0] as Sharding, overlap), job);
      const bound = totalSeconds(stepBreakdown(slice, FREE, step)) * ROUNDING;
      yield { space, ...batching, shards: shards.list, shardBytes: recompute ? shards.recomputed : shards.kept, bytes, runnable, slice, step, bound };
    }
  }
}

function planOf(layout: Layout, { microBatchSize, microBatches, recompute }: Pick<Plan, "microBatchSize" | "microBatches" | "recompute">, sharding: Sharding, overlap: Overlap): Plan {
  return {
    microBatchSize,
    microBatches,
    recompute,
    pipelineParallel: layout.pipelineParallel,
    dataParallel: layout.dataParallel,
    tensorParallel: layout.tensorParallel,
    sequenceParallel: layout.sequenceParallel,
    parameterSharding: sharding.parameterSharding,
    gradientSharding: sharding.gradientSharding,
    optimizerStateSharding: sharding.optimizerStateSharding,
    forwardOverlap: overlap.forwardOverlap,
    backwardOverlap: overlap.backwardOverlap,
  };
}

function countFitting({ shardBytes, bytes }: Batch, limit: number): number {
  let fitting = 0;
  for (const sharded of shardBytes) if (fullest(sharded, bytes) <= limit) fitting += 1;
  return fitting;
}

/** The feasible plans of a batch with their times. */
function* scoredPlans(model: CostModel, batch: Batch, overlap: Overlap, limit: number): Generator<Scored> {
  const { layout } = batch.space;
  const every = { ...batch.step, reduceEveryMicroBatch: true };
  for (const [index, sharding] of batch.shards.entries()) {
    const bytes = fullest(batch.shardBytes[index] as StageBytes, batch.bytes);
    if (bytes > limit) continue;
    const time = stepBreakdown(batch.slice, model.shardTime(layout, sharding), sharding.gradientSharding > 1 ? every : batch.step);
    yield { plan: planOf(layout, batch, sharding, overlap), seconds: totalSeconds(time), bytes };
  }
}

function leastMemory(batches: readonly Batch[], overlap: Overlap): Plan | null {
  let least: Scored | null = null;
  for (const batch of batches) {
    for (const [index, sharding] of batch.shards.entries()) {
      const bytes = fullest(batch.shardBytes[index] as StageBytes, batch.bytes);
      if (least !== null && bytes > least.bytes) continue;
      const scored = { plan: planOf(batch.space.layout, batch, sharding, overlap), seconds: 0, bytes };
      if (least === null || compareScored(scored, least) < 0) least = scored;
    }
  }
  return least?.plan ?? null;
}
