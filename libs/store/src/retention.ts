import { and, asc, desc, eq, inArray, isNull, lt, sql, type SQL } from "drizzle-orm";
import {
  KEEP_FOR_EVER,
  OPEN_PLAN_CHANGE_STATES,
  retentionCutoff,
  RETENTION_KINDS,
  TERMINAL_JOB_STATES,
  type RetentionKind,
  type RetentionSettings,
} from "@internevo/domain";
import type { Removal, RetentionAmounts, RetentionRun, RetentionTotals } from "@internevo/contracts";
import type { Queryable, Transaction } from "./database.ts";
import { assertFence, type Fence } from "./leases.ts";
import { isUuid } from "./pages.ts";
import {
  jobs,
  planChanges,
  retentionRemovals,
  retentionRuns,
  retentionSettings,
  runs,
} from "./schema/index.ts";

/** For how long the installation keeps what ended jobs leave. */
export async function getRetentionSettings(db: Queryable): Promise<RetentionSettings> {
  const [row] = await db.select().from(retentionSettings);
  if (!row) return KEEP_FOR_EVER;
  const { isTheOne: _, ...settings } = row;
  return settings;
}

/** Changes what is given. @returns all settings */
export async function setRetentionSettings(
  tx: Transaction,
  change: Partial<RetentionSettings>,
): Promise<RetentionSettings> {
  const row = { ...(await getRetentionSettings(tx)), ...change };
  await tx
    .insert(retentionSettings)
    .values(row)
    .onConflictDoUpdate({
      target: retentionSettings.isTheOne,
      set: Object.keys(change).length ? change : row,
    });
  return getRetentionSettings(tx);
}

export const keepsEverything = (settings: RetentionSettings): boolean =>
  RETENTION_KINDS.every((kind) => settings[kind] === null);

/** What is removed of a job, in amounts. */
export type RemovedAmounts = Omit<RetentionAmounts, "jobs">;
export const NOTHING_REMOVED: RemovedAmounts = { files: 0, bytes: 0, rows: 0 };

export const addAmounts = (a: RetentionAmounts, b: RemovedAmounts): RetentionAmounts => ({
  jobs: a.jobs + 1,
  files: a.files + b.files,
  bytes: a.bytes + b.bytes,
  rows: a.rows + b.rows,
});

export const noTotals = (): RetentionTotals =>
  Object.fromEntries(
    RETENTION_KINDS.map((kind) => [kind, { jobs: 0, ...NOTHING_REMOVED }]),
  ) as RetentionTotals;

type RunRow = typeof retentionRuns.$inferSelect;

async function runOf(db: Queryable, row: RunRow): Promise<RetentionRun> {
  const removed = noTotals();
  const rows = await db
    .select({
      kind: retentionRemovals.kind,
      jobs: sql<number>`count(distinct ${retentionRemovals.jobId})`.mapWith(Number),
      files: sql<number>`sum(${retentionRemovals.files})`.mapWith(Number),
      bytes: sql<number>`sum(${retentionRemovals.bytes})`.mapWith(Number),
      rows: sql<number>`sum(${retentionRemovals.rows})`.mapWith(Number),
    })
    .from(retentionRemovals)
    .where(and(eq(retentionRemovals.runId, row.id), sql`${retentionRemovals.completedAt} is not null`))
    .groupBy(retentionRemovals.kind);
  for (const { kind, ...amounts } of rows) removed[kind] = amounts;
  return {
    id: row.id,
    askedBy: row.askedBy,
    askedAt: row.askedAt.toISOString(),
    beganAt: row.beganAt?.toISOString() ?? null,
    endedAt: row.endedAt?.toISOString() ?? null,
    removed,
    remarks: [...row.remarks],
  };
}

/** The newest run, whether it has ended or not; null: there was none. */
export async function lastRetentionRun(db: Queryable): Promise<RetentionRun | null> {
  const [row] = await db.select().from(retentionRuns).orderBy(desc(retentionRuns.id)).limit(1);
  return row ? runOf(db, row) : null;
}

/**
 * Asks for a run; one that is open already is the answer. @param askedBy a token's name; null: the schedule
 */
export async function askRetentionRun(tx: Transaction, askedBy: string | null): Promise<RetentionRun> {
  await tx
    .insert(retentionRuns)
    .values({ askedBy, askedAt: sql`clock_timestamp()` })
    .onConflictDoNothing();
  const [row] = await tx.select().from(retentionRuns).where(isNull(retentionRuns.endedAt));
  // It has ended between the two statements.
  return row ? runOf(tx, row) : askRetentionRun(tx, askedBy);
}

