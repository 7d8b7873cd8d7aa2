import { sql, type SQL } from "drizzle-orm";
import {
  DEFAULT_QUEUE_SETTINGS,
  type HostsWanted,
  type PreemptibleHold,
  type QueueSettings,
} from "@internevo/domain";
import type { Queryable } from "./database.ts";
import { projectsStanding, type OpenHold, type ProjectRow, type ProjectsStanding } from "./queue-standing.ts";
import {
  hostClaims,
  hostHolds,
  hostWaiters,
  preemptibleHolds,
  projects,
  projectUsage,
  queueSettings,
} from "./schema/index.ts";
import { projectUseRows, type ProjectUse } from "./usage.ts";

/** What waits, as the order of the queue sees it. */
export interface Waiter extends HostsWanted {
  readonly waitingSince: Date;
  readonly gaveWayTo: string | null;
}

/** What may have to give its hosts up, and who asked it to. */
export type AskedHold = PreemptibleHold & { readonly givesWayTo: string | null };

/** All that turns follow from. */
export interface QueueNow extends ProjectsStanding {
  readonly waiting: readonly Waiter[];
  readonly claims: readonly { readonly host: string; readonly owner: string }[];
  readonly preemptible: readonly AskedHold[];
}

const listOf = (rows: SQL): SQL => sql`(select coalesce(json_agg(listed), '[]') from (${rows}) listed)`;
const millisecondsOf = (column: string): SQL => sql.raw(`(extract(epoch from ${column}) * 1000)::float8`);

type WaiterRow = Omit<Waiter, "waitingSince"> & { readonly waitingSinceMs: number };

/**
 * The queue at one moment, by one statement: every change of it reads all of it, and a round trip takes as long
 * as the reading. The moment is by Postgres's clock, which all services share.
 * @returns undefined where nobody waits.
 */
export async function queueNow(db: Queryable): Promise<QueueNow | undefined> {
  const { rows } = await db.execute<{
    nowMs: number;
    settings: QueueSettings[];
    waiting: WaiterRow[];
    claims: QueueNow["claims"];
    preemptible: QueueNow["preemptible"];
    projects: ProjectRow[];
    open: OpenHold[];
    use: ({ project: string } & ProjectUse)[];
  }>(sql`
    select ${millisecondsOf("clock_timestamp()")} as "nowMs",
      ${listOf(sql`
        select half_life_hours as "halfLifeHours", patience_hours as "patienceHours",
          least_run_minutes as "leastRunMinutes" from ${queueSettings}`)} as settings,
      ${listOf(sql`
        select owner, hosts, project, gpus, priority, gave_way_to as "gaveWayTo",
          ${millisecondsOf("submitted_at")} as "submittedAtMs", ${millisecondsOf("waiting_since")} as "waitingSinceMs"
        from ${hostWaiters}`)} as waiting,
      ${listOf(sql`select host, owner from ${hostClaims}`)} as claims,
      ${listOf(sql`
        select h.owner, h.project, h.gpus, h.priority, h.gives_way_to as "givesWayTo",
          1000 * h.waited_seconds as "waitedMs", ${millisecondsOf("h.submitted_at")} as "submittedAtMs",
          ${millisecondsOf("h.began_at")} as "beganAtMs",
          array(select c.host from ${hostClaims} c where c.owner = h.owner) as hosts
        from ${preemptibleHolds} h`)} as preemptible,
      ${listOf(sql`
        select p.name, p.weight, p.max_gpus as "maxGpus", p.gpu_hours_per_month as "gpuHoursPerMonth",
          u.gpu_hours as "gpuHours", ${millisecondsOf("u.at")} as "atMs"
        from ${projects} p left join ${projectUsage} u on u.project = p.name`)} as projects,
      ${listOf(sql`
        select project, gpus, ${millisecondsOf("began_at")} as "beganAtMs"
        from ${hostHolds} where ended_at is null`)} as open,
      ${listOf(projectUseRows())} as use
    where exists (select from ${hostWaiters})`);
  const [row] = rows;
  if (!row) return undefined;
  return {
    waiting: row.waiting.map((waiter) => ({ ...waiter, waitingSince: new Date(waiter.waitingSinceMs) })),
    claims: row.claims,
    preemptible: row.preemptible,
    ...projectsStanding({
      ...row,
      settings: row.settings[0] ?? DEFAULT_QUEUE_SETTINGS,
      use: new Map(row.use.map(({ project, ...use }) => [project, use])),
      waiting: new Set(row.waiting.map(({ project }) => project)),
    }),
  };
}
