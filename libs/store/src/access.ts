import { createHash, randomBytes, randomUUID } from "node:crypto";
import { and, desc, eq, gt, gte, inArray, isNotNull, isNull, lt, lte, or, sql, type SQL } from "drizzle-orm";
import type { AuditFilter, AuditRecord, Role, TokenKind, TokenRecord } from "@internevo/contracts";
import { instantMilliseconds, MOST_TOKENS, ProblemError } from "@internevo/domain";
import { orNoProject } from "./no-project.ts";
import type { Queryable } from "./database.ts";
import { decodeCursor, isUuid, pageLimit, pageOf, type Page, type PageRequest } from "./pages.ts";
import { apiTokens, auditLog, idempotencyKeys, users } from "./schema/index.ts";
import { assertRoomFor } from "./project-bounds.ts";
import { assertNameOfToken } from "./reserved-names.ts";
import { seenByMembers } from "./statement-parts.ts";

export const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

export interface TokenOwner {
  readonly id: string;
  readonly name: string;
  readonly kind: TokenKind;
  /** Who signed in; null for a token that an admin made. */
  readonly userId: string | null;
  readonly role: Role;
  /** Where it has its role; null: in the whole installation. */
  readonly project: string | null;
}

/** What tokens begin with, so that scanners find those that leaked. Tokens from before begin with `ievo_`. */
export const TOKEN_PREFIX = "ivo_";

/** A new bearer token: 256 random bits. Shown once; only its hash is stored. */
export const newToken = (): string => `${TOKEN_PREFIX}${randomBytes(32).toString("base64url")}`;

/** Not revoked, not run out, and used lately enough. */
export const isValidToken = and(
  isNull(apiTokens.revokedAt),
  or(isNull(apiTokens.expiresAt), gt(apiTokens.expiresAt, sql`clock_timestamp()`)),
  or(
    isNull(apiTokens.idleSeconds),
    sql`coalesce(${apiTokens.lastUsedAt}, ${apiTokens.createdAt}) > clock_timestamp() - make_interval(secs => ${apiTokens.idleSeconds})`,
  ),
);

/**
 * Stores a token under a name, valid until it is revoked; a token of that name is replaced. @param project where
 * it has its role; null: in the whole installation
 */
export async function storeToken(
  db: Queryable,
  name: string,
  role: Role,
  token: string,
  project: string | null = null,
): Promise<void> {
  const tokenSha256 = sha256(token);
  await db
    .insert(apiTokens)
    .values({ id: randomUUID(), name, role, project, tokenSha256 })
    .onConflictDoUpdate({
      target: apiTokens.name,
      targetWhere: sql`${isNull(apiTokens.revokedAt)} and ${isNull(apiTokens.userId)}`,
      set: { role, project, tokenSha256, expiresAt: null, createdAt: sql`clock_timestamp()` },
    });
}

const TOKEN_COLUMNS = {
  id: apiTokens.id,
  name: apiTokens.name,
  kind: apiTokens.kind,
  role: apiTokens.role,
  project: apiTokens.project,
  createdAt: apiTokens.createdAt,
  expiresAt: apiTokens.expiresAt,
  lastUsedAt: apiTokens.lastUsedAt,
};

const recordOfToken = (
  row: Pick<typeof apiTokens.$inferSelect, keyof typeof TOKEN_COLUMNS>,
): TokenRecord => ({
  ...row,
  createdAt: row.createdAt.toISOString(),
  expiresAt: row.expiresAt?.toISOString() ?? null,
  lastUsedAt: row.lastUsedAt?.toISOString() ?? null,
});

/** Held while a name is given: names tell apart who did something. Any number that no other lock has. */
export const NAMES_LOCK = 3_918_427_650_118_273n;

/** Whether a token that an admin made has the name. */
export async function isNameOfToken(db: Queryable, name: string): Promise<boolean> {
  const isOfToken = and(eq(apiTokens.name, name), isNull(apiTokens.userId), isNull(apiTokens.revokedAt));
  return (await db.$count(apiTokens, isOfToken)) > 0;
}

const nameTaken = (name: string, whose: string): ProblemError =>
  new ProblemError("conflict", `there is ${whose} ${name} already`, [
    {
      field: "name",
      value: name,
      message: `is the name of ${whose === "a token" ? "a valid token" : "somebody who signs in"}`,
      remedy: whose === "a token" ? "use another name, or revoke that token first" : "use another name",
    },
  ]);

