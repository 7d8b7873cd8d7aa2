import { and, asc, desc, eq, getTableColumns, gt, lt, sql, type SQL } from "drizzle-orm";
import type { JobLogLine, JobStreamEvent } from "@internevo/contracts";
import type { Queryable, Transaction } from "./database.ts";
import { pageLimit, type Page } from "./pages.ts";
import { jobEvents, REPLACED_STEP, runs, stepMetrics } from "./schema/index.ts";

/** What a step's event says: all of its row, `m`, but where it stands. */
const { runId: _run, eventId: _event, ...stepFigures } = getTableColumns(stepMetrics);
const stepData = sql.raw(
  `json_build_object(${Object.entries(stepFigures)
    .map(([key, { name }]) => `'${key}', m.${name}`)
    .join(", ")})`,
);

const runOf = (jobId: SQL): SQL => sql`(select r.id from ${runs} r where r.job_id = ${jobId})`;

/**
 * A job's log after one event, oldest first, as `id`, `type`, `at` and `data`: what was written into it, and its
 * steps. One statement: of two, the second would see what the first was too early for.
 */
export const jobLog = (jobId: SQL, afterId: SQL, limit: number): SQL => sql`
  select id, type, at, data from (
    (select e.id, case e.type when ${REPLACED_STEP} then 'step' else e.type end as type, e.at, e.data::json as data
      from ${jobEvents} e where e.job_id = ${jobId} and e.id > ${afterId} order by e.id limit ${limit}::int)
    union all
    (select m.event_id, 'step', m.at, ${stepData} from ${stepMetrics} m
      where m.run_id = ${runOf(jobId)} and m.event_id > ${afterId} order by m.event_id limit ${limit}::int)
  ) log order by id limit ${limit}::int`;

/**
 * Keeps what the log says of steps that are about to be replaced: whoever follows it from its beginning reads what
 * others have read.
 */
export async function keepReplacedSteps(
  tx: Transaction,
  run: { readonly jobId: string; readonly runId: string },
  steps: readonly number[],
  attempt: number,
): Promise<void> {
  await tx.execute(sql`
    insert into ${jobEvents} (id, job_id, type, at, data)
    select m.event_id, ${run.jobId}::uuid, ${REPLACED_STEP}, m.at, ${stepData} from ${stepMetrics} m
    where m.run_id = ${run.runId}::uuid and m.step = any(${sql.param([...steps])}::int[])
      and m.attempt < ${attempt}::int`);
}

/** Whether a job's log goes on after one event. */
export const hasEventsAfter = (jobId: SQL, afterId: SQL): SQL => sql`(
  exists (select from ${jobEvents} e where e.job_id = ${jobId} and e.id > ${afterId})
  or exists (select from ${stepMetrics} m where m.run_id = ${runOf(jobId)} and m.event_id > ${afterId}))`;

interface LogRow {
  readonly [column: string]: unknown;
  readonly id: string;
  readonly type: JobStreamEvent["type"];
  readonly at: string;
  readonly data: Record<string, unknown>;
}

const isoOf = (at: unknown): string => new Date(at as string).toISOString();

/** Events of a job after one that was seen, oldest first. */
export async function listJobEvents(
  db: Queryable,
  jobId: string,
  afterId = 0,
  limit = 500,
): Promise<JobStreamEvent[]> {
  const { rows } = await db.execute<LogRow>(jobLog(sql`${jobId}::uuid`, sql`${afterId}::bigint`, limit));
  return rows.map(({ id, type, at, data }) => ({
    id: Number(id),
    jobId,
    type,
    at: isoOf(at),
    data: type === "step" ? { ...data, at: isoOf(data["at"]) } : data,
  }));
}

/** Number of a job's newest event; 0 without events. */
export async function lastJobEventId(db: Queryable, jobId: string): Promise<number> {
  const { rows } = await db.execute<{ id: string | null }>(sql`
    select greatest(
      (select max(e.id) from ${jobEvents} e where e.job_id = ${jobId}::uuid),
      (select max(m.event_id) from ${stepMetrics} m where m.run_id = ${runOf(sql`${jobId}::uuid`)})) as id`);
  return Number(rows[0]?.id ?? 0);
}

const text = (value: unknown, otherwise: string): string => (typeof value === "string" ? value : otherwise);

type EventRow = typeof jobEvents.$inferSelect;

const lineOf = ({ id, at, data }: Pick<EventRow, "id" | "at" | "data">): JobLogLine => ({
  id,
  at: at.toISOString(),
  level: text(data["level"], "info"),
  source: text(data["source"], ""),
  message: text(data["message"], JSON.stringify(data)),
});

/** A job's log lines after one that was seen, oldest first. */
export async function listJobLogAfter(
  db: Queryable,
  jobId: string,
  afterId: number,
  limit: number,
): Promise<JobLogLine[]> {
  const rows = await db
    .select()
    .from(jobEvents)
    .where(and(eq(jobEvents.jobId, jobId), eq(jobEvents.type, "log"), gt(jobEvents.id, afterId)))
    .orderBy(asc(jobEvents.id))
    .limit(limit);
  return rows.map(lineOf);
}

/** A job's log lines, newest first. @param request.before only lines before this event. */
export async function listJobLog(
  db: Queryable,
  jobId: string,
  request: { readonly before?: number; readonly limit?: number } = {},
): Promise<Page<JobLogLine>> {
  const limit = pageLimit(request);
  const before = request.before === undefined ? undefined : lt(jobEvents.id, request.before);
  const rows = await db
    .select()
    .from(jobEvents)
    .where(and(eq(jobEvents.jobId, jobId), eq(jobEvents.type, "log"), before))
    .orderBy(desc(jobEvents.id))
    .limit(limit + 1);
  const items = rows.slice(0, limit).map(lineOf);
  return { items, nextCursor: rows.length > limit ? String(items.at(-1)?.id) : null };
}
