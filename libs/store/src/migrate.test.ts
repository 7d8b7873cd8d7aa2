import { afterAll, beforeAll, describe, expect, it } from "vitest";
import pg from "pg";
import { createTestDatabase, type TestDatabase } from "@internevo/local-stack/test-stack";
import { migrateDatabase } from "./migrate.ts";
import journal from "../drizzle/meta/_journal.json" with { type: "json" };

describe("migrateDatabase", () => {
  let test: TestDatabase;
  beforeAll(async () => {
    test = await createTestDatabase();
    await test.database.db.execute("drop schema public cascade");
    await test.database.db.execute("drop schema drizzle cascade");
    await test.database.db.execute("create schema public");
  });
  afterAll(() => test.drop());

  it("lets four processes migrate an empty database at once", async () => {
    await Promise.all(Array.from({ length: 4 }, () => migrateDatabase(test.url)));
    const client = new pg.Client({ connectionString: test.url });
    await client.connect();
    const { rows } = await client.query("select count(*)::int as applied, count(distinct hash)::int as different from drizzle.__drizzle_migrations");
    const tables = await client.query("select count(*)::int as tables from information_schema.tables where table_schema = 'public'");
    await client.end();
    expect(rows[0]).toEqual({ applied: journal.entries.length, different: journal.entries.length });
    expect(tables.rows[0].tables).toBe(21);
  });
});