/** Whether there is something to do: a run is open, or none was asked for in the last so many hours. */
export async function isRetentionDue(db: Queryable, everyHours: number): Promise<boolean> {
  const [last] = await db
    .select({
      isOpen: sql<boolean>`${retentionRuns.endedAt} is null`,
      isOld: sql<boolean>`${retentionRuns.askedAt} <= clock_timestamp() - make_interval(hours => ${everyHours})`,
    })
    .from(retentionRuns)
    .orderBy(desc(retentionRuns.id))
    .limit(1);
  if (last?.isOpen) return true;
  return (last === undefined || last.isOld) && !keepsEverything(await getRetentionSettings(db));
}

/** The open run; one of the schedule where there is none. @throws StaleFenceError */
export async function beginRetentionRun(tx: Transaction, fence: Fence): Promise<number> {
  await assertFence(tx, fence);
  const { id } = await askRetentionRun(tx, null);
  await tx
    .update(retentionRuns)
    .set({ beganAt: sql`coalesce(${retentionRuns.beganAt}, clock_timestamp())` })
    .where(eq(retentionRuns.id, id));
  return id;
}

/** @param remarks what was left, and why. @throws StaleFenceError */
export async function endRetentionRun(
  tx: Transaction,
  fence: Fence,
  runId: number,
  remarks: readonly string[],
): Promise<void> {
  await assertFence(tx, fence);
  await tx
    .update(retentionRuns)
    .set({ endedAt: sql`clock_timestamp()`, remarks })
    .where(and(eq(retentionRuns.id, runId), isNull(retentionRuns.endedAt)));
}

/** A job that has ended, and that nothing protects as a whole. */
export interface RetainedJob {
  readonly id: string;
  readonly name: string;
  readonly project: string;
  readonly endedAt: Date;
}

/** Ended before an instant, not exempt, and without a plan change that is open. */
const removable = (before: Date): SQL | undefined =>
  and(
    inArray(jobs.state, [...TERMINAL_JOB_STATES]),
    lt(jobs.endedAt, before),
    eq(jobs.keep, false),
    sql`not exists (select 1 from ${runs} r join ${planChanges} c on c.run_id = r.id
      where r.job_id = ${jobs.id} and c.state in (${sql.join(
        OPEN_PLAN_CHANGE_STATES.map((state) => sql`${state}`),
        sql`, `,
      )}))`,
  );

/** Jobs that ended before an instant and that retention may touch, whose end is longest ago first. */
export async function listRetainedJobs(
  db: Queryable,
  request: { readonly before: Date; readonly after?: RetainedJob | undefined; readonly limit: number },
): Promise<RetainedJob[]> {
  const { before, after, limit } = request;
  const rows = await db
    .select({ id: jobs.id, name: jobs.name, project: jobs.project, endedAt: jobs.endedAt })
    .from(jobs)
    .where(
      and(
        removable(before),
        after &&
          sql`(${jobs.endedAt}, ${jobs.id}) > (${after.endedAt.toISOString()}::timestamptz, ${after.id}::uuid)`,
      ),
    )
    .orderBy(asc(jobs.endedAt), asc(jobs.id))
    .limit(limit);
  return rows.flatMap(({ endedAt, ...row }) => (endedAt === null ? [] : [{ ...row, endedAt }]));
}

/** Which of some ids are of jobs that have not ended; what is no id is of none. */
export async function unendedJobs(db: Queryable, ids: readonly string[]): Promise<Set<string>> {
  const known = ids.filter((id) => isUuid(id));
  if (known.length === 0) return new Set();
  const rows = await db
    .select({ id: jobs.id })
    .from(jobs)
    .where(and(inArray(jobs.id, known), isNull(jobs.endedAt)));
  return new Set(rows.map(({ id }) => id));
}

/** A path by which a job that has not ended names weights. */
export interface WeightsInUse {
  readonly path: string;
  /** Of the job that names it. */
  readonly project: string;
  /** Whose weights they are, as it was found when the job was submitted; null: nobody's, or it was not known there. */
  readonly weightsOf: string | null;
}

/** The weights that jobs name which have not ended, of each project and owner each path once. */
export async function weightsInUse(db: Queryable): Promise<WeightsInUse[]> {
  const path = sql<string | null>`${jobs.spec} ->> 'initialWeights'`;
  const rows = await db
    .selectDistinct({ path, project: jobs.project, weightsOf: jobs.weightsOf })
    .from(jobs)
    .where(
      and(
        sql`${jobs.state} not in (${sql.join(
          TERMINAL_JOB_STATES.map((state) => sql`${state}`),
          sql`, `,
        )})`,
        sql`${path} is not null`,
      ),
    );
  return rows.flatMap((row) => (row.path === null ? [] : { ...row, path: row.path }));
}

