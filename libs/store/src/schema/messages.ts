import { sql } from "drizzle-orm";
import {
  bigint,
  bigserial,
  boolean,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  uuid,
} from "drizzle-orm/pg-core";
import type { MessageType } from "@internevo/contracts";
import { instant } from "./columns.ts";

/** Who may work on what. A row stays when it is released, so that its fencing token only ever grows. */
export const leases = pgTable("leases", {
  resource: text("resource").primaryKey(),
  holder: text("holder"),
  fencingToken: bigint("fencing_token", { mode: "number" }).notNull(),
  acquiredAt: instant("acquired_at").notNull(),
  expiresAt: instant("expires_at").notNull(),
});

/** Who waits for a lease, and in which order they get it. A row that is not confirmed in time counts no more. */
export const leaseWaiters = pgTable(
  "lease_waiters",
  {
    resource: text("resource").notNull(),
    /** The job, or whatever else waits. */
    waiter: text("waiter").notNull(),
    /** It held the resource before, and is not over. */
    started: boolean("started").notNull(),
    /** Its place among the others. */
    since: instant("since").notNull(),
    expiresAt: instant("expires_at").notNull(),
  },
  (table) => [primaryKey({ columns: [table.resource, table.waiter] })],
);

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
    index("outbox_subject").on(table.subjectId, table.type, table.sequence.desc()),
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
  (table) => [index("dead_letters_page").on(table.createdAt.desc(), table.id.desc())],
);
