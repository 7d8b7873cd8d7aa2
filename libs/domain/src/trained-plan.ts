import type { Attempt } from "./execution.ts";
import type { PlanChange } from "./plan-change.ts";
import { planLabel } from "./plan-fields.ts";
import type { Plan } from "./plan.ts";

/** What is known of the plans of a job. */
export interface PlansOfJob {
  readonly report: { readonly plan: Plan } | null;
  /** In the order of their numbers. */
  readonly attempts: readonly Pick<Attempt, "plan">[];
  readonly chosen: { readonly plan: Plan } | null;
  /** The last change of its plan; undefined: there was none. */
  readonly planChange?: Pick<PlanChange, "state" | "from" | "to"> | undefined;
}

/** The plan that a job goes back to at its next start; undefined where its last attempt had it already. */
function takenBack({ planChange }: PlansOfJob, last: Plan): Plan | undefined {
  if (planChange?.state !== "returned") return undefined;
  return planLabel(last) === planLabel(planChange.to.plan) ? planChange.from.plan : undefined;
}

/**
 * The plan that a job trains with, goes on with, or trained with last: it may be another one than its trials chose.
 * Null before one is chosen.
 */
export function trainedPlan(job: PlansOfJob): Plan | null {
  const { report, attempts, chosen } = job;
  if (report) return report.plan;
  const last = attempts.findLast(({ plan }) => plan !== undefined)?.plan;
  return (last && takenBack(job, last)) ?? last ?? chosen?.plan ?? null;
}

/** The plan that a job went over to; null where it trains with the one that its trials chose. */
export function planWentOverTo(job: PlansOfJob): Plan | null {
  const plan = trainedPlan(job);
  return plan === null || job.chosen === null || planLabel(plan) === planLabel(job.chosen.plan) ? null : plan;
}
