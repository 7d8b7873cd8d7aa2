import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { waitsForMachine } from "@internevo/contracts";
import { dataFiles, resolveJob, type Candidate, type JobSpec } from "@internevo/domain";
import { assertMayBeData, dataRootsOf } from "@internevo/data";
import { lockMachine } from "@internevo/launcher";
import { planJob } from "@internevo/search";
import { checkpointDirectory } from "@internevo/stages";
import {
  createProject,
  createTrials,
  requestCancel,
  resumeJob,
  submitJob,
  transitionJob,
  updateJob,
} from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { writeOwn } from "@internevo/test-kit/data-writers";
import { writeWeights } from "@internevo/test-kit/weights";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { checkpointSteps } from "../src/checkpoints.ts";

let world: World;
let directory: string;
beforeEach(async () => {
  world = await createWorld();
  directory = mkdtempSync(join(tmpdir(), "internevo-roots-"));
  mkdirSync(join(directory, "allowed"));
});
afterEach(async () => {
  await world.close();
  rmSync(directory, { recursive: true });
});

/** A job that stands before its trials, or before its training. */
async function standing(spec: JobSpec, before: "trialling" | "running", weightsOf?: string): Promise<string> {
  const { runnableCandidates } = planJob(
    { ...spec, cluster: { ...spec.cluster, memoryPerGpuBytes: 1e12 } },
    world.profile,
    { top: 2 },
  );
  return world.database.transaction(async (tx) => {
    const id = await submitJob(tx, spec, { weightsOf });
    await transitionJob(tx, { jobId: id, from: "profiling", to: "planning" });
    await createTrials(tx, id, runnableCandidates);
    await transitionJob(tx, { jobId: id, from: "planning", to: "trialling" });
    if (before === "running") {
      await updateJob(tx, id, { chosen: runnableCandidates[0] as Candidate });
      await transitionJob(tx, { jobId: id, from: "trialling", to: "running" });
    }
    return id;
  });
}

it.each([
  ["trial-runner", "trialling", "running"],
  ["executor-supervisor", "running", "succeeded"],
] as const)(
  "%s refuses data that a link leads out of the roots after submission",
  async (worker, before, after) => {
    const allowed = join(directory, "allowed");
    const roots = { INTERNEVO_DATA_ROOTS: allowed };
    const text = readFileSync("/usr/share/common-licenses/GPL-3");
    const specOf = (name: string): JobSpec => {
      writeFileSync(join(allowed, name), text);
      return resolveJob(smallJob({ steps: 5, data: { format: "text", paths: [join(allowed, name)] } }));
    };
    const [honest, swapped] = [specOf("honest.txt"), specOf("swapped.txt")];
    // What submission looks at, which is content with both.
    for (const { data } of [honest, swapped])
      await assertMayBeData(data ? dataFiles(data) : [], { roots: dataRootsOf(allowed), own: undefined });
    const id = await standing(swapped, before);
    // Where it leads there is data that can be trained on: only the roots speak against it.
    renameSync(join(allowed, "swapped.txt"), join(directory, "private.txt"));
    symlinkSync(join(directory, "private.txt"), join(allowed, "swapped.txt"));

    const process = await world.startProcess(worker, roots);
    await world.untilState(id, "failed", 60);
    expect((await world.job(id)).failure).toMatchObject({
      code: "data-invalid",
      message: expect.stringContaining(
        `${join(allowed, "swapped.txt")} is not below a folder that this installation reads data and weights from`,
      ) as string,
      remedy: expect.stringContaining(allowed) as string,
    });
    expect(world.rankPids()).toEqual([]);
    // The same worker runs what stays below the roots.
    await world.untilState(await standing(honest, before), after, 120);

    await world.endJobs();

    // And it is the roots that refuse: without them the same link is followed.
    await process.kill();
    await world.startProcess(worker);
    await world.untilState(await standing(swapped, before), after, 120);
  },
);

it("a stage refuses data that a link leads into the installation's own directory after submission", async () => {
  const path = join(directory, "swapped.txt");
  writeFileSync(path, readFileSync("/usr/share/common-licenses/GPL-3"));
  const id = await standing(
    resolveJob(smallJob({ steps: 5, data: { format: "text", paths: [path] } })),
    "running",
  );
  writeFileSync(join(world.dataDirectory, "secrets.json"), readFileSync(path));
  rmSync(path);
  symlinkSync(join(world.dataDirectory, "secrets.json"), path);
  await world.startProcess("executor-supervisor");
  await world.untilState(id, "failed", 60);
  expect((await world.job(id)).failure).toMatchObject({
    code: "data-invalid",
    message: expect.stringContaining("lies in the data directory of the installation") as string,
  });
  expect(world.rankPids()).toEqual([]);
});

