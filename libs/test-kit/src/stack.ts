import { randomUUID } from "node:crypto";
import pg from "pg";
import { inject } from "vitest";
import { connectBus, type Bus } from "@internevo/bus";
import { openDatabase, type Database } from "@internevo/store";
import { databaseUrlFor } from "@internevo/local-stack";

declare module "vitest" {
  interface ProvidedContext {
    internevoTestStack: TestStack;
  }
}

/** The real servers that one run of the tests shares. */
export interface TestStack {
  /** A superuser's, of the maintenance database. */
  readonly databaseUrl: string;
  /** A migrated database that others are copied from. */
  readonly templateName: string;
  readonly natsUrl: string;
}

export interface TestDatabase {
  readonly url: string;
  readonly database: Database;
  /** Closes the pool and drops the database. */
  drop(): Promise<void>;
}

/** Where the tests' servers are; they are started by the run's global set-up. */
export const testStack = (): TestStack => inject("internevoTestStack");

async function asSuperuser(run: (client: pg.Client) => Promise<void>): Promise<void> {
  const client = new pg.Client({ connectionString: testStack().databaseUrl });
  try {
    await client.connect();
    await run(client);
  } finally {
    await client.end();
  }
}

/** A fresh, migrated database of a test's own. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const { databaseUrl, templateName } = testStack();
  const name = `test_${randomUUID().replaceAll("-", "")}`;
  await asSuperuser(async (client) => {
    // Two copies of one template at the same moment would disturb each other.
    await client.query("select pg_advisory_lock(20260101)");
    await client.query(`create database ${name} template ${templateName}`);
  });
  const url = databaseUrlFor(databaseUrl, name);
  const database = openDatabase({ url, applicationName: "test" });
  return {
    url,
    database,
    async drop() {
      await database.close();
      await asSuperuser(async (client) => void (await client.query(`drop database ${name} with (force)`)));
    },
  };
}

/** A connection to the broker in a namespace of its own. */
export const createTestBus = (namespace = `test-${randomUUID().slice(0, 8)}`): Promise<Bus> =>
  connectBus({ url: testStack().natsUrl, name: "test", namespace });
