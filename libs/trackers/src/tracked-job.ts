import { countPoints, findRun, getJob, listAttempts, type Queryable } from "@internevo/store";
import type { TrackedJob } from "./metrics.ts";

/** A job as trackers describe it, as it is now. */
export async function readTrackedJob(db: Queryable, jobId: string): Promise<TrackedJob> {
  const job = await getJob(db, jobId);
  if (!job) throw new Error(`job ${jobId} is gone`);
  const run = await findRun(db, jobId);
  return {
    ...job,
    attempts: run ? await listAttempts(db, run.id) : [],
    countPoints: async () => (run ? countPoints(db, run.id) : { steps: 0, validations: 0 }),
  };
}
