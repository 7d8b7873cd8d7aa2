import pg from "pg";
import { pause } from "./connection-loss.ts";

export interface NotificationHub {
  /**
   * Calls `wake` on every notification of the channel, and after every reconnection (something may have been
   * missed).
   * @returns a function that ends it.
   */
  listen(channel: string, wake: (payload: string | null) => void): () => void;
  close(): Promise<void>;
}

export interface NotificationHubOptions {
  readonly url: string;
  readonly applicationName: string;
  readonly onConnectionError: (error: Error) => void;
}

/** Postgres may take so long to hear of the end of a connection. */
const CLOSE_MILLISECONDS = 1000;

/**
 * One connection for all LISTENs of a process; it is made at the first of them and made again when it is
 * lost.
 */
export function createNotificationHub(options: NotificationHubOptions): NotificationHub {
  const wakers = new Map<string, Set<(payload: string | null) => void>>();
  const stop = new AbortController();
  let client: pg.Client | undefined;
  let loop: Promise<void> | undefined;

  async function connectOnce(): Promise<void> {
    const made = new pg.Client({
      connectionString: options.url,
      application_name: `${options.applicationName}-listen`,
      connectionTimeoutMillis: 5000,
      keepAlive: true,
    });
    const ended = new Promise<void>((resolve) => made.once("end", resolve));
    made.on("error", options.onConnectionError);
    made.on("notification", ({ channel, payload }) => {
      for (const wake of wakers.get(channel) ?? []) wake(payload ?? null);
    });
    // A connection that cannot be closed is a lost one: `error` has told of it.
    const abort = () => {
      void made.end().catch(() => {});
      // A Postgres that stands still never closes its side.
      setTimeout(() => made.connection.stream.destroy(), CLOSE_MILLISECONDS).unref();
    };
    try {
      await made.connect();
      for (const channel of wakers.keys()) await made.query(`listen ${pg.escapeIdentifier(channel)}`);
      client = made;
      // A channel may have been added while the others were being listened to.
      for (const channel of wakers.keys()) await made.query(`listen ${pg.escapeIdentifier(channel)}`);
      for (const set of wakers.values()) for (const wake of set) wake(null);
      stop.signal.addEventListener("abort", abort, { once: true });
      if (stop.signal.aborted) abort();
      await ended;
    } finally {
      client = undefined;
      stop.signal.removeEventListener("abort", abort);
      await made.end().catch(() => {});
    }
  }

  async function run(): Promise<void> {
    for (let delay = 50; !stop.signal.aborted; delay = Math.min(delay * 2, 1000)) {
      const startedAt = performance.now();
      try {
        await connectOnce();
      } catch (error) {
        options.onConnectionError(error instanceof Error ? error : new Error(String(error)));
      }
      if (performance.now() - startedAt > 5000) delay = 25;
      await pause(delay, stop.signal);
    }
  }

  return {
    listen(channel, wake) {
      const set = wakers.get(channel) ?? new Set();
      wakers.set(channel, set);
      set.add(wake);
      if (set.size === 1)
        client?.query(`listen ${pg.escapeIdentifier(channel)}`).catch(options.onConnectionError);
      loop ??= run();
      return () => void set.delete(wake);
    },
    async close() {
      stop.abort();
      await loop;
    },
  };
}
