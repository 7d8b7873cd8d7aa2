import { bigserial, index, integer, json, jsonb, pgTable, primaryKey, text, uuid } from "drizzle-orm/pg-core";
import type { Role } from "@internevo/contracts";
import { instant } from "./columns.ts";

/** Bearer tokens; only their SHA-256 is kept. */
export const apiTokens = pgTable("api_tokens", {
  id: uuid("id").primaryKey(),
  name: text("name").notNull().unique(),
  tokenSha256: text("token_sha256").notNull().unique(),
  role: text("role").$type<Role>().notNull(),
  createdAt: instant("created_at").notNull().defaultNow(),
  revokedAt: instant("revoked_at"),
});

export const auditLog = pgTable(
  "audit_log",
  {
    id: bigserial("id", { mode: "number" }).primaryKey(),
    at: instant("at").notNull().defaultNow(),
    actor: text("actor").notNull(),
    role: text("role").notNull(),
    action: text("action").notNull(),
    target: text("target"),
    status: integer("status").notNull(),
    traceId: text("trace_id"),
    details: jsonb("details").$type<Record<string, unknown>>(),
  },
  (table) => [index("audit_log_at").on(table.at)],
);

/** Answers to keyed POSTs, so that a repeated request has one effect. */
export const idempotencyKeys = pgTable(
  "idempotency_keys",
  {
    actor: text("actor").notNull(),
    key: text("key").notNull(),
    /** SHA-256 of method, path and body: the same key with another request is a conflict. */
    requestSha256: text("request_sha256").notNull(),
    status: integer("status"),
    /** As text: the same answer again is the same bytes. */
    body: json("body").$type<unknown>(),
    location: text("location"),
    createdAt: instant("created_at").notNull().defaultNow(),
  },
  (table) => [primaryKey({ columns: [table.actor, table.key] }), index("idempotency_keys_created").on(table.createdAt)],
);
