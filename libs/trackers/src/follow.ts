import type { JobStreamEvent } from "@internevo/contracts";
import {
  advanceCursor,
  claimJobs,
  followJobs,
  listJobEvents,
  pause,
  postponeCursor,
  releaseCursor,
  type ClaimedJob,
  type Database,
  type TrackerPlace,
} from "@internevo/store";
import { readTrackedJob } from "./tracked-job.ts";
import { SendError, StartOverError, type Tracker } from "./tracker.ts";
import { secondsBeforeRetry, secondsBeforeStartOver } from "./waits.ts";

export interface FollowOptions {
  readonly database: Database;
  readonly tracker: Tracker;
  /** Only their jobs; null: those of all projects. */
  readonly projects: readonly string[] | null;
  /** Ends it: what is being sent is given back. */
  readonly signal: AbortSignal;
  readonly onSent: (events: number) => void;
  readonly onFailed: (failure: {
    readonly jobId: string;
    readonly error: string;
    readonly waitSeconds: number;
    readonly givenUp: boolean;
  }) => void;
  readonly onError: (error: unknown, what: string) => void;
}

const POLL_SECONDS = 1;
/** What happens within it is sent together. */
const REST_SECONDS = 1;
/** Events that are read at once. */
const PAGE = 200;
/** Of one claim. A job that has more is claimed again, after those that have waited longer. */
const MOST_PAGES = 5;
/** Renewed with every chunk that is sent: for as long a job waits when its sender dies. */
const CLAIM_SECONDS = 60;
/** A chunk takes no longer, so that nobody sends what another has taken over. */
const CHUNK_SECONDS = 50;
const GIVE_UP = { giveUpDays: 30, giveUpStartOvers: 10 } as const;

/** Events as they are sent: a trial, or a state, ends a chunk. What follows from it takes requests of its own. */
export function chunksOf(events: readonly JobStreamEvent[]): JobStreamEvent[][] {
  const chunks: JobStreamEvent[][] = [];
  let open: JobStreamEvent[] = [];
  for (const event of events) {
    open.push(event);
    if (event.type !== "trial" && event.type !== "state") continue;
    chunks.push(open);
    open = [];
  }
  return open.length > 0 ? [...chunks, open] : chunks;
}

/**
 * Sends what is new of a job, some pages of it at most: others wait for its place. @returns whether there may be more
 */
async function catchUp(claimed: ClaimedJob, options: FollowOptions): Promise<boolean> {
  const { database, tracker, signal, onSent } = options;
  const { db } = database;
  let place: TrackerPlace = claimed;
  let pages = 0;
  for (; pages < MOST_PAGES; pages += 1) {
    const events = await listJobEvents(db, claimed.jobId, place.lastEventId, PAGE);
    if (events.length === 0) break;
    const job = await readTrackedJob(db, claimed.jobId);
    for (const chunk of chunksOf(events)) {
      const bound = AbortSignal.any([signal, AbortSignal.timeout(1000 * CHUNK_SECONDS)]);
      const sent = await tracker.send({ job, events: chunk }, place, bound);
      place = { ...sent, lastEventId: chunk.at(-1)?.id ?? place.lastEventId };
      if (!(await advanceCursor(db, claimed, place, CLAIM_SECONDS))) return false;
      onSent(chunk.length);
    }
  }
  const hasMore = pages === MOST_PAGES;
  await releaseCursor(db, claimed, hasMore ? 0 : REST_SECONDS);
  return hasMore;
}

const textOf = (error: unknown): string =>
  (error instanceof Error ? error.message : String(error)) || "failed";

/** Sends what is new of a job, and writes down what came of it. @returns whether there may be more to send at once */
async function work(claimed: ClaimedJob, options: FollowOptions): Promise<boolean> {
  const { database, signal, onFailed } = options;
  try {
    return await catchUp(claimed, options);
  } catch (error) {
    if (signal.aborted) {
      await releaseCursor(database.db, claimed, 0);
      return false;
    }
    const startsOver = error instanceof StartOverError;
    const asked = error instanceof SendError ? error.retryAfterSeconds : null;
    const waitSeconds = startsOver
      ? secondsBeforeStartOver(claimed.startOvers, Math.random())
      : secondsBeforeRetry(claimed.failures, asked, Math.random());
    const failure = { error: textOf(error).slice(0, 1000), waitSeconds, startsOver, ...GIVE_UP };
    const givenUp = await postponeCursor(database.db, claimed, failure);
    onFailed({ jobId: claimed.jobId, error: failure.error, waitSeconds, givenUp });
    return false;
  }
}

/**
 * Has a tracker follow jobs until the signal ends it. Any number of processes may: each job is claimed by one of
 * them. No job waits for it, and a job that cannot be sent holds up no other.
 */
export async function followTracker(options: FollowOptions): Promise<void> {
  const { database, tracker, projects, signal, onError } = options;
  const sending = new Set<Promise<void>>();
  let news = new AbortController();
  const begin = (claimed: ClaimedJob): void => {
    const one: Promise<void> = work(claimed, options)
      .catch((error: unknown) => {
        onError(error, "what was sent could not be written down, and is repeated");
        return false;
      })
      .then((hasMore) => {
        // Others may have waited for its place.
        if (hasMore || sending.size === tracker.concurrency) news.abort();
        sending.delete(one);
      });
    sending.add(one);
  };
  while (!signal.aborted) {
    news = new AbortController();
    try {
      await followJobs(database, tracker.key, projects);
      const most = tracker.concurrency - sending.size;
      (await claimJobs(database.db, tracker.key, { most, claimSeconds: CLAIM_SECONDS })).forEach(begin);
    } catch (error) {
      onError(error, "trackers wait for Postgres");
    }
    await pause(1000 * POLL_SECONDS, AbortSignal.any([signal, news.signal]));
  }
  await Promise.all(sending);
}
