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

/** Sends everything that is new of a job. */
async function catchUp(claimed: ClaimedJob, options: FollowOptions): Promise<void> {
  const { database, tracker, signal, onSent } = options;
  const { db } = database;
  let place: TrackerPlace = claimed;
  for (;;) {
    const events = await listJobEvents(db, claimed.jobId, place.lastEventId, PAGE);
    if (events.length === 0) break;
    const job = await readTrackedJob(db, claimed.jobId);
    for (const chunk of chunksOf(events)) {
      const bound = AbortSignal.any([signal, AbortSignal.timeout(1000 * CHUNK_SECONDS)]);
      const sent = await tracker.send({ job, events: chunk }, place, bound);
      place = { ...sent, lastEventId: chunk.at(-1)?.id ?? place.lastEventId };
      if (!(await advanceCursor(db, claimed, place, CLAIM_SECONDS))) return;
      onSent(chunk.length);
    }
  }
  await releaseCursor(db, claimed, REST_SECONDS);
}

const textOf = (error: unknown): string =>
  (error instanceof Error ? error.message : String(error)) || "failed";

/** Sends what is new of a job, and writes down what came of it. */
async function work(claimed: ClaimedJob, options: FollowOptions): Promise<void> {
  const { database, signal, onFailed } = options;
  try {
    await catchUp(claimed, options);
  } catch (error) {
    if (signal.aborted) return releaseCursor(database.db, claimed, 0);
    const startsOver = error instanceof StartOverError;
    const asked = error instanceof SendError ? error.retryAfterSeconds : null;
    const waitSeconds = startsOver
      ? secondsBeforeStartOver(claimed.startOvers, Math.random())
      : secondsBeforeRetry(claimed.failures, asked, Math.random());
    const failure = { error: textOf(error).slice(0, 1000), waitSeconds, startsOver, ...GIVE_UP };
    const givenUp = await postponeCursor(database.db, claimed, failure);
    onFailed({ jobId: claimed.jobId, error: failure.error, waitSeconds, givenUp });
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
    const one = work(claimed, options)
      .catch((error: unknown) => onError(error, "what was sent could not be written down, and is repeated"))
      .finally(() => {
        // Others may have waited for its place.
        if (sending.size === tracker.concurrency) news.abort();
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
