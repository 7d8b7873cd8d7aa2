import { eq, max, sql, type SQL } from "drizzle-orm";
import type { Queryable } from "./database.ts";
import { runs, stepMetrics } from "./schema/index.ts";

/** The mean of steps that follow one another. */
export interface MeanOfSteps {
  /** The last of them. */
  readonly step: number;
  readonly steps: number;
  readonly loss: number;
}

/** All steps of an attempt that count. */
export interface StepsOfAttempt {
  readonly attempt: number;
  readonly steps: number;
  readonly seconds: number;
}

/** What a job's attempts trained, each step once. */
export const stepsByAttempt = (db: Queryable, jobId: string): Promise<StepsOfAttempt[]> =>
  db
    .select({
      attempt: stepMetrics.attempt,
      steps: sql<number>`count(*)::int`,
      seconds: sql<number>`sum(${stepMetrics.stepTimeSeconds})`,
    })
    .from(stepMetrics)
    .where(ofJob(db, jobId))
    .groupBy(stepMetrics.attempt)
    .orderBy(stepMetrics.attempt);

// Not a join: with one Postgres reads all steps of the run that follow, and sorts them.
const ofJob = (db: Queryable, jobId: string): SQL =>
  eq(stepMetrics.runId, db.select({ id: runs.id }).from(runs).where(eq(runs.jobId, jobId)));

/** A job's training in so many points at most, oldest first; exact where it has no more steps. */
export async function thinnedSteps(db: Queryable, jobId: string, mostPoints: number): Promise<MeanOfSteps[]> {
  const [{ last = null } = {}] = await db
    .select({ last: max(stepMetrics.step) })
    .from(stepMetrics)
    .where(ofJob(db, jobId));
  if (last === null) return [];
  const group = sql`(${stepMetrics.step} - 1) / ${sql.raw(String(Math.ceil(last / mostPoints)))}`;
  return db
    .select({
      step: sql<number>`max(${stepMetrics.step})`,
      steps: sql<number>`count(*)::int`,
      loss: sql<number>`avg(${stepMetrics.loss})`,
    })
    .from(stepMetrics)
    .where(ofJob(db, jobId))
    .groupBy(group)
    .orderBy(group);
}
