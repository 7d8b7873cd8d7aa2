import { randomUUID } from "node:crypto";
import { PassThrough, Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { drizzle } from "drizzle-orm/node-postgres";
import { readMigrationFiles } from "drizzle-orm/migrator";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DEFAULT_PROJECT, type JobSpec } from "@internevo/domain";
import { exampleCandidate, exampleSpec } from "@internevo/test-kit/fixtures";
import { createTestDatabase, testStack, type TestDatabase } from "@internevo/test-kit/stack";
import { storedRun, type StoredRun } from "@internevo/test-kit/stored-run";
import { openDatabase, type Database } from "../database.ts";
import { claimHosts } from "../host-queue.ts";
import { getJobDetail } from "../job-reads.ts";
import { appendJobEvent, getJob, resumeJob, submitJob, transitionJob } from "../jobs.ts";
import { acquireLease, jobLease } from "../leases.ts";
import { migrateDatabase } from "../migrate.ts";
import { relayOutbox } from "../outbox.ts";
import { dismissPlanChange, lastPlanChange, storePlanChange } from "../plan-changes.ts";
import { listAttempts, recordCheckpoint } from "../runs.ts";
import * as schema from "../schema/index.ts";
import { newTraceparent } from "../trace.ts";
import { testWebhook } from "../webhook-deliveries.ts";
import { createWebhook, getWebhook } from "../webhooks.ts";
import { createWorkload, fireWorkloadNow, getFiring, getWorkload } from "../workloads.ts";
import { applyMigrations, MIGRATIONS } from "../migrations.ts";
import { inOrderOfReferences, restoreDatabase, type StoredTable } from "./restore.ts";
import { restoredReason, withMovedPaths, type Settled } from "./settle.ts";
import { SnapshotReader, type SequenceValue, type Snapshot } from "./snapshot.ts";

const ODD = "tab\t newline\n backslash\\ \\N \\. quote' \u2028 ünï 🙂";

let test: TestDatabase;
let run: StoredRun;
let planning: string;
let workloadId: string;
let firingId: string;
let webhookId: string;
const made: { readonly name: string; readonly database?: Database }[] = [];

async function asSuperuser<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: testStack().databaseUrl });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

async function emptyDatabase(): Promise<string> {
  const name = `restored_${randomUUID().replaceAll("-", "")}`;
  await asSuperuser((client) => client.query(`create database ${name}`));
  made.push({ name });
  const url = new URL(testStack().databaseUrl);
  url.pathname = `/${name}`;
  return url.href;
}

/** What a backup has of a database. */
interface Taken {
  readonly snapshot: Snapshot;
  readonly tables: readonly StoredTable[];
  readonly sequences: readonly SequenceValue[];
  readonly contents: ReadonlyMap<string, Buffer>;
}

/** @param between happens after the snapshot */
async function take(
  between: () => Promise<unknown> = () => Promise.resolve(),
  url = test.url,
): Promise<Taken> {
  const reader = await SnapshotReader.open(url);
  try {
    const snapshot = await reader.take();
    await between();
    const contents = new Map<string, Buffer>();
    const tables = [];
    for (const table of (await reader.tables(snapshot)).own) {
      // So small that Postgres has to wait for who reads.
      const sink = new PassThrough({ highWaterMark: 1 });
      const whole = buffer(sink);
      const rows = await reader.copyTable(table, sink);
      sink.end();
      contents.set(table.name, await whole);
      tables.push({ ...table, rows });
    }
    return { snapshot, tables, sequences: await reader.sequences(tables), contents };
  } finally {
    await reader.close();
  }
}

const restoreTo = async (url: string, taken: Taken, goesOn: boolean): Promise<Settled> =>
  restoreDatabase({
    url,
    migration: taken.snapshot.migration,
    tables: taken.tables,
    sequences: taken.sequences,
    open: ({ name }) => Readable.from([taken.contents.get(name) ?? Buffer.alloc(0)]),
    settle: {
      takenAt: taken.snapshot.takenAt,
      heldWith: goesOn ? null : restoredReason(taken.snapshot.takenAt),
      moved: { from: ["/old/jobs"], to: "/new/jobs" },
    },
  });

