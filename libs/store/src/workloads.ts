import { randomUUID } from "node:crypto";
import { and, asc, desc, eq, lte, sql } from "drizzle-orm";
import {
  DEFAULT_PROJECT,
  ProblemError,
  type Candidate,
  type JobSpec,
  type Proposal,
  type Workload,
} from "@internevo/domain";
import { sqlStateOf } from "./connection-loss.ts";
import type { Queryable, Transaction } from "./database.ts";
import { announceProposal } from "./events.ts";
import { orNoProject } from "./no-project.ts";
import { enqueueMessage } from "./outbox.ts";
import { decodeCursor, isUuid, pageLimit, pageOf, type Page, type PageRequest } from "./pages.ts";
import { proposals, workloadFirings, workloads, type FiringState } from "./schema/index.ts";
import { newTraceparent } from "./trace.ts";

const workloadOf = (row: typeof workloads.$inferSelect): Workload => ({
  ...row,
  nextRunAt: row.nextRunAt?.toISOString() ?? null,
  lastRunAt: row.lastRunAt?.toISOString() ?? null,
  createdAt: row.createdAt.toISOString(),
});

export interface NewWorkload {
  readonly name: string;
  /** `spec.project` says which project it belongs to. */
  readonly spec: JobSpec;
  readonly cron: string;
  readonly timeZone: string;
  readonly catchUpWindowSeconds: number;
  readonly gainThreshold: number;
  /** The first time, as the caller's cron library says; null: never. */
  readonly nextRunAt: Date | null;
}

/**
 * @throws ProblemError `conflict` when the name is taken in its project; `not-found` when its project is gone.
 */
export async function createWorkload(tx: Queryable, workload: NewWorkload): Promise<Workload> {
  const { project = DEFAULT_PROJECT } = workload.spec;
  try {
    const [row] = await tx
      .insert(workloads)
      .values({ id: randomUUID(), ...workload, project, createdAt: sql`clock_timestamp()` })
      .returning();
    if (!row) throw new Error("the workload was not stored");
    return workloadOf(row);
  } catch (error) {
    if (sqlStateOf(error) !== "23505") throw orNoProject(error, project);
    throw new ProblemError("conflict", `there is a workload named ${workload.name} already in its project`, [
      {
        field: "name",
        value: workload.name,
        message: "is taken",
        remedy: "choose another name, or delete the other workload",
      },
    ]);
  }
}

export async function getWorkload(db: Queryable, id: string): Promise<Workload | undefined> {
  if (!isUuid(id)) return undefined;
  const [row] = await db.select().from(workloads).where(eq(workloads.id, id));
  return row && workloadOf(row);
}

/** Newest first. @param only of this project; null: all. */
export async function listWorkloads(
  db: Queryable,
  request: PageRequest = {},
  only: string | null = null,
): Promise<Page<Workload>> {
  const limit = pageLimit(request);
  const after = decodeCursor(request.cursor);
  const rows = await db
    .select()
    .from(workloads)
    .where(
      and(
        only === null ? undefined : eq(workloads.project, only),
        after &&
          sql`(${workloads.createdAt}, ${workloads.id}) < (${after.at.toISOString()}::timestamptz, ${after.id}::uuid)`,
      ),
    )
    .orderBy(desc(workloads.createdAt), desc(workloads.id))
    .limit(limit + 1);
  return pageOf(rows, limit, (row) => ({ at: row.createdAt, id: row.id }), workloadOf);
}

/** Deletes a workload with its firings and proposals. @returns whether it was there. */
export async function deleteWorkload(tx: Queryable, id: string): Promise<boolean> {
  if (!isUuid(id)) return false;
  const rows = await tx.delete(workloads).where(eq(workloads.id, id)).returning({ id: workloads.id });
  return rows.length === 1;
}

export interface Firing {
  readonly id: string;
  readonly workloadId: string;
  readonly scheduledFor: string;
  readonly trigger: "schedule" | "person";
  readonly state: FiringState;
  readonly outcome: string | null;
  readonly traceparent: string;
}

const firingOf = (row: typeof workloadFirings.$inferSelect): Firing => ({
  id: row.id,
  workloadId: row.workloadId,
  scheduledFor: row.scheduledFor.toISOString(),
  trigger: row.trigger,
  state: row.state,
  outcome: row.outcome,
  traceparent: row.traceparent,
});

async function storeFiring(
  tx: Transaction,
  workloadId: string,
  scheduledFor: Date,
  trigger: Firing["trigger"],
  skipped: string | null,
): Promise<Firing | undefined> {
  const traceparent = newTraceparent();
  const [row] = await tx
    .insert(workloadFirings)
    .values({
      id: randomUUID(),
      workloadId,
      scheduledFor,
      trigger,
      state: skipped ? "skipped" : "pending",
      outcome: skipped,
      traceparent,
      endedAt: skipped ? sql`clock_timestamp()` : null,
    })
    .onConflictDoNothing()
    .returning();
  if (!row) return undefined;
  if (!skipped)
    await enqueueMessage(tx, {
      type: "workload.replan",
      data: { workloadId, firingId: row.id },
      traceparent,
    });
  await tx
    .update(workloads)
    .set({ lastRunAt: scheduledFor, lastOutcome: skipped ? `skipped: ${skipped}` : null })
    .where(eq(workloads.id, workloadId));
  return firingOf(row);
}

const hasPendingFiring = async (tx: Transaction, workloadId: string): Promise<boolean> => {
  const rows = await tx
    .select({ id: workloadFirings.id })
    .from(workloadFirings)
    .where(and(eq(workloadFirings.workloadId, workloadId), eq(workloadFirings.state, "pending")))
    .limit(1);
  return rows.length > 0;
};

