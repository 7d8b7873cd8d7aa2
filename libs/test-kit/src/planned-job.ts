import type { Candidate } from "@internevo/domain";
import { getJobDetail, updateJob } from "@internevo/store";
import { smallJob, type World } from "./world.ts";

/** A job with one quick trial on two ranks, which writes no checkpoint but those that are asked for. */
export const quicklyTried = (over: Record<string, unknown>): Record<string, unknown> =>
  smallJob({
    cluster: { name: "shared", nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" },
    globalBatchTokens: 2048,
    trials: { count: 1, warmupSteps: 0, steps: 1, repeats: 0 },
    checkpointing: { everySteps: 1_000_000, keepLast: 1 },
    ...over,
  });

/** A job that is to train, with the plan that it was given. */
export interface GivenPlan {
  readonly given: Candidate;
  /** What its plans were searched by. */
  readonly profileId: string | null;
}

/**
 * Waits until a job is to train, and gives it another of its plans. No supervisor may run yet.
 * @param choose one of the plans that the search found, the best first
 */
export async function givePlan(
  world: World,
  jobId: string,
  choose: (found: readonly Candidate[]) => Candidate | undefined,
): Promise<GivenPlan> {
  await world.untilState(jobId, "running", 300);
  const { planning, profileId = null } = (await getJobDetail(world.database.db, jobId)) ?? {};
  const given = choose(planning?.runnableCandidates ?? []);
  if (!given) throw new Error("the search found no such plan");
  await world.database.transaction((tx) => updateJob(tx, jobId, { chosen: given }));
  return { given, profileId };
}

/** The slowest plan of those that were found, by prediction. */
export const slowestPlan = (found: readonly Candidate[]): Candidate | undefined =>
  [...found].sort((a, b) => b.predicted.stepTimeSeconds - a.predicted.stepTimeSeconds)[0];