async function restored(taken: Taken, goesOn: boolean): Promise<{ there: Database; settled: Settled }> {
  const url = await emptyDatabase();
  const settled = await restoreTo(url, taken, goesOn);
  const there = openDatabase({ url, applicationName: "test" });
  made.push({ name: "", database: there });
  return { there, settled };
}

const claim = (jobId: string, host: string) =>
  test.database.transaction((tx) =>
    claimHosts(tx, {
      owner: jobLease(jobId),
      hosts: [host],
      submittedAt: new Date(),
      command: { type: "job.profile", data: { jobId }, traceparent: newTraceparent() },
    }),
  );

beforeAll(async () => {
  test = await createTestDatabase();
  run = await storedRun(test.database, "running");
  await run.step(1, 25);
  await test.database.transaction((tx) =>
    recordCheckpoint(tx, { runId: run.runId, attempt: 1 }, { step: 20, bytes: 1, seconds: 1 }),
  );
  await test.database.transaction((tx) => appendJobEvent(tx, run.jobId, "log", { message: ODD }));
  await claim(run.jobId, "host-a");
  await acquireLease(test.database.db, jobLease(run.jobId), "old machine", 600);
  const spec: JobSpec = {
    ...exampleSpec("planning"),
    initialWeights: `/old/jobs/${run.jobId}/checkpoints/step-20`,
  };
  planning = await test.database.transaction((tx) => submitJob(tx, spec));
  await test.database.transaction((tx) =>
    transitionJob(tx, { jobId: planning, from: "profiling", to: "planning" }),
  );
  await claim(planning, "host-a");
  workloadId = (
    await createWorkload(test.database.db, {
      name: "nightly",
      spec,
      cron: "0 3 * * *",
      nextRunAt: new Date(),
    })
  ).id;
  firingId = (await test.database.transaction((tx) => fireWorkloadNow(tx, workloadId))).id;
  webhookId = await test.database.transaction(async (tx) => {
    const url = "https://ci.example.org/events";
    const { webhook } = await createWebhook(tx, { name: "ci", url, project: DEFAULT_PROJECT });
    await testWebhook(tx, webhook.id, "internevo");
    return webhook.id;
  });
});
afterAll(async () => {
  for (const { database } of made) await database?.close();
  await test.drop();
  await asSuperuser(async (client) => {
    for (const { name } of made) if (name !== "") await client.query(`drop database ${name} with (force)`);
  });
});

/** Every table of a database, as text. */
async function allRows(url: string): Promise<Record<string, string[]>> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const { rows: tables } = await client.query<{ name: string }>(
      "select tablename as name from pg_tables where schemaname = 'public' order by 1",
    );
    const all: Record<string, string[]> = {};
    for (const { name } of tables)
      all[name] = (
        await client.query<{ text: string }>(`select t::text as text from ${name} t order by 1`)
      ).rows.map(({ text }) => text);
    return all;
  } finally {
    await client.end();
  }
}

