import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createToken, listTokens, recordTokenUse } from "./access.ts";

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
