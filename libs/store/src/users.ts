import { randomUUID } from "node:crypto";
import { and, desc, eq, inArray, isNull, ne, sql } from "drizzle-orm";
import type { Place, TokenKind } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import {
  isNameOfToken,
  isValidToken,
  NAMES_LOCK,
  newToken,
  recordAudit,
  sha256,
  type AuditEntry,
  type TokenOwner,
} from "./access.ts";
import type { Queryable, Transaction } from "./database.ts";
import { orNoProject } from "./no-project.ts";
import { isAddressLike, isReservedName } from "./reserved-names.ts";
import { apiTokens, projects, users } from "./schema/index.ts";

/** A person, as the provider of identities says it at a sign-in. */
export interface SignedInPerson {
  readonly issuer: string;
  readonly subject: string;
  /** What the person would like to be called. */
  readonly name: string;
  /** Verified by the provider; null: none is. */
  readonly email: string | null;
  /** What the person's groups give, without doubles. */
  readonly places: readonly Place[];
}

export interface NewSession {
  readonly kind: Exclude<TokenKind, "token">;
  readonly validForSeconds: number;
  /** It ends when it was not used for so long; null: it does not. */
  readonly idleSeconds: number | null;
  /** For the audit: the route that the sign-in came by. */
  readonly action: string;
  readonly traceId?: string;
}

export interface SignedIn {
  /** Of the session; stored nowhere. */
  readonly secret: string;
  readonly expiresAt: Date;
  readonly owner: TokenOwner;
}

/** Somebody whom the provider knows, and whose groups give no role. */
export interface RefusedSignIn {
  readonly refusal: ProblemError;
  /** What the audit log is to say of it. It is not written yet: somebody may be refused again and again. */
  readonly audit: AuditEntry;
}

/** The whole installation before projects, and projects by name: the first is where a session begins. */
function byPlace({ project: a }: Place, { project: b }: Place): number {
  if (a === b) return 0;
  return a === null || (b !== null && a < b) ? -1 : 1;
}

/** Those places whose projects are there, in the order in which they are offered. */
async function existing(tx: Queryable, places: readonly Place[]): Promise<readonly Place[]> {
  const named = places.flatMap(({ project }) => project ?? []);
  const rows =
    named.length === 0
      ? []
      : await tx.select({ name: projects.name }).from(projects).where(inArray(projects.name, named));
  const there = new Set(rows.map(({ name }) => name));
  return places.filter(({ project }) => project === null || there.has(project)).toSorted(byPlace);
}

/** Why somebody who has signed in at the provider may do nothing here. */
function noPlace(name: string, places: readonly Place[]): ProblemError {
  const ghosts = places.map(({ project }) => project).join(", ");
  return new ProblemError("forbidden", `${name} has signed in, and has no role here`, [
    {
      field: "groups",
      message:
        places.length === 0
          ? "give no role in this installation"
          : `give roles only in projects that are not there: ${ghosts}`,
      remedy: "ask an admin for a group that has a role, or for a token",
    },
  ]);
}

/**
 * The name that the person is to have: one that another person, a token or a service has is made unlike it. So is one
 * that reads as an address and is not the person's verified one: anybody could have typed it.
 */
async function nameFor(
  tx: Queryable,
  { issuer, subject, name, email }: SignedInPerson,
  knownId: string | undefined,
): Promise<string> {
  const others = and(eq(users.name, name), knownId === undefined ? undefined : ne(users.id, knownId));
  const isTaken =
    (isAddressLike(name) && name !== email) ||
    isReservedName(name) ||
    (await tx.$count(users, others)) > 0 ||
    (await isNameOfToken(tx, name));
  return isTaken ? `${name} (${sha256(`${issuer} ${subject}`).slice(0, 8)})` : name;
}

/**
 * The person's row, made or brought up to date: jobs and the audit log tell who did something by the name. Only who
 * gets a name waits for others who get one. The lock comes before the row, so that no two wait for each other.
 */
async function storePerson(
  tx: Queryable,
  person: SignedInPerson,
): Promise<{ readonly id: string; readonly name: string }> {
  const { issuer, subject, email, places } = person;
  const isPerson = and(eq(users.issuer, issuer), eq(users.subject, subject));
  const now = { email, places, lastSignInAt: sql`clock_timestamp()` };
  const look = () => tx.select({ id: users.id, name: users.name }).from(users).where(isPerson);
  const [before] = await look();
  if (before && (await nameFor(tx, person, before.id)) === before.name) {
    const isStill = and(eq(users.id, before.id), eq(users.name, before.name));
    const updated = await tx.update(users).set(now).where(isStill).returning({ id: users.id });
    if (updated.length === 1) return before;
  }
  await tx.execute(sql`select pg_advisory_xact_lock(${NAMES_LOCK})`);
  const [known] = await look();
  const name = await nameFor(tx, person, known?.id);
  const id = known?.id ?? randomUUID();
  if (known)
    await tx
      .update(users)
      .set({ ...now, name })
      .where(eq(users.id, id));
  else
    await tx.insert(users).values({ id, issuer, subject, name, ...now, createdAt: sql`clock_timestamp()` });
  return { id, name };
}

/** Sessions and logins that a person has at most. */
export const MOST_SESSIONS = 20;

/**
 * What the person's other sessions may do follows what the groups give now, and the oldest make room for a new one.
 * One statement, whatever has ended before.
 */
