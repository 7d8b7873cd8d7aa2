import { and, asc, eq, inArray, isNotNull, isNull, ne, or, sql } from "drizzle-orm";
import type { ClusterHolder, ClusterWaiter, MessageData, MessageType } from "@internevo/contracts";
import { gpusFault, hoursFault, sizeFault } from "@internevo/domain";
import type { JobState, LauncherKind, QueuePlace, QueuePosition, QuotaStanding } from "@internevo/domain";
import type { Queryable, Transaction } from "./database.ts";
import { enqueueMessage } from "./outbox.ts";
import {
  hostClaims,
  hostWaiters,
  jobs,
  projects,
  runs,
  stepMetrics,
  workloadFirings,
  workloads,
} from "./schema/index.ts";
import type { WaitingCommand } from "./schema/messages.ts";
import { beginHold, endHold, gpuWorkOf, NO_USE, projectUse, type GpuWork } from "./usage.ts";

/** Work that needs hosts for itself. */
export interface HostRequest {
  /** The resource of the work: {@link jobLease} of a job. It keeps its hosts until {@link releaseHosts}. */
  readonly owner: string;
  readonly hosts: readonly string[];
  /** Its place among those that wait: the earlier goes first. */
  readonly place: Date;
  /** Published when its turn has come. */
  readonly command: WaitingCommand;
}

/**
 * One change of the queue at a time: each is a few short statements, and two that looked at once could call the
 * same waiter, or none.
 */
const lockQueue = (tx: Transaction) =>
  tx.execute(sql`select pg_advisory_xact_lock(hashtext('internevo host queue'))`);

/** The hosts, written as Postgres wants an array. */
const arrayOf = (hosts: readonly string[]) => sql`${sql.param([...hosts])}::text[]`;

/**
 * Claims all of the hosts, or none. Work that asks again has what it had. Others go first when they hold one of
 * the hosts, or wait for one with an earlier place; the work then joins the queue, and its command is published
 * when its turn has come.
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
  const { place, command } = request;
  await tx
    .insert(hostWaiters)
    .values({ owner, hosts, place, command, waitingSince: sql`clock_timestamp()` })
    .onConflictDoUpdate({ target: hostWaiters.owner, set: { hosts, command } });
  // The caller goes on by itself when it is called at once.
  return (await callWaiting(tx, owner)).includes(owner);
}

/** Gives work that waits another place, and calls whoever may go now. Nothing happens where it does not wait. */
export async function moveInQueue(tx: Transaction, owner: string, place: Date): Promise<void> {
  await lockQueue(tx);
  const moved = await tx
    .update(hostWaiters)
    .set({ place })
    .where(eq(hostWaiters.owner, owner))
    .returning({ owner: hostWaiters.owner });
  if (moved.length > 0) await callWaiting(tx);
}

/** Work that waits no more: it is over, or has what it waited for. */
async function leaveQueue(tx: Transaction, owner: string): Promise<boolean> {
  const rows = await tx
    .delete(hostWaiters)
    .where(eq(hostWaiters.owner, owner))
    .returning({ owner: hostWaiters.owner });
  return rows.length > 0;
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
  await endHold(tx, owner);
}

/** Calls whoever may go by now: a quota was changed, or a month has begun. */
export async function callQueue(tx: Transaction): Promise<void> {
  await lockQueue(tx);
  await callWaiting(tx);
}

/** What a waiter is told: it may go, or what it waits for. */
interface Turn {
  readonly waiter: typeof hostWaiters.$inferSelect;
  /** Undefined for what is neither a job nor a workload: no quota is about it. */
  readonly work: GpuWork | undefined;
  readonly goes: boolean;
  /** The quota that it waits for, in words; null where it waits for hosts alone. */
  readonly limit: string | null;
}

/** A project's quotas while turns are given: what is called counts at once. */
type Standing = Omit<QuotaStanding, "gpusInUse"> & {
  gpusInUse: number;
  /** An earlier job of it waits for GPUs of the quota: later ones do not take them away. */
  isAwaited: boolean;
};

/** Why a project's quotas do not let the work begin; null where they do. */
function limitOf(standing: Standing | undefined, gpus: number): string | null {
  if (!standing) return null;
  const never = hoursFault(standing) ?? sizeFault(standing, gpus);
  if (never !== undefined) return never;
  const now = gpusFault(standing, gpus);
  if (now === undefined && !standing.isAwaited) return null;
  const first = standing.isAwaited;
  standing.isAwaited = true;
  return now ?? (first ? `earlier work of project ${standing.name} waits for its GPUs` : null);
}

