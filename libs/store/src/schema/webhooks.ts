import { sql } from "drizzle-orm";
import { boolean, check, index, integer, jsonb, pgTable, text, unique, uuid } from "drizzle-orm/pg-core";
import {
  DELIVERY_STATES,
  type DeliveryAttempt,
  type DeliveryState,
  type EventType,
} from "@internevo/contracts";
import { instant } from "./columns.ts";
import { projects } from "./projects.ts";

/** Receivers of a project's events. */
export const webhooks = pgTable(
  "webhooks",
  {
    id: uuid("id").primaryKey(),
    name: text("name").notNull(),
    project: text("project")
      .notNull()
      .references(() => projects.name),
    url: text("url").notNull(),
    /** Null: all of them. */
    events: text("events").array().$type<EventType[]>(),
    /** As it was shown: signing needs it, so that no digest will do. */
    secret: text("secret").notNull(),
    enabled: boolean("enabled").notNull().default(true),
    disabledReason: text("disabled_reason"),
    failingSince: instant("failing_since"),
    lastSuccessAt: instant("last_success_at"),
    createdAt: instant("created_at").notNull().defaultNow(),
  },
  (table) => [
    unique("webhooks_project_name").on(table.project, table.name),
    index("webhooks_page").on(table.createdAt, table.id),
  ],
);

/** Events on their way to webhooks, and those that have come or were given up. */
export const webhookDeliveries = pgTable(
  "webhook_deliveries",
  {
    id: uuid("id").primaryKey(),
    webhookId: uuid("webhook_id")
      .notNull()
      .references(() => webhooks.id, { onDelete: "cascade" }),
    eventId: uuid("event_id").notNull(),
    eventType: text("event_type").notNull(),
    /** Each request sends the same bytes. */
    payload: text("payload").notNull(),
    state: text("state").$type<DeliveryState>().notNull().default("pending"),
    /** Requests that were begun. A greater number replaces who began the one before. */
    attempts: integer("attempts").notNull().default(0),
    /** Those of before the last replay. */
    attemptsBefore: integer("attempts_before").notNull().default(0),
    /** Null: it has ended. */
    nextAttemptAt: instant("next_attempt_at"),
    /** Until then somebody sends it; null: nobody does. */
    claimedUntil: instant("claimed_until"),
    log: jsonb("log").$type<DeliveryAttempt[]>().notNull().default([]),
    createdAt: instant("created_at").notNull().defaultNow(),
    endedAt: instant("ended_at"),
  },
  (table) => [
    unique("webhook_deliveries_once").on(table.webhookId, table.eventId),
    index("webhook_deliveries_due")
      .on(table.webhookId, table.nextAttemptAt)
      .where(sql`state = 'pending'`),
    index("webhook_deliveries_claimed")
      .on(table.webhookId, table.claimedUntil)
      .where(sql`claimed_until is not null`),
    index("webhook_deliveries_ended").on(table.endedAt),
    index("webhook_deliveries_page").on(table.webhookId, table.createdAt, table.id),
    check(
      "webhook_deliveries_state_known",
      sql.raw(`state in (${DELIVERY_STATES.map((state) => `'${state}'`).join(", ")})`),
    ),
  ],
);
