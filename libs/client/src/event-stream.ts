import { API_PREFIX, type JobStreamEvent } from "@internevo/contracts";
import { EventSourceParserStream } from "eventsource-parser/stream";
import { ApiConnectionError, ApiProblemError } from "./errors.ts";
import { open, type Connection } from "./request.ts";

export interface JobEventsOptions {
  /** Number of the last event already seen; 0 or absent: from the first. */
  readonly lastEventId?: number;
  /** false: end after the events that are there now, instead of at the job's end. Default true. */
  readonly follow?: boolean;
  readonly signal?: AbortSignal;
  /** Called before each new attempt to connect. */
  readonly onReconnect?: (error: Error, delayMilliseconds: number) => void;
  /**
   * How long a stream may be silent (the server sends a heartbeat) before it is opened anew. Default 45 000.
   */
  readonly silenceMilliseconds?: number;
  /** Attempts in a row without one event before the error is thrown. Default: without end. */
  readonly maxAttempts?: number;
}

/** The last message of a stream: the job has ended and every event was sent. */
const END = "end";

const delayOf = (attempt: number): number => Math.min(10_000, 250 * 2 ** (attempt - 1));

const mayPass = (error: unknown): error is Error =>
  error instanceof ApiConnectionError ||
  (error instanceof ApiProblemError && (error.status === 429 || error.status >= 500));

const wait = (milliseconds: number, signal: AbortSignal | undefined): Promise<void> =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(done, milliseconds);
    function done(): void {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }
    function aborted(): void {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    }
    if (signal?.aborted) return aborted();
    signal?.addEventListener("abort", aborted, { once: true });
  });

/**
 * The events of a job, each once and in order, from `lastEventId` on until the job has ended. A broken stream
 * is opened again after the last event that was seen.
 * @throws ApiProblemError for a refusal that does not pass (unknown job, wrong token).
 */
export async function* jobEvents(
  connection: Connection,
  jobId: string,
  options: JobEventsOptions = {},
): AsyncGenerator<JobStreamEvent, void, void> {
  let last = options.lastEventId ?? 0;
  let attempt = 0;
  for (;;) {
    try {
      for await (const message of messages(connection, jobId, last, options)) {
        attempt = 0;
        if (message.event === END) return;
        const event = JSON.parse(message.data) as JobStreamEvent;
        last = event.id;
        yield event;
      }
      throw new ApiConnectionError(connection.baseUrl, new Error("the stream ended before the job did"));
    } catch (error) {
      if (options.signal?.aborted) throw options.signal.reason;
      if (!mayPass(error)) throw error;
      attempt += 1;
      if (attempt >= (options.maxAttempts ?? Number.POSITIVE_INFINITY)) throw error;
      const retryAfter = error instanceof ApiProblemError ? (error.retryAfterSeconds ?? 0) * 1000 : 0;
      const delay = Math.max(retryAfter, delayOf(attempt));
      options.onReconnect?.(error, delay);
      await wait(delay, options.signal);
    }
  }
}

async function* messages(connection: Connection, jobId: string, last: number, options: JobEventsOptions) {
  const connectionEnd = new AbortController();
  const signal =
    options.signal === undefined
      ? connectionEnd.signal
      : AbortSignal.any([options.signal, connectionEnd.signal]);
  const silence = options.silenceMilliseconds ?? 45_000;
  let timer = setTimeout(silent, silence);
  function silent(): void {
    connectionEnd.abort(
      new ApiConnectionError(connection.baseUrl, new Error(`no sign of life for ${silence} ms`)),
    );
  }
  function alive(): void {
    clearTimeout(timer);
    timer = setTimeout(silent, silence);
  }
  try {
    const response = await open(connection, `${API_PREFIX}/jobs/${encodeURIComponent(jobId)}/events`, {
      query: { follow: options.follow === false ? "false" : undefined },
      headers: { accept: "text/event-stream", "last-event-id": last > 0 ? String(last) : undefined },
      signal,
    });
    if (response.body === null) throw new Error("an answer without a body");
    const text = response.body.pipeThrough(new TextDecoderStream());
    const reader = text.pipeThrough(new EventSourceParserStream({ onComment: alive })).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      yield { event: value.event ?? "message", data: value.data };
    }
  } catch (error) {
    if (error instanceof ApiProblemError || error instanceof ApiConnectionError || options.signal?.aborted)
      throw error;
    if (connectionEnd.signal.aborted) throw connectionEnd.signal.reason;
    throw new ApiConnectionError(connection.baseUrl, error);
  } finally {
    clearTimeout(timer);
    connectionEnd.abort();
  }
}
