import { randomUUID } from "node:crypto";
import { and, asc, desc, eq, getTableColumns, gt, isNull, lt, max, or, sql } from "drizzle-orm";
import {
  ProblemError,
  type Attempt,
  type Candidate,
  type Failure,
  type StepMetric,
  type ValidationLoss,
} from "@internevo/domain";
import type { Queryable, Transaction } from "./database.ts";
import { attemptEnded, jobEvent, jobOfRun } from "./events.ts";
import { keepReplacedSteps } from "./job-events.ts";
import { appendJobEvents, lockJobLog } from "./jobs.ts";
import { storedStepOf } from "./last-step.ts";
import { enqueueMessages } from "./outbox.ts";
import type { Page } from "./pages.ts";
import { attempts, runs, stepMetrics, validationLosses } from "./schema/index.ts";

/** The job's run, made at the first call. */
export async function ensureRun(
  tx: Transaction,
  jobId: string,
  candidate: Candidate,
): Promise<{ readonly id: string; readonly candidate: Candidate }> {
  await tx.insert(runs).values({ id: randomUUID(), jobId, candidate }).onConflictDoNothing();
  const [row] = await tx
    .select({ id: runs.id, candidate: runs.candidate })
    .from(runs)
    .where(eq(runs.jobId, jobId));
  if (!row) throw new Error(`the run of job ${jobId} is missing`);
  return row;
}

/** The run of a job, if training has begun. */
export async function findRun(
  db: Queryable,
  jobId: string,
): Promise<{ readonly id: string; readonly candidate: Candidate } | undefined> {
  const [row] = await db
    .select({ id: runs.id, candidate: runs.candidate })
    .from(runs)
    .where(eq(runs.jobId, jobId));
  return row;
}

const attemptOf = (row: typeof attempts.$inferSelect): Attempt => ({
  number: row.number,
  state: row.state,
  resumedFromStep: row.resumedFromStep,
  lastStep: row.lastStep,
  failure: row.failure,
  ...(row.plan === null ? {} : { plan: row.plan }),
  ...(row.gaveWayTo === null ? {} : { gaveWayTo: row.gaveWayTo }),
  startedAt: row.startedAt.toISOString(),
  endedAt: row.endedAt?.toISOString() ?? null,
});

/**
 * Begins the next attempt, with the run's plan; one that still counts as running is lost (its supervisor
 * died). @returns the new one.
 */
export async function startAttempt(tx: Transaction, runId: string, resumedFromStep = 0): Promise<Attempt> {
  const [run] = await tx
    .select({ candidate: runs.candidate })
    .from(runs)
    .where(eq(runs.id, runId))
    .for("update");
  const lost = await tx
    .update(attempts)
    .set({ state: "lost", endedAt: sql`clock_timestamp()` })
    .where(and(eq(attempts.runId, runId), eq(attempts.state, "running")))
    .returning();
  const [last] = await tx
    .select({ number: max(attempts.number) })
    .from(attempts)
    .where(eq(attempts.runId, runId));
  const [row] = await tx
    .insert(attempts)
    .values({
      runId,
      number: (last?.number ?? 0) + 1,
      resumedFromStep,
      lastStep: resumedFromStep,
      plan: run?.candidate.plan ?? null,
      startedAt: sql`clock_timestamp()`,
    })
    .returning();
  if (!row) throw new Error(`the attempt of run ${runId} was not stored`);
  const job = await jobOfRun(tx, runId);
  if (job)
    await enqueueMessages(tx, [
      ...lost.map((each) => attemptEnded(job, each)),
      jobEvent(job, "attempt.begun", { number: row.number, resumedFromStep }),
    ]);
  return attemptOf(row);
}

/** Where the ranks really resumed, as they say after loading the checkpoint. */
export async function setAttemptResumedFrom(
  tx: Transaction,
  runId: string,
  number: number,
  resumedFromStep: number,
): Promise<void> {
  await tx
    .update(attempts)
    .set({ resumedFromStep, lastStep: sql`greatest(${attempts.lastStep}, ${resumedFromStep})` })
    .where(and(eq(attempts.runId, runId), eq(attempts.number, number)));
}

/** What else the hosts did while an attempt ran, in sentences; none where it was alone. */
export async function recordDisturbances(
  tx: Transaction,
  runId: string,
  number: number,
  disturbances: readonly string[],
): Promise<void> {
  await tx
    .update(attempts)
    .set({ disturbances })
    .where(and(eq(attempts.runId, runId), eq(attempts.number, number)));
}

