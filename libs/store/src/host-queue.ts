import { eq, sql } from "drizzle-orm";
import type { MessageData, MessageType } from "@internevo/contracts";
import { giveTurns, queueOrder } from "@internevo/domain";
import type { HostsWanted, QueuePriority, QueueSettings, Turn } from "@internevo/domain";
import type { Queryable, Transaction } from "./database.ts";
import { enqueueMessage } from "./outbox.ts";
import { countEndedHold, queueStanding, quotasOf, storeQueueSettings } from "./queue-standing.ts";
import { hostClaims, hostWaiters, jobs, workloadFirings } from "./schema/index.ts";
import type { WaitingCommand } from "./schema/messages.ts";
import { beginHold, endHold, gpuWorkOf } from "./usage.ts";

/** Work that needs hosts for itself. */
export interface HostRequest {
  /** The resource of the work: {@link jobLease} of a job. It keeps its hosts until {@link releaseHosts}. */
  readonly owner: string;
  readonly hosts: readonly string[];
  readonly priority?: QueuePriority;
  /** Among work of one priority and project the earlier goes first. */
  readonly submittedAt: Date;
  /** Published when its turn has come. */
  readonly command: WaitingCommand;
}

/**
 * One change of the queue at a time: each is a few short statements, and two that looked at once could call the
 * same waiter, or none. Whoever holds a job's row may ask for it, and never the other way round.
 */
export const lockQueue = (tx: Transaction): Promise<unknown> =>
  tx.execute(sql`select pg_advisory_xact_lock(hashtext('internevo host queue'))`);

/**
 * Claims all of the hosts, or none. Work that asks again has what it had. Others go first when they hold one of
 * the hosts, or wait for one and come earlier; the work then joins the queue, and its command is published when
 * its turn has come.
 * @returns whether the work has the hosts.
 */
export async function claimHosts(tx: Transaction, request: HostRequest): Promise<boolean> {
  const { owner } = request;
  const hosts = [...new Set(request.hosts)].sort();
  if (hosts.length === 0) return true;
  await lockQueue(tx);
  const claims = await tx.select().from(hostClaims).where(eq(hostClaims.owner, owner));
  const mine = new Set(claims.map(({ host }) => host));
  if (hosts.every((host) => mine.has(host))) {
    await leaveQueue(tx, owner);
    return true;
  }
  // It runs nothing while it asks. What it had under another description of its cluster is given back: two that
  // kept some hosts and waited for each other's would wait for ever.
  if (mine.size > 0) await dropClaims(tx, owner);
  await joinQueue(tx, { ...request, hosts });
  // The caller goes on by itself when it is called at once.
  return (await callWaiting(tx, owner)).includes(owner);
}

/** Puts work into the queue, or leaves it there since when it waits. */
async function joinQueue(tx: Transaction, request: HostRequest): Promise<void> {
  const { owner, priority = "normal", submittedAt, command } = request;
  const work = (await gpuWorkOf(tx, [owner])).get(owner);
  const wanted = {
    hosts: [...request.hosts],
    project: work?.project ?? null,
    gpus: work?.gpus ?? 0,
    priority,
    submittedAt,
    command,
  };
  await tx
    .insert(hostWaiters)
    .values({ owner, ...wanted, waitingSince: sql`clock_timestamp()` })
    .onConflictDoUpdate({ target: hostWaiters.owner, set: wanted });
}

/** Gives work that waits another priority, and calls whoever may go now. Nothing happens where it does not wait. */
export async function moveInQueue(tx: Transaction, owner: string, priority: QueuePriority): Promise<void> {
  await lockQueue(tx);
  const moved = await tx
    .update(hostWaiters)
    .set({ priority })
    .where(eq(hostWaiters.owner, owner))
    .returning({ owner: hostWaiters.owner });
  if (moved.length > 0) await callWaiting(tx);
}

/** Work that waits no more: it is over, or has what it waited for. @returns the command that it waited with. */
async function leaveQueue(tx: Transaction, owner: string): Promise<WaitingCommand | undefined> {
  const [row] = await tx
    .delete(hostWaiters)
    .where(eq(hostWaiters.owner, owner))
    .returning({ command: hostWaiters.command });
  return row?.command;
}

