import { and, asc, eq, isNull, ne, sql } from "drizzle-orm";
import type { ClusterHolder, ClusterWaiter } from "@internevo/contracts";
import type { JobState, LauncherKind, QueuePlace, QueuePosition, Turn } from "@internevo/domain";
import type { Queryable } from "./database.ts";
import { turns, turnsIn } from "./host-queue.ts";
import { queueNow, type QueueNow, type Waiter } from "./queue-now.ts";
import { isOneOf } from "./statement-parts.ts";
import { hostClaims, hostWaiters, jobs, runs, stepMetrics, workloads } from "./schema/index.ts";

/** How many of those ahead are named. */
const NAMED_AHEAD = 10;

/** Who holds one of the hosts, other than the work itself. */
function holdersOf({ claims }: QueueNow, { owner, hosts }: Waiter): readonly string[] {
  const wanted = new Set(hosts);
  const holders = new Set(claims.flatMap((claim) => (wanted.has(claim.host) ? [claim.owner] : [])));
  holders.delete(owner);
  return [...holders].sort();
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
    .where(isOneOf(hostWaiters.owner, owners))
    .limit(1);
  if (!first) return new Map();
  return positionsIn(await turns(db), asked);
}

function positionsIn(
  waiting: readonly Turn<Waiter>[],
  asked: ReadonlySet<string>,
): ReadonlyMap<string, QueuePosition> {
  const waitersOf = new Map<string, number[]>();
  const positions = new Map<string, QueuePosition>();
  for (const [index, { waiter, limit }] of waiting.entries()) {
    const { owner, hosts, waitingSince, gaveWayTo } = waiter;
    if (asked.has(owner)) {
      const ahead = new Set(hosts.flatMap((host) => waitersOf.get(host) ?? []));
      positions.set(owner, {
        position: ahead.size + 1,
        waitingSince: waitingSince.toISOString(),
        limit,
        gaveWayTo,
      });
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
  const [waits] = await db
    .select({ owner: hostWaiters.owner })
    .from(hostWaiters)
    .where(eq(hostWaiters.owner, owner));
  if (!waits) return undefined;
  const queue = await queueNow(db);
  const waiting = queue ? turnsIn(queue) : [];
  const place = waiting.findIndex(({ waiter }) => waiter.owner === owner);
  const turn = waiting[place];
  if (!queue || !turn) return undefined;
  const { waiter, limit } = turn;
  const holders = holdersOf(queue, waiter);
  const wanted = new Set(waiter.hosts);
  // Who waits for a quota keeps no hosts from others.
  const waiters = waiting
    .slice(0, place)
    .flatMap((each) =>
      each.limit === null && each.waiter.hosts.some((host) => wanted.has(host)) ? [each.waiter.owner] : [],
    );
  const owners = [...holders, ...waiters];
  return {
    position: waiters.length + 1,
    waitingSince: waiter.waitingSince.toISOString(),
    limit,
    gaveWayTo: waiter.gaveWayTo,
    hosts: [...waiter.hosts],
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
        select m.step, m.step_time_seconds from ${stepMetrics} m
        where m.run_id = (select r.id from ${runs} r where r.job_id = j.id)
        order by m.step desc limit ${LATEST_STEPS}) latest) done on true
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
  const inOrder = await turns(db);
  const hostsOf = Map.groupBy(claims, ({ owner }) => owner);
  const waitingOwners = inOrder.map(({ waiter }) => waiter.owner);
  const positions = positionsIn(inOrder, new Set(waitingOwners));
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
    waiting: inOrder.flatMap(({ waiter: { owner, hosts } }) => {
      const [work, position] = [known.get(owner), positions.get(owner)];
      return work && position ? [{ ...work, ...position, hosts: [...hosts] }] : [];
    }),
  };
}

async function jobStates(db: Queryable, ids: readonly string[]): Promise<Map<string, JobState>> {
  if (ids.length === 0) return new Map();
  const rows = await db.select({ id: jobs.id, state: jobs.state }).from(jobs).where(isOneOf(jobs.id, ids));
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
      .where(and(isOneOf(table.id, ids), only === null ? undefined : eq(table.project, only)));
    for (const { id, name } of rows) nameOf.set(`${kind}:${id}`, name);
  }
  return owners.flatMap((owner) => {
    const name = nameOf.get(owner);
    const kind = owner.startsWith("job:") ? ("job" as const) : ("workload" as const);
    if (name === undefined) return [];
    return [{ kind, id: owner.slice(kind.length + 1), name, holds: holders.includes(owner) }];
  });
}
