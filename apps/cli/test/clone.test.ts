import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { JobDetail } from "@internevo/contracts";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
import { parse } from "yaml";
import { cliIn, type Said } from "./in-process.ts";
import { startApiProcess, type ApiProcess } from "./processes.ts";

let database: TestDatabase;
let api: ApiProcess;
let directory: string;
let internevo: (...args: string[]) => Promise<Said>;
let job: JobDetail;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startApiProcess(database);
  directory = await mkdtemp(join(tmpdir(), "internevo-clone-"));
  internevo = cliIn({ INTERNEVO_URL: api.url, INTERNEVO_TOKEN: api.token });
  await mkdir(join(directory, "data"));
  await writeFile(join(directory, "data", "text.txt"), "It was a bright cold day in April. ".repeat(100));
  await writeFile(
    join(directory, "job.yaml"),
    `
name: small
model: { name: tiny, hiddenSize: 64, layers: 2, heads: 4, vocabularySize: 256 }
sequenceLengthTokens: 128
globalBatchTokens: 512
precision: fp32
steps: 100
data: { format: text, paths: [data/text.txt] }
cluster: { name: here, nodes: 1, gpusPerNode: 2, memoryPerGpu: 1GiB }
`,
  );
  job = JSON.parse((await internevo("submit", join(directory, "job.yaml"), "--json")).stdout) as JobDetail;
}, 120_000);
afterAll(async () => {
  await api.stop();
  await database.drop();
  await rm(directory, { recursive: true });
});

it("submits a job again, changed", async () => {
  const said = await internevo(
    ...["clone", "small", "--set", "steps=2000", "--set", "optimizer.peakLearningRate=1e-4"],
    ...["--name", "longer", "--json"],
  );
  const clone = JSON.parse(said.stdout) as JobDetail;
  expect(clone.id).not.toBe(job.id);
  expect(clone.spec).toMatchObject({
    name: "longer",
    steps: 2000,
    optimizer: { peakLearningRate: 1e-4, minLearningRate: 1e-5, decaySteps: 2000 },
    checkpointing: { everySteps: 200 },
    data: job.spec.data,
  });
  const same = JSON.parse((await internevo("clone", job.id, "--json")).stdout) as JobDetail;
  expect(same.spec).toEqual(job.spec);
});

it("does not measure again what was measured for the job", async () => {
  const file = join(directory, "job.yaml");
  const said = await internevo("submit", file, "--measure-again", "--json");
  const first = JSON.parse(said.stdout) as JobDetail;
  expect(first.spec.measureAgain).toBe(true);
  const clone = JSON.parse((await internevo("clone", first.id, "--json")).stdout) as JobDetail;
  expect(clone.spec).not.toHaveProperty("measureAgain");
  const again = await internevo("clone", first.id, "--set", "measureAgain=true", "--json");
  expect((JSON.parse(again.stdout) as JobDetail).spec.measureAgain).toBe(true);
});

it("changes one field of checkpointing, which the file left out", async () => {
  const said = await internevo("clone", job.id, "--set", "checkpointing.everySteps=40", "--json");
  expect([said.status, said.stderr]).toEqual([0, expect.not.stringContaining("checkpointing")]);
  expect((JSON.parse(said.stdout) as JobDetail).spec.checkpointing).toEqual({ everySteps: 40, keepLast: 2 });
});

it("writes the file, which can be submitted, and submits nothing", async () => {
  const path = join(directory, "new", "longer.yaml");
  const jobs = async (): Promise<number> =>
    (JSON.parse((await internevo("ps", "--json")).stdout) as unknown[]).length;
  const before = await jobs();
  const said = await internevo("clone", job.id, "--set", "steps=300", "--out", path);
  expect(said).toEqual({ status: 0, stdout: "", stderr: `written: ${path}\n` });
  expect(await jobs()).toBe(before);
  const file = parse(await readFile(path, "utf8")) as Record<string, unknown>;
  expect(file).toMatchObject({ name: "small", steps: 300 });
  expect((await internevo("submit", path)).status).toBe(0);
  expect((await internevo("clone", job.id, "--out", path)).stderr).toContain("exists already");
  expect(parse((await internevo("clone", job.id, "--out", "-")).stdout)).toMatchObject({ steps: 100 });
});

it("refuses what makes no job, with field and remedy", async () => {
  const said = await internevo("clone", job.id, "--set", "optimizer.learningRate=1e-4", "--out", "-");
  expect([said.status, said.stdout]).toEqual([2, ""]);
  expect(said.stderr).toContain("optimizer.learningRate");
  expect((await internevo("clone", job.id, "--set", "steps=0")).stderr).toContain("steps");
  expect((await internevo("clone", "nothing")).status).toBe(4);
  for (const [change, meant] of [
    ["nam=x", "name"],
    ["stesp=60", "steps"],
    ["trials.cuont=60", "count"],
    ["optimizer.lr=1e-4", "peakLearningRate"],
    ["seqLength=1", "sequenceLengthTokens"],
  ] as const)
    expect((await internevo("clone", job.id, "--set", change)).stderr).toContain(`did you mean \`${meant}\``);
});
