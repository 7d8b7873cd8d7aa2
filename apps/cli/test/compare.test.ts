import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { resolveJob } from "@internevo/domain";
import { ensureRun, recordSteps, startAttempt, submitJob, updateJob } from "@internevo/store";
import { aJob } from "@internevo/test-kit";
import { exampleCandidate } from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
import { cliIn, type Said } from "./in-process.ts";
import { startApiProcess, type ApiProcess } from "./processes.ts";

let database: TestDatabase;
let api: ApiProcess;
let directory: string;
let internevo: (...args: string[]) => Promise<Said>;
const ids: string[] = [];

async function trained(name: string, over: Record<string, unknown>, loss: number): Promise<string> {
  return database.database.transaction(async (tx) => {
    const spec = { ...resolveJob(aJob({ name, ...over })), project: "default" };
    const id = await submitJob(tx, spec);
    await updateJob(tx, id, { chosen: exampleCandidate() });
    const run = await ensureRun(tx, id, exampleCandidate());
    await startAttempt(tx, run.id);
    const figures = {
      gradientNorm: 1,
      learningRate: 1e-3,
      stepTimeSeconds: 0.25,
      tokensPerSecond: 2048,
      exposedCommunicationSeconds: 0,
      attempt: 1,
      at: new Date().toISOString(),
    };
    const steps = Array.from({ length: 20 }, (_, index) => ({ ...figures, step: index + 1, loss }));
    await recordSteps(tx, { jobId: id, runId: run.id }, steps);
    return id;
  });
}

beforeAll(async () => {
  database = await createTestDatabase();
  directory = await mkdtemp(join(tmpdir(), "internevo-compare-"));
  api = await startApiProcess(database, { INTERNEVO_DATA_DIRECTORY: directory });
  internevo = cliIn({ INTERNEVO_URL: api.url, INTERNEVO_TOKEN: api.token });
  ids.push(await trained("slow", { steps: 20 }, 3), await trained("fast", { steps: 20, seed: 7 }, 2));
}, 120_000);
afterAll(async () => {
  await api.stop();
  await database.drop();
  await rm(directory, { recursive: true });
});

it("compares jobs by what differs", async () => {
  const said = await internevo("compare", "slow", "fast");
  expect(said.stderr).toBe("");
  expect(said.stdout).toMatch(/^JOB FILE +\S+ +\S+\nseed +0 +7$/m);
  expect(said.stdout).toMatch(/^Step time +250\.0 ms +250\.0 ms$/m);
  expect(said.stdout).toMatch(/^Loss at the end +3\.0000 nats +2\.0000 nats$/m);
  expect(said.stdout).toMatch(/^20 +3\.0000 +2\.0000$/m);
  expect(said.stdout).toContain("alike: plan, cluster, profile");
  expect(JSON.parse((await internevo("compare", ...ids, "--json")).stdout)).toMatchObject({
    jobs: [{ id: ids[0] }, { id: ids[1] }],
    file: [{ field: "seed", values: [0, 7] }],
  });
  expect((await internevo("compare", "slow")).stderr).toContain("name 2 to 8 jobs");
  expect((await internevo("compare", "slow", "nothing")).status).toBe(4);
});

it("lists what a job leaves, and downloads it", async () => {
  const checkpoint = join(directory, "jobs", ids[0] ?? "", "checkpoints", "step-20");
  expect((await internevo("artifacts", "slow")).stderr).toContain("not listed are files of its ranks");
  await mkdir(checkpoint, { recursive: true });
  await writeFile(join(checkpoint, "manifest.json"), "{}");
  const list = await internevo("artifacts", "slow");
  expect(list.stdout).toMatch(/^NAME +KIND +SIZE +MODIFIED\n/);
  expect(list.stdout).toMatch(/^checkpoint-step-20\.tar +checkpoint +2\.50 KiB /m);
  const csv = join(directory, "steps.csv");
  expect((await internevo("artifacts", "get", "slow", "steps.csv", "--out", csv)).stderr).toContain(
    `written: ${csv}`,
  );
  expect((await readFile(csv, "utf8")).split("\r\n")).toHaveLength(22);
  expect((await internevo("artifacts", "get", "slow", "steps.csv", "--out", csv)).stderr).toContain(
    "exists already",
  );
  const tar = await internevo(
    ...["artifacts", "get", "slow", "checkpoint-step-20.tar", "--out", directory, "--json"],
  );
  const { written } = JSON.parse(tar.stdout) as { written: string };
  expect(execFileSync("tar", ["-tf", written], { encoding: "utf8" })).toBe(
    "step-20/\nstep-20/manifest.json\n",
  );
  const none = await internevo("artifacts", "get", "slow", "step.csv", "--out", join(directory, "x"));
  expect([none.status, none.stderr.includes("did you mean steps.csv")]).toEqual([4, true]);
});
