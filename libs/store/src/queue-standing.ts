import { gt, sql } from "drizzle-orm";
import {
  DEFAULT_QUEUE_SETTINGS,
  NO_USAGE,
  usageAt,
  usageWith,
  type DecayedUsage,
  type QueueSettings,
  type QueueStanding,
  type QuotaStanding,
} from "@internevo/domain";
import type { Queryable, Transaction } from "./database.ts";
import { hostHolds, projectUsage, queueSettings } from "./schema/index.ts";
import { millisecondsOf } from "./statement-parts.ts";
import { NO_USE, useOf, type EndedHold, type MonthRow, type OpenHold } from "./usage.ts";

/** How the queue forgets usage, and how long it lets others go first. */
export async function getQueueSettings(db: Queryable): Promise<QueueSettings> {
  const [row] = await db
    .select({
      halfLifeHours: queueSettings.halfLifeHours,
      patienceHours: queueSettings.patienceHours,
      leastRunMinutes: queueSettings.leastRunMinutes,
    })
    .from(queueSettings);
  return row ?? DEFAULT_QUEUE_SETTINGS;
}

/** What the queue knows of the projects: what its order follows from, and the quotas of those that have some. */
export interface ProjectsStanding {
  readonly standing: QueueStanding;
  readonly quotas: ReadonlyMap<string, QuotaStanding>;
}

/** A project, and what it used as it was last counted; null: it never used anything. */
export interface ProjectRow extends Pick<QuotaStanding, "name" | "maxGpus" | "gpuHoursPerMonth"> {
  readonly weight: number;
  readonly gpuHours: number | null;
  readonly atMs: number | null;
}

/** What is read of projects, at one moment. */
export interface ProjectsRead {
  readonly nowMs: number;
  readonly settings: QueueSettings;
  readonly projects: readonly ProjectRow[];
  readonly open: readonly OpenHold[];
  readonly months: readonly MonthRow[];
  /** The projects of what waits: quotas of others hold nobody back, and are left out. */
  readonly waiting: ReadonlySet<string | null>;
}

/** What the queue's order follows from, and the quotas that hold waiters back. */
export function projectsStanding(read: ProjectsRead): ProjectsStanding {
  const { nowMs, settings } = read;
  const use = useOf(read.months, read.open, nowMs);
  const usages = new Map<string, DecayedUsage>();
  for (const { name, gpuHours, atMs } of read.projects)
    if (gpuHours !== null && atMs !== null)
      usages.set(name, usageAt({ gpuHours, atMs }, nowMs, settings.halfLifeHours));
  for (const { project, ...held } of read.open) {
    const hold = { ...held, endedAtMs: null };
    usages.set(project, usageWith(usages.get(project) ?? NO_USAGE, hold, nowMs, settings.halfLifeHours));
  }
  const limited = read.projects.filter(
    (row) => read.waiting.has(row.name) && (row.maxGpus !== null || row.gpuHoursPerMonth !== null),
  );
  return {
    standing: {
      usages: new Map([...usages].map(([project, counted]) => [project, counted.gpuHours])),
      weights: new Map(read.projects.map((row) => [row.name, row.weight])),
      nowMs,
      settings,
    },
    quotas: new Map(
      limited.map(({ name, maxGpus, gpuHoursPerMonth }) => [
        name,
        { name, maxGpus, gpuHoursPerMonth, ...(use.get(name) ?? NO_USE) },
      ]),
    ),
  };
}

/** Usage of so many half-lives ago counts less than a billionth. */
const HALF_LIVES_THAT_COUNT = 30;

/**
 * Another half-life or patience: what every project used is counted anew, from the holds that are stored. The
 * queue must be locked.
 */
export async function storeQueueSettings(
  tx: Transaction,
  change: Partial<QueueSettings>,
): Promise<QueueSettings> {
  const before = await getQueueSettings(tx);
  const settings = { ...before, ...change };
  await tx
    .insert(queueSettings)
    .values(settings)
    .onConflictDoUpdate({ target: queueSettings.isTheOne, set: settings });
  if (settings.halfLifeHours !== before.halfLifeHours) await countUsageAnew(tx, settings.halfLifeHours);
  return settings;
}

async function countUsageAnew(tx: Transaction, halfLifeHours: number): Promise<void> {
  const { rows } = await tx.execute<{ nowMs: number }>(
    sql`select ${millisecondsOf("clock_timestamp()")} as "nowMs"`,
  );
  const nowMs = Number(rows[0]?.nowMs);
  const since = new Date(nowMs - HALF_LIVES_THAT_COUNT * halfLifeHours * 3_600_000);
  const ended = await tx
    .select({
      project: hostHolds.project,
      gpus: hostHolds.gpus,
      beganAt: hostHolds.beganAt,
      endedAt: hostHolds.endedAt,
    })
    .from(hostHolds)
    .where(gt(hostHolds.endedAt, since));
  const usages = new Map<string, DecayedUsage>();
  for (const { project, gpus, beganAt, endedAt } of ended) {
    const hold = { gpus, beganAtMs: beganAt.getTime(), endedAtMs: endedAt?.getTime() ?? null };
    usages.set(project, usageWith(usages.get(project) ?? NO_USAGE, hold, nowMs, halfLifeHours));
  }
  await tx.delete(projectUsage);
  if (usages.size > 0)
    await tx
      .insert(projectUsage)
      .values(
        [...usages].map(([project, { gpuHours, atMs }]) => ({ project, gpuHours, at: new Date(atMs) })),
      );
}

/** Counts a hold that has ended for its project's fair share. The queue must be locked. */
export async function countEndedHold(tx: Transaction, { project, ...hold }: EndedHold): Promise<void> {
  const { rows } = await tx.execute<{ halfLifeHours: number | null; counted: DecayedUsage | null }>(sql`
    select (select half_life_hours from ${queueSettings}) as "halfLifeHours",
      (select json_build_object('gpuHours', gpu_hours, 'atMs', ${millisecondsOf("at")})
        from ${projectUsage} where project = ${project}) as counted`);
  const { halfLifeHours, counted } = rows[0] ?? {};
  const before = counted ?? NO_USAGE;
  const { gpuHours, atMs } = usageWith(
    before,
    hold,
    Math.max(before.atMs, hold.endedAtMs),
    halfLifeHours ?? DEFAULT_QUEUE_SETTINGS.halfLifeHours,
  );
  const usage = { gpuHours, at: new Date(atMs) };
  await tx
    .insert(projectUsage)
    .values({ project, ...usage })
    .onConflictDoUpdate({ target: projectUsage.project, set: usage });
}