describe("a snapshot", () => {
  it("says what checkpoints must agree with", async () => {
    const { snapshot } = await take();
    expect(snapshot.jobs.find(({ jobId }) => jobId === run.jobId)).toEqual({
      jobId: run.jobId,
      state: "running",
      everySteps: exampleSpec().checkpointing?.everySteps ?? null,
      attempt: 1,
      resumedFromStep: 0,
      announcedStep: 20,
      storedSteps: 25,
    });
    expect(snapshot.jobs.find(({ jobId }) => jobId === planning)).toMatchObject({
      attempt: null,
      storedSteps: 0,
    });
    expect(snapshot.workloadIds).toEqual([workloadId]);
    expect(Date.now() - Date.parse(snapshot.takenAt)).toBeLessThan(60_000);
  });

  it("counts steps up to the first that is missing", async () => {
    const other = await storedRun(test.database, "gap");
    await other.step(1, 5);
    await other.step(7, 9);
    const { snapshot } = await take();
    expect(snapshot.jobs.find(({ jobId }) => jobId === other.jobId)?.storedSteps).toBe(5);
    await other.end("failed");
  });

  it("is taken by one backup at a time, and goes with its connection", async () => {
    const [one, two] = [await SnapshotReader.open(test.url), await SnapshotReader.open(test.url)];
    expect([await one.lock(), await two.lock()]).toEqual([true, false]);
    await one.close();
    await expect.poll(() => two.lock()).toBe(true);
    await two.close();
  });

  it("has every table of the product, and names those that somebody added", async () => {
    const url = await emptyDatabase();
    await migrateDatabase(url);
    await asUser(
      url,
      "create table notes (id bigserial, text text); insert into notes (text) values ('mine')",
    );
    const reader = await SnapshotReader.open(url);
    const { own, others } = await reader.tables(await reader.take());
    expect(others).toEqual(["notes"]);
    expect(await reader.sequences(own)).toEqual([]);
    await reader.close();
    expect(own.map(({ name }) => name)).toEqual(
      Object.keys(await allRows(url)).filter((name) => name !== "notes"),
    );
  });

  it("of another database than the product's is refused", async () => {
    const reader = await SnapshotReader.open(await emptyDatabase());
    await expect(reader.take()).rejects.toMatchObject({ code: "bad-request" });
    await reader.close();
  });
});

