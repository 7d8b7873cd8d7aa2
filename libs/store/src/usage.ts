import { and, eq, gt, isNull, lt, or, sql, type SQL } from "drizzle-orm";
import type { Usage, UsageGroup } from "@internevo/contracts";
import type { Queryable, Transaction } from "./database.ts";
import { listOf, millisecondsOf, seenByMembers } from "./statement-parts.ts";
import { hostClaims, hostHolds, jobs, preemptibleHolds, projectMonths, workloads } from "./schema/index.ts";

/** Work that holds hosts, or asks for them, as quotas see it. */
export interface GpuWork {
  readonly owner: string;
  /** Of the job or the workload. */
  readonly name: string;
  readonly project: string;
  readonly submitter: string | null;
  readonly cluster: string;
  readonly gpus: number;
  /** Gives its hosts up where a more urgent job waits for them: without checkpoints it would begin anew. */
  readonly preemptible: boolean;
}

/** The jobs and workloads behind these owners; what is gone is left out. */
export async function gpuWorkOf(
  db: Queryable,
  owners: readonly string[],
): Promise<ReadonlyMap<string, GpuWork>> {
  if (owners.length === 0) return new Map();
  const asked = sql`${sql.param([...owners])}::text[]`;
  const idsOf = (kind: string) =>
    sql`(select substring(o from ${kind.length + 2}::int)::uuid from unnest(${asked}) o where o like ${`${kind}:%`})`;
  const gpus = sql`(spec #>> '{cluster,nodes}')::int * (spec #>> '{cluster,gpusPerNode}')::int`;
  const { rows } = await db.execute<{ [K in keyof GpuWork]: GpuWork[K] }>(sql`
    select 'job:' || id as owner, name, project, owner as submitter, spec #>> '{cluster,name}' as cluster, ${gpus} as gpus,
      coalesce((spec ->> 'preemptible')::boolean, false) and spec ->> 'checkpointing' is not null as preemptible
    from ${jobs} where id in ${idsOf("job")}
    union all
    select 'workload:' || id, name, project, null, spec #>> '{cluster,name}', ${gpus}, false
    from ${workloads} where id in ${idsOf("workload")}`);
  return new Map(rows.map((row) => [row.owner, row]));
}

/** From now on the works are counted. */
export async function beginHolds(tx: Transaction, works: readonly GpuWork[]): Promise<void> {
  if (works.length === 0) return;
  const beganAt = sql`clock_timestamp()`;
  await tx
    .insert(hostHolds)
    .values(
      works.map(({ owner, project, submitter, cluster, gpus }) => ({
        owner,
        project,
        submitter,
        cluster,
        gpus,
        beganAt,
      })),
    )
    .onConflictDoNothing();
}

/** A hold that is over. */
export interface EndedHold {
  readonly project: string;
  readonly gpus: number;
  readonly beganAtMs: number;
  readonly endedAtMs: number;
}

/**
 * Gives back what work held: from now on it is not counted. One statement.
 * @returns the hold that has ended; undefined where there was none.
 */
export async function endHold(tx: Transaction, owner: string): Promise<EndedHold | undefined> {
  const { rows } = await tx.execute<{ [K in keyof EndedHold]: EndedHold[K] }>(sql`
    with claims as (delete from ${hostClaims} where owner = ${owner}),
      preemptible as (delete from ${preemptibleHolds} where owner = ${owner})
    update ${hostHolds} set ended_at = clock_timestamp() where owner = ${owner} and ended_at is null
    returning project, gpus, ${millisecondsOf("began_at")} as "beganAtMs",
      ${millisecondsOf("ended_at")} as "endedAtMs"`);
  return rows[0];
}

/** The first instant of a month in UTC. */
export const monthOf = (at: Date): Date => new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth(), 1));
/** The first instant of the month behind that of `at`, in UTC: quotas of a month begin anew. */
export const nextMonth = (at: Date): Date => new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1, 1));

const overlaps = (from: Date, to: Date): SQL | undefined =>
  and(lt(hostHolds.beganAt, to), or(isNull(hostHolds.endedAt), gt(hostHolds.endedAt, from)));

/** GPU-hours of a hold between two instants; one that has not ended counts until now. */
const hoursWithin = (from: SQL, to: SQL): SQL =>
  sql`${hostHolds.gpus} * greatest(0, extract(epoch from least(coalesce(${hostHolds.endedAt}, clock_timestamp()), ${to}) - greatest(${hostHolds.beganAt}, ${from}))::float8) / 3600`;
const instantOf = (at: Date): SQL => sql`${at.toISOString()}::timestamptz`;

/** What projects use: GPUs that their work holds now, and GPU-hours of the month of `now`. */
export interface ProjectUse {
  readonly gpusInUse: number;
  readonly gpuHoursThisMonth: number;
}
export const NO_USE: ProjectUse = { gpusInUse: 0, gpuHoursThisMonth: 0 };

