import { sql } from "drizzle-orm";
import {
  bigserial,
  index,
  integer,
  json,
  jsonb,
  pgTable,
  primaryKey,
  text,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import type { Place, Role, TokenKind } from "@internevo/contracts";
import { instant } from "./columns.ts";
import { projects } from "./projects.ts";

/** People who signed in by a provider of identities. */
export const users = pgTable(
  "users",
  {
    id: uuid("id").primaryKey(),
    issuer: text("issuer").notNull(),
    /** What the provider calls the person; it never changes. */
    subject: text("subject").notNull(),
    /** What the platform calls the person: nobody else has this name. */
    name: text("name").notNull().unique("users_name"),
    email: text("email"),
    /** What the person's groups gave at the last sign-in. */
    places: jsonb("places").$type<readonly Place[]>().notNull(),
    createdAt: instant("created_at").notNull().defaultNow(),
    lastSignInAt: instant("last_sign_in_at").notNull().defaultNow(),
  },
  (table) => [uniqueIndex("users_subject").on(table.issuer, table.subject)],
);

/** Bearer tokens, and the secrets of browsers' sessions; only their SHA-256 is kept. */
export const apiTokens = pgTable(
  "api_tokens",
  {
    id: uuid("id").primaryKey(),
    name: text("name").notNull(),
    tokenSha256: text("token_sha256").notNull(),
    kind: text("kind").$type<TokenKind>().notNull().default("token"),
    /** Who signed in; null for a token that an admin made. */
    userId: uuid("user_id").references(() => users.id),
    role: text("role").$type<Role>().notNull(),
    /** Where it has its role; null: in the whole installation. */
    project: text("project").references(() => projects.name),
    createdAt: instant("created_at").notNull().defaultNow(),
    /** Null: it is valid until somebody revokes it. */
    expiresAt: instant("expires_at"),
    /** It ends when it was not used for so long; null: it does not. */
    idleSeconds: integer("idle_seconds"),
    revokedAt: instant("revoked_at"),
    /** To the minute; null: never. */
    lastUsedAt: instant("last_used_at"),
  },
  (table) => [
    // A revoked token's name is free again; and whoever starts the service may give it the same token again.
    uniqueIndex("api_tokens_name")
      .on(table.name)
      .where(sql`revoked_at is null and user_id is null`),
    index("api_tokens_user")
      .on(table.userId)
      .where(sql`revoked_at is null`),
    uniqueIndex("api_tokens_sha256")
      .on(table.tokenSha256)
      .where(sql`revoked_at is null`),
    index("api_tokens_page").on(table.createdAt, table.id),
  ],
);

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
    /** What it was about belongs to; null: to the installation. */
    project: text("project"),
    traceId: text("trace_id"),
    details: jsonb("details").$type<Record<string, unknown>>(),
  },
  (table) => [
    index("audit_log_at").on(table.at),
    index("audit_log_actor").on(table.actor, table.id),
    index("audit_log_project").on(table.project, table.id),
    index("audit_log_target").on(table.target, table.id),
  ],
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
    etag: text("etag"),
    createdAt: instant("created_at").notNull().defaultNow(),
  },
  (table) => [
    primaryKey({ columns: [table.actor, table.key] }),
    index("idempotency_keys_created").on(table.createdAt),
  ],
);
