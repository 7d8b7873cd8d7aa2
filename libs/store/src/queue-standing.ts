import { eq, gt, isNull, sql } from "drizzle-orm";
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
import { hostHolds, projects, projectUsage, queueSettings } from "./schema/index.ts";
import { NO_USE, projectUse, type ProjectUse } from "./usage.ts";

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

/** Settings, and the instant by Postgres's clock, which all services share. */
async function settingsNow(
  db: Queryable,
): Promise<{ readonly settings: QueueSettings; readonly nowMs: number }> {
  const { rows } = await db.execute<{ nowMs: number } & { [K in keyof QueueSettings]: number | null }>(sql`
    select extract(epoch from clock_timestamp())::float8 * 1000 as "nowMs", half_life_hours as "halfLifeHours",
      patience_hours as "patienceHours", least_run_minutes as "leastRunMinutes"
    from (select) one left join ${queueSettings} on true`);
  const [row] = rows;
  if (!row) throw new Error("Postgres answered no row to a question that has one");
  const { nowMs, halfLifeHours, patienceHours, leastRunMinutes } = row;
  const isSet = halfLifeHours !== null && patienceHours !== null && leastRunMinutes !== null;
  return {
    nowMs,
    settings: isSet ? { halfLifeHours, patienceHours, leastRunMinutes } : DEFAULT_QUEUE_SETTINGS,
  };
}

/** What the queue knows of the projects: what its order follows from, and the quotas of those that have some. */
export interface ProjectsStanding {
  readonly standing: QueueStanding;
  readonly quotas: ReadonlyMap<string, QuotaStanding>;
}

/** @param waiting the projects of what waits: quotas of others hold nobody back, and are left out. */
export async function projectsStanding(
  db: Queryable,
  waiting: ReadonlySet<string | null>,
): Promise<ProjectsStanding> {
  const { settings, nowMs } = await settingsNow(db);
  const { name, weight, maxGpus, gpuHoursPerMonth } = projects;
  const { gpuHours, at } = projectUsage;
  const rows = await db
    .select({ name, weight, maxGpus, gpuHoursPerMonth, gpuHours, at })
    .from(projects)
    .leftJoin(projectUsage, eq(projectUsage.project, projects.name));
  const usages = new Map<string, DecayedUsage>();
  for (const row of rows)
    if (row.gpuHours !== null && row.at !== null) {
      const counted = { gpuHours: row.gpuHours, atMs: row.at.getTime() };
      usages.set(row.name, usageAt(counted, nowMs, settings.halfLifeHours));
    }
  const open = await db
    .select({ project: hostHolds.project, gpus: hostHolds.gpus, beganAt: hostHolds.beganAt })
    .from(hostHolds)
    .where(isNull(hostHolds.endedAt));
  for (const { project, gpus, beganAt } of open) {
    const hold = { gpus, beganAtMs: beganAt.getTime(), endedAtMs: null };
    usages.set(project, usageWith(usages.get(project) ?? NO_USAGE, hold, nowMs, settings.halfLifeHours));
  }
  const limited = rows.filter(
    (row) => waiting.has(row.name) && (row.maxGpus !== null || row.gpuHoursPerMonth !== null),
  );
  const use = limited.length === 0 ? new Map<string, ProjectUse>() : await projectUse(db);
  return {
    standing: {
      usages: new Map([...usages].map(([project, counted]) => [project, counted.gpuHours])),
      weights: new Map(rows.map((row) => [row.name, row.weight])),
      nowMs,
      settings,
    },
    quotas: new Map(
      limited.map((row) => {
        const quota = { name: row.name, maxGpus: row.maxGpus, gpuHoursPerMonth: row.gpuHoursPerMonth };
        return [row.name, { ...quota, ...(use.get(row.name) ?? NO_USE) }];
      }),
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
  const { nowMs } = await settingsNow(tx);
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
export async function countEndedHold(
  tx: Transaction,
  { project, gpus, beganAt, endedAt }: typeof hostHolds.$inferSelect,
): Promise<void> {
  const { settings, nowMs } = await settingsNow(tx);
  const [row] = await tx.select().from(projectUsage).where(eq(projectUsage.project, project));
  const hold = { gpus, beganAtMs: beganAt.getTime(), endedAtMs: endedAt?.getTime() ?? null };
  const before: DecayedUsage = row ? { gpuHours: row.gpuHours, atMs: row.at.getTime() } : NO_USAGE;
  const endMs = Math.max(before.atMs, hold.endedAtMs ?? nowMs);
  const { gpuHours, atMs } = usageWith(before, hold, endMs, settings.halfLifeHours);
  const counted = { gpuHours, at: new Date(atMs) };
  await tx
    .insert(projectUsage)
    .values({ project, ...counted })
    .onConflictDoUpdate({ target: projectUsage.project, set: counted });
}
