import { Readable } from "node:stream";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { OpenAnswers, type Reader } from "./open-answers.ts";

/** One message of an event stream; without an id it does not move `Last-Event-ID`. */
export interface SseMessage {
  readonly id?: number;
  readonly event: string;
  readonly data: unknown;
}

/** A comment: it keeps proxies and clients from taking silence for death. */
export const HEARTBEAT = Symbol("heartbeat");

/** Pages as they are sent. Those who read the same place of a job at the same time share one. */
const sentPages = new WeakMap<readonly SseMessage[], Buffer>();

function frame({ id, event, data }: SseMessage): string {
  return `${id === undefined ? "" : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}

function sentPage(messages: readonly SseMessage[]): Buffer {
  const known = sentPages.get(messages);
  if (known !== undefined) return known;
  const page = Buffer.from(messages.map(frame).join(""));
  sentPages.set(messages, page);
  return page;
}

export interface StreamOptions {
  /** Streams of one token, or of one person, that are open at once. */
  readonly streamsOfOneToken: number;
  /** Streams of all tokens that are open at once. */
  readonly streams: number;
  /** How often it is looked whether the streams' tokens are still valid. */
  readonly lookMilliseconds: number;
  /**
   * Where those of the tokens that are still valid see things; null: everywhere. What it throws is told to
   * `onError`, and ends no stream.
   */
  readonly validTokens: (ids: readonly string[]) => Promise<ReadonlyMap<string, string | null>>;
  readonly onError: (error: unknown) => void;
}

/**
 * Streams that are open: bounded, ended when their token is not valid any more or has moved to another project, and
 * when the server stops.
 */
export class OpenStreams {
  /** Whose each is. */
  readonly #open = new Map<AbortController, Reader>();
  readonly #counted: OpenAnswers;
  readonly #options: StreamOptions;

  constructor(app: FastifyInstance, options: StreamOptions) {
    this.#options = options;
    this.#counted = new OpenAnswers({
      things: "event streams",
      ofOne: options.streamsOfOneToken,
      ofAll: options.streams,
      remedy: "close one, or follow fewer jobs at once",
    });
    const looking = setInterval(
      () => void this.#endOfInvalid().catch(options.onError),
      options.lookMilliseconds,
    ).unref();
    app.addHook("preClose", async () => {
      clearInterval(looking);
      // Clients resume elsewhere by `Last-Event-ID`.
      for (const controller of this.#open.keys()) controller.abort();
    });
  }

  get size(): number {
    return this.#open.size;
  }

  async #endOfInvalid(): Promise<void> {
    if (this.#open.size === 0) return;
    const asked = [...this.#open];
    const places = await this.#options.validTokens([...new Set(asked.map(([, { id }]) => id))]);
    for (const [controller, { id, project }] of asked) {
      const now = places.get(id);
      // Who may still read it comes back, and is let in.
      if (now === undefined || (now !== null && now !== project)) controller.abort();
    }
  }

  /**
   * Answers with an event stream: `source` is read as fast as the client takes it, and told by its signal
   * when the client or the server goes. @param reader whose it is. @throws ProblemError `rate-limited`,
   * `unavailable` when too many are open
   */
  send(
    reply: FastifyReply,
    reader: Reader,
    source: (signal: AbortSignal) => AsyncGenerator<readonly SseMessage[] | typeof HEARTBEAT, void, void>,
  ): FastifyReply {
    const end = this.#counted.begin(reader);
    const controller = new AbortController();
    this.#open.set(controller, reader);
    const stream = Readable.from(frames(source(controller.signal)), { objectMode: true, highWaterMark: 1 });
    // The generator may be waiting for news: only the signal wakes it.
    reply.raw.once("close", () => controller.abort());
    stream.once("close", () => {
      controller.abort();
      this.#open.delete(controller);
      end();
    });
    return (
      reply
        .type("text/event-stream; charset=utf-8")
        .header("cache-control", "no-store")
        .header("x-accel-buffering", "no")
        // The connection ends with the stream: kept alive, it would hold up a server that stops.
        .header("connection", "close")
        .send(stream)
    );
  }
}

/** Pages of all streams that go out in one turn of the event loop: whoever asks for something else waits for so few. */
export const PAGES_A_TURN = 16;
/** Streams rest for so many times as long as their turn took: all of them together take a third of the time. */
const REST_OF_TURN = 2;
/** Of a turn no more counts as theirs than it takes to make and write so many bytes: the rest was others' work. */
const LEAST_BYTES_A_MILLISECOND = 50_000;
const MOST_REST_MILLISECONDS = 200;

/** Who has a page to send waits here for its turn. */
const waiting: (() => void)[] = [];
let isScheduled = false;
let bytesOfTurn = 0;

function nextTurn(): void {
  const begin = performance.now();
  bytesOfTurn = 0;
  for (const go of waiting.splice(0, PAGES_A_TURN)) go();
  // By then their pages are written, and whoever reads fast waits for its next turn.
  setImmediate(() => {
    isScheduled = waiting.length > 0;
    const took = Math.min(performance.now() - begin, bytesOfTurn / LEAST_BYTES_A_MILLISECOND);
    const rest = Math.min(REST_OF_TURN * took, MOST_REST_MILLISECONDS);
    if (isScheduled) setTimeout(nextTurn, rest);
  });
}

/** A page that is kept in memory, and a socket that takes it, would keep everybody else waiting. */
const ownTurn = (): Promise<void> =>
  new Promise((go) => {
    waiting.push(go);
    if (isScheduled) return;
    isScheduled = true;
    setImmediate(nextTurn);
  });

const HEARTBEAT_BYTES = Buffer.from(": heartbeat\n\n");
// The first bytes go out at once, so that a client knows that it is connected.
const FIRST_BYTES = Buffer.from("retry: 1000\n\n");

/** The text of a stream, a page at a time, in turns with all other streams. */
export async function* frames(
  source: AsyncGenerator<readonly SseMessage[] | typeof HEARTBEAT, void, void>,
): AsyncGenerator<Buffer, void, void> {
  yield FIRST_BYTES;
  // What is there together is one write: a message each would cost a call of the system each.
  for await (const messages of source) {
    await ownTurn();
    const bytes = messages === HEARTBEAT ? HEARTBEAT_BYTES : sentPage(messages);
    bytesOfTurn += bytes.length;
    yield bytes;
  }
}

/**
 * The number in `Last-Event-ID`; 0 when it is absent or not one of ours (a client that has seen nothing we
 * know starts at the first).
 */
export function lastEventIdOf(request: FastifyRequest): number {
  const header = request.headers["last-event-id"];
  return typeof header === "string" && /^\d{1,15}$/.test(header.trim()) ? Number(header) : 0;
}
