import { leastSecondsOf, sliceCosts, type CostModel } from "@internevo/cost-model";
import {
  allowedBy,
  chunksOf,
  REJECTION_REASONS,
  type JobSpec,
  type Plan,
  type RejectionReason,
} from "@internevo/domain";
import {
  countRecomputed,
  familyOf,
  isSameLayout,
  layoutsOf,
  OVERLAPS,
  planOf,
  sequencesPerStep,
  shardingsOf,
  takesTurns,
  type LayoutSpace,
  type OverlapChoice,
} from "@internevo/plan";
import { FamilySearch, type Tally } from "./families.ts";
import { ROUNDING, type Batch, type Choice, type Family } from "./family.ts";
import { shardTablesOf, type ShardTable } from "./shard-table.ts";
import { compareScored, Top, type Scored } from "./top.ts";
import { Watch, type WatchOptions } from "./watch.ts";

/** Which plans of a space are of interest. */
export interface PlanFilter {
  readonly plan: (plan: Plan) => boolean;
  /**
   * Whether any plan may be accepted that differs from this one in chunks, recomputation, gate and up, and
   * overlap alone. Thousands of plans are then not looked at.
   */
  readonly like: (plan: Plan) => boolean;
}

export interface SearchOptions extends WatchOptions {
  /** Families whose best plans are asked for. */
  readonly top: number;
  /** Plans that are asked for whatever their family; none by default. */
  readonly plans?: number | undefined;
  /** Only the families of these ranks are listed; all of them by default. */
  readonly ranks?: readonly number[] | undefined;
  /** A feasible plan whose rank is asked for. */
  readonly locate?: Scored;
  /** Only plans that it accepts are listed; the counts are of all that were looked at. By default every plan. */
  readonly accepts?: PlanFilter | undefined;
  /** Look at every plan, so that nothing is pruned: slow, and finds the same. */
  readonly exhaustive?: boolean | undefined;
}

export interface Ranked extends Scored {
  /** Place among the best plans of all families, from 1. */
  readonly rank: number;
  /** Further plans of its family that take exactly as long. */
  readonly tied: number;
}

export interface SearchResult {
  /** The best plan of each of the best families, or of those whose rank was asked for. */
  readonly best: readonly Ranked[];
  /** The best plans, whatever their family. */
  readonly plans: readonly Scored[];
  /** Plans of the space: feasible, rejected and pruned together. */
  readonly evaluated: number;
  /** Plans that were found to fit. */
  readonly feasible: number;
  readonly rejected: Readonly<Record<RejectionReason, number>>;
  /** Plans that were not looked at, because a bound says that none of them is among the best. */
  readonly pruned: number;
  /** Families whose best plan is ahead of the located one, and 1. */
  readonly rank: number | null;
  /** The plan that needs the least memory, when none fits but some divide. */
  readonly closest: Plan | null;
}

/** Overlap is searched where it was measured; else plans do what the profile says. */
export function overlapChoices(model: CostModel): Choice[] {
  const asked = model.job.plan;
  const { executor, overlaps } = model.profile;
  const isAsked = asked?.forwardOverlap !== undefined || asked?.backwardOverlap !== undefined;
  return OVERLAPS.map((overlap, index) => ({ overlap, index })).filter(({ overlap }) => {
    if (overlaps.length === 0 && !isAsked)
      return (
        overlap.forwardOverlap === executor.forwardOverlap &&
        overlap.backwardOverlap === executor.backwardOverlap
      );
    return (
      allowedBy(asked?.forwardOverlap, overlap.forwardOverlap) &&
      allowedBy(asked?.backwardOverlap, overlap.backwardOverlap)
    );
  });
}

/**
 * Exact top-k over the complete space of a job, its extensions included. Batches are taken in the order of a
 * lower bound of their time (the same formula with sharding and overlap for nothing), and families,
 * recomputed layers and granularities only as far as their own bounds are not above what is still of
 * interest: nothing is lost.
 */