/** Ends an attempt that runs. @returns false when it had ended already. */
export async function finishAttempt(
  tx: Transaction,
  runId: string,
  number: number,
  outcome: { readonly state: Exclude<Attempt["state"], "running">; readonly failure?: Failure },
): Promise<boolean> {
  const [row] = await tx
    .update(attempts)
    .set({ state: outcome.state, failure: outcome.failure ?? null, endedAt: sql`clock_timestamp()` })
    .where(and(eq(attempts.runId, runId), eq(attempts.number, number), eq(attempts.state, "running")))
    .returning();
  if (!row) return false;
  const job = await jobOfRun(tx, runId);
  if (job) await enqueueMessages(tx, [attemptEnded(job, row)]);
  return true;
}

/** A checkpoint that ranks have written. */
export interface WrittenCheckpoint {
  readonly step: number;
  readonly bytes: number;
  readonly seconds: number;
}

/**
 * Announces a checkpoint of an attempt. Whoever finds ranks again is told of all that they wrote: each is
 * announced once.
 */
export async function recordCheckpoint(
  tx: Transaction,
  run: { readonly runId: string; readonly attempt: number },
  checkpoint: WrittenCheckpoint,
): Promise<void> {
  const { step, bytes, seconds } = checkpoint;
  const rows = await tx
    .update(attempts)
    .set({ checkpointStep: step })
    .where(
      and(
        eq(attempts.runId, run.runId),
        eq(attempts.number, run.attempt),
        or(isNull(attempts.checkpointStep), lt(attempts.checkpointStep, step)),
      ),
    )
    .returning({ number: attempts.number });
  const job = rows.length === 1 ? await jobOfRun(tx, run.runId) : undefined;
  if (job)
    await enqueueMessages(tx, [
      jobEvent(job, "checkpoint.written", { attempt: run.attempt, step, bytes, seconds }),
    ]);
}

export async function listAttempts(db: Queryable, runId: string): Promise<Attempt[]> {
  const rows = await db
    .select()
    .from(attempts)
    .where(eq(attempts.runId, runId))
    .orderBy(asc(attempts.number));
  return rows.map(attemptOf);
}

/**
 * Stores steps, each of which is an event of the job's log. A step that a later attempt ran again replaces the
 * earlier one, and is an event anew; a repeated write changes and announces nothing.
 * @param metrics steps of one attempt, each at most once.
 */
export async function recordSteps(
  tx: Transaction,
  run: { readonly jobId: string; readonly runId: string },
  metrics: readonly StepMetric[],
): Promise<void> {
  const last = metrics.at(-1);
  if (!last) return;
  await lockJobLog(tx, run.jobId);
  const steps = metrics.map(({ step }) => step);
  await keepReplacedSteps(tx, run, steps, last.attempt);
  const { runId: _run, step: _step, ...replaced } = getTableColumns(stepMetrics);
  await tx
    .insert(stepMetrics)
    .values(metrics.map((metric) => ({ ...metric, runId: run.runId, at: new Date(metric.at) })))
    .onConflictDoUpdate({
      target: [stepMetrics.runId, stepMetrics.step],
      set: Object.fromEntries(
        Object.entries(replaced).map(([key, { name }]) => [key, sql.raw(`excluded.${name}`)]),
      ),
      setWhere: sql`${stepMetrics.attempt} < excluded.attempt`,
    });
  await tx
    .update(attempts)
    .set({ lastStep: sql`greatest(${attempts.lastStep}, ${last.step})` })
    .where(and(eq(attempts.runId, run.runId), eq(attempts.number, last.attempt)));
}

export const metricOf = (row: typeof stepMetrics.$inferSelect): StepMetric => {
  const { runId: _, eventId: _event, at, ...figures } = row;
  return { ...figures, at: at.toISOString() };
};

/** All steps of a run, in order: for runs that are known to be short. `stepTotals` adds up those of any. */
export async function allSteps(db: Queryable, runId: string): Promise<StepMetric[]> {
  const rows = await db
    .select()
    .from(stepMetrics)
    .where(eq(stepMetrics.runId, runId))
    .orderBy(asc(stepMetrics.step));
  return rows.map(metricOf);
}

/** The last step that a run can go on from: all up to it are stored, of its newest attempt and those before it. */
export async function lastStoredStep(db: Queryable, runId: string): Promise<number> {
  const { rows } = await db.execute<{ step: number }>(sql`
    select ${sql.raw(storedStepOf("a.run_id", "a.number", "a.resumed_from_step"))} as step
    from ${attempts} a where a.run_id = ${runId} order by a.number desc limit 1`);
  return rows[0]?.step ?? 0;
}

/** How many points are stored of a run, each once. */
export interface RunPoints {
  readonly steps: number;
  readonly validations: number;
}

