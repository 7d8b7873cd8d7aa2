import { Readable } from "node:stream";
import type { FastifyReply, FastifyRequest } from "fastify";

/** One message of an event stream; without an id it does not move `Last-Event-ID`. */
export interface SseMessage {
  readonly id?: number;
  readonly event: string;
  readonly data: unknown;
}

/** A comment: it keeps proxies and clients from taking silence for death. */
export const HEARTBEAT = Symbol("heartbeat");

const frame = (message: SseMessage | typeof HEARTBEAT): string =>
  message === HEARTBEAT
    ? ": heartbeat\n\n"
    : `${message.id === undefined ? "" : `id: ${message.id}\n`}event: ${message.event}\ndata: ${JSON.stringify(message.data)}\n\n`;

/** Streams that are open, so that a shutdown can end them. */
export class OpenStreams {
  readonly #open = new Set<AbortController>();

  get size(): number {
    return this.#open.size;
  }

  /** Ends them all; clients resume elsewhere by `Last-Event-ID`. */
  closeAll(): void {
    for (const controller of this.#open) controller.abort();
  }

  /**
   * Answers with an event stream: `source` is read as fast as the client takes it, and told by its signal when the client or the
   * server goes.
   */
  send(
    reply: FastifyReply,
    source: (signal: AbortSignal) => AsyncGenerator<SseMessage | typeof HEARTBEAT, void, void>,
  ): FastifyReply {
    const controller = new AbortController();
    this.#open.add(controller);
    const stream = Readable.from(frames(source(controller.signal)), { objectMode: true, highWaterMark: 16 });
    // The generator may be waiting for news: only the signal wakes it.
    reply.raw.once("close", () => controller.abort());
    stream.once("close", () => {
      controller.abort();
      this.#open.delete(controller);
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

async function* frames(
  source: AsyncGenerator<SseMessage | typeof HEARTBEAT, void, void>,
): AsyncGenerator<string, void, void> {
  // The first bytes go out at once, so that a client knows that it is connected.
  yield "retry: 1000\n\n";
  for await (const message of source) yield frame(message);
}

/**
 * The number in `Last-Event-ID`; 0 when it is absent or not one of ours (a client that has seen nothing we know starts at the first).
 */
export function lastEventIdOf(request: FastifyRequest): number {
  const header = request.headers["last-event-id"];
  return typeof header === "string" && /^\d{1,15}$/.test(header.trim()) ? Number(header) : 0;
}