export function search(model: CostModel, options: SearchOptions): SearchResult {
  const job = model.job;
  const rejected = Object.fromEntries(REJECTION_REASONS.map((reason) => [reason, 0])) as Record<
    RejectionReason,
    number
  >;
  const watch = new Watch(options);
  const choices = overlapChoices(model);
  const families = new FamilySearch(model, choices, watch);
  const { batches, evaluated } = batchesOf(model, choices.length, rejected, watch);
  const tally: Tally = { feasible: 0, tooLarge: 0, pruned: 0 };
  const best = new Top(options.top, familyOf);
  const plans = new Top(options.plans ?? 0);
  const exhaustive = options.exhaustive === true;
  batches.sort((a, b) => a.bound - b.bound);
  for (const [at, batch] of batches.entries()) {
    if (!exhaustive && batch.bound > Math.max(best.bound, plans.bound)) {
      for (const rest of batches.slice(at)) tally.pruned += rest.shards.list.length * families.size(rest);
      break;
    }
    const opened: Family[] = [];
    for (let index = 0; index < batch.shards.list.length; index += 1) {
      watch.step(at, batches.length);
      const interest = exhaustive ? Infinity : Math.max(best.bound, plans.bound);
      const family = families.open(batch, index, interest);
      if (typeof family === "string") tally[family] += families.size(batch);
      else opened.push(family);
    }
    opened.sort((a, b) => a.bound - b.bound);
    for (const family of opened) {
      // Of a family only what is not slower than what it has offered already is of interest to the list of
      // families.
      let own = Infinity;
      const interesting = (): number => Math.max(Math.min(best.bound, own), plans.bound);
      if (
        options.accepts !== undefined &&
        family.bound <= interesting() &&
        !options.accepts.like(plainPlanOf(family, job))
      )
        continue;
      families.visit(
        family,
        () => (exhaustive ? Infinity : interesting()),
        tally,
        (scored) => {
          if (options.accepts?.plan(scored.plan) === false) return true;
          own = Math.min(own, scored.seconds);
          best.offer(scored);
          plans.offer(scored);
          return true;
        },
      );
    }
  }
  rejected["memory-exceeded"] += tally.tooLarge;
  const asked = options.ranks === undefined ? null : new Set(options.ranks);
  const listed = best.best
    .map((scored, index) => ({ scored, rank: index + 1 }))
    .filter(({ rank }) => asked?.has(rank) ?? true);
  return {
    best: listed.map(({ scored, rank }) => ({ ...scored, rank, tied: tiesOf(scored, batches, families) })),
    plans: plans.best,
    evaluated,
    feasible: tally.feasible,
    rejected,
    pruned: tally.pruned,
    rank: options.locate === undefined ? null : rankOf(options.locate, batches, families, watch),
    closest: tally.feasible === 0 ? leastMemory(batches, families, job, watch) : null,
  };
}

/** The plan of a family that has the fewest chunks, recomputes nothing and overlaps nothing. */
function plainPlanOf({ batch, index }: Family, { model }: JobSpec): Plan {
  const { space, microBatchSize, microBatches, chunks, shards } = batch;
  const variant = {
    chunks: chunks[0] as number,
    recomputed: 0,
    gateUp: "kept",
    overlap: OVERLAPS[0] as OverlapChoice,
  } as const;
  const sharding = shards.list[index] as ShardTable["list"][number];
  return planOf(space.layout, microBatchSize, microBatches, sharding, variant, model.layers);
}

/** Families of which some plan fits. */
export function countFamilies(model: CostModel, options: WatchOptions = {}): number {
  const choices = overlapChoices(model);
  const watch = new Watch(options);
  const families = new FamilySearch(model, choices, watch);
  const rejected = Object.fromEntries(REJECTION_REASONS.map((reason) => [reason, 0])) as Record<
    RejectionReason,
    number
  >;
  const { batches } = batchesOf(model, choices.length, rejected, watch);
  let count = 0;
  for (const [at, batch] of batches.entries())
    for (let index = 0; index < batch.shards.list.length; index += 1) {
      watch.step(at, batches.length);
      if (families.fitsAtAll(batch, index)) count += 1;
    }
  return count;
}

function countShardings(job: JobSpec): (ranks: number) => number {
  const counts = new Map<number, number>();
  return (ranks) => {
    let count = counts.get(ranks);
    if (count === undefined) counts.set(ranks, (count = shardingsOf(ranks, job).length));
    return count;
  };
}

/**
 * The batches of every layout that divides, and the size of the whole space; what does not divide is counted.
 */
function batchesOf(
  model: CostModel,
  choices: number,
  rejected: Record<RejectionReason, number>,
  watch: Watch,
): { batches: Batch[]; evaluated: number } {
  const { job } = model;
  const counted = countShardings(job);
  const tableOf = shardTablesOf(model);
  const batches: Batch[] = [];
  let evaluated = 0;
  for (const space of layoutsOf(model.searchedJob)) {
    const { fault, microBatchSizes, layout, chunks, recomputed } = space;
    const below = counted(space.replicas) * countRecomputed(recomputed) * choices;
    if (fault !== null || microBatchSizes === null) {
      const plans = below * chunks.length * (microBatchSizes?.length ?? 1);
      evaluated += plans;
      rejected[fault ?? "batch-not-divisible"] += plans;
      continue;
    }
    if (below === 0) continue;
    const shards = tableOf(layout, space.replicas);
    const slicesOf = model.sliceTimes(layout);
    watch.look(chunks.length + countRecomputed(recomputed));
    const [plain, interleaved] = [chunks.filter((v) => v === 1), chunks.filter((v) => v > 1)];
    for (const microBatchSize of microBatchSizes) {
      watch.step(0, 1);
      evaluated += below * chunks.length;
      const microBatches = sequencesPerStep(job) / layout.dataParallel / microBatchSize;
      const takes = takesTurns(microBatches, layout.pipelineParallel);
      if (!takes) rejected["chunks-not-possible"] += below * interleaved.length;
      // Plain and interleaved schedules are families of their own.
      for (const some of [plain, takes ? interleaved : []]) {
        if (some.length > 0)
          batches.push(batchOf(model, space, shards, slicesOf, microBatchSize, microBatches, some));
      }
    }
  }
  return { batches, evaluated };
}

