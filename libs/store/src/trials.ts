import { randomUUID } from "node:crypto";
import { and, asc, eq, inArray, sql } from "drizzle-orm";
import { runsOf, type Candidate, type Failure, type Measurement, type Trial } from "@internevo/domain";
import type { Queryable, Transaction } from "./database.ts";
import { jobSubject, trialEnded } from "./events.ts";
import { appendJobEvent } from "./jobs.ts";
import { enqueueMessages } from "./outbox.ts";
import { trials } from "./schema/index.ts";

const trialOf = (row: typeof trials.$inferSelect): Trial => ({
  id: row.id,
  candidate: row.candidate,
  state: row.state,
  measured: row.measured,
  failure: row.failure,
  startedAt: row.startedAt?.toISOString() ?? null,
  endedAt: row.endedAt?.toISOString() ?? null,
});

/**
 * Makes the job's trials, one a candidate; those that are there already stay. @returns all of them, best
 * predicted first.
 */
export async function createTrials(
  tx: Transaction,
  jobId: string,
  candidates: readonly Candidate[],
): Promise<Trial[]> {
  if (candidates.length > 0) {
    await tx
      .insert(trials)
      .values(candidates.map((candidate) => ({ id: randomUUID(), jobId, rank: candidate.rank, candidate })))
      .onConflictDoNothing();
  }
  return listTrials(tx, jobId);
}

/** Best predicted first. */
export async function listTrials(db: Queryable, jobId: string): Promise<Trial[]> {
  const rows = await db.select().from(trials).where(eq(trials.jobId, jobId)).orderBy(asc(trials.rank));
  return rows.map(trialOf);
}

/**
 * Starts a trial, or starts it again when it was interrupted. @returns undefined when it has ended: it is
 * counted once.
 */
export async function startTrial(tx: Transaction, trialId: string): Promise<Trial | undefined> {
  const [row] = await tx
    .update(trials)
    .set({ state: "running", startedAt: sql`clock_timestamp()` })
    .where(and(eq(trials.id, trialId), inArray(trials.state, ["pending", "running"])))
    .returning();
  if (!row) return undefined;
  const trial = trialOf(row);
  await appendJobEvent(tx, row.jobId, "trial", { trial });
  return trial;
}

/**
 * Says what a trial that has succeeded measured with a further run. @returns undefined when it has not
 * succeeded, or was told of the run before.
 */
export async function repeatTrial(
  tx: Transaction,
  trialId: string,
  measured: Measurement,
): Promise<Trial | undefined> {
  const runs = sql`coalesce(jsonb_array_length(${trials.measured} -> 'runs'), jsonb_array_length(${trials.measured} -> 'runStepTimeSeconds'), 1)`;
  const [row] = await tx
    .update(trials)
    .set({ measured, endedAt: sql`clock_timestamp()` })
    .where(
      and(eq(trials.id, trialId), eq(trials.state, "succeeded"), sql`${runs} < ${runsOf(measured).length}`),
    )
    .returning();
  if (!row) return undefined;
  const trial = trialOf(row);
  await appendJobEvent(tx, row.jobId, "trial", { trial });
  return trial;
}

/**
 * Ends a trial that runs, with what it measured or why it failed. @returns undefined when it was not running.
 */
export async function finishTrial(
  tx: Transaction,
  trialId: string,
  outcome: { readonly measured: Measurement } | { readonly failure: Failure },
): Promise<Trial | undefined> {
  const [row] = await tx
    .update(trials)
    .set({
      state: "measured" in outcome ? "succeeded" : "failed",
      measured: "measured" in outcome ? outcome.measured : null,
      failure: "failure" in outcome ? outcome.failure : null,
      endedAt: sql`clock_timestamp()`,
    })
    .where(and(eq(trials.id, trialId), eq(trials.state, "running")))
    .returning();
  if (!row) return undefined;
  const trial = trialOf(row);
  await appendJobEvent(tx, row.jobId, "trial", { trial });
  const job = await jobSubject(tx, row.jobId);
  if (job) await enqueueMessages(tx, [trialEnded(job, row)]);
  return trial;
}
