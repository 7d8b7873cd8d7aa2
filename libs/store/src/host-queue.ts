import { eq, getTableColumns, inArray, isNotNull, sql } from "drizzle-orm";
import type { CommandType, MessageData } from "@internevo/contracts";
import { gaveWayToWords, giveTurns, queueOrder, whoGivesWay } from "@internevo/domain";
import type { QueuePriority, QueueSettings, Turn } from "@internevo/domain";
import type { Queryable, Transaction } from "./database.ts";
import { enqueueMessages, type OutboxMessage } from "./outbox.ts";
import { gaveWayEvent, grantedEvent, waitingEvent, type Joined } from "./queue-events.ts";
import { queueNow, type QueueNow, type Waiter } from "./queue-now.ts";
import { countEndedHold, storeQueueSettings } from "./queue-standing.ts";
import { hostClaims, hostWaiters, jobs, preemptibleHolds, workloadFirings } from "./schema/index.ts";
import type { WaitingCommand } from "./schema/messages.ts";
import { beginHolds, endHold, gpuWorkOf, type GpuWork } from "./usage.ts";

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
  const joined = await joinQueue(tx, { ...request, hosts });
  // The caller goes on by itself when it is called at once.
  const called = await callWaiting(tx, {
    silent: owner,
    waits: joined.isNew ? waitingEvent(joined) : undefined,
  });
  return called.includes(owner);
}

/** What work that waits again brings from before. */
interface EarlierWait {
  readonly seconds: number;
  /** For whom it gave up its hosts, in words; null: for nobody. */
  readonly gaveWayTo: string | null;
}
const FIRST_WAIT: EarlierWait = { seconds: 0, gaveWayTo: null };

/** Puts work into the queue, or leaves it there since when it waits. */
async function joinQueue(tx: Transaction, request: HostRequest, earlier = FIRST_WAIT): Promise<Joined> {
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
  const [row] = await tx
    .insert(hostWaiters)
    .values({
      owner,
      ...wanted,
      waitingSince: sql`clock_timestamp() - make_interval(secs => ${earlier.seconds})`,
      gaveWayTo: earlier.gaveWayTo,
    })
    .onConflictDoUpdate({ target: hostWaiters.owner, set: wanted })
    // Postgres marks a row that was there before with the transaction that changed it.
    .returning({ isNew: sql<boolean>`xmax = 0` });
  return { request, work, isNew: row?.isNew === true };
}

/**
 * Gives work another priority where it waits, or may have to give way, and calls whoever may go now. Nothing
 * happens where it does neither.
 */
export async function moveInQueue(tx: Transaction, owner: string, priority: QueuePriority): Promise<void> {
  await lockQueue(tx);
  const moved = await tx
    .update(hostWaiters)
    .set({ priority })
    .where(eq(hostWaiters.owner, owner))
    .returning({ owner: hostWaiters.owner });
  const held = await tx
    .update(preemptibleHolds)
    .set({ priority })
    .where(eq(preemptibleHolds.owner, owner))
    .returning({ owner: preemptibleHolds.owner });
  if (moved.length + held.length > 0) await callWaiting(tx);
}