/**
 * Who may go now, in the order of the queue. Nobody passes somebody earlier who waits for one of the same hosts,
 * so that a job of many hosts is not passed for ever; and within a project nobody passes who waits for GPUs of
 * its quota. Who waits for a quota keeps no hosts from other projects meanwhile.
 */
async function turns(db: Queryable): Promise<readonly Turn[]> {
  const waiting = await db.select().from(hostWaiters).orderBy(asc(hostWaiters.place), asc(hostWaiters.owner));
  if (waiting.length === 0) return [];
  const claimed = await db.select({ host: hostClaims.host }).from(hostClaims);
  const taken = new Set(claimed.map(({ host }) => host));
  const works = await gpuWorkOf(
    db,
    waiting.map(({ owner }) => owner),
  );
  const standings = await standingsOf(
    db,
    [...works.values()].map(({ project }) => project),
  );
  return waiting.map((waiter) => {
    const work = works.get(waiter.owner);
    const standing = work && standings.get(work.project);
    const limit = limitOf(standing, work?.gpus ?? 0);
    if (limit !== null) return { waiter, work, goes: false, limit };
    const goes = !waiter.hosts.some((host) => taken.has(host));
    for (const host of waiter.hosts) taken.add(host);
    if (goes && standing) standing.gpusInUse += work.gpus;
    return { waiter, work, goes, limit };
  });
}

/** Those of the projects that have quotas, with what they use. */
async function standingsOf(db: Queryable, names: readonly string[]): Promise<ReadonlyMap<string, Standing>> {
  if (names.length === 0) return new Map();
  const limited = await db
    .select()
    .from(projects)
    .where(
      and(
        inArray(projects.name, [...new Set(names)]),
        or(isNotNull(projects.maxGpus), isNotNull(projects.gpuHoursPerMonth)),
      ),
    );
  if (limited.length === 0) return new Map();
  const use = await projectUse(db);
  return new Map(
    limited.map((project) => [
      project.name,
      { ...project, ...(use.get(project.name) ?? NO_USE), isAwaited: false },
    ]),
  );
}

/**
 * Gives free hosts to those whose turn it is, and publishes their commands.
 * @param silent whose command is not published.
 * @returns who was called.
 */