/** GPU-hours of a calendar month, of a project's holds that have ended. */
export interface MonthRow {
  readonly project: string;
  readonly gpuHours: number;
}

/** What a project's work holds now. */
export interface OpenHold {
  readonly project: string;
  readonly gpus: number;
  readonly beganAtMs: number;
}

/** The parts of a statement that {@link useOf} follows from. @param month the month's first instant */
export const endedInMonth = (month: SQL): SQL => sql`
  select project, gpu_hours as "gpuHours" from ${projectMonths} where month = ${month}`;
export const openHolds = (): SQL => sql`
  select project, gpus, ${millisecondsOf("began_at")} as "beganAtMs"
  from ${hostHolds} where ended_at is null`;

/**
 * What each project uses at a moment; those that use nothing are left out. It needs no hold that has ended: the queue
 * asks with every turn.
 * @param months of the month of `nowMs`
 */
export function useOf(
  months: readonly MonthRow[],
  open: readonly OpenHold[],
  nowMs: number,
): ReadonlyMap<string, ProjectUse> {
  const beginMs = monthOf(new Date(nowMs)).getTime();
  const use = new Map<string, ProjectUse>();
  const add = (project: string, gpusInUse: number, gpuHours: number): void => {
    const before = use.get(project) ?? NO_USE;
    use.set(project, {
      gpusInUse: before.gpusInUse + gpusInUse,
      gpuHoursThisMonth: before.gpuHoursThisMonth + gpuHours,
    });
  };
  for (const { project, gpuHours } of months) add(project, 0, gpuHours);
  for (const { project, gpus, beganAtMs } of open)
    add(project, gpus, (gpus * Math.max(0, nowMs - Math.max(beganAtMs, beginMs))) / 3_600_000);
  return use;
}

/** {@link useOf} as it is stored. @param now the moment; default: this one */
export async function projectUse(db: Queryable, now = new Date()): Promise<ReadonlyMap<string, ProjectUse>> {
  const [row] = await db
    .select({
      months: listOf<MonthRow>(endedInMonth(instantOf(monthOf(now)))),
      open: listOf<OpenHold>(openHolds()),
    })
    .from(sql`(select) one`);
  return useOf(row?.months ?? [], row?.open ?? [], now.getTime());
}

const KEYS: Readonly<Record<Exclude<UsageGroup, "day">, SQL>> = {
  project: sql`${hostHolds.project}`,
  owner: sql`${hostHolds.submitter}`,
  cluster: sql`${hostHolds.cluster}`,
};

export interface UsageRequest {
  readonly from: Date;
  /** Not included. */
  readonly to: Date;
  readonly by: UsageGroup;
  /** Of this project only. */
  readonly project?: string | undefined;
}

/**
 * GPU-hours between two instants. Work that has not ended counts until now. @param only as members of this project
 * may see it; null: all.
 */
export async function usageBetween(
  db: Queryable,
  request: UsageRequest,
  only: string | null = null,
): Promise<Usage> {
  const { from, to, by, project } = request;
  const [first, last] = [instantOf(from), instantOf(to)];
  const which = and(
    overlaps(from, to),
    project === undefined ? undefined : eq(hostHolds.project, project),
    only === null ? undefined : seenByMembers(only, hostHolds.project, hostHolds.beganAt),
  );
  const { rows } = await db.execute<Usage["rows"][number]>(
    by === "day"
      ? usageByDay(which, first, last)
      : sql`select ${KEYS[by]} as key, sum(${hoursWithin(first, last)}) as "gpuHours",
          count(distinct ${hostHolds.owner})::int as jobs
        from ${hostHolds} where ${which} group by 1 order by 2 desc, 1`,
  );
  return {
    from: from.toISOString(),
    to: to.toISOString(),
    by,
    gpuHours: rows.reduce((sum, { gpuHours }) => sum + gpuHours, 0),
    rows: rows.map(({ key, gpuHours, jobs: count }) => ({ key, gpuHours, jobs: count })),
  };
}

/** A hold counts on each day that it lasted; days without any are left out. */
function usageByDay(which: SQL | undefined, from: SQL, to: SQL): SQL {
  const until = sql`least(coalesce(${hostHolds.endedAt}, clock_timestamp()), ${to})`;
  const day = sql`d.day at time zone 'UTC'`;
  return sql`select to_char(d.day, 'YYYY-MM-DD') as key,
      sum(${hoursWithin(sql`greatest(${from}, ${day})`, sql`least(${to}, (d.day + interval '1 day') at time zone 'UTC')`)}) as "gpuHours",
      count(distinct ${hostHolds.owner})::int as jobs
    from ${hostHolds}
      cross join lateral generate_series(
        date_trunc('day', greatest(${hostHolds.beganAt}, ${from}) at time zone 'UTC'),
        date_trunc('day', ${until} at time zone 'UTC'), interval '1 day') as d(day)
    where ${which} and ${day} < ${until} group by d.day order by d.day`;
}