/** Work that waits no more: it is over, or has what it waited for. @returns what it waited with. */
async function leaveQueue(
  tx: Transaction,
  owner: string,
): Promise<typeof hostWaiters.$inferSelect | undefined> {
  const [row] = await tx.delete(hostWaiters).where(eq(hostWaiters.owner, owner)).returning();
  return row;
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

/** What work held is free again, and counted. */
async function dropClaims(tx: Transaction, owner: string): Promise<void> {
  const ended = await endHold(tx, owner);
  if (ended) await countEndedHold(tx, ended);
}

/**
 * Whom work that holds hosts is asked to give way to, as its project may know it; undefined: nobody asks. Only
 * jobs ask: scheduled work is of the lowest priority.
 */
export async function askedToGiveWay(db: Queryable, owner: string): Promise<string | undefined> {
  const { rows } = await db.execute<{ name: string | null }>(sql`
    select case when j.project = h.project then j.name end as name
    from ${preemptibleHolds} h left join ${jobs} j on j.id = substring(h.gives_way_to from 5)::uuid
    where h.owner = ${owner} and h.gives_way_to is not null`);
  const [asker] = rows;
  return asker && gaveWayToWords(asker.name);
}

/**
 * Work gives up its hosts and waits for them again, as long before others as it waited already, and whoever is
 * next is called: it may be the work itself, where nobody needs its hosts any more.
 * @returns for whom it did, in words; undefined where nobody asks it any more.
 */
export async function giveUpHosts(
  tx: Transaction,
  request: Omit<HostRequest, "hosts">,
): Promise<string | undefined> {
  const { owner } = request;
  await lockQueue(tx);
  const gaveWayTo = await askedToGiveWay(tx, owner);
  const claims = await tx.select().from(hostClaims).where(eq(hostClaims.owner, owner));
  if (claims.length === 0) throw new Error(`${owner} has no hosts to give up`);
  const [hold] = await tx
    .select({ seconds: preemptibleHolds.waitedSeconds })
    .from(preemptibleHolds)
    .where(eq(preemptibleHolds.owner, owner));
  await dropClaims(tx, owner);
  const earlier = { seconds: hold?.seconds ?? 0, gaveWayTo: gaveWayTo ?? null };
  const joined = await joinQueue(tx, { ...request, hosts: claims.map(({ host }) => host).sort() }, earlier);
  const gave = gaveWayEvent(joined, gaveWayTo ?? null);
  await callWaiting(tx, { before: gave ? [gave] : [] });
  return gaveWayTo;
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

/** As {@link turns}, of a queue that was read. */
export const turnsIn = ({ waiting, claims, standing, quotas }: QueueNow): readonly Turn<Waiter>[] =>
  giveTurns(queueOrder(waiting, standing), new Set(claims.map(({ host }) => host)), quotas);

/** Who waits, in the order of the queue, and who of them may go now. */
export async function turns(db: Queryable): Promise<readonly Turn<Waiter>[]> {
  const queue = await queueNow(db);
  return queue ? turnsIn(queue) : [];
}

/** What else is told when the queue moves on. */
interface Told {
  /** Whose command is not published. */
  readonly silent?: string;
  /** Published where the silent one has to wait. */
  readonly waits?: OutboxMessage | undefined;
  /** Published first. */
  readonly before?: readonly OutboxMessage[];
}

/**
 * Gives free hosts to those whose turn it is, and publishes their commands; then asks those to give way whom
 * more urgent work waits for. All that is published is one insert.
 * @returns who was called.
 */
async function callWaiting(tx: Transaction, told: Told = {}): Promise<readonly string[]> {
  const queue = await queueNow(tx);
  if (!queue) {
    await tx.update(preemptibleHolds).set({ givesWayTo: null }).where(isNotNull(preemptibleHolds.givesWayTo));
    return [];
  }
  const called = turnsIn(queue).flatMap(({ waiter, goes }) => (goes ? [waiter] : []));
  const works = await gpuWorkOf(
    tx,
    called.map(({ owner }) => owner),
  );
  const began = await begin(tx, called, works);
  const { silent, waits, before = [] } = told;
  await enqueueMessages(tx, [
    ...before,
    ...(waits && !called.some(({ owner }) => owner === silent) ? [waits] : []),
    ...began.flatMap((row) => grantedEvent(row, works.get(row.owner)) ?? []),
    ...began
      .filter(({ owner }) => owner !== silent)
      .map(({ command }) => ({ ...command, data: command.data as MessageData<CommandType> })),
  ]);
  await askToGiveWay(tx, queue, called);
  return called.map(({ owner }) => owner);
}

/** What work waited with, and for how long in all its waits. */
type LeftWaiter = typeof hostWaiters.$inferSelect & { readonly waitedSeconds: number };
const WAITED_SECONDS = sql<number>`greatest(0, extract(epoch from clock_timestamp() - ${hostWaiters.waitingSince}))::float8`;

/** Those who were called have their hosts, and wait no more. @returns what they waited with, in their order. */
async function begin(
  tx: Transaction,
  called: readonly Waiter[],
  works: ReadonlyMap<string, GpuWork>,
): Promise<readonly LeftWaiter[]> {
  if (called.length === 0) return [];
  const owners = called.map(({ owner }) => owner);
  await tx
    .insert(hostClaims)
    .values(called.flatMap(({ owner, hosts }) => hosts.map((host) => ({ host, owner }))));
  const left = await tx
    .delete(hostWaiters)
    .where(inArray(hostWaiters.owner, owners))
    .returning({ ...getTableColumns(hostWaiters), waitedSeconds: WAITED_SECONDS });
  const waiterOf = new Map(left.map((row) => [row.owner, row]));
  const inOrder = owners.flatMap((owner) => waiterOf.get(owner) ?? []);
  await beginHolds(
    tx,
    owners.flatMap((owner) => works.get(owner) ?? []),
  );
  await beginPreemptibleHolds(
    tx,
    inOrder.filter(({ owner }) => works.get(owner)?.preemptible === true),
  );
  return inOrder;
}

async function beginPreemptibleHolds(tx: Transaction, waited: readonly LeftWaiter[]): Promise<void> {
  if (waited.length === 0) return;
  await tx
    .insert(preemptibleHolds)
    .values(
      waited.map(({ owner, project, gpus, priority, submittedAt, waitedSeconds }) => ({
        owner,
        project,
        gpus,
        priority,
        submittedAt,
        beganAt: sql`clock_timestamp()`,
        waitedSeconds,
      })),
    );
}

/**
 * Tells holders for whom they give way, and those who were asked before that nobody needs it any more. Their
 * workers look at it with every heartbeat, and before every stage. Who has just been called begins now, and is
 * not asked.
 * @param called who waits no more since the queue was read.
 */
async function askToGiveWay(tx: Transaction, queue: QueueNow, called: readonly Waiter[]): Promise<void> {
  const { preemptible } = queue;
  if (preemptible.length === 0) return;
  const gone = new Set(called);
  const quotas = new Map(queue.quotas);
  for (const { project, gpus } of called) {
    const quota = project === null ? undefined : quotas.get(project);
    if (quota) quotas.set(quota.name, { ...quota, gpusInUse: quota.gpusInUse + gpus });
  }
  const asked = whoGivesWay({
    waiting: queue.waiting.filter((waiter) => !gone.has(waiter)),
    taken: new Set([...queue.claims.map(({ host }) => host), ...called.flatMap(({ hosts }) => [...hosts])]),
    preemptible,
    quotas,
    standing: queue.standing,
  });
  const changes = preemptible.flatMap(({ owner, givesWayTo }) => {
    const to = asked.get(owner)?.owner ?? null;
    return to === givesWayTo ? [] : [{ owner, to }];
  });
  if (changes.length === 0) return;
  await tx.execute(sql`
    update ${preemptibleHolds} h set gives_way_to = change.to
    from unnest(${sql.param(changes.map(({ owner }) => owner))}::text[],
      ${sql.param(changes.map(({ to }) => to))}::text[]) change(owner, "to")
    where h.owner = change.owner`);
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