async function callWaiting(tx: Transaction, silent?: string): Promise<readonly string[]> {
  const called: string[] = [];
  for (const { waiter, work, goes } of await turns(tx)) {
    if (!goes) continue;
    const { owner, hosts, command } = waiter;
    await tx.insert(hostClaims).values(hosts.map((host) => ({ host, owner })));
    if (work) await beginHold(tx, work);
    await leaveQueue(tx, owner);
    if (owner !== silent)
      await enqueueMessage(tx, { ...command, data: command.data as MessageData<MessageType> });
    called.push(owner);
  }
  return called;
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

/** How many of those ahead are named. */
const NAMED_AHEAD = 10;

/** Those that go before: who holds one of the hosts, then who waits for one with an earlier place. */
async function aheadOf(
  db: Queryable,
  waiter: typeof hostWaiters.$inferSelect,
): Promise<{ readonly holders: readonly string[]; readonly waiters: readonly string[] }> {
  const holders = await db
    .selectDistinct({ owner: hostClaims.owner })
    .from(hostClaims)
    .where(and(inArray(hostClaims.host, waiter.hosts), ne(hostClaims.owner, waiter.owner)))
    .orderBy(asc(hostClaims.owner));
  const waiters = await db
    .select({ owner: hostWaiters.owner })
    .from(hostWaiters)
    .where(
      and(
        sql`${hostWaiters.hosts} && ${arrayOf(waiter.hosts)}`,
        sql`(${hostWaiters.place}, ${hostWaiters.owner}) < (select place, owner from ${hostWaiters} where owner = ${waiter.owner})`,
      ),
    )
    .orderBy(asc(hostWaiters.place), asc(hostWaiters.owner));
  return { holders: holders.map(({ owner }) => owner), waiters: waiters.map(({ owner }) => owner) };
}

/**
 * Where each of these owners stands; those that do not wait are left out. One read of the queue for all of them:
 * it is short beside the jobs that are stored.
 */
export async function queuePositions(
  db: Queryable,
  owners: readonly string[],
): Promise<ReadonlyMap<string, QueuePosition>> {
  const asked = new Set(owners);
  const [first] = await db
    .select({ owner: hostWaiters.owner })
    .from(hostWaiters)
    .where(inArray(hostWaiters.owner, [...asked]))
    .limit(1);
  if (!first) return new Map();
  const waiting = await turns(db);
  const waitersOf = new Map<string, number[]>();
  const positions = new Map<string, QueuePosition>();
  for (const [index, { waiter, limit }] of waiting.entries()) {
    const { owner, hosts, waitingSince } = waiter;
    if (asked.has(owner)) {
      const ahead = new Set(hosts.flatMap((host) => waitersOf.get(host) ?? []));
      positions.set(owner, { position: ahead.size + 1, waitingSince: waitingSince.toISOString(), limit });
    }
    // Who waits for a quota keeps no hosts from others.
    if (limit !== null) continue;
    for (const host of hosts) {
      const list = waitersOf.get(host);
      if (list) list.push(index);
      else waitersOf.set(host, [index]);
    }
  }
  return positions;
}

/**
 * Where work stands in the queue, and behind whom; undefined when it does not wait.
 * @param only names those of this project only, and counts the others; null: names all.
 */
export async function queuePlace(
  db: Queryable,
  owner: string,
  only: string | null = null,
): Promise<QueuePlace | undefined> {
  const [waiter] = await db.select().from(hostWaiters).where(eq(hostWaiters.owner, owner));
  if (!waiter) return undefined;
  const limits = new Map((await turns(db)).map((turn) => [turn.waiter.owner, turn.limit]));
  const limit = limits.get(owner) ?? null;
  const { holders, waiters: earlier } = await aheadOf(db, waiter);
  // Who waits for a quota keeps no hosts from others.
  const waiters = earlier.filter((each) => (limits.get(each) ?? null) === null);
  const owners = [...holders, ...waiters];
  return {
    position: waiters.length + 1,
    waitingSince: waiter.waitingSince.toISOString(),
    limit,
    hosts: waiter.hosts,
    behind: (await named(db, owners, holders, only)).slice(0, NAMED_AHEAD),
    behindCount: owners.length,
    startsAt: limit === null ? await startOf(db, holders, waiters) : null,
  };
}

/**
 * When the hosts of those ahead will be free: holders are at work side by side, waiters come one after the
 * other. An upper bound where waiters share no host with each other. Null where one of them has no chosen plan.
 */
async function startOf(
  db: Queryable,
  holders: readonly string[],
  waiters: readonly string[],
): Promise<string | null> {
  const seconds = await remainingSeconds(db, [...holders, ...waiters]);
  const of = (owners: readonly string[]) => owners.map((owner) => seconds.get(owner) ?? Number.NaN);
  const untilFree = Math.max(0, ...of(holders)) + of(waiters).reduce((sum, each) => sum + each, 0);
  return Number.isNaN(untilFree) ? null : new Date(Date.now() + 1000 * untilFree).toISOString();
}

/** Steps whose median says how long a step of a running job takes. */
const LATEST_STEPS = 20;

/** Seconds of training that jobs have left, by owner: by their latest steps, before those by prediction. */
async function remainingSeconds(db: Queryable, owners: readonly string[]): Promise<Map<string, number>> {
  const jobIds = idsOf("job", owners);
  const { rows } = await db.execute<{ owner: string; seconds: number }>(sql`
    select 'job:' || j.id as owner,
      ((j.spec ->> 'steps')::float8 - coalesce(done.last_step, 0))
        * coalesce(done.step_seconds, (j.chosen -> 'predicted' ->> 'stepTimeSeconds')::float8) as seconds
    from ${jobs} j left join lateral (
      select max(latest.step) as last_step,
        percentile_cont(0.5) within group (order by latest.step_time_seconds) as step_seconds
      from (
        select m.step, m.step_time_seconds from ${stepMetrics} m join ${runs} r on r.id = m.run_id
        where r.job_id = j.id order by m.step desc limit ${LATEST_STEPS}) latest) done on true
    where j.id = any(${sql.param(jobIds)}::uuid[]) and j.chosen is not null`);
  return new Map(rows.map(({ owner, seconds }) => [owner, seconds]));
}

/** The ids of those owners that are of a kind. */
const idsOf = (kind: "job" | "workload", owners: readonly string[]): string[] =>
  owners.flatMap((owner) => (owner.startsWith(`${kind}:`) ? [owner.slice(kind.length + 1)] : []));

/** What holds hosts, or waits for them. */
export interface HostsUse {
  readonly holders: readonly ClusterHolder[];
  readonly waiting: readonly ClusterWaiter[];
  /** Every host that is held, also by those who are not named. */
  readonly taken: ReadonlySet<string>;
}

/**
 * Who holds hosts now, and who waits for them, in the order of the queue. @param only of this project; null: of
 * all
 */
export async function hostsUse(db: Queryable, only: string | null = null): Promise<HostsUse> {
  const claims = await db.select().from(hostClaims).orderBy(asc(hostClaims.owner), asc(hostClaims.host));
  const waiters = await db
    .select({ owner: hostWaiters.owner, hosts: hostWaiters.hosts })
    .from(hostWaiters)
    .orderBy(asc(hostWaiters.place), asc(hostWaiters.owner));
  const hostsOf = Map.groupBy(claims, ({ owner }) => owner);
  const waitingOwners = waiters.map(({ owner }) => owner);
  const positions = await queuePositions(db, waitingOwners);
  const known = new Map(
    (await named(db, [...hostsOf.keys(), ...waitingOwners], [], only)).map(({ holds: _, ...work }) => [
      `${work.kind}:${work.id}`,
      work,
    ]),
  );
  const states = await jobStates(db, idsOf("job", [...hostsOf.keys()]));
  return {
    taken: new Set(claims.map(({ host }) => host)),
    holders: [...hostsOf].flatMap(([owner, claimed]) => {
      const work = known.get(owner);
      const hosts = claimed.map(({ host }) => host);
      return work ? [{ ...work, state: states.get(work.id) ?? null, hosts }] : [];
    }),
    waiting: waiters.flatMap(({ owner, hosts }) => {
      const [work, position] = [known.get(owner), positions.get(owner)];
      return work && position ? [{ ...work, ...position, hosts: [...hosts] }] : [];
    }),
  };
}

async function jobStates(db: Queryable, ids: readonly string[]): Promise<Map<string, JobState>> {
  if (ids.length === 0) return new Map();
  const rows = await db
    .select({ id: jobs.id, state: jobs.state })
    .from(jobs)
    .where(inArray(jobs.id, [...ids]));
  return new Map(rows.map(({ id, state }) => [id, state]));
}

/** Jobs at work on a cluster whose nodes a scheduler shares out: they claim no hosts here. */
export async function jobsAtWorkOn(
  db: Queryable,
  cluster: { readonly name: string; readonly launcher: LauncherKind },
  only: string | null = null,
): Promise<ClusterHolder[]> {
  const rows = await db
    .select({ id: jobs.id, name: jobs.name, state: jobs.state })
    .from(jobs)
    .where(
      and(
        isNull(jobs.endedAt),
        ne(jobs.state, "held"),
        only === null ? undefined : eq(jobs.project, only),
        sql`${jobs.spec} -> 'cluster' ->> 'name' = ${cluster.name}`,
        sql`${jobs.spec} -> 'cluster' ->> 'launcher' = ${cluster.launcher}`,
      ),
    )
    .orderBy(asc(jobs.createdAt));
  return rows.map((row) => ({ kind: "job", ...row, hosts: [] }));
}

async function named(
  db: Queryable,
  owners: readonly string[],
  holders: readonly string[],
  only: string | null,
): Promise<QueuePlace["behind"]> {
  const nameOf = new Map<string, string>();
  for (const [kind, table] of [
    ["job", jobs],
    ["workload", workloads],
  ] as const) {
    const ids = idsOf(kind, owners);
    if (ids.length === 0) continue;
    const rows = await db
      .select({ id: table.id, name: table.name })
      .from(table)
      .where(and(inArray(table.id, ids), only === null ? undefined : eq(table.project, only)));
    for (const { id, name } of rows) nameOf.set(`${kind}:${id}`, name);
  }
  return owners.flatMap((owner) => {
    const name = nameOf.get(owner);
    const kind = owner.startsWith("job:") ? ("job" as const) : ("workload" as const);
    if (name === undefined) return [];
    return [{ kind, id: owner.slice(kind.length + 1), name, holds: holders.includes(owner) }];
  });
}
