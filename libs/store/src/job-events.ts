import { and, asc, desc, eq, gt, lt, max } from "drizzle-orm";
import type { JobLogLine, JobStreamEvent } from "@internevo/contracts";
import type { Queryable } from "./database.ts";
import { pageLimit, type Page } from "./pages.ts";
import { jobEvents } from "./schema/index.ts";

/** Events of a job after one that was seen, oldest first. */
export async function listJobEvents(
  db: Queryable,
  jobId: string,
  afterId = 0,
  limit = 500,
): Promise<JobStreamEvent[]> {
  const rows = await db
    .select()
    .from(jobEvents)
    .where(and(eq(jobEvents.jobId, jobId), gt(jobEvents.id, afterId)))
    .orderBy(asc(jobEvents.id))
    .limit(limit);
  return rows.map((row) => ({
    id: row.id,
    jobId: row.jobId,
    type: row.type,
    at: row.at.toISOString(),
    data: row.data,
  }));
}

/** Number of a job's newest event; 0 without events. */
export async function lastJobEventId(db: Queryable, jobId: string): Promise<number> {
  const [row] = await db
    .select({ id: max(jobEvents.id) })
    .from(jobEvents)
    .where(eq(jobEvents.jobId, jobId));
  return row?.id ?? 0;
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
