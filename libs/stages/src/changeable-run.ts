import { ProblemError, worldSize, type Candidate, type JobSpec } from "@internevo/domain";
import { clusterRanks } from "@internevo/plan";

/** @throws ProblemError `conflict` for a job that trains, and whose plan nothing can change */
export function assertChangeableRun(
  job: { readonly id: string; readonly spec: JobSpec },
  run: Candidate,
): void {
  if (job.spec.checkpointing === null)
    throw unchangeable(
      job.id,
      "writes no checkpoints to go on from",
      "submit it with `checkpointing`, or submit it again with the other plan",
    );
  if (worldSize(run.plan) !== clusterRanks(job.spec))
    throw unchangeable(
      job.id,
      "runs on fewer nodes than it asked for",
      "wait until it has ended, and submit it again",
    );
}

/** Why the plan of a job cannot be changed. */
export const unchangeable = (jobId: string, message: string, remedy: string): ProblemError =>
  new ProblemError("conflict", `the plan of job ${jobId} cannot be changed: it ${message}`, [
    { field: "id", value: jobId, message, remedy },
  ]);
