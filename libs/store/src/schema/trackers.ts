import { sql } from "drizzle-orm";
import { bigint, index, integer, pgTable, primaryKey, text, uuid } from "drizzle-orm/pg-core";
import { instant } from "./columns.ts";
import { jobs } from "./jobs.ts";

/** Where metrics of runs are sent: an MLflow server, a directory of TensorBoard. */
export const trackers = pgTable("trackers", {
  /** Its kind and its address: another address is another tracker. */
  key: text("key").primaryKey(),
  /** Jobs that ended before then are not looked for any more. */
  since: instant("since").notNull(),
});

/** How far a tracker has followed a job. */
export const trackerCursors = pgTable(
  "tracker_cursors",
  {
    jobId: uuid("job_id")
      .notNull()
      .references(() => jobs.id, { onDelete: "cascade" }),
    tracker: text("tracker")
      .notNull()
      .references(() => trackers.key, { onDelete: "cascade" }),
    /** The last of the job's events that was sent. */
    lastEventId: bigint("last_event_id", { mode: "number" }).notNull().default(0),
    /** What the tracker calls the job's run; null: it has none yet. */
    externalId: text("external_id"),
    /** Of a file: how many bytes the events up to the last are. */
    bytes: bigint("bytes", { mode: "number" }).notNull().default(0),
    /** Counts who began to send. A greater number replaces who began before. */
    claims: integer("claims").notNull().default(0),
    /** Until then somebody sends; null: nobody does. */
    claimedUntil: instant("claimed_until"),
    nextAt: instant("next_at").notNull(),
    /** In a row. */
    failures: integer("failures").notNull().default(0),
    failingSince: instant("failing_since"),
    lastError: text("last_error"),
    /** How often everything was sent once more. */
    startOvers: integer("start_overs").notNull().default(0),
    /** The end of the job, all of which was sent; null: more may come. */
    endedAt: instant("ended_at"),
  },
  (table) => [
    primaryKey({ columns: [table.jobId, table.tracker] }),
    index("tracker_cursors_open")
      .on(table.tracker, table.nextAt)
      .where(sql`ended_at is null`),
  ],
);