async function bringSessionsUpToDate(
  tx: Queryable,
  userId: string,
  name: string,
  places: readonly Place[],
): Promise<void> {
  const age = sql`row_number() over (order by ${apiTokens.createdAt} desc, ${apiTokens.id} desc)`;
  await tx.execute(sql`
    with place as (
      select project, role from jsonb_to_recordset(${JSON.stringify(places)}::jsonb) as given(project text, role text)
    ), open as (
      select ${apiTokens.id} as id, place.role as role, place.role is not null and ${age} < ${MOST_SESSIONS} as stays
      from ${apiTokens} left join place on place.project is not distinct from ${apiTokens.project}
      where ${and(eq(apiTokens.userId, userId), isValidToken)}
    )
    update ${apiTokens} set
      name = ${name},
      role = coalesce(open.role, ${apiTokens.role}),
      revoked_at = case when open.stays then null else clock_timestamp() end
    from open where ${apiTokens.id} = open.id`);
}

/** Sessions of a person that have ended and are remembered: whoever signs in again and again fills no database. */
export const ENDED_SESSIONS_KEPT = 100;

async function forgetOldSessions(tx: Queryable, userId: string): Promise<void> {
  const old = tx
    .select({ id: apiTokens.id })
    .from(apiTokens)
    .where(and(eq(apiTokens.userId, userId), sql`not (${isValidToken})`))
    .orderBy(desc(apiTokens.createdAt), desc(apiTokens.id))
    .offset(ENDED_SESSIONS_KEPT);
  await tx.delete(apiTokens).where(inArray(apiTokens.id, old));
}

/**
 * Signs a person in: a session that begins in the first of the person's places. Somebody whose groups give no role
 * is refused, and loses the sessions of before. Call it inside a transaction, and let the transaction stand when it
 * refuses: the end of those sessions is part of it.
 * @returns the session's secret, which is stored nowhere, when it ends, and whose it is; or why there is none
 */
export async function signIn(
  tx: Transaction,
  person: SignedInPerson,
  session: NewSession,
): Promise<SignedIn | RefusedSignIn> {
  const places = await existing(tx, person.places);
  const { id: userId, name } = await storePerson(tx, { ...person, places });
  await bringSessionsUpToDate(tx, userId, name, places);
  await forgetOldSessions(tx, userId);
  const [first] = places;
  const audit = {
    actor: name,
    role: first?.role ?? "none",
    action: session.action,
    project: first?.project ?? null,
    ...(session.traceId === undefined ? {} : { traceId: session.traceId }),
  };
  if (!first) {
    const refusal = noPlace(name, person.places);
    return { refusal, audit: { ...audit, target: userId, status: 403, details: { code: refusal.code } } };
  }
  const made = await storeSession(tx, { name, userId, ...first }, session);
  await recordAudit(tx, { ...audit, target: made.owner.id, status: 200 });
  return made;
}

async function storeSession(
  tx: Transaction,
  owner: Pick<TokenOwner, "name" | "role" | "project"> & { readonly userId: string },
  { kind, validForSeconds, idleSeconds }: NewSession,
): Promise<SignedIn> {
  const [id, secret] = [randomUUID(), newToken()];
  const [row] = await tx
    .insert(apiTokens)
    .values({
      id,
      kind,
      ...owner,
      tokenSha256: sha256(secret),
      createdAt: sql`clock_timestamp()`,
      expiresAt: sql`clock_timestamp() + make_interval(secs => ${validForSeconds})`,
      idleSeconds,
    })
    .returning({ expiresAt: apiTokens.expiresAt })
    .catch((error: unknown) => {
      throw owner.project === null ? error : orNoProject(error, owner.project);
    });
  if (!row?.expiresAt) throw new Error(`session ${id} was not stored`);
  return { secret, expiresAt: row.expiresAt, owner: { id, kind, ...owner } };
}

/** Where a person may act; empty for nobody's. */
export async function placesOf(db: Queryable, userId: string | null): Promise<readonly Place[]> {
  if (userId === null) return [];
  const [row] = await db.select({ places: users.places }).from(users).where(eq(users.id, userId));
  return row?.places ?? [];
}

/**
 * A session acts in another of its person's places from now on. @throws ProblemError `not-found` for a project
 * where the person has no role
 */
export async function moveSession(
  tx: Queryable,
  { id, userId }: Pick<TokenOwner, "id" | "userId">,
  project: string | null,
): Promise<Place> {
  const place = (await existing(tx, await placesOf(tx, userId))).find((each) => each.project === project);
  if (!place)
    throw new ProblemError(
      "not-found",
      project === null ? "you have no role in the whole installation" : `there is no project ${project}`,
      [
        {
          field: "project",
          value: project,
          message: "is none of your places",
          remedy: "choose one of `places` of GET /api/v1/whoami",
        },
      ],
    );
  await tx
    .update(apiTokens)
    .set(place)
    .where(and(eq(apiTokens.id, id), isValidToken));
  return place;
}

/** A session ends. */
export async function endSession(tx: Queryable, id: string): Promise<void> {
  await tx
    .update(apiTokens)
    .set({ revokedAt: sql`clock_timestamp()` })
    .where(and(eq(apiTokens.id, id), isNull(apiTokens.revokedAt)));
}
