import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { exampleSpec } from "@internevo/test-kit/fixtures";
import pg from "pg";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { listAudit, listTokens } from "./access.ts";
import { listDeadLetters } from "./dead-letters.ts";
import { getJobDetail, listJobs } from "./job-reads.ts";
import { submitJob } from "./jobs.ts";
import { listJobLog } from "./job-events.ts";
import { listProfiles } from "./profiles.ts";
import { listStepMetrics } from "./runs.ts";
import { listProposals } from "./proposals.ts";
import { listWorkloads } from "./workloads.ts";
import type { Database } from "./database.ts";

let test: TestDatabase;
let jobId: string;
beforeAll(async () => {
  test = await createTestDatabase();
  jobId = await test.database.transaction((tx) => submitJob(tx, exampleSpec()));
});
afterAll(() => test.drop());

/** What a function asks the database. */
async function statementsOf(work: () => Promise<unknown>): Promise<{ text: string; values: unknown[] }[]> {
  const queries = vi.spyOn(pg.Client.prototype, "query");
  try {
    await work();
    return queries.mock.calls.flatMap(([query, values]: unknown[]) => {
      const text = typeof query === "string" ? query : (query as { text?: string }).text;
      return text === undefined ? [] : [{ text, values: (values as unknown[] | undefined) ?? [] }];
    });
  } finally {
    queries.mockRestore();
  }
}

/** How Postgres would run a statement if tables were too large to read and to sort. */
async function planInLargeTables(text: string, values: readonly unknown[]): Promise<string> {
  const client = new pg.Client({ connectionString: test.database.url });
  await client.connect();
  try {
    for (const off of ["seqscan", "sort", "incremental_sort", "bitmapscan"])
      await client.query(`set enable_${off} = off`);
    const { rows } = await client.query<{ "QUERY PLAN": string }>(`explain ${text}`, [...values]);
    return rows.map((row) => row["QUERY PLAN"]).join("\n");
  } finally {
    await client.end();
  }
}

const filtered = { limit: 50, cursor: null };
it.each<[string, (database: Database) => Promise<unknown>]>([
  ["jobs", ({ db }) => listJobs(db)],
  ["jobs of a state", ({ db }) => listJobs(db, { ...filtered, state: "running" })],
  ["jobs of an owner", ({ db }) => listJobs(db, { ...filtered, owner: "ada" })],
  ["jobs of a project", ({ db }) => listJobs(db, { ...filtered, only: "default" })],
  ["jobs of a cluster", ({ db }) => listJobs(db, { ...filtered, cluster: "site" })],
  ["one job", ({ db }) => getJobDetail(db, jobId)],
  ["a job's log", ({ db }) => listJobLog(db, jobId)],
  ["a job's steps", ({ db }) => listStepMetrics(db, jobId)],
  ["profiles", ({ db }) => listProfiles(db)],
  ["workloads", ({ db }) => listWorkloads(db)],
  ["proposals", ({ db }) => listProposals(db, jobId)],
  ["dead letters", ({ db }) => listDeadLetters(db)],
  ["tokens", ({ db }) => listTokens(db)],
  ["audit", ({ db }) => listAudit(db)],
  ["audit of an actor", ({ db }) => listAudit(db, { actor: "ada" })],
  ["audit of a target", ({ db }) => listAudit(db, { target: jobId })],
])("pages of %s come in the order of an index", async (_, list) => {
  const statements = await statementsOf(() => list(test.database));
  const ordered = statements.filter(({ text }) => /order by/i.test(text) && /limit/i.test(text));
  expect(ordered).not.toEqual([]);
  for (const { text, values } of ordered)
    expect(await planInLargeTables(text, values), text).not.toMatch(/\bSort\b|Seq Scan/);
});
