import { randomUUID } from "node:crypto";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
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
  /** For what tests of a run make once; it goes when the run ends. */
  readonly directory: string;
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

/** Locks of Postgres, which files of a run hold by turns. */
const LOCKS = { template: 20260101, making: 20260102 } as const;

/**
 * What the files of a run need once: whoever comes first makes it, the others wait. @param make in a folder of its own
 * @returns the folder
 */
export async function madeOnce(name: string, make: (directory: string) => Promise<void>): Promise<string> {
  const directory = join(testStack().directory, name);
  const isMade = `${directory}.made`;
  await asSuperuser(async (client) => {
    await client.query("select pg_advisory_lock($1)", [LOCKS.making]);
    if (existsSync(isMade)) return;
    await make(directory);
    writeFileSync(isMade, "");
  });
  return directory;
}

/** A fresh, migrated database of a test's own. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const { databaseUrl, templateName } = testStack();
  const name = `test_${randomUUID().replaceAll("-", "")}`;
  await asSuperuser(async (client) => {
    // Two copies of one template at the same moment would disturb each other.
    await client.query("select pg_advisory_lock($1)", [LOCKS.template]);
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
