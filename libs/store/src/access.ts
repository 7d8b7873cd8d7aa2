import { createHash, randomBytes, randomUUID } from "node:crypto";
import { and, eq, isNotNull, isNull, lt, sql } from "drizzle-orm";
import type { Role } from "@internevo/contracts";
import type { Queryable } from "./database.ts";
import { apiTokens, auditLog, idempotencyKeys } from "./schema/index.ts";

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

export interface TokenOwner {
  readonly id: string;
  readonly name: string;
  readonly role: Role;
}

/** A new bearer token: 256 random bits. Shown once; only its hash is stored. */
export const newToken = (): string => `ievo_${randomBytes(32).toString("base64url")}`;

/** Stores a token under a name; a token of that name is replaced. */
export async function storeToken(db: Queryable, name: string, role: Role, token: string): Promise<void> {
  const tokenSha256 = sha256(token);
  await db
    .insert(apiTokens)
    .values({ id: randomUUID(), name, role, tokenSha256 })
    .onConflictDoUpdate({ target: apiTokens.name, set: { role, tokenSha256, revokedAt: null, createdAt: sql`clock_timestamp()` } });
}

/** Who shows a token, if it is one and was not revoked. */
export async function findTokenOwner(db: Queryable, token: string): Promise<TokenOwner | undefined> {
  const [row] = await db
    .select({ id: apiTokens.id, name: apiTokens.name, role: apiTokens.role })
    .from(apiTokens)
    .where(and(eq(apiTokens.tokenSha256, sha256(token)), isNull(apiTokens.revokedAt)));
  return row;
}

/** How many tokens are valid: none on the first start. */
export async function countTokens(db: Queryable): Promise<number> {
  const [row] = await db.select({ count: sql<number>`count(*)`.mapWith(Number) }).from(apiTokens).where(isNull(apiTokens.revokedAt));
  return row?.count ?? 0;
}

export async function revokeToken(db: Queryable, name: string): Promise<boolean> {
  const rows = await db.update(apiTokens).set({ revokedAt: sql`clock_timestamp()` }).where(and(eq(apiTokens.name, name), isNull(apiTokens.revokedAt))).returning({ id: apiTokens.id });
  return rows.length === 1;
}

export interface AuditEntry {
  readonly actor: string;
  readonly role: string;
  /** For example `POST /jobs`. */
  readonly action: string;
  readonly target: string | null;
  readonly status: number;
  readonly traceId?: string;
  readonly details?: Record<string, unknown>;
}

export async function recordAudit(db: Queryable, entry: AuditEntry): Promise<void> {
  await db.insert(auditLog).values({ ...entry, at: sql`clock_timestamp()` });
}

export interface KeyedAnswer {
  readonly status: number;
  readonly body: unknown;
  readonly location: string | null;
}

export type KeyClaim = { readonly kind: "new" } | { readonly kind: "answered"; readonly answer: KeyedAnswer } | { readonly kind: "in-progress" } | { readonly kind: "other-request" };

export interface KeyedRequest {
  readonly actor: string;
  readonly key: string;
  /** Method, path and body: the same key with another request is refused. */
  readonly text: string;
}

/**
 * Claims an `Idempotency-Key` in the transaction of the request's effect: a second request with it waits here, then gets the first one's
 * answer. Roll back, and the key is free again.
 */
export async function claimIdempotencyKey(tx: Queryable, request: KeyedRequest): Promise<KeyClaim> {
  const { actor, key, text } = request;
  const claimed = await tx.insert(idempotencyKeys).values({ actor, key, requestSha256: sha256(text) }).onConflictDoNothing().returning({ key: idempotencyKeys.key });
  if (claimed.length === 1) return { kind: "new" };
  return (await lookUpIdempotencyKey(tx, request)) ?? { kind: "in-progress" };
}

/** What is known of a key; undefined when nobody has claimed it. Changes nothing, and waits for nobody. */
export async function lookUpIdempotencyKey(db: Queryable, { actor, key, text }: KeyedRequest): Promise<Exclude<KeyClaim, { kind: "new" }> | undefined> {
  const [row] = await db.select().from(idempotencyKeys).where(and(eq(idempotencyKeys.actor, actor), eq(idempotencyKeys.key, key)));
  if (!row) return undefined;
  if (row.requestSha256 !== sha256(text)) return { kind: "other-request" };
  return row.status === null ? { kind: "in-progress" } : { kind: "answered", answer: { status: row.status, body: row.body, location: row.location } };
}

/** Stores the answer to a claimed key, in the same transaction. */
export async function answerIdempotencyKey(tx: Queryable, key: { readonly actor: string; readonly key: string }, answer: KeyedAnswer): Promise<void> {
  await tx.update(idempotencyKeys).set(answer).where(and(eq(idempotencyKeys.actor, key.actor), eq(idempotencyKeys.key, key.key)));
}

/** Forgets answered keys that are older. */
export async function pruneIdempotencyKeys(db: Queryable, olderThanHours = 24): Promise<void> {
  await db.delete(idempotencyKeys).where(and(isNotNull(idempotencyKeys.status), lt(idempotencyKeys.createdAt, sql`clock_timestamp() - make_interval(hours => ${olderThanHours})`)));
}