/** Gives back what work held or waited for, and calls whoever is next. Nothing happens without either. */
export async function releaseHosts(tx: Transaction, owner: string): Promise<void> {
  const [known] = await tx
    .select({ owner: hostClaims.owner })
    .from(hostClaims)
    .where(eq(hostClaims.owner, owner))
    .unionAll(tx.select({ owner: hostWaiters.owner }).from(hostWaiters).where(eq(hostWaiters.owner, owner)))
    .limit(1);
  if (!known) return;
  await lockQueue(tx);
  await dropClaims(tx, owner);
  await leaveQueue(tx, owner);
  await callWaiting(tx);
}

async function dropClaims(tx: Transaction, owner: string): Promise<void> {
  await tx.delete(hostClaims).where(eq(hostClaims.owner, owner));
  const ended = await endHold(tx, owner);
  if (ended) await countEndedHold(tx, ended);
}

/** Calls whoever may go by now: a quota, a weight or the queue's settings were changed. */
export async function callQueue(tx: Transaction): Promise<void> {
  await lockQueue(tx);
  await callWaiting(tx);
}

/** Another half-life or patience: the order changes at once. */
export async function setQueueSettings(
  tx: Transaction,
  change: Partial<QueueSettings>,
): Promise<QueueSettings> {
  await lockQueue(tx);
  const settings = await storeQueueSettings(tx, change);
  await callWaiting(tx);
  return settings;
}

/** What waits, as the order of the queue sees it. */
export interface Waiter extends HostsWanted {
  readonly waitingSince: Date;
}

async function waiters(db: Queryable): Promise<Waiter[]> {
  const { owner, hosts, project, gpus, priority, submittedAt, waitingSince } = hostWaiters;
  const rows = await db
    .select({ owner, hosts, project, gpus, priority, submittedAt, waitingSince })
    .from(hostWaiters);
  return rows.map((row) => ({
    ...row,
    submittedAtMs: row.submittedAt.getTime(),
    waitingSinceMs: row.waitingSince.getTime(),
  }));
}

/** Who waits, in the order of the queue, and who of them may go now. */
export async function turns(db: Queryable): Promise<readonly Turn<Waiter>[]> {
  const waiting = await waiters(db);
  if (waiting.length === 0) return [];
  const claimed = await db.select({ host: hostClaims.host }).from(hostClaims);
  const standing = await queueStanding(db);
  return giveTurns(
    queueOrder(waiting, standing),
    new Set(claimed.map(({ host }) => host)),
    await quotasOf(db, new Set(waiting.map(({ project }) => project))),
  );
}

/**
 * Gives free hosts to those whose turn it is, and publishes their commands.
 * @param silent whose command is not published.
 * @returns who was called.
 */
async function callWaiting(tx: Transaction, silent?: string): Promise<readonly string[]> {
  const called = (await turns(tx)).flatMap(({ waiter, goes }) => (goes ? [waiter] : []));
  if (called.length === 0) return [];
  const works = await gpuWorkOf(
    tx,
    called.map(({ owner }) => owner),
  );
  for (const { owner, hosts } of called) {
    await tx.insert(hostClaims).values(hosts.map((host) => ({ host, owner })));
    const work = works.get(owner);
    if (work) await beginHold(tx, work);
    const command = await leaveQueue(tx, owner);
    if (command && owner !== silent)
      await enqueueMessage(tx, { ...command, data: command.data as MessageData<MessageType> });
  }
  return called.map(({ owner }) => owner);
}

/** The quota that work waits for, in words; null where it waits for hosts alone, or not at all. */
export async function queueLimit(db: Queryable, owner: string): Promise<string | null> {
  return (await turns(db)).find(({ waiter }) => waiter.owner === owner)?.limit ?? null;
}

/**
 * Gives back hosts of work that is over and did not say so: a job that is gone, a workload without a run at
 * work. @returns how many owners there were.
 */
export async function releaseAbandonedHosts(tx: Transaction): Promise<number> {
  // First of all: what claims its hosts meanwhile waits, and is seen or comes after.
  await lockQueue(tx);
  const owners = await tx.execute<{ owner: string }>(sql`
    select owner from (select owner from ${hostClaims} union select owner from ${hostWaiters}) o
    where not exists (
        select 1 from ${jobs} j where 'job:' || j.id = o.owner and j.ended_at is null)
      and not exists (
        select 1 from ${workloadFirings} f where 'workload:' || f.workload_id = o.owner and f.state = 'pending')`);
  for (const { owner } of owners.rows) await releaseHosts(tx, owner);
  // Also where nobody gave anything back: a month that begins lets projects go on.
  await callWaiting(tx);
  return owners.rows.length;
}
