import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import type { TestProject } from "vitest/node";
import { migrateDatabase } from "@internevo/store";
import { databaseUrlFor, startLocalStack, type LocalStack } from "@internevo/local-stack";
import type {} from "./stack.ts";

const TEMPLATE = "internevo_template";

/** Starts one Postgres and one NATS for a whole run of the tests, and stops them afterwards. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const dataDirectory = mkdtempSync(join(tmpdir(), "internevo-test-"));
  const { DATABASE_URL: _database, NATS_URL: _nats, ...rest } = process.env;
  process.env = rest;
  let stack: LocalStack | undefined;
  const end = async () => {
    await stack?.stop();
    rmSync(dataDirectory, { recursive: true, force: true });
  };
  try {
    stack = await startLocalStack({ dataDirectory, services: [], durable: false });
    const { databaseUrl, natsUrl } = stack.info();
    const client = new pg.Client({ connectionString: databaseUrl });
    await client.connect();
    await client.query(`create database ${TEMPLATE}`);
    await client.end();
    await migrateDatabase(databaseUrlFor(databaseUrl, TEMPLATE));
    project.provide("internevoTestStack", {
      databaseUrl,
      templateName: TEMPLATE,
      natsUrl,
      directory: dataDirectory,
    });
  } catch (error) {
    await end();
    throw error;
  }
  return end;
}