/**
 * Makes a token. @param made.validForSeconds null: until it is revoked. @returns the token, which is stored
 * nowhere, and what is stored of it.
 * @throws ProblemError `bad-request` for a name that would be taken for a person's or a service's; `conflict` when a
 * token of that name is valid, or a person has it.
 */
export async function createToken(
  tx: Queryable,
  made: Pick<TokenOwner, "name" | "role" | "project"> & { readonly validForSeconds: number | null },
): Promise<{ readonly token: string; readonly record: TokenRecord }> {
  const { name, role, project, validForSeconds } = made;
  assertNameOfToken(name);
  await tx.execute(sql`select pg_advisory_xact_lock(${NAMES_LOCK})`);
  if ((await tx.$count(users, eq(users.name, name))) > 0) throw nameTaken(name, "a user");
  // A token that has run out frees its name, as a revoked one does.
  await tx
    .update(apiTokens)
    .set({ revokedAt: sql`clock_timestamp()` })
    .where(
      and(
        eq(apiTokens.name, name),
        isNull(apiTokens.userId),
        isNull(apiTokens.revokedAt),
        lte(apiTokens.expiresAt, sql`clock_timestamp()`),
      ),
    );
  if (project !== null) await assertTokensFit(tx, project, name);
  const token = newToken();
  const expiresAt =
    validForSeconds === null ? null : sql`clock_timestamp() + make_interval(secs => ${validForSeconds})`;
  const [row] = await tx
    .insert(apiTokens)
    .values({
      id: randomUUID(),
      name,
      role,
      project,
      tokenSha256: sha256(token),
      createdAt: sql`clock_timestamp()`,
      expiresAt,
    })
    .onConflictDoNothing()
    .returning(TOKEN_COLUMNS)
    .catch((error: unknown) => {
      throw project === null ? error : orNoProject(error, project);
    });
  if (!row) throw nameTaken(name, "a token");
  return { token, record: recordOfToken(row) };
}

const assertTokensFit = (tx: Queryable, project: string, name: string): Promise<void> =>
  assertRoomFor(tx, apiTokens, and(eq(apiTokens.project, project), isNull(apiTokens.userId), isValidToken), {
    project,
    things: "tokens",
    most: MOST_TOKENS,
    field: "name",
    value: name,
    remedy: "revoke one that is not needed (`internevo token revoke`), or let one run out",
  });

/** Tokens that were not revoked, and sessions that have not ended, newest first. @param only of this project; null: all. */
export async function listTokens(
  db: Queryable,
  request: PageRequest = {},
  only: string | null = null,
): Promise<Page<TokenRecord>> {
  const limit = pageLimit(request);
  const after = decodeCursor(request.cursor);
  const rows = await db
    .select(TOKEN_COLUMNS)
    .from(apiTokens)
    .where(
      and(
        isNull(apiTokens.revokedAt),
        // A token that has run out is listed, so that whoever looks for it sees why it is refused.
        or(isNull(apiTokens.userId), isValidToken),
        only === null ? undefined : eq(apiTokens.project, only),
        after &&
          sql`(${apiTokens.createdAt}, ${apiTokens.id}) < (${after.at.toISOString()}::timestamptz, ${after.id}::uuid)`,
      ),
    )
    .orderBy(desc(apiTokens.createdAt), desc(apiTokens.id))
    .limit(limit + 1);
  return pageOf(rows, limit, (row) => ({ at: row.createdAt, id: row.id }), recordOfToken);
}

const isToken = (token: string) => eq(apiTokens.tokenSha256, sha256(token));
const OWNER_COLUMNS = {
  id: apiTokens.id,
  name: apiTokens.name,
  kind: apiTokens.kind,
  userId: apiTokens.userId,
  role: apiTokens.role,
  project: apiTokens.project,
};

/** Who shows a token, if it is one, has not run out and was not revoked. */
export async function findTokenOwner(db: Queryable, token: string): Promise<TokenOwner | undefined> {
  const [row] = await db
    .select(OWNER_COLUMNS)
    .from(apiTokens)
    .where(and(isToken(token), isValidToken));
  return row;
}

/**
 * {@link findTokenOwner} of many tokens by one query. @returns the owners of those that are valid, by token.
 */
