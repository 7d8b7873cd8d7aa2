import { eq, max, sql } from "drizzle-orm";
import type { Queryable } from "./database.ts";
import { runs, stepMetrics } from "./schema/index.ts";

/** The mean of steps that follow one another. */
export interface MeanOfSteps {
  /** The last of them. */
  readonly step: number;
  readonly steps: number;
  readonly loss: number;
  readonly stepTimeSeconds: number;
  readonly tokensPerSecond: number;
}

/** A job's training in so many points at most, oldest first; exact where it has no more steps. */
export async function thinnedSteps(db: Queryable, jobId: string, mostPoints: number): Promise<MeanOfSteps[]> {
  // Not a join: with one Postgres reads all steps of the run that follow, and sorts them.
  const ofJob = eq(stepMetrics.runId, db.select({ id: runs.id }).from(runs).where(eq(runs.jobId, jobId)));
  const [{ last = null } = {}] = await db
    .select({ last: max(stepMetrics.step) })
    .from(stepMetrics)
    .where(ofJob);
  if (last === null) return [];
  const group = sql`(${stepMetrics.step} - 1) / ${sql.raw(String(Math.ceil(last / mostPoints)))}`;
  return db
    .select({
      step: sql<number>`max(${stepMetrics.step})`,
      steps: sql<number>`count(*)::int`,
      loss: sql<number>`avg(${stepMetrics.loss})`,
      stepTimeSeconds: sql<number>`avg(${stepMetrics.stepTimeSeconds})`,
      tokensPerSecond: sql<number>`avg(${stepMetrics.tokensPerSecond})`,
    })
    .from(stepMetrics)
    .where(ofJob)
    .groupBy(group)
    .orderBy(group);
}
