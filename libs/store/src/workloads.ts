import { randomUUID } from "node:crypto";
import { and, asc, desc, eq, getTableColumns, lte, sql } from "drizzle-orm";
import {
  DEFAULT_PROJECT,
  MOST_WORKLOADS,
  ProblemError,
  WORKLOAD_DEFAULTS,
  type JobSpec,
  type Workload,
  type WorkloadSummary,
} from "@internevo/domain";
import { sqlStateOf } from "./connection-loss.ts";
import type { Queryable, Transaction } from "./database.ts";
import { lockProject, orNoProject } from "./no-project.ts";
import { assertRoomFor } from "./project-bounds.ts";
import { enqueueMessage } from "./outbox.ts";
import { decodeCursor, isUuid, pageLimit, pageOf, type Page, type PageRequest } from "./pages.ts";
import { removePlannings } from "./plannings.ts";
import { workloadFirings, workloads, type FiringState } from "./schema/index.ts";
import { newTraceparent } from "./trace.ts";

const { spec: _spec, ...SUMMARY_COLUMNS } = getTableColumns(workloads);
type SummaryRow = Omit<typeof workloads.$inferSelect, "spec">;

const summaryOf = (row: SummaryRow): WorkloadSummary => ({
  ...row,
  nextRunAt: row.nextRunAt?.toISOString() ?? null,
  lastRunAt: row.lastRunAt?.toISOString() ?? null,
  createdAt: row.createdAt.toISOString(),
});

/** As answers say it. */
export const workloadOf = (row: typeof workloads.$inferSelect): Workload => ({
  ...summaryOf(row),
  spec: row.spec,
});

/** What somebody decides of a workload. */
export type WorkloadSettings = Pick<Workload, keyof typeof WORKLOAD_DEFAULTS>;

export interface NewWorkload extends Partial<WorkloadSettings> {
  readonly name: string;
  /** `spec.project` says which project it belongs to. */
  readonly spec: JobSpec;
  readonly cron: string;
  /** The first time, as the caller's cron library says; null: never. */
  readonly nextRunAt: Date | null;
}

function nameIsTaken(error: unknown, name: string): ProblemError | undefined {
  if (sqlStateOf(error) !== "23505") return undefined;
  return new ProblemError("conflict", `there is a workload named ${name} already in its project`, [
    {
      field: "name",
      value: name,
      message: "is taken",
      remedy: "choose another name, or delete the other workload",
    },
  ]);
}

/**
 * @throws ProblemError `conflict` when the name is taken in its project; `not-found` when its project is gone;
 * `quota-exceeded` where the project keeps as many as it may.
 */
export async function createWorkload(tx: Queryable, workload: NewWorkload): Promise<Workload> {
  const { project = DEFAULT_PROJECT } = workload.spec;
  // Who adds to the same project waits, so that none passes the limit beside another.
  await lockProject(tx, project);
  await assertRoomFor(tx, workloads, eq(workloads.project, project), {
    project,
    things: "workloads",
    most: MOST_WORKLOADS,
    field: "name",
    value: workload.name,
    remedy: "remove one that is not needed (`internevo replan remove`), then add this one again",
  });
  try {
    const [row] = await tx
      .insert(workloads)
      .values({
        id: randomUUID(),
        ...WORKLOAD_DEFAULTS,
        ...workload,
        project,
        createdAt: sql`clock_timestamp()`,
      })
      .returning();
    if (!row) throw new Error("the workload was not stored");
    return workloadOf(row);
  } catch (error) {
    throw nameIsTaken(error, workload.name) ?? orNoProject(error, project);
  }
}

export type WorkloadChange = Partial<WorkloadSettings & Pick<NewWorkload, "name" | "spec" | "cron">> & {
  readonly enabled?: boolean;
  /** Where the schedule changes, or it goes on after a pause. */
  readonly nextRunAt?: Date | null;
};

/**
 * Changes what somebody decides of a workload.
 * @returns undefined when it is gone
 * @throws ProblemError `conflict` when another workload of its project has the name
 */
