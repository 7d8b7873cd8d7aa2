import { headSize, usesGpus, type JobSpec, type Plan, type Precision } from "@internevo/domain";

export interface Runnable {
  readonly runnable: boolean;
  /** Why the executor does not run the plan today; null when it does. */
  readonly reason: string | null;
}

const no = (reason: string): Runnable => ({ runnable: false, reason });

/** Precision policies of the executor. */
export const EXECUTOR_PRECISIONS: readonly Precision[] = ["fp32", "bf16"];

/** Elements of a head that the kernels of attention have on GPUs. */
const GPU_LARGEST_HEAD = 256;

/** Whether the executor runs a plan of a job today, and if not, why. The plan is taken to be feasible. */
export function isRunnable(_plan: Plan, { precision, model, cluster }: Pick<JobSpec, "precision" | "model" | "cluster">): Runnable {
  if (!EXECUTOR_PRECISIONS.includes(precision)) return no(`the executor does not run precision ${precision} yet`);
  if (usesGpus(cluster) && headSize(model) > GPU_LARGEST_HEAD) return no(`the executor runs heads of ${GPU_LARGEST_HEAD} at most on GPUs, and the model's are of ${headSize(model)}`);
  return { runnable: true, reason: null };
}
