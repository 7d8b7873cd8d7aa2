import { acquireLease, beginRetentionRun, endRetentionRun } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { storedRun } from "@internevo/test-kit/stored-run";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
import { run, startApiProcess, type ApiProcess, type Ended } from "./processes.ts";

let database: TestDatabase;
let api: ApiProcess;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startApiProcess(database);
});
afterAll(async () => {
  await api.stop();
  await database.drop();
});

const internevo = (...args: string[]): Promise<Ended> =>
  run(["retention", ...args], { INTERNEVO_URL: api.url, INTERNEVO_TOKEN: api.token });

it("shows the settings of retention, changes them, and tries others", async () => {
  const shown = await internevo();
  expect(shown.stdout).toMatch(/^KIND +KEPT\s+REMOVED LAST|^KIND +KEPT *\n/);
  expect(shown.stdout).toMatch(/\ncheckpoints +for ever/);
  expect(shown.stderr).toBe("nothing was removed yet\n");
  const set = await internevo("set", "--checkpoints", "90d", "--steps", "1");
  expect(set.stdout).toMatch(/\ncheckpoints +90 days after the job's end *\n/);
  expect(set.stdout).toMatch(/\nsteps and validation losses +1 day after the job's end *\n/);
  expect(JSON.parse((await internevo("set", "--steps", "forever", "--json")).stdout)).toMatchObject({
    settings: { checkpoints: 90, steps: null },
    lastRun: null,
  });
  const refused = await internevo("set", "--logs", "12h");
  expect([refused.status, refused.stderr]).toEqual([
    2,
    expect.stringContaining("give days from 1 to 3650, such as 90d, or forever."),
  ]);

  const stored = await storedRun(database.database, "old");
  await stored.step(1, 8);
  await stored.end("failed");
  await database.database.db.execute(`update jobs set ended_at = now() - interval '40 days'`);
  const preview = await internevo("preview", "--steps", "30");
  expect(preview.stdout).toMatch(
    /\nsteps and validation losses +30 days after the job's end +7 rows of 1 job *\n/,
  );
  expect(preview.stdout).toMatch(
    new RegExp(`\n${stored.jobId.slice(0, 8)} +old +default +\\S+ \\S+ \\S+ +steps: 7 rows *\n`),
  );
  expect((await internevo("keep", "old")).stdout).toBe("old is exempt from retention\n");
  expect(JSON.parse((await internevo("preview", "--steps", "30", "--json")).stdout)).toMatchObject({
    items: [],
  });
  expect((await internevo("keep", "old", "--off")).stdout).toBe("old is exempt from retention no more\n");
});

it("asks for a run, which waits for a replanner", async () => {
  await internevo("set", "--checkpoints", "forever", "--steps", "forever");
  const nothing = await internevo("run", "--no-wait");
  expect([nothing.status, nothing.stderr]).toEqual([
    7,
    expect.stringContaining("everything is kept for ever"),
  ]);
  expect(nothing.stderr).toContain("for example `internevo retention set --checkpoints 90d`\n");
  await internevo("set", "--logs", "30");
  const asked = await internevo("run", "--no-wait");
  expect([asked.status, asked.stderr]).toEqual([
    0,
    expect.stringMatching(/^a run waits for a replanner since /),
  ]);
  expect((await internevo()).stderr).toMatch(/^a run waits for a replanner since .*, for /);
});

it("waits for a run, and says what it removed and what it left", async () => {
  const { database: store } = database;
  const { db } = store;
  const requests = async (): Promise<number> =>
    (await db.execute("select from audit_log where action like 'POST %/retention/run' and status = 202")).rows
      .length;
  const before = await requests();
  const asked = internevo("run");
  await eventually("the command's request", async () => (await requests()) > before);
  const fence = await acquireLease(db, "maintenance:retention", "test", 60);
  if (!fence) throw new Error("the lease is another's");
  const runId = await store.transaction((tx) => beginRetentionRun(tx, fence));
  await db.execute(
    `insert into retention_removals (job_id, kind, days, files, bytes, rows, run_id, completed_at)
      select id, 'logs', 30, 0, 0, 7, ${runId}, now() from jobs limit 1`,
  );
  await store.transaction((tx) => endRetentionRun(tx, fence, runId, ["files are left: here"]));
  const { status, stdout, stderr } = await asked;
  expect([status, stdout]).toEqual([0, "removed log lines and progress of 1 job: 7 rows\n"]);
  expect(stderr).toMatch(/^last ran .*, for .*\nfiles are left: here\n$/);
});