export async function findTokenOwners(
  db: Queryable,
  tokens: readonly string[],
): Promise<Map<string, TokenOwner>> {
  const byHash = new Map(tokens.map((token) => [sha256(token), token]));
  const rows = await db
    .select({ ...OWNER_COLUMNS, tokenSha256: apiTokens.tokenSha256 })
    .from(apiTokens)
    .where(and(inArray(apiTokens.tokenSha256, [...byHash.keys()]), isValidToken));
  return new Map(rows.map(({ tokenSha256, ...owner }) => [byHash.get(tokenSha256) as string, owner]));
}

/** Where those of the tokens that are valid have their roles, by id; null: in the whole installation. */
export async function findValidTokens(
  db: Queryable,
  ids: readonly string[],
): Promise<Map<string, string | null>> {
  const rows = await db
    .select({ id: apiTokens.id, project: apiTokens.project })
    .from(apiTokens)
    .where(and(inArray(apiTokens.id, [...ids]), isValidToken));
  return new Map(rows.map(({ id, project }) => [id, project]));
}

/** Those that can make any other token, whether or not the provider of identities is there. */
const isAdmin = and(
  eq(apiTokens.role, "admin"),
  eq(apiTokens.kind, "token"),
  isNull(apiTokens.project),
  isValidToken,
);

/** How many admin tokens of the installation are valid: none on the first start. */
export async function countAdminTokens(db: Queryable): Promise<number> {
  const [row] = await db
    .select({ count: sql<number>`count(*)`.mapWith(Number) })
    .from(apiTokens)
    .where(isAdmin);
  return row?.count ?? 0;
}

/**
 * Revokes a token; its name is free again. Call it inside a transaction.
 * @throws ProblemError `not-found`; `conflict` for the last valid admin token of the installation, without which nobody could
 * make another.
 */
export async function revokeToken(tx: Queryable, id: string): Promise<void> {
  const none = new ProblemError("not-found", `there is no token ${id}`, [
    { field: "id", value: id, message: "names no token", remedy: "see GET /api/v1/tokens" },
  ]);
  if (!isUuid(id)) throw none;
  // Locked, so that two admins do not revoke each other at once.
  const admins = await tx
    .select({ id: apiTokens.id })
    .from(apiTokens)
    .where(isAdmin)
    .orderBy(apiTokens.id)
    .for("update");
  if (admins.length === 1 && admins[0]?.id === id) {
    throw new ProblemError("conflict", "the last admin token cannot be revoked", [
      {
        field: "id",
        value: id,
        message: "is the last valid token of role admin",
        remedy: "create another admin token first, with which this one can be revoked",
      },
    ]);
  }
  const rows = await tx
    .update(apiTokens)
    .set({ revokedAt: sql`clock_timestamp()` })
    .where(and(eq(apiTokens.id, id), isNull(apiTokens.revokedAt)))
    .returning({ id: apiTokens.id });
  if (rows.length === 0) throw none;
}

/** The minute that it is; not before the token was made. */
const minuteOfUse = sql`greatest(date_trunc('minute', clock_timestamp()), ${apiTokens.createdAt})`;

/** Remembers that tokens are in use; written once a minute for each at most. */
export async function recordTokenUse(db: Queryable, ids: readonly string[]): Promise<void> {
  await db
    .update(apiTokens)
    .set({ lastUsedAt: minuteOfUse })
    .where(
      and(inArray(apiTokens.id, [...ids]), sql`${apiTokens.lastUsedAt} is distinct from ${minuteOfUse}`),
    );
}

export interface AuditEntry {
  readonly actor: string;
  readonly role: string;
  /** For example `POST /jobs`. */
  readonly action: string;
  readonly target: string | null;
  readonly status: number;
  /** The project of what it was about; absent: the installation's. */
  readonly project?: string | null;
  readonly traceId?: string;
  readonly details?: Record<string, unknown>;
}

/** @param secondsAgo how long it is past; default: it was just now */
export async function recordAudit(db: Queryable, entry: AuditEntry, secondsAgo = 0): Promise<void> {
  const at = sql`clock_timestamp() - make_interval(secs => ${secondsAgo}::float8)`;
  await db.insert(auditLog).values({ ...entry, at });
}

const auditRecordOf = (row: typeof auditLog.$inferSelect): AuditRecord => ({
  ...row,
  at: row.at.toISOString(),
});

