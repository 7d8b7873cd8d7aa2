import { and, eq, inArray, lt, sql, type SQL } from "drizzle-orm";
import type { RetentionKind } from "@internevo/domain";
import type { Queryable, Transaction } from "./database.ts";
import { jobEvents, REPLACED_STEP, runs, stepMetrics, validationLosses } from "./schema/index.ts";

/** Rows of a job that retention counts and deletes. */
interface RowKind {
  /** Rows that would go, by job; jobs without any may be left out. */
  readonly count: (db: Queryable, jobIds: readonly string[]) => Promise<Map<string, number>>;
  /** Deletes so many rows of a job at most. @returns how many; 0: none is left */
  readonly remove: (tx: Transaction, jobId: string, most: number) => Promise<number>;
}

type EventType = (typeof jobEvents.$inferSelect)["type"];
const LOG_EVENTS: readonly EventType[] = ["log", "progress"];
const STEP_EVENTS: readonly EventType[] = [REPLACED_STEP, "validation"];

type CountRow = { readonly job_id: string; readonly count: string };
const countsOf = (rows: readonly CountRow[]): Map<string, number> =>
  new Map(rows.map((row) => [row.job_id, Number(row.count)]));

const listOf = (values: readonly string[]): SQL =>
  sql.join(
    values.map((value) => sql`${value}`),
    sql`, `,
  );

async function countEvents(
  db: Queryable,
  jobIds: readonly string[],
  types: readonly EventType[],
): Promise<Map<string, number>> {
  const { rows } = await db.execute<CountRow>(
    sql`select job_id, count(*) as count from ${jobEvents}
      where job_id in (${listOf(jobIds)}) and type in (${listOf(types)}) group by job_id`,
  );
  return countsOf(rows);
}

async function removeEvents(
  tx: Transaction,
  jobId: string,
  types: readonly EventType[],
  most: number,
): Promise<number> {
  const some = tx
    .select({ id: jobEvents.id })
    .from(jobEvents)
    .where(and(eq(jobEvents.jobId, jobId), inArray(jobEvents.type, [...types])))
    .limit(most);
  const { rowCount } = await tx.delete(jobEvents).where(inArray(jobEvents.id, some));
  return rowCount ?? 0;
}

const logs: RowKind = {
  count: (db, jobIds) => countEvents(db, jobIds, LOG_EVENTS),
  remove: (tx, jobId, most) => removeEvents(tx, jobId, LOG_EVENTS, most),
};

/** Where what is measured of steps lies, beside the events of {@link STEP_EVENTS}. */
const STEP_TABLES = [stepMetrics, validationLosses] as const;

/**
 * The last step and the last validation loss stay: lists of jobs say by them how far a job came.
 */
const steps: RowKind = {
  async count(db, jobIds) {
    const totals = await countEvents(db, jobIds, STEP_EVENTS);
    for (const table of STEP_TABLES) {
      const { rows } = await db.execute<CountRow>(
        sql`select r.job_id, count(*) - 1 as count from ${table} m join ${runs} r on r.id = m.run_id
          where r.job_id in (${listOf(jobIds)}) group by r.job_id`,
      );
      for (const [jobId, count] of countsOf(rows)) totals.set(jobId, (totals.get(jobId) ?? 0) + count);
    }
    return totals;
  },
  async remove(tx, jobId, most) {
    const [run] = await tx.select({ id: runs.id }).from(runs).where(eq(runs.jobId, jobId));
    for (const table of run ? STEP_TABLES : []) {
      const ofRun = eq(table.runId, run?.id ?? "");
      const [last] = await tx
        .select({ step: sql<number | null>`max(${table.step})` })
        .from(table)
        .where(ofRun);
      const some = tx
        .select({ step: table.step })
        .from(table)
        .where(and(ofRun, lt(table.step, last?.step ?? 0)))
        .limit(most);
      const { rowCount } = await tx.delete(table).where(and(ofRun, inArray(table.step, some)));
      if (rowCount !== null && rowCount > 0) return rowCount;
    }
    return removeEvents(tx, jobId, STEP_EVENTS, most);
  },
};

const ROW_KINDS: Partial<Record<RetentionKind, RowKind>> = { logs, steps };

/** Rows of a kind that would go of each job, where there are any. */
export const countRetainedRows = async (
  db: Queryable,
  kind: RetentionKind,
  jobIds: readonly string[],
): Promise<ReadonlyMap<string, number>> =>
  jobIds.length === 0 ? new Map() : ((await ROW_KINDS[kind]?.count(db, jobIds)) ?? new Map());

/** Deletes so many rows of a job at most. @returns how many; 0: none is left */
export const removeRetainedRows = async (
  tx: Transaction,
  kind: RetentionKind,
  jobId: string,
  most: number,
): Promise<number> => (await ROW_KINDS[kind]?.remove(tx, jobId, most)) ?? 0;
