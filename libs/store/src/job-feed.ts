import { isAtRest, type JobState } from "@internevo/domain";
import type { JobStreamEvent } from "@internevo/contracts";
import { isConnectionLoss, pause } from "./connection-loss.ts";
import type { Database } from "./database.ts";
import { readHistory } from "./history-reads.ts";
import { lastJobEventId, listJobEvents } from "./job-events.ts";

export const JOB_EVENTS_CHANNEL = "internevo_job_events";

/** Events that a feed keeps; a follower that is further behind reads the table by itself. */
const KEPT = 1000;
const RETRY_MILLISECONDS = 250;
/** Pages that are kept for the next who asks: followers that begin together read the same. */
const KEPT_PAGES = 32;
/** Events that a follower gets together, and so what a follower that does not read holds. */
const PAGE = 200;

/**
 * The newest events of one job, read once for all who follow it in this process: a thousand followers cost the
 * database as much as one.
 */
class JobFeed {
  readonly #database: Database;
  readonly #jobId: string;
  readonly #stop = new AbortController();
  readonly #waiting = new Set<() => void>();
  #followers = 0;
  #events: JobStreamEvent[] = [];
  /** Pages of `#events` by where they begin: followers that are equally far get the same one. */
  readonly #pages = new Map<number, readonly JobStreamEvent[]>();
  /** All events after this one are in `#events`, as far as the table was read; undefined before the first look. */
  #completeAfter: number | undefined;
  #pollSeconds = Infinity;
  #news = new AbortController();
  #failure: { readonly error: unknown } | undefined;

  constructor(database: Database, jobId: string) {
    this.#database = database;
    this.#jobId = jobId;
  }

  /** @returns whether it is the first follower. */
  join(pollSeconds: number): boolean {
    this.#followers += 1;
    if (pollSeconds < this.#pollSeconds) {
      this.#pollSeconds = pollSeconds;
      this.#news.abort();
    }
    return this.#followers === 1;
  }