describe("a restored database", () => {
  it("is that of the snapshot in every table, whatever was written meanwhile", async () => {
    const before = await allRows(test.url);
    const taken = await take(() => run.step(26, 30));
    const url = await emptyDatabase();
    const settled = await restoreTo(url, taken, true);
    expect(settled).toEqual({ heldJobs: 0, pausedWorkloads: 0, disabledWebhooks: 0, movedPaths: 2 });
    const after = await allRows(url);
    const settles = [
      "attempts",
      "host_holds",
      "jobs",
      "leases",
      "outbox",
      "project_usage",
      "project_months",
      "workloads",
    ];
    for (const name of Object.keys(before).filter((each) => !settles.includes(each)))
      expect([name, after[name]]).toEqual([name, before[name]]);
    expect(after["job_log"]?.join()).toContain("🙂");
    // What comes next takes no number that was taken.
    const there = openDatabase({ url, applicationName: "test" });
    made.push({ name: "", database: there });
    await there.transaction((tx) => appendJobEvent(tx, run.jobId, "log", { message: "next" }));
    expect((await allRows(url))["job_log"]).toHaveLength((before["job_log"]?.length ?? 0) + 1);
  });

  it("forgets who worked, and counts hosts until the backup only", async () => {
    const { there } = await restored(await take(), true);
    expect(await acquireLease(there.db, jobLease(run.jobId), "new machine", 60)).toMatchObject({ token: 2 });
    expect(await listAttempts(there.db, run.runId)).toMatchObject([{ number: 1, state: "lost" }]);
    const { rows } = await there.db.execute<{ ended: boolean; claims: number }>(`
      select (ended_at is not null) as ended, (select count(*)::int from host_claims where owner = h.owner) as claims
      from host_holds h where owner = '${jobLease(run.jobId)}' order by id`);
    expect(rows).toEqual([
      { ended: true, claims: 1 },
      { ended: false, claims: 1 },
    ]);
    const waiters = await there.db.execute("select owner from host_waiters");
    expect(waiters.rows).toEqual([{ owner: jobLease(planning) }]);
  });

  it("holds jobs of every stage, and pauses workloads, where they are not to go on", async () => {
    const taken = await take();
    const { there, settled } = await restored(taken, false);
    expect(settled).toEqual({ heldJobs: 2, pausedWorkloads: 1, disabledWebhooks: 1, movedPaths: 2 });
    const reason = restoredReason(taken.snapshot.takenAt);
    expect(reason).toMatch(/^restored from a backup of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$/);
    for (const [id, stage] of [
      [run.jobId, "running"],
      [planning, "planning"],
    ] as const) {
      expect(await getJob(there.db, id)).toMatchObject({ state: "held", reason });
      expect(await there.transaction((tx) => resumeJob(tx, id))).toMatchObject({ outcome: "resumed", stage });
    }
    expect(await getWorkload(there.db, workloadId)).toMatchObject({ enabled: false, lastOutcome: reason });
    expect(await getFiring(there.db, firingId)).toMatchObject({ state: "skipped", outcome: reason });
    const { rows } = await there.db.execute(
      "select owner from host_claims union all select owner from host_waiters union all select owner from host_holds where ended_at is null",
    );
    expect(rows).toEqual([]);
    expect((await getJobDetail(there.db, run.jobId))?.attempts).toMatchObject([{ state: "lost" }]);
  });

  it("takes back what a workload had a run change, where it is paused", async () => {
    const ofRun = { id: run.runId, jobId: run.jobId };
    const inUse = exampleCandidate();
    const { id } = await test.database.transaction((tx) =>
      storePlanChange(tx, ofRun, {
        state: "searching",
        origin: "workload",
        askedBy: "replanner",
        from: inUse,
        to: inUse,
        predictedGain: 0,
        gainThreshold: 0,
        compareSteps: 5,
        firingId,
      }),
    );
    const taken = await take();
    await test.database.transaction((tx) => dismissPlanChange(tx, run.jobId, id, "only for this test"));
    const { there } = await restored(taken, false);
    const reason = restoredReason(taken.snapshot.takenAt);
    expect(await lastPlanChange(there.db, ofRun)).toMatchObject({ id, state: "dismissed", reason });
    const { there: goesOn } = await restored(taken, true);
    expect(await lastPlanChange(goesOn.db, ofRun)).toMatchObject({ id, state: "searching" });
  });

  it("tells the receivers of webhooks nothing, where jobs are not to go on", async () => {
    const taken = await take();
    const { there } = await restored(taken, false);
    expect(await getWebhook(there.db, webhookId)).toMatchObject({
      enabled: false,
      disabledReason: restoredReason(taken.snapshot.takenAt),
      pending: 0,
    });
    // What the restore itself tells, such as that jobs are held, waits for nobody either.
    expect((await there.db.execute("select 1 from outbox where published_at is null")).rows).not.toEqual([]);
    await relayOutbox(there, { namespace: "test", publish: () => Promise.resolve({ streamSequence: 1 }) });
    expect(await getWebhook(there.db, webhookId)).toMatchObject({ pending: 0 });
    const { there: goesOn } = await restored(taken, true);
    expect(await getWebhook(goesOn.db, webhookId)).toMatchObject({ enabled: true, pending: 1 });
  });

  it("names checkpoints where they are now", async () => {
    const { there } = await restored(await take(), true);
    const path = `/new/jobs/${run.jobId}/checkpoints/step-20`;
    expect((await getJob(there.db, planning))?.spec.initialWeights).toBe(path);
    expect((await getWorkload(there.db, workloadId))?.spec.initialWeights).toBe(path);
  });

  it("is there as a whole or not at all", async () => {
    const taken = await take();
    const url = await emptyDatabase();
    const cut = new Map(taken.contents).set("step_metrics", Buffer.alloc(0));
    await expect(restoreTo(url, { ...taken, contents: cut }, true)).rejects.toMatchObject({
      code: "data-invalid",
      message: expect.stringContaining("step_metrics") as string,
    });
    const broken = new Map(taken.contents).set("jobs", Buffer.from("no row\n"));
    await expect(restoreTo(url, { ...taken, contents: broken }, true)).rejects.toMatchObject({
      code: "22P02",
    });
    const { rows } = await asUser(
      url,
      "select count(*)::int as count from pg_tables where schemaname = 'public'",
    );
    expect(rows).toEqual([{ count: 0 }]);
    await restoreTo(url, taken, true);
    await expect(restoreTo(url, taken, true)).rejects.toMatchObject({ code: "conflict" });
  });

  it("tells why a copy of the backup cannot be read", async () => {
    const taken = await take();
    const failing = new Readable({ read: () => failing.destroy(new Error("the disk is broken")) });
    await expect(
      restoreDatabase({
        url: await emptyDatabase(),
        migration: taken.snapshot.migration,
        tables: taken.tables,
        sequences: taken.sequences,
        open: () => failing,
        settle: { takenAt: taken.snapshot.takenAt, heldWith: null, moved: { from: ["/a"], to: "/b" } },
      }),
    ).rejects.toThrow("the disk is broken");
  });

  it("of an older version is brought to this one, with what it had", async () => {
    const older = await emptyDatabase();
    const client = new pg.Client({ connectionString: older });
    await client.connect();
    const marks = readMigrationFiles({ migrationsFolder: MIGRATIONS });
    const before = marks.at(-2);
    await drizzle(client, { schema }).transaction(async (tx) =>
      applyMigrations(tx, { to: { createdAt: before?.folderMillis ?? 0, hash: before?.hash ?? "" } }),
    );
    await client.query("insert into projects (name) values ('old')");
    await client.end();
    const taken = await take(undefined, older);
    expect(taken.snapshot.migration).toEqual({ createdAt: before?.folderMillis, hash: before?.hash });
    const url = await emptyDatabase();
    await restoreTo(url, taken, false);
    expect((await asUser(url, "select name from projects order by 1")).rows).toEqual([
      { name: "default" },
      { name: "old" },
    ]);
    const shape =
      "select table_name, column_name from information_schema.columns where table_schema = 'public' order by 1, 2";
    expect((await asUser(url, shape)).rows).toEqual((await asUser(test.url, shape)).rows);
  });

  it("is one that this version would have made", async () => {
    const url = await emptyDatabase();
    await restoreTo(url, await take(), true);
    const shape = `select table_name, column_name, data_type, column_default, is_nullable from information_schema.columns
      where table_schema in ('public', 'drizzle') order by 1, 2`;
    const ours = await asUser(url, shape);
    expect(ours.rows).toEqual((await asUser(test.url, shape)).rows);
    // Nothing is left to migrate.
    await migrateDatabase(url);
    const triggers = "select tgname, tgenabled from pg_trigger where not tgisinternal order by 1";
    expect((await asUser(url, triggers)).rows).toEqual((await asUser(test.url, triggers)).rows);
  });
});

async function asUser(url: string, text: string): Promise<pg.QueryResult> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return await client.query(text);
  } finally {
    await client.end();
  }
}

it("fills tables in the order of their references", () => {
  const tables = ["a", "b", "c"].map((name) => ({ name }));
  const references = [
    { from: "a", to: "b" },
    { from: "b", to: "c" },
    { from: "b", to: "b" },
  ];
  expect(inOrderOfReferences(tables, references).map(({ name }) => name)).toEqual(["c", "b", "a"]);
  expect(() => inOrderOfReferences(tables, [...references, { from: "c", to: "a" }])).toThrow("a, b, c");
});

it("moves what is below a folder, and nothing that only begins like it", () => {
  expect(
    withMovedPaths(
      { a: ["/old/jobs/x", "/old/jobs2", "see /old/jobs/x", null, 1], b: "/old/jobs" },
      ["/old/jobs"],
      "/new",
    ),
  ).toEqual({ a: ["/new/x", "/old/jobs2", "see /old/jobs/x", null, 1], b: "/new" });
});
