import type { JobStreamEvent } from "@internevo/contracts";
import type { Attempt, StepMetric } from "@internevo/domain";
import { allSteps, findRun, listAttempts, type Queryable } from "@internevo/store";

/** A step of a job's training, from this one on. */
export const stepEvent =
  (least: number) =>
  ({ type, data }: JobStreamEvent): boolean =>
    type === "step" && (data["step"] as number) >= least;

/** Progress that is told in such words. */
export const progressOf =
  (words: RegExp) =>
  ({ type, data }: JobStreamEvent): boolean =>
    type === "progress" && words.test(String(data["message"]));

/** The numbers of so many steps, the first is 1. */
export const upTo = (steps: number): number[] => Array.from({ length: steps }, (_, index) => index + 1);

/** The training of a job, which has begun. */
export async function runOf(
  db: Queryable,
  jobId: string,
): Promise<{ readonly id: string; readonly steps: StepMetric[]; readonly attempts: Attempt[] }> {
  const run = await findRun(db, jobId);
  if (!run) throw new Error("the job has no run");
  return { id: run.id, steps: await allSteps(db, run.id), attempts: await listAttempts(db, run.id) };
}