/** The years that Postgres reads as JavaScript writes them. */
const [EARLIEST, LATEST] = ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"].map(instantMilliseconds) as [
  number,
  number,
];

/** An instant as Postgres reads it. What lies outside of its years lies before or behind every row all the same. */
export const storableInstant = (text: string): Date =>
  new Date(Math.min(LATEST, Math.max(EARLIEST, instantMilliseconds(text))));

/**
 * The audit log, newest first. @param request.before only rows with a smaller number. @param only as members of
 * this project may see it; null: all.
 */
export async function listAudit(
  db: Queryable,
  request: AuditFilter & { readonly before?: number; readonly limit?: number } = {},
  only: string | null = null,
): Promise<Page<AuditRecord>> {
  const limit = pageLimit(request);
  const { actor, target, action, outcome, project, from, until, before } = request;
  const rows = await db
    .select()
    .from(auditLog)
    .where(
      and(
        actor === undefined ? undefined : eq(auditLog.actor, actor),
        target === undefined ? undefined : eq(auditLog.target, target),
        project === undefined ? undefined : eq(auditLog.project, project),
        only === null ? undefined : seenByMembers(only, auditLog.project, auditLog.at),
        action === undefined ? undefined : sql`strpos(lower(${auditLog.action}), lower(${action})) > 0`,
        outcome === "done" ? lt(auditLog.status, 400) : undefined,
        outcome === "refused" ? gte(auditLog.status, 400) : undefined,
        from === undefined ? undefined : gte(auditLog.at, storableInstant(from)),
        until === undefined ? undefined : lt(auditLog.at, storableInstant(until)),
        before === undefined ? undefined : lt(auditLog.id, before),
      ),
    )
    .orderBy(desc(auditLog.id))
    .limit(limit + 1);
  const shown = rows.slice(0, limit);
  return {
    items: shown.map(auditRecordOf),
    nextCursor: rows.length > limit ? String(shown.at(-1)?.id) : null,
  };
}

export interface AuditLimits {
  readonly days: number;
  /** Of each project, and of the installation. */
  readonly rows: number;
}

const AUDIT_BATCH = 10_000;

/** Deletes the rows, oldest first, in small statements: each has the time that a statement may take. */
async function deleteAudit(db: Queryable, which: SQL | undefined): Promise<void> {
  const oldest = db
    .select({ id: auditLog.id })
    .from(auditLog)
    .where(which)
    .orderBy(auditLog.id)
    .limit(AUDIT_BATCH);
  for (let deleted = AUDIT_BATCH; deleted === AUDIT_BATCH;)
    deleted = (await db.delete(auditLog).where(inArray(auditLog.id, oldest))).rowCount ?? 0;
}

/** Whose rows the audit log has; null: the installation's. It goes from one to the next in the index. */
async function auditedProjects(db: Queryable): Promise<readonly (string | null)[]> {
  const { rows } = await db.execute<{ project: string }>(sql`
    with recursive audited(project) as (
      (select ${auditLog.project} from ${auditLog} where ${auditLog.project} is not null order by ${auditLog.project} limit 1)
      union all
      select (select ${auditLog.project} from ${auditLog} where ${auditLog.project} > audited.project
        order by ${auditLog.project} limit 1)
      from audited where audited.project is not null
    )
    select project from audited where project is not null`);
  return [null, ...rows.map(({ project }) => project)];
}

/**
 * Forgets what is older than so many days, and of each project, and of the installation, the oldest rows beyond so
 * many: what one project does pushes out no row of another.
 */
export async function pruneAuditLog(db: Queryable, { days, rows }: AuditLimits): Promise<void> {
  await deleteAudit(db, lt(auditLog.at, sql`clock_timestamp() - make_interval(days => ${days})`));
  for (const project of await auditedProjects(db)) {
    const isIts = project === null ? isNull(auditLog.project) : eq(auditLog.project, project);
    const [newestBeyond] = await db
      .select({ id: auditLog.id })
      .from(auditLog)
      .where(isIts)
      .orderBy(desc(auditLog.id))
      .offset(rows)
      .limit(1);
    if (newestBeyond) await deleteAudit(db, and(isIts, lte(auditLog.id, newestBeyond.id)));
  }
}

export interface KeyedAnswer {
  readonly status: number;
  readonly body: unknown;
  readonly location: string | null;
  readonly etag: string | null;
}

