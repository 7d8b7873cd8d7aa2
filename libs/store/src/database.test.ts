import { sql } from "drizzle-orm";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
import { openDatabase } from "./database.ts";

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

it("keeps no connection of a transaction that cannot begin", async () => {
  const database = openDatabase({ url: test.url, applicationName: "database-test", maxConnections: 1 });
  try {
    const begun = database.db.transaction(() => Promise.resolve("begun"), {
      isolationLevel: "no such level" as "serializable",
    });
    await expect(begun).rejects.toMatchObject({ cause: { code: "42601" } });
    expect((await database.db.execute(sql`select 1 as one`)).rows).toEqual([{ one: 1 }]);
    expect(await database.transaction(async (tx) => (await tx.execute(sql`select 2 as two`)).rows)).toEqual([
      { two: 2 },
    ]);
  } finally {
    await database.close();
  }
});