it("no ranks begin on data that a link leads elsewhere after it was read", async () => {
  const documents = Array.from({ length: 100 }, (_, at) => Array.from({ length: 80 }, () => at));
  const path = await writeOwn(join(directory, "real.tokens"), documents);
  const id = await standing(resolveJob(smallJob({ steps: 5, data: { format: "tokens", path } })), "running");
  // Another installation measures on this machine: the job has read its data, and waits.
  const other = await lockMachine({
    directory: world.dataDirectory,
    dataDirectory: join(directory, "other installation"),
    use: "measure",
    signal: new AbortController().signal,
    onWait: () => expect.unreachable("the machine is free"),
    onNotice: () => {},
    onDetails: () => {},
  });
  try {
    await world.startProcess("executor-supervisor");
    const waits = waitsForMachine("");
    await world.untilEvent(
      id,
      ({ type, data }) => type === "progress" && String(data["message"]).startsWith(waits),
      60,
    );
    renameSync(path, join(directory, "moved.tokens"));
    symlinkSync(join(directory, "moved.tokens"), path);
  } finally {
    other.release();
  }
  await world.untilState(id, "failed", 60);
  expect((await world.job(id)).failure).toMatchObject({
    code: "data-invalid",
    message: `${path} does not lead any more to the file that was read`,
  });
  expect(await world.lossesOf(id)).toEqual([]);
});

/** Of the model of smallJob. */
const CONFIG = JSON.stringify({
  model_type: "llama",
  hidden_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  intermediate_size: 128,
  vocab_size: 256,
  rms_norm_eps: 1e-5,
});

describe("weights of another project's job", () => {
  /** A job whose files hold weights, in which project. */
  async function weightsOf(project: string): Promise<{ readonly id: string; readonly path: string }> {
    const spec = resolveJob(smallJob({ steps: 5, project }));
    const id = await world.database.transaction((tx) => submitJob(tx, spec));
    await world.database.transaction((tx) =>
      transitionJob(tx, { jobId: id, from: "profiling", to: "failed" }),
    );
    const path = join(world.dataDirectory, "jobs", id, "exports", "hf");
    mkdirSync(path, { recursive: true });
    writeFileSync(join(path, "config.json"), CONFIG);
    await writeWeights(path, spec.model);
    return { id, path };
  }

  it.each([
    ["trial-runner", "trialling", "running", false],
    ["executor-supervisor", "running", "succeeded", false],
    ["executor-supervisor", "running", "succeeded", true],
  ] as const)(
    "%s (%s to %s, some folders only: %s) refuses them behind a link, unless submission allowed that job's",
    async (worker, before, after, hasRoots) => {
      await world.database.transaction((tx) => createProject(tx, { name: "theirs" }));
      const theirs = await weightsOf("theirs");
      const own = await weightsOf("default");
      const text = join(directory, "allowed", "text.txt");
      writeFileSync(text, readFileSync("/usr/share/common-licenses/GPL-3"));
      const link = join(directory, "allowed", "weights");
      symlinkSync(theirs.path, link);
      const spec = resolveJob(
        smallJob({ steps: 5, data: { format: "text", paths: [text] }, initialWeights: link }),
      );
      const roots = hasRoots ? { INTERNEVO_DATA_ROOTS: join(directory, "allowed") } : {};
      await world.startProcess(worker, roots);

      for (const allowed of [undefined, own.id]) {
        const id = await standing(spec, before, allowed);
        await world.untilState(id, "failed", 60);
        expect((await world.job(id)).failure).toMatchObject({
          code: "data-invalid",
          message: expect.stringContaining(
            `${link} is no checkpoint of a job of the project default`,
          ) as string,
          remedy: expect.stringContaining("links are followed first") as string,
        });
      }
      expect(world.rankPids()).toEqual([]);

      // The token that submitted it saw that project too.
      await world.untilState(await standing(spec, before, theirs.id), after, 120);
      await world.endJobs();
      rmSync(link);
      symlinkSync(own.path, link);
      await world.untilState(await standing(spec, before), after, 120);
      await world.endJobs();

      // A folder of one's own, whose tensors are theirs.
      rmSync(link);
      mkdirSync(link);
      for (const name of ["config.json", "model.safetensors"])
        symlinkSync(join(name === "config.json" ? own.path : theirs.path, name), join(link, name));
      const linked = await standing(spec, before);
      await world.untilState(linked, "failed", 60);
      expect((await world.job(linked)).failure?.code).toBe("data-invalid");
    },
  );
});

it("a job goes on from its checkpoint where the weights that it began with are gone", async () => {
  const text = join(directory, "allowed", "text.txt");
  writeFileSync(text, readFileSync("/usr/share/common-licenses/GPL-3"));
  const weights = join(directory, "weights");
  mkdirSync(weights);
  const spec = resolveJob(
    smallJob({
      steps: 3000,
      data: { format: "text", paths: [text] },
      initialWeights: weights,
      checkpointing: { everySteps: 100, keepLast: 2 },
    }),
  );
  writeFileSync(join(weights, "config.json"), CONFIG);
  await writeWeights(weights, spec.model);
  await world.startProcess("executor-supervisor");
  const id = await standing(spec, "running");
  const steps = () => checkpointSteps(checkpointDirectory(world.dataDirectory, id));
  await eventually("a checkpoint", async () => (await steps()).length > 0, 120);
  await world.untilEvent(id, ({ type, data }) => type === "step" && (data["step"] as number) >= 200, 120);
  await world.database.transaction((tx) => requestCancel(tx, id));
  await world.untilState(id, "cancelled", 60);
  rmSync(weights, { recursive: true });
  expect(await world.database.transaction((tx) => resumeJob(tx, id))).toMatchObject({ outcome: "resumed" });
  await eventually("the end", async () => (await world.job(id)).state !== "running", 240);
  expect(await world.job(id)).toMatchObject({ state: "succeeded", failure: null });
});