/** Answers that are kept for one holder of keys: an operator's answers would fill the disk of the database. */
export const MOST_KEPT_ANSWERS = 10_000;
/** The same in bytes as they are stored, which are fewer where Postgres compresses them. */
export const MOST_KEPT_ANSWER_BYTES = 64e6;
/** For so long after the request; whoever has too many waits until the oldest go. */
export const KEPT_ANSWER_HOURS = 24;

export type KeyClaim =
  | { readonly kind: "new" }
  /** The holder has as many answers kept as it may. */
  | { readonly kind: "no-room" }
  | { readonly kind: "answered"; readonly answer: KeyedAnswer }
  | { readonly kind: "in-progress" }
  | { readonly kind: "other-request" };

export interface KeyedRequest {
  readonly actor: string;
  readonly key: string;
  /** Method, path and body: the same key with another request is refused. */
  readonly text: string;
}

/**
 * Claims an `Idempotency-Key` in the transaction of the request's effect: a second request with it waits
 * here, then gets the first one's answer. Roll back, as after `no-room`, and the key is free again.
 */
export async function claimIdempotencyKey(tx: Queryable, request: KeyedRequest): Promise<KeyClaim> {
  const { actor, key, text } = request;
  const claimed = await tx
    .insert(idempotencyKeys)
    .values({ actor, key, requestSha256: sha256(text) })
    .onConflictDoNothing()
    .returning({ key: idempotencyKeys.key });
  if (claimed.length === 1) return { kind: (await hasRoomForAnswer(tx, actor)) ? "new" : "no-room" };
  return (await lookUpIdempotencyKey(tx, request)) ?? { kind: "in-progress" };
}

/**
 * Whether one more answer may be kept for a holder, whose newest claim is stored and counts. Its rows are counted each
 * time, at most one more than the bound: their bodies are not read, only their sizes.
 */
async function hasRoomForAnswer(tx: Queryable, actor: string): Promise<boolean> {
  const own = tx
    .select({ bytes: sql<number>`pg_column_size(${idempotencyKeys.body})`.as("bytes") })
    .from(idempotencyKeys)
    .where(eq(idempotencyKeys.actor, actor))
    .limit(MOST_KEPT_ANSWERS + 1)
    .as("own");
  const [kept] = await tx
    .select({
      answers: sql<number>`count(*)::int`,
      bytes: sql<number>`coalesce(sum(${own.bytes}), 0)::float8`,
    })
    .from(own);
  if (!kept) throw new Error("a count has a row");
  return kept.answers <= MOST_KEPT_ANSWERS && kept.bytes < MOST_KEPT_ANSWER_BYTES;
}

/** What is known of a key; undefined when nobody has claimed it. Changes nothing, and waits for nobody. */
export async function lookUpIdempotencyKey(
  db: Queryable,
  { actor, key, text }: KeyedRequest,
): Promise<Exclude<KeyClaim, { kind: "new" | "no-room" }> | undefined> {
  const [row] = await db
    .select()
    .from(idempotencyKeys)
    .where(and(eq(idempotencyKeys.actor, actor), eq(idempotencyKeys.key, key)));
  if (!row) return undefined;
  if (row.requestSha256 !== sha256(text)) return { kind: "other-request" };
  return row.status === null
    ? { kind: "in-progress" }
    : {
        kind: "answered",
        answer: { status: row.status, body: row.body, location: row.location, etag: row.etag },
      };
}

/** Stores the answer to a claimed key, in the same transaction. */
export async function answerIdempotencyKey(
  tx: Queryable,
  key: { readonly actor: string; readonly key: string },
  answer: KeyedAnswer,
): Promise<void> {
  await tx
    .update(idempotencyKeys)
    .set(answer)
    .where(and(eq(idempotencyKeys.actor, key.actor), eq(idempotencyKeys.key, key.key)));
}

/** Forgets answered keys that are older. */
export async function pruneIdempotencyKeys(db: Queryable, olderThanHours = KEPT_ANSWER_HOURS): Promise<void> {
  await db
    .delete(idempotencyKeys)
    .where(
      and(
        isNotNull(idempotencyKeys.status),
        lt(idempotencyKeys.createdAt, sql`clock_timestamp() - make_interval(hours => ${olderThanHours})`),
      ),
    );
}
