import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Profile } from "@internevo/domain";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import pg from "pg";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { listJobEvents } from "./job-events.ts";
import { migrateDatabase } from "./migrate.ts";
import { storeGivenProfile } from "./profiles.ts";
import journal from "../drizzle/meta/_journal.json" with { type: "json" };

const tags = journal.entries.map(({ tag }) => tag);

describe("migrateDatabase", () => {
  let test: TestDatabase;
  const apply = async (tag: string): Promise<void> => {
    const text = readFileSync(join(import.meta.dirname, "..", "drizzle", `${tag}.sql`), "utf8");
    for (const statement of text.split("--> statement-breakpoint"))
      if (statement.trim() !== "") await test.database.db.execute(statement);
  };
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
    const { rows } = await client.query(
      "select count(*)::int as applied, count(distinct hash)::int as different from drizzle.__drizzle_migrations",
    );
    const tables = await client.query(
      "select count(*)::int as tables from information_schema.tables where table_schema = 'public'",
    );
    await client.end();
    expect(rows[0]).toEqual({ applied: journal.entries.length, different: journal.entries.length });
    // One of them is a view.
    expect(tables.rows[0].tables).toBe(40);
  });

  it("gives the oldest of equal given profiles the digest that later ones are compared by", async () => {
    const { db } = test.database;
    await db.execute("drop index profiles_given_sha256");
    await db.execute(`insert into profiles (id, name, cluster_key, profile, fresh_until, created_at)
      select gen_random_uuid(), name, key, jsonb_build_object('name', name), now(), now() + make_interval(secs => at)
      from (values ('p', 'given:p', 1), ('p', 'given:p', 2), ('q', 'given:q', 3), ('p', 'measured', 0)) as rows (name, key, at)`);
    const migration = readFileSync(
      join(import.meta.dirname, "..", "drizzle", "0006_tokens_and_digests.sql"),
      "utf8",
    ).split("--> statement-breakpoint");
    for (const statement of migration.filter(
      (each) => each.includes("given_sha256") && !each.includes("ADD COLUMN"),
    ))
      await db.execute(statement);
    const { rows } = await db.execute(
      "select name, cluster_key from profiles where given_sha256 is not null order by created_at",
    );
    expect(rows).toEqual([
      { name: "p", cluster_key: "given:p" },
      { name: "q", cluster_key: "given:q" },
    ]);
    const stored = await db.execute("select id from profiles where given_sha256 is not null and name = 'p'");
    expect(await storeGivenProfile(db, { name: "p" } as Profile)).toBe(stored.rows[0]?.["id"]);
  });

  it("moves what was there before projects into the project default", async () => {
    const { db } = test.database;
    await db.execute("drop schema public cascade");
    await db.execute("create schema public");
    const at = tags.indexOf("0010_projects");
    for (const tag of tags.slice(0, at)) await apply(tag);
    const [job, workload] = [randomUUID(), randomUUID()];
    const spec = JSON.stringify({ cluster: { name: "c", nodes: 2, gpusPerNode: 4 } });
    await db.execute(`insert into jobs (id, name, spec, state, owner, traceparent)
      values ('${job}', 'j', '${spec}', 'running', 'ada', 't')`);
    await db.execute(`insert into workloads (id, name, spec, cron, time_zone, catch_up_window_seconds, gain_threshold)
      values ('${workload}', 'w', '${spec}', '* * * * *', 'UTC', 1, 0.1)`);
    await db.execute(`insert into host_claims (host, owner) values ('a', 'job:${job}'), ('b', 'job:${job}')`);
    await db.execute(
      `insert into api_tokens (id, name, token_sha256, role) values ('${job}', 'ada', 'x', 'admin')`,
    );
    await db.execute(`insert into audit_log (actor, role, action, status)
      values ('ada', 'admin', 'POST /api/v1/jobs', 201), ('ada', 'admin', 'POST /api/v1/tokens', 201)`);
    await apply(tags[at] ?? "");
    const rowsOf = async (query: string) => (await db.execute(query)).rows;
    expect(await rowsOf("select project from jobs union all select project from workloads")).toEqual([
      { project: "default" },
      { project: "default" },
    ]);
    expect(await rowsOf("select project from api_tokens"), "they keep their role everywhere").toEqual([
      { project: null },
    ]);
    expect(await rowsOf("select project from audit_log order by id")).toEqual([
      { project: "default" },
      { project: null },
    ]);
    expect(await rowsOf("select owner, submitter, cluster, gpus, ended_at from host_holds")).toEqual([
      { owner: `job:${job}`, submitter: "ada", cluster: "c", gpus: 8, ended_at: null },
    ]);
    const months = tags.indexOf("0016_project_months");
    for (const tag of tags.slice(at + 1, months)) await apply(tag);
    await db.execute(`insert into host_holds (owner, project, cluster, gpus, began_at, ended_at)
      values ('job:a', 'default', 'c', 4, '2026-01-31T22:00Z', '2026-02-01T01:00Z'),
        ('job:b', 'default', 'c', 2, '2026-02-10T00:00Z', '2026-02-10T10:00Z')`);
    await apply(tags[months] ?? "");
    expect(await rowsOf("select project, month, gpu_hours from project_months order by month")).toEqual([
      { project: "default", month: "2026-01-01 00:00:00+00", gpu_hours: 8 },
      { project: "default", month: "2026-02-01 00:00:00+00", gpu_hours: 24 },
    ]);
  });

  it("migrates while others read and write table after table, and nobody of them fails", async () => {
    const { db } = test.database;
    await db.execute("drop schema public cascade");
    await db.execute("create schema public");
    await db.execute("delete from drizzle.__drizzle_migrations");
    const index = tags.indexOf("0027_steps_once");
    for (const tag of tags.slice(0, index)) await apply(tag);
    await db.execute(`insert into drizzle.__drizzle_migrations (hash, created_at)
      values ('before', ${journal.entries[index - 1]?.when})`);
    let isOver = false;
    let transactions = 0;
    const failures: unknown[] = [];
    // As services have it: they begin at jobs, and the migrations end there.
    const use = async (): Promise<void> => {
      while (!isOver) {
        await test.database
          .transaction(async (tx) => {
            await tx.execute("select id from jobs limit 1");
            await tx.execute("select pg_sleep(0.05)");
            await tx.execute("select run_id from step_metrics limit 1");
          })
          .catch((error: unknown) => failures.push(error));
        transactions += 1;
      }
    };
    const users = Array.from({ length: 4 }, use);
    await migrateDatabase(test.url).finally(() => (isOver = true));
    await Promise.all(users);
    expect(failures).toEqual([]);
    expect(transactions).toBeGreaterThan(3);
    const { rows } = await db.execute("select count(*)::int as count from drizzle.__drizzle_migrations");
    expect(rows).toEqual([{ count: journal.entries.length - index + 1 }]);
  });

  it("says so when somebody uses a table all the time, and leaves the database as it was", async () => {
    const { db } = test.database;
    // The first of them that are to come again needs every table of the log.
    const first = journal.entries[tags.indexOf("0029_log_for_earlier_versions")]?.when;
    await db.execute(`delete from drizzle.__drizzle_migrations where created_at >= ${first}`);
    const reader = new pg.Client({ connectionString: test.url });
    await reader.connect();
    await reader.query("begin");
    await reader.query("lock table step_metrics in access share mode");
    await expect(migrateDatabase(test.url, { forSeconds: 1 })).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("somebody uses its tables all the time") as string,
    });
    // Nobody waits behind it.
    expect((await db.execute("select count(*)::int as count from step_metrics")).rows).toEqual([
      { count: 0 },
    ]);
    await reader.end();
  });

  it("makes the steps of a job's log the rows that have their figures", async () => {
    const { db } = test.database;
    await db.execute("drop schema public cascade");
    await db.execute("create schema public");
    const index = tags.indexOf("0027_steps_once");
    for (const tag of tags.slice(0, index)) await apply(tag);
    const [job, run] = [randomUUID(), randomUUID()];
    await db.execute(`insert into jobs (id, name, spec, state, traceparent)
      values ('${job}', 'j', '{}', 'running', 't')`);
    await db.execute(`insert into runs (id, job_id, candidate) values ('${run}', '${job}', '{}')`);
    const at = "2026-11-28T10:00:00.000Z";
    const event = (id: number, type: string, data: unknown) =>
      db.execute(`insert into job_events (id, job_id, type, data)
        values (${id}, '${job}', '${type}', '${JSON.stringify(data)}')`);
    await event(11, "state", { to: "running" });
    await event(12, "step", { step: 1, attempt: 1, at });
    await event(13, "step", { step: 2, attempt: 1, at });
    await event(14, "log", { message: "a rank was lost" });
    await event(15, "step", { step: 2, attempt: 2, at });
    await db.execute("select setval('job_events_id_seq', 15)");
    for (const [step, attempt] of [
      [2, 2],
      [1, 1],
    ])
      await db.execute(`insert into step_metrics (run_id, step, attempt, loss, gradient_norm, learning_rate,
          step_time_seconds, tokens_per_second, exposed_communication_seconds, at)
        values ('${run}', ${step}, ${attempt}, 2.5, 1, 0.1, 1, 1, 0, now())`);
    for (const tag of tags.slice(index)) await apply(tag);
    const events = await listJobEvents(db, job);
    expect(events.map(({ id, type, data }) => [id, type, data["step"]])).toEqual([
      [11, "state", undefined],
      [12, "step", 1],
      [13, "step", 2],
      [14, "log", undefined],
      [15, "step", 2],
    ]);
    expect((await db.execute("select type from job_log order by id")).rows).toEqual(
      ["state", "replaced-step", "log"].map((type) => ({ type })),
    );
  });
});