type RemovalRow = typeof retentionRemovals.$inferSelect;

/** A removal that was decided and is not done. */
export interface OpenRemoval extends RemovedAmounts {
  readonly id: number;
  readonly jobId: string;
  readonly kind: RetentionKind;
  readonly at: Date;
}

export interface RemovalRequest extends RemovedAmounts {
  readonly fence: Fence;
  readonly runId: number;
  readonly jobId: string;
  readonly kind: RetentionKind;
  readonly now: Date;
  /** Asked under the lock of the job's row: whether something needs the kind that no table of the job says. */
  readonly isNeeded: (tx: Transaction) => Promise<boolean>;
}

/**
 * Decides that a part of a job goes, before anything of it is deleted. What is asked for is looked at again under
 * the lock of the job's row: whoever lets the job go on, exempts it or begins with its weights comes before that, or
 * finds the removal.
 * @returns undefined where the part has to stay after all. @throws StaleFenceError
 */
export async function recordRemoval(
  tx: Transaction,
  request: RemovalRequest,
): Promise<OpenRemoval | undefined> {
  const { fence, runId, jobId, kind, now, isNeeded, files, bytes, rows } = request;
  await assertFence(tx, fence);
  const days = (await getRetentionSettings(tx))[kind];
  const before = retentionCutoff(days, now);
  if (days === null || before === null) return undefined;
  await tx.select({ id: jobs.id }).from(jobs).where(eq(jobs.id, jobId)).for("update");
  // Another statement, which sees what those before in the lock have written.
  const found = await tx
    .select({ id: jobs.id })
    .from(jobs)
    .where(and(eq(jobs.id, jobId), removable(before)));
  if (found.length === 0 || (await isNeeded(tx))) return undefined;
  const [row] = await tx
    .insert(retentionRemovals)
    .values({ jobId, kind, days, files, bytes, rows, runId, at: sql`clock_timestamp()` })
    .onConflictDoNothing()
    .returning();
  return row;
}

/** What was decided and is not done: whoever decided it has died, or could not delete it. */
export const listOpenRemovals = (db: Queryable): Promise<OpenRemoval[]> =>
  db
    .select()
    .from(retentionRemovals)
    .where(isNull(retentionRemovals.completedAt))
    .orderBy(asc(retentionRemovals.id));

/** Nothing is left of it. @throws StaleFenceError */
export async function completeRemoval(
  tx: Transaction,
  fence: Fence,
  id: number,
  runId: number,
): Promise<void> {
  await assertFence(tx, fence);
  await tx
    .update(retentionRemovals)
    .set({ completedAt: sql`clock_timestamp()`, runId })
    .where(eq(retentionRemovals.id, id));
}

const removalOf = ({ kind, at, days, files, bytes, rows, completedAt }: RemovalRow): Removal => ({
  kind,
  at: at.toISOString(),
  days,
  files,
  bytes,
  rows,
  isDone: completedAt !== null,
});

/** The newest removal of each kind that there was of a job. */
export async function listRemovals(db: Queryable, jobId: string): Promise<Removal[]> {
  const rows = await db
    .selectDistinctOn([retentionRemovals.kind])
    .from(retentionRemovals)
    .where(eq(retentionRemovals.jobId, jobId))
    .orderBy(asc(retentionRemovals.kind), desc(retentionRemovals.id));
  return rows
    .map(removalOf)
    .sort((a, b) => RETENTION_KINDS.indexOf(a.kind) - RETENTION_KINDS.indexOf(b.kind));
}

/** The newest removal of a kind; undefined: there was none. */
export async function findRemoval(
  db: Queryable,
  jobId: string,
  kinds: readonly RetentionKind[],
): Promise<Removal | undefined> {
  return (await listRemovals(db, jobId)).find(({ kind }) => kinds.includes(kind));
}

/**
 * Keeps a job's row from being decided about until the transaction ends: whoever names its weights looks for a
 * removal after this, and is seen by every later one.
 */
export async function holdBackRemovals(tx: Transaction, jobId: string): Promise<void> {
  await tx.select({ id: jobs.id }).from(jobs).where(eq(jobs.id, jobId)).for("share");
}

/** Exempts a job from retention, or no more. The job's row must be locked. */
export async function setKeep(tx: Transaction, jobId: string, keep: boolean): Promise<void> {
  await tx
    .update(jobs)
    .set({ keep, updatedAt: sql`clock_timestamp()` })
    .where(eq(jobs.id, jobId));
}
