import {
  acquireInTurn,
  pause,
  releaseInTurn,
  releaseLease,
  renewLease,
  type Database,
  type Fence,
  type Turn,
} from "@internevo/store";

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
  /** All leases held: the first is the work's own. */
  readonly fences: readonly Fence[];
  /**
   * Waits until nobody alive holds the resource and it is this work's turn, takes it, and keeps it; `onWait` is
   * told once, when others go first. Rejects with the signal's reason.
   */
  reserve(resource: string, onWait?: () => void): Promise<Fence>;
  /** Gives a lease back; what was reserved is kept for a moment for who goes on with the same work. */
  release(fence: Fence): Promise<void>;
  /** Ends the heartbeat and gives everything back; errors are left to the leases' expiry. */
  close(): Promise<void>;
}

export interface LeaseKeeperOptions {
  readonly database: Database;
  readonly holder: string;
  readonly first: Fence;
  /** The work's place among those that wait for what it reserves. */
  readonly turn: Turn;
  readonly stop: AbortController;
  /** Looked at with every heartbeat: whether the work has to end. */
  readonly isCancelled: () => Promise<boolean>;
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
 * Keeps leases alive while work goes on, and stops the work when one is lost or cannot be confirmed for as
 * long as it lives.
 */
export function keepLeases(options: LeaseKeeperOptions): LeaseKeeper {
  const { database, holder, stop } = options;
  const ttlSeconds = options.ttlSeconds ?? LEASE_TTL_SECONDS;
  const heartbeatSeconds = options.heartbeatSeconds ?? HEARTBEAT_SECONDS;
  const fences: Fence[] = [options.first];
  const closed = new AbortController();
  let confirmedAt = performance.now();

  async function beat(): Promise<void> {
    const startedAt = performance.now();
    try {
      const kept = await within(
        ttlSeconds / 2,
        (async () => {
          for (const fence of [...fences])
            if (!(await renewLease(database.db, fence, ttlSeconds)) && fences.includes(fence)) return "lost";
          return (await options.isCancelled()) ? "cancelled" : "kept";
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
      if (!closed.signal.aborted)
        for (const fence of [...fences]) await renewLease(database.db, fence, ttlSeconds).catch(() => false);
    }
  })();

  async function release(fence: Fence): Promise<void> {
    const index = fences.indexOf(fence);
    if (index < 0) return;
    fences.splice(index, 1);
    const isReserved = fence !== options.first;
    // Postgres may be away: the lease then ends by itself.
    await (
      isReserved ? releaseInTurn(database.db, fence, options.turn) : releaseLease(database.db, fence)
    ).catch(() => {});
  }

  return {
    fences,
    async reserve(resource, onWait) {
      for (let tries = 1; ; tries += 1) {
        stop.signal.throwIfAborted();
        const fence = await database.idempotentTransaction(
          (tx) => acquireInTurn(tx, resource, holder, ttlSeconds, options.turn),
          { signal: stop.signal },
        );
        if (fence) {
          fences.push(fence);
          return fence;
        }
        if (tries === 1) onWait?.();
        await pause(1000, stop.signal);
      }
    },
    release,
    async close() {
      closed.abort();
      await beating;
      for (const fence of [...fences].reverse()) await release(fence);
    },
  };
}
