import { sql } from "drizzle-orm";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import type { Place } from "@internevo/contracts";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createToken, listAudit } from "./access.ts";
import { createProject } from "./projects.ts";
import { ENDED_SESSIONS_KEPT, MOST_SESSIONS, signIn, type RefusedSignIn, type SignedIn } from "./users.ts";

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
  await test.database.transaction((tx) => createProject(tx, { name: "nlp" }));
});
afterAll(() => test.drop());

const VIEWER: Place = { role: "viewer", project: null };
const attempt = (
  subject: string,
  places: readonly Place[] = [VIEWER],
  name = subject,
  email: string | null = null,
): Promise<SignedIn | RefusedSignIn> =>
  test.database.transaction(async (tx) => {
    // Who waits for what somebody else holds is seen to wait.
    await tx.execute("set local lock_timeout = '2s'");
    return signIn(
      tx,
      { issuer: "https://id.example", subject, name, email, places },
      { kind: "session", validForSeconds: 3600, idleSeconds: null, action: "GET /callback" },
    );
  });
async function admitted(...asked: Parameters<typeof attempt>): Promise<SignedIn> {
  const outcome = await attempt(...asked);
  if ("refusal" in outcome) throw outcome.refusal;
  return outcome;
}
async function sessionsOf({ owner }: SignedIn): Promise<Record<string, unknown>[]> {
  const { rows } = await test.database.db.execute(
    sql`select id, name, role, project, revoked_at is null as open, xmin::text as written
        from api_tokens where user_id = ${owner.userId} order by created_at, id`,
  );
  return rows;
}

it("keeps the newest sessions of a person who signs in again and again", async () => {
  const made: string[] = [];
  let last = await admitted("s-often");
  for (let at = 0; at < MOST_SESSIONS + 4; at += 1) {
    made.push(last.owner.id);
    last = await admitted("s-often");
  }
  made.push(last.owner.id);
  const open = (await sessionsOf(last)).filter((row) => row["open"]).map(({ id }) => id);
  expect(open).toEqual(made.slice(-MOST_SESSIONS));
});

it("forgets the oldest of the sessions that have ended, and no other person's", async () => {
  const [much, other] = [await admitted("s-much"), await admitted("s-little")];
  const ended = ENDED_SESSIONS_KEPT + 30;
  for (const { owner } of [much, other])
    await test.database.db.execute(sql`
      insert into api_tokens (id, kind, user_id, name, role, token_sha256, created_at, expires_at, revoked_at)
      select gen_random_uuid(), 'session', ${owner.userId}, ${owner.name}, 'viewer', ${owner.name} || at,
        now() - interval '1 hour' * at, now() + interval '1 hour' * (at % 2),
        case when at % 2 = 1 then now() end
      from generate_series(1, ${ended}) at`);
  const kept = (await sessionsOf(much)).slice(30).map(({ id }) => id);
  const again = await admitted("s-much");
  expect((await sessionsOf(again)).map(({ id }) => id)).toEqual([...kept, again.owner.id]);
  expect(await sessionsOf(other)).toHaveLength(ended + 1);
});

it("brings the sessions up to date that have not ended, and writes no others", async () => {
  const places: Place[] = [{ role: "viewer", project: "nlp" }, VIEWER];
  const first = await admitted("s-change", places);
  await test.database.db.execute(sql`
    insert into api_tokens (id, kind, user_id, name, role, project, token_sha256, created_at, expires_at)
    select gen_random_uuid(), 'session', ${first.owner.userId}, 's-change', 'viewer',
      case when at % 2 = 0 then 'nlp' end, 'change ' || at, now() - interval '1 day' * at,
      case when at > 4 then now() - interval '1 minute' * at else now() + interval '1 hour' end
    from generate_series(1, 40) at`);
  const before = await sessionsOf(first);
  await admitted("s-change", [{ role: "operator", project: null }], "s-changed");
  const after = (await sessionsOf(first)).slice(0, -1);
  // Those that have expired are as they were.
  expect(after.slice(0, 36)).toEqual(before.slice(0, 36));
  expect(after.slice(36).map(({ role, project, open, name }) => [role, project, open, name])).toEqual([
    ["viewer", "nlp", false, "s-changed"],
    ["operator", null, true, "s-changed"],
    ["viewer", "nlp", false, "s-changed"],
    ["operator", null, true, "s-changed"],
    ["operator", null, true, "s-changed"],
  ]);
});

it("waits for nobody who gives a name, but where the person's name is new or changes", async () => {
  await admitted("s-known");
  // A name that was taken is looked at again: it may be free by now.
  await admitted("s-other", [VIEWER], "s-known");
  const held = Promise.withResolvers<void>();
  const given = Promise.withResolvers<void>();
  const giving = test.database.transaction(async (tx) => {
    await createToken(tx, { name: "robot", role: "viewer", project: null, validForSeconds: null });
    given.resolve();
    await held.promise;
  });
  await given.promise;
  try {
    expect((await admitted("s-known")).owner.name).toBe("s-known");
    expect((await admitted("s-other", [VIEWER], "s-known")).owner.name).toMatch(/^s-known \([0-9a-f]{8}\)$/);
    await expect(attempt("s-known", [VIEWER], "s-renamed")).rejects.toThrow();
    await expect(attempt("s-new")).rejects.toThrow();
  } finally {
    held.resolve();
    await giving;
  }
  expect((await admitted("s-known", [VIEWER], "s-renamed")).owner.name).toBe("s-renamed");
  expect((await admitted("s-other", [VIEWER], "s-known")).owner.name).toBe("s-known");
});

it("makes one person of first sign-ins at once", async () => {
  const all = await Promise.all(Array.from({ length: 4 }, () => admitted("s-first")));
  expect(new Set(all.map(({ owner }) => owner.userId)).size).toBe(1);
  expect(new Set(all.map(({ owner }) => owner.name))).toEqual(new Set(["s-first"]));
  expect((await listAudit(test.database.db, { actor: "s-first" })).items).toHaveLength(4);
});

it("calls nobody as a service is called", async () => {
  expect((await admitted("s-service", [VIEWER], "Replanner")).owner.name).toMatch(
    /^Replanner \([0-9a-f]{8}\)$/,
  );
});

it("calls nobody by an address that is not verified as theirs, also where nobody else has it", async () => {
  for (const typed of ["grace@corp.example", "grace＠corp.example"])
    expect((await admitted(`s-typed ${typed}`, [VIEWER], typed)).owner.name).toMatch(/ \([0-9a-f]{8}\)$/);
  const verified = await admitted("s-grace", [VIEWER], "grace@corp.example", "grace@corp.example");
  expect(verified.owner.name).toBe("grace@corp.example");
});
