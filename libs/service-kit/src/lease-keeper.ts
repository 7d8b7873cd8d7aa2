import { pause, releaseLease, renewLease, type Database, type Fence } from "@internevo/store";

/** A lease lives this long without a heartbeat. */
export const LEASE_TTL_SECONDS = 8;
export const HEARTBEAT_SECONDS = 2;

/** Why work was told to stop. */
export type StopReason = "cancelled" | "lease-lost" | "shutdown";

/** The `reason` of a handler's AbortSignal. */
export class WorkStoppedError extends Error {
  readonly why: StopReason;

  constructor(why: StopReason) {
    super(`the work was stopped: ${why}`);
    this.name = "WorkStoppedError";
    this.why = why;
  }
}

export interface LeaseKeeper {
  /** Ends the heartbeat and gives the lease back; errors are left to its expiry. */
  close(): Promise<void>;
}

export interface LeaseKeeperOptions {
  readonly database: Database;
  readonly fence: Fence;
  readonly stop: AbortController;
  /** Looked at with every heartbeat: whether the work has to end. */
  readonly isCancelled: () => Promise<boolean>;
  /** Called with every heartbeat that kept the lease. */
  readonly onKept?: () => Promise<void>;
  readonly ttlSeconds?: number;
  readonly heartbeatSeconds?: number;
}

const within = <T>(seconds: number, work: Promise<T>): Promise<T | undefined> => {
  const end = new AbortController();
  return Promise.race([work, pause(seconds * 1000, end.signal).then(() => undefined)]).finally(() =>
    end.abort(),
  );
};

/**
 * Keeps a lease alive while work goes on, and stops the work when it is lost or cannot be confirmed for as long
 * as it lives.
 */
export function keepLease(options: LeaseKeeperOptions): LeaseKeeper {
  const { database, fence, stop } = options;
  const ttlSeconds = options.ttlSeconds ?? LEASE_TTL_SECONDS;
  const heartbeatSeconds = options.heartbeatSeconds ?? HEARTBEAT_SECONDS;
  const closed = new AbortController();
  let confirmedAt = performance.now();

  async function beat(): Promise<void> {
    const startedAt = performance.now();
    try {
      const kept = await within(
        ttlSeconds / 2,
        (async () => {
          if (!(await renewLease(database.db, fence, ttlSeconds))) return "lost";
          if (await options.isCancelled()) return "cancelled";
          await options.onKept?.();
          return "kept";
        })(),
      );
      if (kept === "lost") stop.abort(new WorkStoppedError("lease-lost"));
      if (kept === "cancelled") stop.abort(new WorkStoppedError("cancelled"));
      if (kept === "kept") confirmedAt = startedAt;
    } catch {
      // Postgres may be back before the lease is over.
    }
    // Somebody else may hold it by now. A process that was only paused is safe: its renewal above was
    // answered.
    if (performance.now() - confirmedAt > ttlSeconds * 1000) stop.abort(new WorkStoppedError("lease-lost"));
  }

  const beating = (async () => {
    while (!closed.signal.aborted && !stop.signal.aborted) {
      await pause(heartbeatSeconds * 1000, AbortSignal.any([closed.signal, stop.signal]));
      if (!closed.signal.aborted && !stop.signal.aborted) await beat();
    }
    // Stopped work still winds down (ranks end, files close): nobody else may begin before that.
    // A renewal that fails here is tried again with the next; writes are fenced whatever becomes of it.
    while (!closed.signal.aborted) {
      await pause(heartbeatSeconds * 1000, closed.signal);
      if (!closed.signal.aborted) await renewLease(database.db, fence, ttlSeconds).catch(() => false);
    }
  })();

  return {
    async close() {
      closed.abort();
      await beating;
      // Postgres may be away: the lease then ends by itself.
      await releaseLease(database.db, fence).catch(() => {});
    },
  };
}
