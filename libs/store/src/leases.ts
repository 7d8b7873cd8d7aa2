import { and, eq, gt, isNotNull, sql } from "drizzle-orm";
import type { Queryable, Transaction } from "./database.ts";
import { leases } from "./schema/index.ts";

/** Proof of a lease: a later holder has a greater token. */
export interface Fence {
  readonly resource: string;
  readonly token: number;
}

/** The resource that whoever works on a job holds, whatever the stage. */
export const jobLease = (jobId: string): string => `job:${jobId}`;
/** The job whose {@link jobLease} it is; undefined for work that is no job. */
export const jobOfLease = (resource: string): string | undefined =>
  resource.startsWith("job:") ? resource.slice("job:".length) : undefined;
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
