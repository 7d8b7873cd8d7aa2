import { sql } from "drizzle-orm";
import {
  bigint,
  bigserial,
  boolean,
  check,
  index,
  integer,
  jsonb,
  pgTable,
  text,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import { RETENTION_KINDS, type RetentionKind } from "@internevo/domain";
import { instant, oneOf } from "./columns.ts";
import { jobs } from "./jobs.ts";

/** For how many days after a job's end its parts are kept; null: for ever. One row, none while all are. */
export const retentionSettings = pgTable(
  "retention_settings",
  {
    isTheOne: boolean("is_the_one").primaryKey().default(true),
    checkpoints: integer("checkpoints_days"),
    timelines: integer("timelines_days"),
    exports: integer("exports_days"),
    logs: integer("logs_days"),
    steps: integer("steps_days"),
  },
  () => [check("retention_settings_one", sql`is_the_one`)],
);

/** Times that retention looked at all ended jobs: one at a time is open. */
export const retentionRuns = pgTable(
  "retention_runs",
  {
    id: bigserial("id", { mode: "number" }).primaryKey(),
    /** A token's name; null: the schedule. */
    askedBy: text("asked_by"),
    askedAt: instant("asked_at").notNull().defaultNow(),
    beganAt: instant("began_at"),
    endedAt: instant("ended_at"),
    remarks: jsonb("remarks").$type<readonly string[]>().notNull().default([]),
  },
  (table) => [
    uniqueIndex("retention_runs_open")
      .on(sql`(true)`)
      .where(sql`ended_at is null`),
    index("retention_runs_asked").on(table.askedAt),
  ],
);

/** What retention took of jobs: written before anything is deleted. */
export const retentionRemovals = pgTable(
  "retention_removals",
  {
    id: bigserial("id", { mode: "number" }).primaryKey(),
    jobId: uuid("job_id")
      .notNull()
      .references(() => jobs.id),
    kind: text("kind").$type<RetentionKind>().notNull(),
    /** Days after the job's end, as they were set. */
    days: integer("days").notNull(),
    at: instant("at").notNull().defaultNow(),
    files: integer("files").notNull(),
    bytes: bigint("bytes", { mode: "number" }).notNull(),
    rows: bigint("rows", { mode: "number" }).notNull(),
    /** The run that decided it, or that finished it. */
    runId: bigint("run_id", { mode: "number" })
      .notNull()
      .references(() => retentionRuns.id),
    /** Null: it is being deleted, or was when its replanner died. */
    completedAt: instant("completed_at"),
  },
  (table) => [
    uniqueIndex("retention_removals_open")
      .on(table.jobId, table.kind)
      .where(sql`completed_at is null`),
    index("retention_removals_job").on(table.jobId, table.id),
    index("retention_removals_run").on(table.runId),
    check("retention_removals_kind_known", oneOf("kind", RETENTION_KINDS)),
  ],
);
