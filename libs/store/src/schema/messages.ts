import { sql } from "drizzle-orm";
import {
  bigint,
  bigserial,
  doublePrecision,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  uuid,
} from "drizzle-orm/pg-core";
import type { CommandType, MessageType } from "@internevo/contracts";
import type { QueuePriority } from "@internevo/domain";
import { instant } from "./columns.ts";

/** Who may work on what. A row stays when it is released, so that its fencing token only ever grows. */
export const leases = pgTable("leases", {
  resource: text("resource").primaryKey(),
  holder: text("holder"),
  fencingToken: bigint("fencing_token", { mode: "number" }).notNull(),
  acquiredAt: instant("acquired_at").notNull(),
  expiresAt: instant("expires_at").notNull(),
});

/** The hosts that work keeps until it is over: nobody else measures or trains there. */
export const hostClaims = pgTable(
  "host_claims",
  {
    host: text("host").primaryKey(),
    /** The resource of the work, for example of a job. */
    owner: text("owner").notNull(),
    claimedAt: instant("claimed_at").notNull().defaultNow(),
  },
  (table) => [index("host_claims_owner").on(table.owner)],
);

/** Holders of hosts that give them up where a more urgent job waits for them; gone when they have. */
export const preemptibleHolds = pgTable("preemptible_holds", {
  /** As of `host_claims`. */
  owner: text("owner").primaryKey(),
  project: text("project"),
  gpus: integer("gpus").notNull(),
  priority: text("priority").$type<QueuePriority>().notNull(),
  submittedAt: instant("submitted_at").notNull(),
  beganAt: instant("began_at").notNull(),
  /** In all its waits, before it began. */
  waitedSeconds: doublePrecision("waited_seconds").notNull(),
  /** The owner of what waits and asks it to give way; null: nobody asks. */
  givesWayTo: text("gives_way_to"),
});

/** The queue: work that waits for hosts of others, and the command that makes it go on. */
export const hostWaiters = pgTable("host_waiters", {
  owner: text("owner").primaryKey(),
  hosts: text("hosts").array().notNull(),
  /** Null: of work that is neither a job nor a workload. */
  project: text("project"),
  gpus: integer("gpus").notNull(),
  priority: text("priority").$type<QueuePriority>().notNull(),
  submittedAt: instant("submitted_at").notNull(),
  waitingSince: instant("waiting_since").notNull().defaultNow(),
  /** For whom it gave up its hosts, in words of its project; null: for nobody. */
  gaveWayTo: text("gave_way_to"),
  command: jsonb("command").$type<WaitingCommand>().notNull(),
});

/** What is published when the turn of who waits has come. */
export interface WaitingCommand {
  readonly type: CommandType;
  readonly data: Readonly<Record<string, unknown>>;
  readonly traceparent: string;
}

/**
 * Messages to publish, written in the transaction of the change that they announce. The id is the broker's
 * message id.
 */
export const outbox = pgTable(
  "outbox",
  {
    id: uuid("id").primaryKey(),
    sequence: bigserial("sequence", { mode: "number" }).notNull(),
    type: text("type").$type<MessageType>().notNull(),
    /** The job or workload that it is about. */
    subjectId: uuid("subject_id").notNull(),
    /** Whose job or workload an event is about; null: it is a command. */
    project: text("project"),
    data: jsonb("data").$type<Record<string, unknown>>().notNull(),
    traceparent: text("traceparent").notNull(),
    occurredAt: instant("occurred_at").notNull().defaultNow(),
    publishedAt: instant("published_at"),
    /** Where the broker keeps it. */
    streamSequence: bigint("stream_sequence", { mode: "number" }),
  },
  (table) => [
    index("outbox_unpublished")
      .on(table.sequence)
      .where(sql`published_at is null`),
    index("outbox_subject").on(table.subjectId, table.type, table.sequence),
    index("outbox_published").on(table.publishedAt),
  ],
);

/** Messages whose effect is in the database. */
export const inbox = pgTable(
  "inbox",
  {
    consumer: text("consumer").notNull(),
    eventId: uuid("event_id").notNull(),
    handledAt: instant("handled_at").notNull().defaultNow(),
  },
  (table) => [
    primaryKey({ columns: [table.consumer, table.eventId] }),
    index("inbox_handled").on(table.handledAt),
  ],
);

/** Unexpected failures by message; waiting for a lease is none. */
export const messageFailures = pgTable(
  "message_failures",
  {
    consumer: text("consumer").notNull(),
    eventId: uuid("event_id").notNull(),
    failures: integer("failures").notNull(),
    lastError: text("last_error").notNull(),
    lastFailedAt: instant("last_failed_at").notNull().defaultNow(),
  },
  (table) => [primaryKey({ columns: [table.consumer, table.eventId] })],
);

/** Messages that failed too often, or could not be read. */
export const deadLetters = pgTable(
  "dead_letters",
  {
    id: uuid("id").primaryKey(),
    consumer: text("consumer").notNull(),
    messageId: text("message_id").notNull(),
    messageType: text("message_type").notNull(),
    subject: text("subject").notNull(),
    payload: jsonb("payload").$type<unknown>().notNull(),
    error: text("error").notNull(),
    deliveries: integer("deliveries").notNull(),
    createdAt: instant("created_at").notNull().defaultNow(),
    resolution: text("resolution").$type<"replayed" | "discarded">(),
    resolvedAt: instant("resolved_at"),
    resolvedBy: text("resolved_by"),
  },
  (table) => [index("dead_letters_page").on(table.createdAt, table.id)],
);
