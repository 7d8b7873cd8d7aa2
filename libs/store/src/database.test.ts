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

it("says whether it can write, and leaves nothing behind", async () => {
  const database = openDatabase({ url: test.url, applicationName: "database-test", maxConnections: 1 });
  const state = async () =>
    (
      await database.db.execute(
        sql`select temp_files::int as files, current_setting('work_mem') as memory
            from pg_stat_database where datname = current_database()`,
      )
    ).rows[0];
  try {
    const before = await state();
    expect(await database.canWrite()).toBe(true);
    expect(await database.db.execute(sql`show work_mem`)).toMatchObject({
      rows: [{ work_mem: before?.["memory"] }],
    });
    await expect.poll(async () => (await state())?.["files"], { timeout: 15_000 }).toBeGreaterThan(0);
    await database.db.execute(sql`set default_transaction_read_only = on`);
    expect(await database.canWrite()).toBe(false);
  } finally {
    await database.close();
  }
});