function batchOf(
  model: CostModel,
  space: LayoutSpace,
  shards: ShardTable,
  slicesOf: Batch["slicesOf"],
  microBatchSize: number,
  microBatches: number,
  chunks: readonly number[],
): Batch {
  const { layout } = space;
  const boundarySeconds = model.boundarySeconds(microBatchSize, layout);
  const size = {
    microBatches,
    pipelineParallel: layout.pipelineParallel,
    layers: model.job.model.layers,
    boundarySeconds,
  };
  const [fewest, most] = [chunks[0] as number, chunks.at(-1) as number];
  const [plain, beside] = slicesOf(microBatchSize);
  let bound = leastSecondsOf(sliceCosts(plain), size, fewest, most);
  if (beside !== plain) bound = Math.min(bound, leastSecondsOf(sliceCosts(beside), size, fewest, most));
  return { space, microBatchSize, microBatches, chunks, shards, slicesOf, size, bound: bound * ROUNDING };
}

/** How many further plans of a family take exactly as long as its best. */
function tiesOf({ plan, seconds: best }: Scored, batches: readonly Batch[], families: FamilySearch): number {
  const batch = batches.find(({ space: { layout }, microBatchSize, chunks }) => {
    return (
      chunks.includes(chunksOf(plan)) && microBatchSize === plan.microBatchSize && isSameLayout(layout, plan)
    );
  }) as Batch;
  const index = batch.shards.list.findIndex(
    (one) =>
      one.parameterSharding === plan.parameterSharding &&
      one.optimizerStateSharding === plan.optimizerStateSharding &&
      one.gradientSharding === plan.gradientSharding,
  );
  let equal = -1;
  families.visit(
    families.open(batch, index) as Family,
    () => best,
    { feasible: 0, tooLarge: 0, pruned: 0 },
    ({ seconds }) => {
      if (seconds === best) equal += 1;
      return true;
    },
  );
  return equal;
}

function rankOf(located: Scored, batches: readonly Batch[], families: FamilySearch, watch: Watch): number {
  let ahead = 0;
  for (const [at, batch] of batches.entries()) {
    if (batch.bound > located.seconds) break;
    for (let index = 0; index < batch.shards.list.length; index += 1) {
      watch.step(at, batches.length);
      const family = families.open(batch, index, located.seconds);
      if (typeof family !== "string")
        families.visit(
          family,
          () => located.seconds,
          { feasible: 0, tooLarge: 0, pruned: 0 },
          (scored) => {
            // One that takes as long and as much is not ahead, whatever their order in a list.
            if (
              scored.seconds > located.seconds ||
              (scored.seconds === located.seconds && scored.bytes >= located.bytes)
            )
              return true;
            ahead += 1;
            return false;
          },
        );
    }
  }
  return ahead + 1;
}

function leastMemory(
  batches: readonly Batch[],
  families: FamilySearch,
  job: JobSpec,
  watch: Watch,
): Plan | null {
  let least = Infinity;
  let nearest: { batch: Batch; index: number }[] = [];
  for (const [at, batch] of batches.entries())
    for (let index = 0; index < batch.shards.list.length; index += 1) {
      watch.step(at, batches.length);
      const bytes = families.leastBytes(batch, index);
      if (bytes > least) continue;
      if (bytes < least) nearest = [];
      least = bytes;
      nearest.push({ batch, index });
    }
  let closest: Scored | null = null;
  for (const { batch, index } of nearest)
    for (const { bytes, ...variant } of families.all(batch, index)) {
      if (bytes > least) continue;
      const sharding = batch.shards.list[index] as (typeof batch.shards.list)[number];
      const scored = {
        plan: planOf(
          batch.space.layout,
          batch.microBatchSize,
          batch.microBatches,
          sharding,
          variant,
          job.model.layers,
        ),
        seconds: 0,
        bytes,
      };
      if (closest === null || compareScored(scored, closest) < 0) closest = scored;
    }
  return closest?.plan ?? null;
}
