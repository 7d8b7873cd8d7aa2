import { eq, max, sql } from "drizzle-orm";
import type { Queryable } from "./database.ts";
import { runs, stepMetrics, validationLosses } from "./schema/index.ts";

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

/** What a job trained. */
export interface TrainedSteps {
  /** Oldest first; each stands for the steps since the one before. */
  readonly points: readonly MeanOfSteps[];
  readonly attempts: readonly StepsOfAttempt[];
}

/** A loss of held-out data, or the mean of such losses that follow one another, at the last of them. */
export interface ValidationPoint {
  readonly step: number;
  readonly loss: number;
}

// Not a join: with one Postgres reads all steps of the run that follow, and sorts them.
const runOf = (db: Queryable, jobId: string) =>
  db.select({ id: runs.id }).from(runs).where(eq(runs.jobId, jobId));

/**
 * A job's training in so many points at most, exact where it has no more steps, and by its attempts. All steps are
 * read once for both.
 */
export async function trainedSteps(db: Queryable, jobId: string, mostPoints: number): Promise<TrainedSteps> {
  const ofJob = eq(stepMetrics.runId, runOf(db, jobId));
  const [{ last = null } = {}] = await db
    .select({ last: max(stepMetrics.step) })
    .from(stepMetrics)
    .where(ofJob);
  if (last === null) return { points: [], attempts: [] };
  const point = sql`((${stepMetrics.step} - 1) / ${sql.raw(String(Math.ceil(last / mostPoints)))})`;
  const rows = await db
    .select({
      // Null in the rows of points.
      attempt: sql<number | null>`${stepMetrics.attempt}`,
      step: sql<number>`max(${stepMetrics.step})`,
      steps: sql<number>`count(*)::int`,
      loss: sql<number>`avg(${stepMetrics.loss})`,
      seconds: sql<number>`sum(${stepMetrics.stepTimeSeconds})`,
    })
    .from(stepMetrics)
    .where(ofJob)
    .groupBy(sql`grouping sets ((${stepMetrics.attempt}), (${point}))`)
    .orderBy(stepMetrics.attempt, point);
  return {
    points: rows
      .filter(({ attempt }) => attempt === null)
      .map(({ step, steps, loss }) => ({ step, steps, loss })),
    attempts: rows.flatMap(({ attempt, steps, seconds }) =>
      attempt === null ? [] : [{ attempt, steps, seconds }],
    ),
  };
}

/** A job's losses of held-out data in so many points at most, oldest first; exact where it has no more. */
export async function thinnedValidations(
  db: Queryable,
  jobId: string,
  mostPoints: number,
): Promise<ValidationPoint[]> {
  const parts = db
    .select({
      step: validationLosses.step,
      loss: validationLosses.loss,
      part: sql<number>`ntile(${sql.raw(String(mostPoints))}) over (order by ${validationLosses.step})`.as(
        "part",
      ),
    })
    .from(validationLosses)
    .where(eq(validationLosses.runId, runOf(db, jobId)))
    .as("parts");
  return db
    .select({ step: sql<number>`max(${parts.step})`, loss: sql<number>`avg(${parts.loss})` })
    .from(parts)
    .groupBy(parts.part)
    .orderBy(parts.part);
}
