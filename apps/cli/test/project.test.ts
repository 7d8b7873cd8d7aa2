import { claimHosts, jobLease, newTraceparent, submitJob } from "@internevo/store";
import { exampleSpec } from "@internevo/test-kit/fixtures";
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

const internevo = (...args: string[]): Promise<Ended> => as(api.token, ...args);
const as = (token: string, ...args: string[]): Promise<Ended> =>
  run(args, { INTERNEVO_URL: api.url, INTERNEVO_TOKEN: token });

it("creates a project with quotas, changes and deletes it", async () => {
  const made = await internevo("project", "create", "nlp", "--max-gpus", "8", "--description", "Texts");
  expect(made.stdout).toBe("project nlp: 8 GPUs at once, any number of GPU-hours, weight 1\n");
  const set = await internevo(
    "project",
    "set",
    "nlp",
    "--max-gpus",
    "none",
    "--gpu-hours-per-month",
    "1500",
    "--weight",
    "2.5",
  );
  expect(set.stderr).toBe("");
  expect(set.stdout).toBe("project nlp: any number of GPUs, 1,500 GPU-hours a month, weight 2.5\n");
  const list = await internevo("project");
  expect(list.stdout).toMatch(/^NAME +GPUS IN USE +GPU-HOURS THIS MONTH +WEIGHT +DESCRIPTION\n/);
  expect(list.stdout).toMatch(/\nnlp +0 +0 of 1,500 +2.5 +Texts\n/);
  expect((await internevo("project", "set", "nlp", "--max-gpus", "many")).stderr).toMatch(/integer from 0/);
  expect((await internevo("project", "set", "nlp", "--weight", "0")).stderr).toMatch(/from 0.01/);
  await internevo("project", "create", "vision");
  expect((await internevo("project", "delete", "vision")).stdout).toBe("project vision is deleted\n");
  const unknown = await internevo("project", "set", "vision", "--max-gpus", "1");
  expect(unknown.status).toBe(4);
  expect(unknown.stderr).toContain("there is no project vision");
});

it("shows the settings of the queue, and changes them", async () => {
  expect((await internevo("queue")).stdout).toBe(
    "usage counts half for the fair share after 168 hours; who has waited for 336 hours goes first; a preemptible job gives way after 10 min at the earliest\n",
  );
  expect((await internevo("queue", "set", "--half-life", "2d")).stdout).toMatch(
    /after 48 hours; .* 336 hours/,
  );
  expect(JSON.parse((await internevo("queue", "set", "--patience", "12h", "--json")).stdout)).toMatchObject({
    halfLifeHours: 48,
    patienceHours: 12,
  });
  expect((await internevo("queue", "set", "--least-run", "90s")).stdout).toMatch(/after 1 min 30 s at/);
  expect((await internevo("queue", "set", "--least-run", "30m")).stdout).toMatch(/after 30 min at /);
  expect((await internevo("queue", "set", "--least-run", "0")).stdout).toMatch(/gives way at once/);
  const refused = await internevo("queue", "set", "--patience", "1s");
  expect(refused.stderr).toContain("patienceHours");
});

it("makes tokens of a project, which see its jobs only, and sums what they used", async () => {
  const token = (
    await internevo("token", "create", "grace", "--role", "operator", "--project", "nlp")
  ).stdout.trim();
  expect((await as(token, "whoami")).stdout).toBe("grace operator in project nlp\n");
  expect((await internevo("token")).stdout).toMatch(/grace +token +operator +nlp /);
  await database.database.transaction(async (tx) => {
    for (const [minute, project] of ["default", "nlp"].entries()) {
      const spec = { ...exampleSpec(`of-${project}`), project };
      const jobId = await submitJob(tx, spec, { owner: "grace" });
      await claimHosts(tx, {
        owner: jobLease(jobId),
        hosts: [project],
        submittedAt: new Date(Date.UTC(2026, 0, 1, 0, minute)),
        command: { type: "job.profile", data: { jobId }, traceparent: newTraceparent() },
      });
    }
  });
  expect((await as(token, "ps")).stdout).not.toContain("of-default");
  expect((await internevo("ps", "--project", "nlp")).stdout).toMatch(/of-nlp .* nlp +grace/);
  const hidden = await as(token, "show", "of-default");
  expect([hidden.status, hidden.stderr]).toEqual([4, expect.stringContaining("there is no job of-default")]);
  // Members see what their project used since it was made.
  await database.database.db.execute("update projects set created_at = now() - interval '3 hours'");
  await database.database.db.execute("update host_holds set began_at = now() - interval '2 hours'");
  const usage = await internevo("usage", "--from", "1d", "--csv");
  const [head, ...rows] = usage.stdout.trim().split(/\r?\n/);
  expect(head).toBe("project,gpuHours,jobs");
  expect(rows.map((row) => row.replace(/,(\d+\.\d)\d*,/, ",$1,")).sort()).toEqual([
    expect.stringMatching(/^default,[\d.]+,1$/),
    expect.stringMatching(/^nlp,[\d.]+,1$/),
  ]);
  const own = await as(token, "usage", "--from", "1d");
  expect(own.stdout).toMatch(/^PROJECT +GPU-HOURS +JOBS *\nnlp +[\d.,]+ +1 +█{30}\n$/);
  expect(own.stderr).toMatch(/GPU-hours from .* to /);
});