export async function countPoints(db: Queryable, runId: string): Promise<RunPoints> {
  return {
    steps: await db.$count(stepMetrics, eq(stepMetrics.runId, runId)),
    validations: await db.$count(validationLosses, eq(validationLosses.runId, runId)),
  };
}

const lossOf = (row: typeof validationLosses.$inferSelect): ValidationLoss => {
  const { runId: _, at, ...figures } = row;
  return { ...figures, at: at.toISOString() };
};

/**
 * Stores losses of held-out data, and announces them on the job's stream. What a later attempt evaluated again
 * replaces the earlier; a repeated write changes and announces nothing.
 * @param losses of one attempt, each step at most once.
 */
export async function recordValidations(
  tx: Transaction,
  run: { readonly jobId: string; readonly runId: string },
  losses: readonly ValidationLoss[],
): Promise<void> {
  if (losses.length === 0) return;
  const written = await tx
    .insert(validationLosses)
    .values(losses.map((loss) => ({ ...loss, runId: run.runId, at: new Date(loss.at) })))
    .onConflictDoUpdate({
      target: [validationLosses.runId, validationLosses.step],
      set: {
        attempt: sql`excluded.attempt`,
        loss: sql`excluded.loss`,
        tokens: sql`excluded.tokens`,
        seconds: sql`excluded.seconds`,
        at: sql`excluded.at`,
      },
      setWhere: sql`${validationLosses.attempt} < excluded.attempt`,
    })
    .returning({ step: validationLosses.step });
  const fresh = new Set(written.map((row) => row.step));
  await appendJobEvents(
    tx,
    run.jobId,
    losses.filter(({ step }) => fresh.has(step)).map((loss) => ({ type: "validation", data: { ...loss } })),
  );
}

/** All validation losses of a run, in order. */
export async function allValidations(db: Queryable, runId: string): Promise<ValidationLoss[]> {
  const rows = await db
    .select()
    .from(validationLosses)
    .where(eq(validationLosses.runId, runId))
    .orderBy(asc(validationLosses.step));
  return rows.map(lossOf);
}

/** The newest validation loss of a run. */
export async function lastValidation(db: Queryable, runId: string): Promise<ValidationLoss | undefined> {
  const [row] = await db
    .select()
    .from(validationLosses)
    .where(eq(validationLosses.runId, runId))
    .orderBy(desc(validationLosses.step))
    .limit(1);
  return row && lossOf(row);
}

interface HistoryRequest {
  /** Only steps after this one. */
  readonly after?: number;
  /** 1 to 1000, default 200. */
  readonly limit?: number;
}

function pageLimit({ limit = 200 }: HistoryRequest): number {
  if (Number.isInteger(limit) && limit >= 1 && limit <= 1000) return limit;
  throw new ProblemError("bad-request", "limit is not valid", [
    { field: "limit", value: limit, message: "is not a page size", remedy: "use 1 to 1000" },
  ]);
}

/** What was read for a page, with one item more where another page follows. */
function pageOf<T extends { readonly step: number }>(rows: readonly T[], limit: number): Page<T> {
  const items = rows.slice(0, limit);
  return { items, nextCursor: rows.length > limit ? String(items.at(-1)?.step) : null };
}

/** Not a join: with one Postgres reads all steps of the run that follow, and sorts them. */
const runOf = (db: Queryable, jobId: string) =>
  db.select({ id: runs.id }).from(runs).where(eq(runs.jobId, jobId));

/**
 * A page of a job's steps, oldest first.
 * @returns `nextCursor` is the last step, as text; null when no more is stored yet.
 */
export async function listStepMetrics(
  db: Queryable,
  jobId: string,
  request: HistoryRequest = {},
): Promise<Page<StepMetric>> {
  const limit = pageLimit(request);
  const rows = await db
    .select()
    .from(stepMetrics)
    .where(and(eq(stepMetrics.runId, runOf(db, jobId)), gt(stepMetrics.step, request.after ?? 0)))
    .orderBy(asc(stepMetrics.step))
    .limit(limit + 1);
  return pageOf(rows.map(metricOf), limit);
}

/** A page of a job's validation losses, as `listStepMetrics` has steps. */
export async function listValidations(
  db: Queryable,
  jobId: string,
  request: HistoryRequest = {},
): Promise<Page<ValidationLoss>> {
  const limit = pageLimit(request);
  const rows = await db
    .select()
    .from(validationLosses)
    .where(and(eq(validationLosses.runId, runOf(db, jobId)), gt(validationLosses.step, request.after ?? -1)))
    .orderBy(asc(validationLosses.step))
    .limit(limit + 1);
  return pageOf(rows.map(lossOf), limit);
}
