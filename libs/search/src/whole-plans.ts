import { isPublishedPlan, totalSeconds, type CostModel } from "@internevo/cost-model";
import {
  allowedBy,
  contextOf,
  REJECTION_REASONS,
  type Plan,
  type PlanConstraints,
  type RejectionReason,
} from "@internevo/domain";
import {
  clusterRanks,
  familyOf,
  layoutsOf,
  OVERLAPS,
  planOf,
  planOfJob,
  sequencesPerStep,
  shardingsOf,
  type LayoutSpace,
  type OverlapChoice,
} from "@internevo/plan";
import type { SearchOptions, SearchResult } from "./search.ts";
import { Top, type Scored } from "./top.ts";
import { Watch, type WatchOptions } from "./watch.ts";

/*
 * Search by the models that are not ours: the paper's text and the planner that its authors published. Their
 * time or memory has no sums of parts to bound, and their spaces are small: every plan is looked at.
 */

/** Whether a job is searched plan by plan. */
export const isOfWholePlans = ({ memoryModel, timeModel }: CostModel): boolean =>
  memoryModel === "published" || timeModel !== "executor";

/** Only our own time depends on overlap; the others take what the profile's executor does. */
function overlapsOf({ job, profile, timeModel }: CostModel): readonly OverlapChoice[] {
  const { forwardOverlap, backwardOverlap }: PlanConstraints = job.plan ?? {};
  const allowed = OVERLAPS.filter(
    (one) => allowedBy(forwardOverlap, one.forwardOverlap) && allowedBy(backwardOverlap, one.backwardOverlap),
  );
  if (timeModel === "executor") return allowed;
  const { executor } = profile;
  const own = allowed.find(
    (one) =>
      one.forwardOverlap === executor.forwardOverlap && one.backwardOverlap === executor.backwardOverlap,
  );
  return [own ?? allowed[0]].filter((one) => one !== undefined);
}

interface Listed {
  readonly plan: Plan;
  readonly fault: RejectionReason | null;
  /** How far the listing is, of how many layouts. */
  readonly done: number;
  readonly total: number;
}

function* plansBelow(
  model: CostModel,
  space: LayoutSpace,
  overlaps: readonly OverlapChoice[],
): Generator<Plan> {
  const { job } = model;
  const { layout, recomputed, microBatchSizes } = space;
  const most = Math.ceil(job.model.layers / layout.pipelineParallel);
  const shardings = shardingsOf(space.replicas, job);
  // A layout whose s_dp does not divide the batch counts once for b, as in the complete search.
  for (const microBatchSize of microBatchSizes ?? [1]) {
    const own = sequencesPerStep(job) / layout.dataParallel / microBatchSize;
    const microBatches = microBatchSizes === null ? layout.pipelineParallel : own;
    for (const k of recomputed.kept.filter((one) => one === 0 || one === most))
      for (const sharding of shardings)
        for (const overlap of overlaps) {
          const variant = { chunks: 1, recomputed: k, gateUp: "kept", overlap } as const;
          yield planOf(layout, microBatchSize, microBatches, sharding, variant, job.model.layers);
        }
  }
}

/**
 * The paper's ten dimensions: no rings, no chunks, all layers of a stage recomputed or none, gate and up kept;
 * with a published model only what that planner looks at.
 */
function* plansOf(model: CostModel): Generator<Listed> {
  const isPublished = model.memoryModel === "published" || model.timeModel === "published";
  const ranks = clusterRanks(model.job);
  const overlaps = overlapsOf(model);
  const spaces = [...layoutsOf(model.job)].filter(
    ({ layout, chunks }) => contextOf(layout) === 1 && chunks.includes(1),
  );
  for (const [done, space] of spaces.entries())
    for (const plan of plansBelow(model, space, overlaps))
      if (!isPublished || isPublishedPlan(plan, ranks))
        yield { plan, fault: space.fault, done, total: spaces.length };
}

/** The plans of the space, how they were judged, and how many the published planner leaves out. */
interface Judged {
  readonly fitting: readonly Scored[];
  readonly rejected: Record<RejectionReason, number>;
  readonly leftOut: number;
  readonly evaluated: number;
  /** The plan that needs the least memory of those that divide. */
  readonly least: Plan | null;
}

function judge(model: CostModel, watch: Watch): Judged {
  const rejected = Object.fromEntries(REJECTION_REASONS.map((reason) => [reason, 0])) as Record<
    RejectionReason,
    number
  >;
  const limit = model.job.cluster.memoryPerGpuBytes;
  const fitting: Scored[] = [];
  let [leftOut, evaluated, leastBytes] = [0, 0, Infinity];
  let least: Plan | null = null;
  for (const { plan, fault, done, total } of plansOf(model)) {
    watch.step(done, total);
    evaluated += 1;
    if (fault !== null) {
      rejected[fault] += 1;
      continue;
    }
    const own = planOfJob(plan, model.job);
    const { bytes } = model.memory(own);
    if (bytes < leastBytes) [leastBytes, least] = [bytes, plan];
    if (bytes > limit) {
      rejected["memory-exceeded"] += 1;
      continue;
    }
    const time = model.timeIfKnown(own);
    if (time === null) leftOut += 1;
    else fitting.push({ plan, seconds: totalSeconds(time), bytes });
  }
  // What it leaves out is not of its space.
  return { fitting, rejected, leftOut, evaluated: evaluated - leftOut, least };
}

/** Families that have a plan ahead of one: faster, or as fast with less memory. */
function familiesAhead(fitting: readonly Scored[], located: Scored): number {
  const ahead = fitting.filter(
    ({ seconds, bytes }) =>
      seconds < located.seconds || (seconds === located.seconds && bytes < located.bytes),
  );
  return new Set(ahead.map(({ plan }) => familyOf(plan))).size;
}

export interface WholePlansResult extends SearchResult {
  /** Plans that fit, and whose time the published planner does not know. */
  readonly leftOut: number;
}

/** Exact top-k of a space whose every plan is looked at. */
export function searchWholePlans(model: CostModel, options: SearchOptions): WholePlansResult {
  const { fitting, rejected, leftOut, evaluated, least } = judge(model, new Watch(options));
  const best = new Top(options.top, familyOf);
  const plans = new Top(options.plans ?? 0);
  for (const scored of fitting) {
    if (options.accepts?.plan(scored.plan) === false) continue;
    best.offer(scored);
    plans.offer(scored);
  }
  const tied = ({ plan, seconds }: Scored): number =>
    fitting.filter((one) => one.seconds === seconds && familyOf(one.plan) === familyOf(plan)).length - 1;
  const asked = options.ranks === undefined ? null : new Set(options.ranks);
  return {
    best: best.best
      .map((scored, index) => ({ ...scored, rank: index + 1, tied: tied(scored) }))
      .filter(({ rank }) => asked?.has(rank) ?? true),
    plans: plans.best,
    evaluated,
    feasible: fitting.length,
    rejected,
    pruned: 0,
    rank: options.locate === undefined ? null : 1 + familiesAhead(fitting, options.locate),
    closest: fitting.length === 0 ? least : null,
    leftOut,
  };
}

/** Families of which some plan fits and has a time. */
export const countFamiliesOfWholePlans = (model: CostModel, options: WatchOptions = {}): number =>
  new Set(judge(model, new Watch(options)).fitting.map(({ plan }) => familyOf(plan))).size;
