import { sql } from "drizzle-orm";
import {
  DEFAULT_QUEUE_SETTINGS,
  type HostsWanted,
  type PreemptibleHold,
  type QueueSettings,
} from "@internevo/domain";
import type { Queryable } from "./database.ts";
import { projectsStanding, type ProjectRow, type ProjectsStanding } from "./queue-standing.ts";
import {
  hostClaims,
  hostWaiters,
  preemptibleHolds,
  projects,
  projectUsage,
  queueSettings,
} from "./schema/index.ts";
import { listOf, millisecondsOf } from "./statement-parts.ts";
import { endedInMonth, openHolds, type MonthRow, type OpenHold } from "./usage.ts";

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

type WaiterRow = Omit<Waiter, "waitingSince">;

/**
 * The statement of {@link queueNow}. It has a name: Postgres plans it once for each connection, which takes as long
 * as to carry it out. All instants are of one moment.
 */
const statement = (db: Queryable) =>
  db
    .select({
      nowMs: millisecondsOf("statement_timestamp()"),
      settings: listOf<QueueSettings>(sql`
        select half_life_hours as "halfLifeHours", patience_hours as "patienceHours",
          least_run_minutes as "leastRunMinutes" from ${queueSettings}`),
      waiting: listOf<WaiterRow>(sql`
        select owner, hosts, project, gpus, priority, gave_way_to as "gaveWayTo",
          ${millisecondsOf("submitted_at")} as "submittedAtMs", ${millisecondsOf("waiting_since")} as "waitingSinceMs"
        from ${hostWaiters}`),
      claims: listOf<QueueNow["claims"][number]>(sql`select host, owner from ${hostClaims}`),
      preemptible: listOf<Omit<AskedHold, "hosts">>(sql`
        select owner, project, gpus, priority, gives_way_to as "givesWayTo",
          1000 * waited_seconds as "waitedMs", ${millisecondsOf("submitted_at")} as "submittedAtMs",
          ${millisecondsOf("began_at")} as "beganAtMs"
        from ${preemptibleHolds}`),
      projects: listOf<ProjectRow>(sql`
        select p.name, p.weight, p.max_gpus as "maxGpus", p.gpu_hours_per_month as "gpuHoursPerMonth",
          u.gpu_hours as "gpuHours", ${millisecondsOf("u.at")} as "atMs"
        from ${projects} p left join ${projectUsage} u on u.project = p.name`),
      months: listOf<MonthRow>(endedInMonth(sql`date_trunc('month', statement_timestamp(), 'UTC')`)),
      open: listOf<OpenHold>(openHolds()),
    })
    .from(sql`(select exists (select from ${hostWaiters}) as waits) one`)
    .where(sql`one.waits`)
    .prepare("queue_now");

/**
 * The queue at one moment, by one statement: every change of it reads all of it, and a round trip takes as long
 * as the reading. The moment is by Postgres's clock, which all services share.
 * @returns undefined where nobody waits.
 */
export async function queueNow(db: Queryable): Promise<QueueNow | undefined> {
  const [row] = await statement(db).execute();
  if (!row) return undefined;
  const claimsOf = Map.groupBy(row.claims, ({ owner }) => owner);
  return {
    waiting: row.waiting.map((waiter) => ({ ...waiter, waitingSince: new Date(waiter.waitingSinceMs) })),
    claims: row.claims,
    preemptible: row.preemptible.map((hold) => ({
      ...hold,
      hosts: (claimsOf.get(hold.owner) ?? []).map(({ host }) => host),
    })),
    ...projectsStanding({
      ...row,
      settings: row.settings[0] ?? DEFAULT_QUEUE_SETTINGS,
      waiting: new Set(row.waiting.map(({ project }) => project)),
    }),
  };
}
