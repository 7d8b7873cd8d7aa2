import { CostModel } from "@internevo/cost-model";
import type { Candidate, JobSpec, Plan, Profile } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import { simulateStep } from "@internevo/simulator";
import { tauOf } from "../accuracy-statistics.ts";
import { publishedJob, publishedPrediction } from "./judgements.ts";
import { paperJob, paperSpaces, STEP_TOKENS, type PaperModel } from "./paper.ts";

/** The paper's figure of the first 50 plans, in groups of ten (its section "Analysis of Simulator"). */
export const RANKED = { model: "llama-65b", lengthsK: [4, 256], plans: 50, group: 10 } as const;

/** A ranked plan, timed by what plans are ranked with and by two other models. */
export interface RankedPlan {
  readonly plan: Plan;
  /** By the formula, from 1. */
  readonly rank: number;
  /** Tokens of a GPU a second. */
  readonly formula: number;
  readonly simulated: number;
  /** By the published planner; null where it has no time of the plan. */
  readonly published: number | null;
}

export interface Ranking {
  readonly model: PaperModel;
  readonly lengthK: number;
  readonly plans: readonly RankedPlan[];
  /** Kendall's τ of the formula's order and the other model's; null where one of them has none. */
  readonly tau: { readonly simulated: number | null; readonly published: number | null };
}

/** A pipeline is in its steady state from so many micro-batches a stage on. */
const STEADY_ROUNDS = 4;

/**
 * Seconds of a step by the event simulation. In a pipeline's steady state every micro-batch adds the same, so
 * of a long step the first micro-batches are simulated, and the others are added.
 */
export function simulatedSeconds(job: JobSpec, plan: Plan, profile: Profile): number {
  const of = (microBatches: number): number => {
    const globalBatchTokens = (job.globalBatchTokens / plan.microBatches) * microBatches;
    const own = { ...job, globalBatchTokens };
    return simulateStep(new CostModel(own, profile), planOfJob({ ...plan, microBatches }, own))
      .stepTimeSeconds;
  };
  const most = STEADY_ROUNDS * plan.pipelineParallel;
  if (plan.microBatches <= most + 1) return of(plan.microBatches);
  const [before, last] = [of(most), of(most + 1)];
  return last + (plan.microBatches - most - 1) * (last - before);
}

/** The best plan of each of the first families of the paper's ten dimensions. */
function firstPlans(job: JobSpec, profile: Profile, count: number): Candidate[] {
  return paperSpaces
    .flatMap((plan) => planJob({ ...job, plan }, profile, { top: count }).candidates)
    .sort((a, b) => a.predicted.stepTimeSeconds - b.predicted.stepTimeSeconds)
    .slice(0, count);
}

export function evaluateRanking(lengthK: number, profile: Profile): Ranking {
  const { model } = RANKED;
  const job = paperJob(model, lengthK);
  const tokens = STEP_TOKENS / (job.cluster.nodes * job.cluster.gpusPerNode);
  const published = publishedJob({ model, lengthK, batchTokens: STEP_TOKENS });
  const plans = firstPlans(job, profile, RANKED.plans).map(({ plan, predicted }, index): RankedPlan => ({
    plan,
    rank: index + 1,
    formula: predicted.tokensPerGpuPerSecond,
    simulated: tokens / simulatedSeconds(job, plan, profile),
    published: publishedPrediction(published, plan, profile)?.tokensPerGpuPerSecond ?? null,
  }));
  const orderBy = (of: (plan: RankedPlan) => number | null): number | null => {
    const timed = plans.filter((plan) => of(plan) !== null);
    return tauOf(
      timed,
      (a, b) => a.formula - b.formula,
      (a, b) => (of(a) as number) - (of(b) as number),
    ).tau;
  };
  return {
    model,
    lengthK,
    plans,
    tau: {
      simulated: orderBy(({ simulated }) => simulated),
      published: orderBy(({ published: other }) => other),
    },
  };
}

/** Plans of each group of ten, in order: "1–10", … */
export function groupsOfTen<T>(
  plans: readonly T[],
): { readonly name: string; readonly plans: readonly T[] }[] {
  return Array.from({ length: Math.ceil(plans.length / RANKED.group) }, (_, index) => {
    const first = index * RANKED.group;
    const own = plans.slice(first, first + RANKED.group);
    return { name: `${first + 1}–${first + own.length}`, plans: own };
  });
}
