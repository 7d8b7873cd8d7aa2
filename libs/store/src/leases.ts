import { and, eq, gt, isNotNull, or, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import type { Queryable, Transaction } from "./database.ts";
import { leases, leaseWaiters } from "./schema/index.ts";

/** Proof of a lease: a later holder has a greater token. */
export interface Fence {
  readonly resource: string;
  readonly token: number;
}

/** The resource that whoever works on a job holds, whatever the stage. */
export const jobLease = (jobId: string): string => `job:${jobId}`;
/**
 * The resource of a host's processors and devices: one measurement, trial or training at a time, whatever the
 * cluster is called.
 */
export const hostLease = (host: string): string => `host:${host}`;
/** The resource of one owner's launches on a cluster whose hosts a scheduler shares out. */
export const allocationLease = (clusterName: string, owner: string): string =>
  `cluster:${clusterName}:${owner}`;

/** The lease was lost, or taken over: what its holder still writes must be thrown away. */
export class StaleFenceError extends Error {
  readonly fence: Fence;

  constructor(fence: Fence) {
    super(`the lease of ${fence.resource} with token ${fence.token} is not held any more`);
    this.name = "StaleFenceError";
    this.fence = fence;
  }
}

const expiry = (ttlSeconds: number) => sql`clock_timestamp() + make_interval(secs => ${ttlSeconds})`;

/**
 * Takes a lease that nobody holds, or whose holder has gone silent.
 * @returns the fence, or undefined while another holder is alive.
 */
export async function acquireLease(
  db: Queryable,
  resource: string,
  holder: string,
  ttlSeconds: number,
): Promise<Fence | undefined> {
  const [row] = await db
    .insert(leases)
    .values({
      resource,
      holder,
      fencingToken: 1,
      acquiredAt: sql`clock_timestamp()`,
      expiresAt: expiry(ttlSeconds),
    })
    .onConflictDoUpdate({
      target: leases.resource,
      set: {
        holder,
        fencingToken: sql`${leases.fencingToken} + 1`,
        acquiredAt: sql`clock_timestamp()`,
        expiresAt: expiry(ttlSeconds),
      },
      setWhere: sql`${leases.holder} is null or ${leases.expiresAt} <= clock_timestamp()`,
    })
    .returning({ token: leases.fencingToken });
  return row ? { resource, token: row.token } : undefined;
}

/** Who asks for a lease that others may wait for too. */
export interface Turn {
  /** The job, or whatever else waits. */
  readonly waiter: string;
  /** Whether it held the resource before: what has begun goes first. */
  readonly started: boolean;
  /** Who has waited for longer goes first. */
  readonly since: Date;
  /** Whether it will ask for the resource again soon after it gave it back. */
  readonly goesOn: boolean;
}

/** A waiter that does not ask again within so many seconds counts no more. */
const WAITS_SECONDS = 5;
/** So many seconds a place is kept for who held the resource and will ask for it again. */
const KEEPS_PLACE_SECONDS = 30;

const expiredWaiter = sql`${leaseWaiters.expiresAt} <= clock_timestamp()`;

/** Says that somebody waits; what it held before counts as begun. */
async function waitFor(
  db: Queryable,
  resource: string,
  { waiter, started, since }: Turn,
  seconds: number,
): Promise<void> {
  await db
    .insert(leaseWaiters)
    .values({ resource, waiter, started, since, expiresAt: expiry(seconds) })
    .onConflictDoUpdate({
      target: [leaseWaiters.resource, leaseWaiters.waiter],
      set: {
        expiresAt: expiry(seconds),
        // A place that was kept for too long is kept no more.
        started: sql`excluded.started or (${leaseWaiters.started} and not (${expiredWaiter}))`,
      },
    });
}

/**
 * Takes a lease that nobody holds when it is this waiter's turn: who held it before goes first, then who has
 * waited for longer.
 * @returns the fence, or undefined while another holder is alive or others go first.
 */
export async function acquireInTurn(
  tx: Transaction,
  resource: string,
  holder: string,
  ttlSeconds: number,
  turn: Turn,
): Promise<Fence | undefined> {
  await waitFor(tx, resource, turn, WAITS_SECONDS);
  const own = alias(leaseWaiters, "own");
  const [ahead] = await tx
    .select({ waiter: leaseWaiters.waiter })
    .from(leaseWaiters)
    .innerJoin(own, and(eq(own.resource, leaseWaiters.resource), eq(own.waiter, turn.waiter)))
    .where(
      and(
        eq(leaseWaiters.resource, resource),
        gt(leaseWaiters.expiresAt, sql`clock_timestamp()`),
        sql`(not ${leaseWaiters.started}, ${leaseWaiters.since}, ${leaseWaiters.waiter}) < (not ${own.started}, ${own.since}, ${own.waiter})`,
      ),
    )
    .limit(1);
  if (ahead) return undefined;
  const fence = await acquireLease(tx, resource, holder, ttlSeconds);
  if (fence)
    await tx
      .delete(leaseWaiters)
      .where(
        and(eq(leaseWaiters.resource, resource), or(eq(leaseWaiters.waiter, turn.waiter), expiredWaiter)),
      );
  return fence;
}

/** Gives a lease back to whoever is next, but keeps the place of who will soon ask for it again. */
export async function releaseInTurn(db: Queryable, fence: Fence, turn: Turn): Promise<void> {
  if (turn.goesOn) await waitFor(db, fence.resource, { ...turn, started: true }, KEEPS_PLACE_SECONDS);
  await releaseLease(db, fence);
}

/** What is over waits for nothing any more. */
export async function giveUpTurns(db: Queryable, waiter: string): Promise<void> {
  await db.delete(leaseWaiters).where(eq(leaseWaiters.waiter, waiter));
}

/**
 * Keeps a lease. @returns false when it was taken over or released; an expired one that nobody took is kept.
 */
export async function renewLease(db: Queryable, fence: Fence, ttlSeconds: number): Promise<boolean> {
  const rows = await db
    .update(leases)
    .set({ expiresAt: expiry(ttlSeconds) })
    .where(
      and(
        eq(leases.resource, fence.resource),
        eq(leases.fencingToken, fence.token),
        isNotNull(leases.holder),
      ),
    )
    .returning({ token: leases.fencingToken });
  return rows.length === 1;
}

/** Gives a lease back; nothing happens when it is not held any more. */
export async function releaseLease(db: Queryable, fence: Fence): Promise<void> {
  await db
    .update(leases)
    .set({ holder: null, expiresAt: sql`clock_timestamp()` })
    .where(and(eq(leases.resource, fence.resource), eq(leases.fencingToken, fence.token)));
}

/** Whether somebody alive holds the resource. */
export async function isLeaseLive(db: Queryable, resource: string): Promise<boolean> {
  const rows = await db
    .select({ token: leases.fencingToken })
    .from(leases)
    .where(
      and(
        eq(leases.resource, resource),
        isNotNull(leases.holder),
        gt(leases.expiresAt, sql`clock_timestamp()`),
      ),
    );
  return rows.length > 0;
}

/**
 * Guards a transaction of a lease's holder: until it ends nobody can take the lease over. Keep such
 * transactions short, the heartbeat waits too.
 * @throws StaleFenceError when the lease is not held any more; the transaction rolls back.
 */
export async function assertFence(tx: Transaction, fence: Fence): Promise<void> {
  // A share lock, not a key-share lock: a take-over updates the token, which is no key.
  const rows = await tx
    .select({ token: leases.fencingToken })
    .from(leases)
    .where(
      and(
        eq(leases.resource, fence.resource),
        eq(leases.fencingToken, fence.token),
        isNotNull(leases.holder),
      ),
    )
    .for("share");
  if (rows.length === 0) throw new StaleFenceError(fence);
}
