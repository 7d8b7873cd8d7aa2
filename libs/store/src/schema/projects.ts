import { sql } from "drizzle-orm";
import {
  bigserial,
  boolean,
  check,
  doublePrecision,
  index,
  integer,
  pgTable,
  primaryKey,
  text,
  uniqueIndex,
} from "drizzle-orm/pg-core";
import { DEFAULT_QUEUE_SETTINGS, DEFAULT_WEIGHT } from "@internevo/domain";
import { instant } from "./columns.ts";

/** Whose jobs and workloads are kept apart from those of others, and share quotas. */
export const projects = pgTable("projects", {
  name: text("name").primaryKey(),
  description: text("description").notNull().default(""),
  /** GPUs that its jobs hold at once at most; null: no limit. */
  maxGpus: integer("max_gpus"),
  /** GPU-hours that its jobs may use in a calendar month, UTC; null: no limit. */
  gpuHoursPerMonth: doublePrecision("gpu_hours_per_month"),
  /** Its share of GPU time beside other projects that wait. */
  weight: doublePrecision("weight").notNull().default(DEFAULT_WEIGHT),
  createdAt: instant("created_at").notNull().defaultNow(),
});

/**
 * What counts for a project's fair share of holds that have ended: it decays, so that one number stands for all
 * of them. Written under the lock of the queue only, hence apart from the projects.
 */
export const projectUsage = pgTable("project_usage", {
  project: text("project").primaryKey(),
  /** GPU-hours as they count at `at`. */
  gpuHours: doublePrecision("gpu_hours").notNull(),
  at: instant("at").notNull(),
});

/**
 * GPU-hours of a calendar month, UTC, of holds that have ended. Quotas look at it with every turn of the queue,
 * when a month may have a hundred thousand holds. A trigger of `host_holds` keeps it: whoever changes those
 * changes this.
 */
export const projectMonths = pgTable(
  "project_months",
  {
    project: text("project").notNull(),
    /** Its first instant. */
    month: instant("month").notNull(),
    gpuHours: doublePrecision("gpu_hours").notNull(),
  },
  (table) => [primaryKey({ columns: [table.project, table.month] })],
);

/** How the queue forgets usage, and how long it lets others go first: one row, none while it has its defaults. */
export const queueSettings = pgTable(
  "queue_settings",
  {
    isTheOne: boolean("is_the_one").primaryKey().default(true),
    halfLifeHours: doublePrecision("half_life_hours").notNull(),
    patienceHours: doublePrecision("patience_hours").notNull(),
    leastRunMinutes: doublePrecision("least_run_minutes")
      .notNull()
      .default(DEFAULT_QUEUE_SETTINGS.leastRunMinutes),
  },
  () => [check("queue_settings_one", sql`is_the_one`)],
);

/**
 * The times in which work held its hosts: what is used, and what counts for quotas. It says of itself whose it
 * was, so that it outlives jobs, workloads and projects.
 */
export const hostHolds = pgTable(
  "host_holds",
  {
    id: bigserial("id", { mode: "number" }).primaryKey(),
    /** The resource of the work, as of `host_claims`. */
    owner: text("owner").notNull(),
    project: text("project").notNull(),
    /** Who submitted the job; null for scheduled work. */
    submitter: text("submitter"),
    cluster: text("cluster").notNull(),
    gpus: integer("gpus").notNull(),
    beganAt: instant("began_at").notNull(),
    /** Null: it holds them now. */
    endedAt: instant("ended_at"),
  },
  (table) => [
    uniqueIndex("host_holds_open")
      .on(table.owner)
      .where(sql`ended_at is null`),
    index("host_holds_owner").on(table.owner, table.beganAt),
    index("host_holds_project").on(table.project, table.beganAt),
    index("host_holds_began").on(table.beganAt),
  ],
);
