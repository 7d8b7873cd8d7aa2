import type { JobSpec, Plan, Precision } from "@internevo/domain";

export interface Runnable {
  readonly runnable: boolean;
  /** Why the executor does not run the plan today; null when it does. */
  readonly reason: string | null;
}

const no = (reason: string): Runnable => ({ runnable: false, reason });

/** Precision policies of the executor. */
export const EXECUTOR_PRECISIONS: readonly Precision[] = ["fp32", "bf16"];

/** Whether the executor runs a plan of a job today, and if not, why. The plan is taken to be feasible. */
export function isRunnable(_plan: Plan, spec: Pick<JobSpec, "precision">): Runnable {
  if (!EXECUTOR_PRECISIONS.includes(spec.precision)) return no(`the executor does not run precision ${spec.precision} yet`);
  return { runnable: true, reason: null };
}
