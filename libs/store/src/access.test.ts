import { sql } from "drizzle-orm";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { MOST_TOKENS } from "@internevo/domain";
import { afterAll, beforeAll, expect, it } from "vitest";
import {
  createToken,
  listTokens,
  pruneAuditLog,
  recordAudit,
  recordTokenUse,
  revokeToken,
} from "./access.ts";
import { createProject } from "./projects.ts";

let test: TestDatabase;
beforeAll(async () => void (test = await createTestDatabase()));
afterAll(() => test.drop());

it("says when a token was used last, to the minute, and never before it was made", async () => {
  const { record } = await test.database.transaction((tx) =>
    createToken(tx, { name: "lin", role: "viewer", project: null, validForSeconds: null }),
  );
  const used = async (): Promise<string | null | undefined> => {
    await recordTokenUse(test.database.db, [record.id]);
    return (await listTokens(test.database.db)).items.find(({ id }) => id === record.id)?.lastUsedAt;
  };
  // The minute that it was made in may have passed: then it was used in a later one.
  expect((await used()) ?? "").toMatch(/Z$/);
  expect(Date.parse((await used()) ?? "")).toBeGreaterThanOrEqual(Date.parse(record.createdAt));
  await test.database.db.execute("update api_tokens set created_at = created_at - interval '1 hour'");
  expect((await used()) ?? "").toMatch(/:00\.000Z$/);
});

it("says that a token's project is gone where it was deleted meanwhile", async () => {
  const made = test.database.transaction((tx) =>
    createToken(tx, { name: "late", role: "viewer", project: "gone", validForSeconds: null }),
  );
  await expect(made).rejects.toMatchObject({
    code: "not-found",
    details: [{ field: "project", value: "gone", message: "names no project" }],
  });
});

it("a project has so many tokens at most, also where many are made at once", async () => {
  await test.database.transaction((tx) => createProject(tx, { name: "full" }));
  const make = (name: string, project: string | null = "full", validForSeconds: number | null = null) =>
    test.database.transaction((tx) => createToken(tx, { name, role: "viewer", project, validForSeconds }));
  const first = await make("full-0");
  await test.database.db.execute(sql`
    insert into api_tokens (id, name, role, project, token_sha256, created_at)
    select gen_random_uuid(), 'full-' || at, 'viewer', 'full', 'digest ' || at, clock_timestamp()
    from generate_series(1, ${MOST_TOKENS - 4}) at`);
  const made = await Promise.allSettled(Array.from({ length: 5 }, (_, at) => make(`more-${at}`)));
  const refused = made.filter((one) => one.status === "rejected");
  expect(refused).toHaveLength(2);
  for (const { reason } of refused)
    expect(reason).toMatchObject({
      code: "quota-exceeded",
      details: [{ field: "name", remedy: expect.stringMatching(/^revoke/) }],
    });
  await make("of the installation", null);
  await test.database.transaction((tx) => revokeToken(tx, first.record.id));
  await make("in its place");
  await expect(make("one too many")).rejects.toMatchObject({ code: "quota-exceeded" });
});

it("keeps so many rows of the audit log of each project, and of the installation", async () => {
  const { db } = test.database;
  await db.execute("delete from audit_log");
  const write = async (project: string | null, rows: number): Promise<void> => {
    for (let at = 0; at < rows; at += 1)
      await recordAudit(db, {
        actor: `${at}`,
        role: "admin",
        action: "POST /x",
        target: null,
        status: 200,
        project,
      });
  };
  // Rows of a project that is gone are kept as those of others.
  await write("gone", 3);
  await write(null, 5);
  await write("nlp", 2);
  await write("loud", 50);
  await pruneAuditLog(db, { days: 90, rows: 4 });
  const kept = async (): Promise<unknown[]> =>
    (
      await db.execute(
        "select project, string_agg(actor, ' ' order by id) as actors from audit_log group by project order by project",
      )
    ).rows;
  expect(await kept()).toEqual([
    { project: "gone", actors: "0 1 2" },
    { project: "loud", actors: "46 47 48 49" },
    { project: "nlp", actors: "0 1" },
    { project: null, actors: "1 2 3 4" },
  ]);
});

it.each([
  "grace@example.org",
  "grace＠example.org",
  "replanner",
  "Replanner",
  "SYSTEM",
  "first-admin",
  "local-stack",
  "api",
])("makes no token that would be taken for a person or a service: %s", async (name) => {
  const made = test.database.transaction((tx) =>
    createToken(tx, { name, role: "viewer", project: null, validForSeconds: null }),
  );
  await expect(made).rejects.toMatchObject({
    code: "bad-request",
    details: [{ field: "name", value: name, remedy: expect.stringMatching(/^use a name/) as string }],
  });
});
