import type { JobStreamEvent } from "@internevo/contracts";
import { listTrials, requestCancel } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import type { ServiceProcess, World } from "@internevo/test-kit/world";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { KubernetesStand } from "../src/stand.ts";
import { progressOf, stepEvent, upTo } from "@internevo/test-kit/job-told";
import { createJobWorld, NODES, WrittenJobSets, type JobState, type JobWorld } from "./job-world.ts";

const SERVICES = ["profiler", "planner", "trial-runner", "executor-supervisor"] as const;
/** A job that is measured, and tried and trained for so long that somebody can be killed meanwhile. */
const LONG = { steps: 200, trials: { count: 1, warmupSteps: 0, steps: 200, repeats: 0 } };
/** Each is measured once: what is known of one is of no use for another. */
const CLUSTERS = ["first", "second", "third"] as const;
const measured = (name: (typeof CLUSTERS)[number]) => ({ name, memoryPerGpu: "512MiB", profile: undefined });
/** The trainer's own memory, the probe, a trial and an attempt to train. */
const LAUNCHES = 4;

describe("a job on Kubernetes whose services are killed", () => {
  let jobs: JobWorld;
  let stand: KubernetesStand;
  let world: World;
  let written: WrittenJobSets;
  let services: Map<string, ServiceProcess>;
  beforeAll(async () => {
    jobs = await createJobWorld(Object.fromEntries(CLUSTERS.map((name) => [name, {}])));
    ({ stand, world } = jobs);
  }, 600_000);
  afterAll(() => jobs?.close());
  beforeEach(() => {
    services = new Map();
    written = new WrittenJobSets(jobs);
  });
  afterEach(async ({ task }) => {
    if (task.result?.state === "fail") console.error(stand.logs());
    written.close();
    // A test that fails may have left it away.
    await stand.core.listNamespace().catch(() => stand.startApi());
    for (const name of SERVICES) if (!services.has(name)) await start(name);
    await world.endJobs();
    for (const service of services.values()) await service.kill();
  });

  async function start(name: string): Promise<void> {
    services.set(name, await jobs.startProcess(name));
  }
  async function restart(name: string): Promise<void> {
    await services.get(name)?.kill();
    await start(name);
  }
  const isAway =
    (stage: JobState) =>
    (event: JobStreamEvent): boolean =>
      event.data["stage"] === stage &&
      progressOf(/Kubernetes does not answer .*; the job is submitted when it does/)(event);
  /** Each launch was written once, and the job is trained by its first attempt. */
  async function untilTrainedOnce(id: string): Promise<void> {
    await world.untilState(id, "succeeded", 300);
    const { steps, attempts } = await jobs.runOf(id);
    expect(steps.map(({ step }) => step)).toEqual(upTo(LONG.steps));
    expect(attempts).toMatchObject([{ number: 1, state: "succeeded", resumedFromStep: 0 }]);
    expect(await listTrials(world.database.db, id)).toMatchObject([{ state: "succeeded" }]);
    expect(written.labels).toHaveLength(LAUNCHES);
    await jobs.nothingIsLeft();
  }

  it("goes on with the same JobSet in each stage", async () => {
    for (const name of SERVICES) await start(name);
    const id = await jobs.submit(LONG, measured("first"));
    for (const [stage, name] of [
      ["profiling", "profiler"],
      ["trialling", "trial-runner"],
      ["running", "executor-supervisor"],
    ] as const) {
      await jobs.untilRanks(id, stage);
      await restart(name);
    }
    await untilTrainedOnce(id);
  }, 900_000);

  it("begins each stage when the API server is back", async () => {
    await stand.killApi();
    const id = await jobs.submit(LONG, measured("second"));
    await start("profiler");
    await world.untilEvent(id, isAway("profiling"), 60);
    await stand.startApi();
    await world.untilState(id, "planning", 200);
    await jobs.nothingIsLeft();
    await start("planner");
    for (const [stage, service] of [
      ["trialling", "trial-runner"],
      ["running", "executor-supervisor"],
    ] as const) {
      await world.untilState(id, stage, 200);
      await jobs.nothingIsLeft();
      await stand.killApi();
      await start(service);
      await world.untilEvent(id, isAway(stage), 60);
      await stand.startApi();
    }
    await untilTrainedOnce(id);
  }, 900_000);

  it("is cancelled while nobody looks after it: the next supervisor ends its ranks", async () => {
    for (const name of SERVICES) await start(name);
    const id = await jobs.submit({ steps: 100_000 });
    await world.untilEvent(id, stepEvent(3), 120);
    expect(world.rankPids()).toHaveLength(NODES);
    await services.get("executor-supervisor")?.kill();
    // While the dead supervisor's lease lives, it counts as alive.
    await eventually(
      "it is cancelled",
      async () => (await world.database.transaction((tx) => requestCancel(tx, id))) === "cancelled",
      60,
    );
    await start("executor-supervisor");
    await world.untilNoRanks(60);
    await jobs.nothingIsLeft();
  }, 900_000);

  it("is cancelled while it is planned, and launches nothing more", async () => {
    await start("profiler");
    const id = await jobs.submit(LONG, measured("third"));
    await world.untilState(id, "planning", 200);
    await jobs.nothingIsLeft();
    const before = written.labels;
    expect(await world.database.transaction((tx) => requestCancel(tx, id))).toBe("cancelled");
    for (const name of SERVICES) if (!services.has(name)) await start(name);
    // Another job, of which they take note later than of the first.
    const next = await jobs.submit({ steps: 5 });
    await world.untilState(next, "succeeded", 200);
    expect((await world.job(id)).state).toBe("cancelled");
    // A trial and an attempt of the other one.
    expect(written.labels).toHaveLength(before.length + 2);
    await jobs.nothingIsLeft();
  }, 900_000);

  it("is cancelled while the planner searches", async () => {
    for (const name of SERVICES) await start(name);
    const id = await jobs.submit(
      {
        model: {
          name: "large",
          hiddenSize: 8192,
          layers: 80,
          heads: 64,
          kvHeads: 8,
          ffnHiddenSize: 28_672,
          vocabularySize: 128_256,
        },
        sequenceLengthTokens: 4096,
        globalBatchTokens: 4096 * 4096,
        precision: "bf16",
      },
      { nodes: 512, gpusPerNode: 8, memoryPerGpu: "80GB" },
    );
    await world.untilState(id, "planning", 60);
    expect(await world.database.transaction((tx) => requestCancel(tx, id))).toMatch(/^cancel/);
    await world.untilState(id, "cancelled", 60);
    expect(written.labels).toEqual([]);
  }, 300_000);
});
