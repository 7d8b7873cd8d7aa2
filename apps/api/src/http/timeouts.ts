import type { ServerOptions } from "node:http";
import type { FastifyInstance } from "fastify";

/**
 * How long clients may take, so that whoever is slow on purpose holds little, and not for long. Milliseconds.
 */
export interface Timeouts {
  /** From a connection's or request's beginning to the end of its head. */
  readonly headersMilliseconds: number;
  /** From a request's beginning to the end of its body. */
  readonly requestMilliseconds: number;
  /** In which nothing of a large body comes while it is read: others wait for its place. */
  readonly stalledMilliseconds: number;
  /** Until a request's turn goes to the next: it waits, for the database or for a client that reads slowly. */
  readonly turnMilliseconds: number;
  /**
   * In which nothing of an answer is taken. Event streams are longer silent only while nobody reads them:
   * they have heartbeats.
   */
  readonly takenMilliseconds: number;
  /** From the server's stop until the connections that are still open are cut. */
  readonly stopMilliseconds: number;
}

export const DEFAULT_TIMEOUTS: Timeouts = {
  headersMilliseconds: 10_000,
  requestMilliseconds: 30_000,
  stalledMilliseconds: 5_000,
  turnMilliseconds: 1_000,
  takenMilliseconds: 60_000,
  stopMilliseconds: 5_000,
};

/** Between two looks at what is late: Node's own 30 s would let everything have as much more. */
export const LOOK_MILLISECONDS = 500;

export const httpTimeouts = ({ headersMilliseconds, requestMilliseconds }: Timeouts): ServerOptions => ({
  headersTimeout: headersMilliseconds,
  requestTimeout: requestMilliseconds,
  connectionsCheckingInterval: LOOK_MILLISECONDS,
});

/**
 * Cuts connections whose answer nobody takes, and those that are still open a while after the server's stop.
 */
export function registerTimeouts(app: FastifyInstance, timeouts: Timeouts): void {
  const { takenMilliseconds, stopMilliseconds } = timeouts;
  // From the answer's beginning: finding it may take minutes. The next request on the connection begins
  // without a bound.
  app.addHook("onSend", async (_request, reply) => {
    reply.raw.setTimeout(takenMilliseconds, () => reply.raw.destroy());
  });
  // Node looks no more at what is late once a server closes.
  app.addHook("preClose", async () => {
    setTimeout(() => app.server.closeAllConnections(), stopMilliseconds).unref();
  });
}
