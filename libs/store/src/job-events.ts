import { and, asc, desc, eq, gt, lt, max } from "drizzle-orm";
import { isAtRest, type JobState } from "@internevo/domain";
import type { JobLogLine, JobStreamEvent } from "@internevo/contracts";
import { isConnectionLoss, pause } from "./connection-loss.ts";
import type { Database, Queryable } from "./database.ts";
import { pageLimit, type Page } from "./pages.ts";
import { jobEvents } from "./schema/index.ts";

export const JOB_EVENTS_CHANNEL = "internevo_job_events";

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
  const items = rows
    .slice(0, limit)
    .map(({ id, at, data }) => ({
      id,
      at: at.toISOString(),
      level: text(data["level"], "info"),
      source: text(data["source"], ""),
      message: text(data["message"], JSON.stringify(data)),
    }));
  return { items, nextCursor: rows.length > limit ? String(items.at(-1)?.id) : null };
}

export interface SubscriptionOptions {
  readonly signal?: AbortSignal;
  /** Ends by itself after the event of a state in which nobody works on the job. Default true. */
  readonly endWithJob?: boolean;
  /** Looks without a notification every so often, seconds. Default 5. */
  readonly pollSeconds?: number;
}

/**
 * Follows a job's events from the table: never loses one, never gives one twice, and goes on after Postgres
 * was away.
 * @param afterId the last event that was seen (`Last-Event-ID`); 0 for all.
 */
export async function* subscribeJobEvents(
  database: Database,
  jobId: string,
  afterId = 0,
  options: SubscriptionOptions = {},
): AsyncGenerator<JobStreamEvent, void, void> {
  const { signal, endWithJob = true, pollSeconds = 5 } = options;
  let seen = afterId;
  let ended = false;
  let news = new AbortController();
  const unlisten = database.notifications.listen(JOB_EVENTS_CHANNEL, (payload) => {
    if (payload === null || payload === jobId) news.abort();
  });
  const onAbort = () => news.abort();
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    while (!signal?.aborted) {
      // Replaced before reading: what arrives while it is read wakes the next wait.
      news = new AbortController();
      let events: JobStreamEvent[] = [];
      try {
        events = await listJobEvents(database.db, jobId, seen);
      } catch (error) {
        if (!isConnectionLoss(error)) throw error;
        await pause(250, signal);
        continue;
      }
      for (const event of events) {
        if (signal?.aborted) return;
        seen = event.id;
        yield event;
        if (event.type === "state") ended = isAtRest(event.data["to"] as JobState);
      }
      if (events.length > 0) continue;
      if (ended && endWithJob) return;
      if (!signal?.aborted) await pause(pollSeconds * 1000, news.signal);
    }
  } finally {
    unlisten();
    signal?.removeEventListener("abort", onAbort);
  }
}
