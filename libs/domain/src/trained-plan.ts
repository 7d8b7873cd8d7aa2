import type { Attempt } from "./execution.ts";
import { planLabel } from "./plan-fields.ts";
import type { Plan } from "./plan.ts";

/** What is known of the plans of a job. */
export interface PlansOfJob {
  readonly report: { readonly plan: Plan } | null;
  /** In the order of their numbers. */
  readonly attempts: readonly Pick<Attempt, "plan">[];
  readonly chosen: { readonly plan: Plan } | null;
}

/**
 * The plan that a job trains with, or trained with last: it may have gone on under another one than its trials chose.
 * Null before one is chosen.
 */
export const trainedPlan = ({ report, attempts, chosen }: PlansOfJob): Plan | null =>
  report?.plan ?? attempts.findLast(({ plan }) => plan !== undefined)?.plan ?? chosen?.plan ?? null;

/** The plan that a job went over to; null where it trains with the one that its trials chose. */
export function planWentOverTo(job: PlansOfJob): Plan | null {
  const plan = trainedPlan(job);
  return plan === null || job.chosen === null || planLabel(plan) === planLabel(job.chosen.plan) ? null : plan;
}
