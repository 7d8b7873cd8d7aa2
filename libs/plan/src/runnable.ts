import { headSize, ProblemError, usesGpus, withoutTrainer, type JobSpec, type Plan } from "@internevo/domain";
import sizes from "../../../native/src/executor_sizes/executor_sizes.json" with { type: "json" };

export interface Runnable {
  readonly runnable: boolean;
  /** Why InternEvo's own trainer cannot run the plan, in words for `withoutTrainer`; null when it can. */
  readonly reason: string | null;
}

/** Elements of a head that the kernels of attention have on GPUs. */
const GPU_LARGEST_HEAD = sizes.gpuLargestHead;

/** The parts of a job that decide whether the trainer can run it. */
export type RunnableJob = Pick<JobSpec, "model" | "cluster">;

/** The field of a job that keeps the trainer from running any of its plans. */
export interface TrainerFault {
  readonly field: string;
  readonly value: unknown;
  readonly reason: string;
  readonly remedy: string;
}

/** Why the trainer can run no plan of a job; null when it can. */
export function trainerFault({ model, cluster }: RunnableJob): TrainerFault | null {
  if (usesGpus(cluster) && headSize(model) > GPU_LARGEST_HEAD) {
    const reason = `heads of ${headSize(model)} elements on GPUs, where ${GPU_LARGEST_HEAD} is the most`;
    if (model.headSize !== undefined)
      return {
        field: "model.headSize",
        value: model.headSize,
        reason,
        remedy: `use ${GPU_LARGEST_HEAD} or less, or ask for plans only: \`internevo plan\``,
      };
    const heads = Math.ceil(model.hiddenSize / GPU_LARGEST_HEAD);
    return {
      field: "model.heads",
      value: model.heads,
      reason,
      remedy: `use ${heads} heads or more, or ask for plans only: \`internevo plan\``,
    };
  }
  return null;
}

/** Whether the trainer can run a plan of a job, and if not, why. The plan is taken to be feasible. */
export function isRunnable(_plan: Plan, job: RunnableJob): Runnable {
  const fault = trainerFault(job);
  return { runnable: fault === null, reason: fault?.reason ?? null };
}

/** @throws ProblemError `job-invalid` for a job that the trainer cannot run, whatever its plan. */
export function assertTrainerRuns(job: RunnableJob): void {
  const fault = trainerFault(job);
  if (fault === null) return;
  const { field, value, reason, remedy } = fault;
  throw new ProblemError("job-invalid", withoutTrainer(reason), [
    { field, value, message: "can be planned, and InternEvo's own trainer cannot run it", remedy },
  ]);
}
