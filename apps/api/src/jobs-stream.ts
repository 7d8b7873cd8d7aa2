import type { JobStreamEvent } from "@internevo/contracts";
import { isAtRest } from "@internevo/domain";
import { getJob, jobHistoryPage, subscribeJobEventPages, type Database } from "@internevo/store";
import { HEARTBEAT, type SseMessage } from "./http/sse.ts";

export interface JobStreamOptions {
  readonly database: Database;
  readonly jobId: string;
  /** The last event that the client has seen; 0: none. */
  readonly afterId: number;
  /** false: end after the events that are there now. */
  readonly follow: boolean;
  readonly heartbeatMilliseconds: number;
  readonly signal: AbortSignal;
}

/**
 * The last message: the job has ended or is held (or nothing more was asked for) and every event was sent, so that a
 * client need not come back.
 */
const END: SseMessage = { event: "end", data: {} };

/**
 * A job's events from after `afterId` to its end, or until it is held, with a heartbeat whenever nothing else was said for a
 * while.
 */
export async function* jobStream(
  options: JobStreamOptions,
): AsyncGenerator<readonly SseMessage[] | typeof HEARTBEAT, void, void> {
  const { database, jobId, signal } = options;
  // Read before the events: none is added while nobody works on a job, so what is there then is all.
  const job = await getJob(database.db, jobId);
  if (!options.follow || job === undefined || isAtRest(job.state)) {
    let seen = options.afterId;
    while (!signal.aborted) {
      const events = await jobHistoryPage(database, jobId, seen);
      const last = events.at(-1);
      if (last === undefined) return yield [END];
      yield messagesOf(events);
      seen = last.id;
    }
    return;
  }
  const events = subscribeJobEventPages(database, jobId, options.afterId, { signal });
  yield* withHeartbeats(events, options.heartbeatMilliseconds);
  if (!signal.aborted) yield [END];
}

const pages = new WeakMap<readonly JobStreamEvent[], readonly SseMessage[]>();

/** All followers of a job get the same pages of events, and so the same pages of messages. */
function messagesOf(events: readonly JobStreamEvent[]): readonly SseMessage[] {
  const known = pages.get(events);
  if (known) return known;
  const messages = events.map((event) => ({ id: event.id, event: event.type, data: event }));
  pages.set(events, messages);
  return messages;
}

async function* withHeartbeats(
  source: AsyncGenerator<readonly JobStreamEvent[], void, void>,
  milliseconds: number,
): AsyncGenerator<readonly SseMessage[] | typeof HEARTBEAT, void, void> {
  let timer: NodeJS.Timeout | undefined;
  try {
    let next = source.next();
    for (;;) {
      const silence = new Promise<typeof HEARTBEAT>((resolve) => {
        timer = setTimeout(() => resolve(HEARTBEAT), milliseconds);
      });
      const result = await Promise.race([next, silence]);
      clearTimeout(timer);
      if (result === HEARTBEAT) yield HEARTBEAT;
      else if (result.done) return;
      else {
        yield messagesOf(result.value);
        next = source.next();
      }
    }
  } finally {
    clearTimeout(timer);
    await source.return();
  }
}