export async function updateWorkload(
  tx: Queryable,
  id: string,
  change: WorkloadChange,
): Promise<Workload | undefined> {
  if (!isUuid(id)) return undefined;
  try {
    const [row] = await tx.update(workloads).set(change).where(eq(workloads.id, id)).returning();
    return row && workloadOf(row);
  } catch (error) {
    throw nameIsTaken(error, change.name ?? "") ?? error;
  }
}

export async function getWorkload(db: Queryable, id: string): Promise<Workload | undefined> {
  if (!isUuid(id)) return undefined;
  const [row] = await db.select().from(workloads).where(eq(workloads.id, id));
  return row && workloadOf(row);
}

/** Newest first, without their jobs. @param only of this project; null: all. */
export async function listWorkloads(
  db: Queryable,
  request: PageRequest = {},
  only: string | null = null,
): Promise<Page<WorkloadSummary>> {
  const limit = pageLimit(request);
  const after = decodeCursor(request.cursor);
  const rows = await db
    .select(SUMMARY_COLUMNS)
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
  return pageOf(rows, limit, (row) => ({ at: row.createdAt, id: row.id }), summaryOf);
}

/** Deletes a workload with its firings, proposals and plannings. @returns whether it was there. */
export async function deleteWorkload(tx: Queryable, id: string): Promise<boolean> {
  if (!isUuid(id)) return false;
  const rows = await tx.delete(workloads).where(eq(workloads.id, id)).returning({ id: workloads.id });
  await removePlannings(tx, id, 0);
  return rows.length === 1;
}

/**
 * Keeps a workload from being deleted until the transaction ends. Whoever stores something of it, that does not
 * refer to it in the database, asks first. @returns false where it is gone
 */
export async function holdWorkload(tx: Transaction, id: string): Promise<boolean> {
  const rows = await tx
    .select({ id: workloads.id })
    .from(workloads)
    .where(eq(workloads.id, id))
    .for("update");
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

/** What a run that has not ended is said to do, in words; undefined where there is none. */
async function unendedRun(tx: Transaction, workloadId: string): Promise<string | undefined> {
  const [row] = await tx
    .select({ outcome: workloadFirings.outcome })
    .from(workloadFirings)
    .where(and(eq(workloadFirings.workloadId, workloadId), eq(workloadFirings.state, "pending")))
    .limit(1);
  return row && (row.outcome === null ? "is still at work" : `has not ended (${row.outcome})`);
}

/**
 * Notes why a run waits, which its workload shows as its outcome for so long. @param reason null: it waits no more
 */
export async function noteFiringWait(
  tx: Transaction,
  firingId: string,
  reason: string | null,
): Promise<void> {
  const [row] = await tx
    .update(workloadFirings)
    .set({ outcome: reason })
    .where(
      and(
        eq(workloadFirings.id, firingId),
        eq(workloadFirings.state, "pending"),
        sql`${workloadFirings.outcome} is distinct from ${reason}`,
      ),
    )
    .returning({ workloadId: workloadFirings.workloadId });
  if (row) await tx.update(workloads).set({ lastOutcome: reason }).where(eq(workloads.id, row.workloadId));
}

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
    const before = await unendedRun(tx, row.id);
    if (lateSeconds > row.catchUpWindowSeconds)
      skipped = `${Math.round(lateSeconds)} s late, beyond the catch-up window of ${row.catchUpWindowSeconds} s`;
    else if (before !== undefined) skipped = `the run before ${before}`;
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
  const before = await unendedRun(tx, row.id);
  const firing = before === undefined ? await storeFiring(tx, row.id, new Date(), "person", null) : undefined;
  if (!firing)
    throw new ProblemError("conflict", `workload ${row.name} is being planned already`, [
      {
        field: "workloadId",
        value: row.id,
        message: `has a run that ${before ?? "is still at work"}`,
        remedy: "wait for it to end",
      },
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