/**
 * Fires what is due: row, command and next time in one transaction, rows locked so that two replanners never
 * fire twice. While an earlier firing is still at work, or the catch-up window has passed, the firing is
 * stored as skipped, with the reason.
 * @param options.nextRunAt the time after `after`, by the caller's cron library; null: never again.
 */
export async function fireDueWorkloads(
  tx: Transaction,
  options: {
    readonly now: Date;
    readonly nextRunAt: (workload: Workload, after: Date) => Date | null;
    readonly limit?: number;
  },
): Promise<Firing[]> {
  const due = await tx
    .select()
    .from(workloads)
    .where(and(eq(workloads.enabled, true), lte(workloads.nextRunAt, options.now)))
    .orderBy(asc(workloads.nextRunAt))
    .limit(options.limit ?? 20)
    .for("update", { skipLocked: true });
  const fired: Firing[] = [];
  for (const row of due) {
    const scheduledFor = row.nextRunAt ?? options.now;
    const lateSeconds = (options.now.getTime() - scheduledFor.getTime()) / 1000;
    let skipped: string | null = null;
    if (lateSeconds > row.catchUpWindowSeconds)
      skipped = `${Math.round(lateSeconds)} s late, beyond the catch-up window of ${row.catchUpWindowSeconds} s`;
    else if (await hasPendingFiring(tx, row.id)) skipped = "the run before is still at work";
    const firing = await storeFiring(tx, row.id, scheduledFor, "schedule", skipped);
    if (firing) fired.push(firing);
    await tx
      .update(workloads)
      .set({ nextRunAt: options.nextRunAt(workloadOf(row), options.now) })
      .where(eq(workloads.id, row.id));
  }
  return fired;
}

/** Runs a workload now. @throws ProblemError `not-found`; `conflict` while a run is at work. */
export async function fireWorkloadNow(tx: Transaction, workloadId: string): Promise<Firing> {
  const [row] = isUuid(workloadId)
    ? await tx.select().from(workloads).where(eq(workloads.id, workloadId)).for("update")
    : [];
  if (!row)
    throw new ProblemError("not-found", `there is no workload ${workloadId}`, [
      { field: "id", value: workloadId, message: "names no workload", remedy: "see the list of workloads" },
    ]);
  const firing = (await hasPendingFiring(tx, workloadId))
    ? undefined
    : await storeFiring(tx, workloadId, new Date(), "person", null);
  if (!firing)
    throw new ProblemError("conflict", `workload ${row.name} is being planned already`, [
      { field: "workloadId", value: workloadId, message: "has a run at work", remedy: "wait for it to end" },
    ]);
  return firing;
}

export async function getFiring(db: Queryable, firingId: string): Promise<Firing | undefined> {
  if (!isUuid(firingId)) return undefined;
  const [row] = await db.select().from(workloadFirings).where(eq(workloadFirings.id, firingId));
  return row && firingOf(row);
}

/** Ends a firing that is at work. @returns false when it had ended: its outcome is counted once. */
export async function finishFiring(
  tx: Transaction,
  firingId: string,
  end: { readonly state: "succeeded" | "failed"; readonly outcome: string },
): Promise<boolean> {
  const [row] = await tx
    .update(workloadFirings)
    .set({ state: end.state, outcome: end.outcome, endedAt: sql`clock_timestamp()` })
    .where(and(eq(workloadFirings.id, firingId), eq(workloadFirings.state, "pending")))
    .returning({ workloadId: workloadFirings.workloadId });
  if (!row) return false;
  await tx.update(workloads).set({ lastOutcome: end.outcome }).where(eq(workloads.id, row.workloadId));
  return true;
}

const proposalOf = (row: typeof proposals.$inferSelect): Proposal => ({
  id: row.id,
  workloadId: row.workloadId,
  current: row.current,
  proposed: row.proposed,
  predictedGain: row.predictedGain,
  differences: row.differences,
  createdAt: row.createdAt.toISOString(),
});

export interface NewProposal {
  readonly workloadId: string;
  readonly firingId: string;
  readonly planningId: string | null;
  readonly current: Candidate | null;
  readonly proposed: Candidate;
  readonly predictedGain: number;
  readonly differences: Proposal["differences"];
}

/** Stores a better plan. @returns undefined when this firing has made one already. */
export async function createProposal(tx: Queryable, proposal: NewProposal): Promise<Proposal | undefined> {
  const [row] = await tx
    .insert(proposals)
    .values({ id: randomUUID(), ...proposal, createdAt: sql`clock_timestamp()` })
    .onConflictDoNothing()
    .returning();
  if (!row) return undefined;
  await announceProposal(tx, row.workloadId, {
    proposalId: row.id,
    predictedGain: row.predictedGain,
    current: row.current?.plan ?? null,
    proposed: row.proposed.plan,
  });
  return proposalOf(row);
}

/** Newest first. */
export async function listProposals(
  db: Queryable,
  workloadId: string,
  request: PageRequest = {},
): Promise<Page<Proposal>> {
  if (!isUuid(workloadId)) return { items: [], nextCursor: null };
  const limit = pageLimit(request);
  const after = decodeCursor(request.cursor);
  const rows = await db
    .select()
    .from(proposals)
    .where(
      and(
        eq(proposals.workloadId, workloadId),
        after &&
          sql`(${proposals.createdAt}, ${proposals.id}) < (${after.at.toISOString()}::timestamptz, ${after.id}::uuid)`,
      ),
    )
    .orderBy(desc(proposals.createdAt), desc(proposals.id))
    .limit(limit + 1);
  return pageOf(rows, limit, (row) => ({ at: row.createdAt, id: row.id }), proposalOf);
}