  /** @returns whether nobody follows any more: then it has ended. */
  leave(): boolean {
    this.#followers -= 1;
    if (this.#followers > 0) return false;
    this.#stop.abort();
    this.#news.abort();
    return true;
  }

  /** Reads what is new until nobody follows. */
  async run(): Promise<void> {
    const unlisten = this.#database.notifications.listen(JOB_EVENTS_CHANNEL, (payload) => {
      if (payload === null || payload === this.#jobId) this.#news.abort();
    });
    try {
      while (!this.#stop.signal.aborted) {
        // Replaced before reading: what arrives while it is read wakes the next wait.
        this.#news = new AbortController();
        if (await this.#read()) continue;
        if (!this.#stop.signal.aborted) await pause(this.#pollSeconds * 1000, this.#news.signal);
      }
    } catch (error) {
      this.#failure = { error };
      this.#wake();
    } finally {
      unlisten();
    }
  }

  /** @returns whether there may be more. */
  async #read(): Promise<boolean> {
    try {
      if (this.#completeAfter === undefined) {
        this.#completeAfter = await lastJobEventId(this.#database.db, this.#jobId);
        this.#wake();
      }
      const last = this.#events.at(-1)?.id ?? this.#completeAfter;
      const events = await listJobEvents(this.#database.db, this.#jobId, last);
      if (events.length === 0) return false;
      const all = [...this.#events, ...events];
      this.#completeAfter = all.at(-KEPT - 1)?.id ?? this.#completeAfter;
      this.#events = all.slice(-KEPT);
      this.#pages.clear();
      this.#wake();
    } catch (error) {
      if (!isConnectionLoss(error)) throw error;
      await pause(RETRY_MILLISECONDS, this.#stop.signal);
    }
    return true;
  }

  #wake(): void {
    for (const wake of [...this.#waiting]) wake();
  }

  /** See {@link #completeAfter}. */
  get completeAfter(): number | undefined {
    return this.#completeAfter;
  }

  /** Ends at the next news, or with the signal. */
  async wait(signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted) return;
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        this.#waiting.delete(wake);
        signal?.removeEventListener("abort", wake);
        resolve();
      };
      this.#waiting.add(wake);
      signal?.addEventListener("abort", wake, { once: true });
    });
  }

  /** Events after one, oldest first: a page of what is kept; undefined where the table must be asked. */
  after(id: number): readonly JobStreamEvent[] | undefined {
    if (this.#failure) throw this.#failure.error;
    if (this.#completeAfter === undefined || id < this.#completeAfter) return undefined;
    let begin = this.#events.length;
    while (begin > 0 && (this.#events[begin - 1] as JobStreamEvent).id > id) begin -= 1;
    const page = this.#pages.get(begin) ?? this.#events.slice(begin, begin + PAGE);
    this.#pages.set(begin, page);
    const [oldest] = this.#pages.keys();
    if (this.#pages.size > KEPT_PAGES && oldest !== undefined) this.#pages.delete(oldest);
    return page;
  }
}

/** The past of jobs, for followers that are behind what the feed keeps. */
class JobHistory {
  readonly #database: Database;
  /** By job and event, the oldest first. A page that is full stays as it is. */
  readonly #pages = new Map<string, Promise<JobStreamEvent[]>>();

  constructor(database: Database) {
    this.#database = database;
  }

  /** Events after one, oldest first: a page; all that there are when it was asked, where they are fewer. */
  async after(jobId: string, id: number): Promise<readonly JobStreamEvent[]> {
    const key = `${jobId} ${id}`;
    // Looked at and written in one go: those who begin together find the first one's page.
    const asked = this.#pages.get(key);
    // Whoever asked first is told of a failure; this one reads for itself then.
    const known = asked && (await asked.catch(() => undefined));
    if (known?.length === PAGE) return known;
    const page = readHistory(this.#database, () => listJobEvents(this.#database.db, jobId, id, PAGE));
    this.#pages.delete(key);
    this.#pages.set(key, page);
    const [oldest] = this.#pages.keys();
    if (this.#pages.size > KEPT_PAGES && oldest !== undefined) this.#pages.delete(oldest);
    const forget = (): void => {
      if (this.#pages.get(key) === page) this.#pages.delete(key);
    };
    return page.then(
      (events) => {
        if (events.length < PAGE) forget();
        return events;
      },
      (error: unknown) => {
        forget();
        throw error;
      },
    );
  }
}

const histories = new WeakMap<Database, JobHistory>();

function historyOf(database: Database): JobHistory {
  const known = histories.get(database) ?? new JobHistory(database);
  histories.set(database, known);
  return known;
}

/**
 * A job's events after one, oldest first, a page at a time. Few are read at once, so that many readers leave the
 * database to others. @returns no events: there are no more
 */
export const jobHistoryPage = (
  database: Database,
  jobId: string,
  afterId: number,
): Promise<readonly JobStreamEvent[]> => historyOf(database).after(jobId, afterId);

const feeds = new WeakMap<Database, Map<string, JobFeed>>();

/** The feed of a job, with one follower more, and what takes that one away again. */
function joinFeed(database: Database, jobId: string, pollSeconds: number): [JobFeed, () => void] {
  const all = feeds.get(database) ?? new Map<string, JobFeed>();
  feeds.set(database, all);
  const feed = all.get(jobId) ?? new JobFeed(database, jobId);
  all.set(jobId, feed);
  if (feed.join(pollSeconds)) void feed.run();
  return [
    feed,
    () => {
      if (feed.leave()) all.delete(jobId);
    },
  ];
}

export interface SubscriptionOptions {
  readonly signal?: AbortSignal;
  /** Ends by itself after the event of a state in which nobody works on the job. Default true. */
  readonly endWithJob?: boolean;
  /** Looks without a notification every so often, seconds. Default 5; the least of a job's followers counts. */
  readonly pollSeconds?: number;
}

/**
 * Follows a job's events from the table: never loses one, never gives one twice, and goes on after Postgres
 * was away. Gives those that are there together, at most a page.
 * @param afterId the last event that was seen (`Last-Event-ID`); 0 for all.
 */
export async function* subscribeJobEventPages(
  database: Database,
  jobId: string,
  afterId = 0,
  options: SubscriptionOptions = {},
): AsyncGenerator<readonly JobStreamEvent[], void, void> {
  const { signal, endWithJob = true, pollSeconds = 5 } = options;
  let seen = afterId;
  let ended = false;
  const [feed, leave] = joinFeed(database, jobId, pollSeconds);
  try {
    while (!signal?.aborted) {
      const { events, upTo } = await nextEvents(feed, database, jobId, { seen, ended, signal });
      if (signal?.aborted) return;
      for (const event of events) {
        seen = event.id;
        if (event.type === "state") ended = isAtRest(event.data["to"] as JobState);
      }
      if (events.length > 0) yield events;
      if (events.length > 0 || upTo === undefined) continue;
      if (ended && endWithJob) return;
      seen = Math.max(seen, upTo);
      // Nothing came in between: what the feed has was looked at in this turn.
      if (feed.after(seen)?.length === 0) await feed.wait(signal);
    }
  } finally {
    leave();
  }
}

interface NextEvents {
  readonly events: readonly JobStreamEvent[];
  /** Without events: there are none up to this one; undefined where Postgres was away. */
  readonly upTo: number | undefined;
}

/** What the feed has, or a page of the table: for who is far behind, and at the end, when nothing may be left out. */
async function nextEvents(
  feed: JobFeed,
  database: Database,
  jobId: string,
  { seen, ended, signal }: { seen: number; ended: boolean; signal: AbortSignal | undefined },
): Promise<NextEvents> {
  const live = feed.after(seen);
  if (live && (live.length > 0 || !ended)) return { events: live, upTo: seen };
  const upTo = feed.completeAfter ?? seen;
  try {
    return { events: await jobHistoryPage(database, jobId, seen), upTo };
  } catch (error) {
    if (!isConnectionLoss(error)) throw error;
    await pause(RETRY_MILLISECONDS, signal);
    return { events: [], upTo: undefined };
  }
}

/** The same, one event at a time. */
export async function* subscribeJobEvents(
  ...of: Parameters<typeof subscribeJobEventPages>
): AsyncGenerator<JobStreamEvent, void, void> {
  for await (const events of subscribeJobEventPages(...of)) yield* events;
}
