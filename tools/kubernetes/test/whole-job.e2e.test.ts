import { setTimeout as sleep } from "node:timers/promises";
import { executorSupervisor } from "@internevo/executor-supervisor";
import { jobSetName } from "@internevo/launcher/kubernetes";
import { planner } from "@internevo/planner";
import { profiler } from "@internevo/profiler";
import { listTrials, requestCancel } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import type { World } from "@internevo/test-kit/world";
import { trialRunner } from "@internevo/trial-runner";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { queue } from "../src/manifests.ts";
import { QUEUE, type KubernetesStand } from "../src/stand.ts";
import { progressOf, stepEvent, upTo } from "@internevo/test-kit/job-told";
import { CPUS, createJobWorld, NODES, type JobState, type JobWorld } from "./job-world.ts";

describe("a job on a Kubernetes cluster", () => {
  let jobs: JobWorld;
  let stand: KubernetesStand;
  let world: World;
  beforeAll(async () => {
    // A cluster is measured once: those that want to see it have one of their own.
    jobs = await createJobWorld({ cancelled: {}, restarted: {} });
    ({ stand, world } = jobs);
    for (const service of [profiler, planner, trialRunner, executorSupervisor])
      await world.start(service as typeof profiler, jobs.environment);
  }, 600_000);
  afterAll(() => jobs?.close());
  afterEach(async ({ task }) => {
    if (task.result?.state === "fail") console.error(stand.logs());
    await world.endJobs();
  });

  it("is profiled, planned, tried and trained, each of it as a JobSet of its own", async () => {
    const sentBefore = stand.sentBytes("n2");
    const id = await jobs.submit(
      { steps: 30, trials: { count: 10, warmupSteps: 1, steps: 2, repeats: 0 } },
      { memoryPerGpu: "512MiB", profile: undefined },
    );
    await world.untilState(id, "succeeded", 600);
    const trials = await listTrials(world.database.db, id);
    expect(trials.map(({ state }) => state)).toEqual(Array.from({ length: 10 }, () => "succeeded"));
    // What ranks tell each other crosses the nodes' links.
    expect(stand.sentBytes("n2") - sentBefore).toBeGreaterThan(10e6);
    const { steps, attempts } = await jobs.runOf(id);
    expect(steps.map(({ step }) => step)).toEqual(upTo(30));
    expect(attempts).toMatchObject([{ number: 1, state: "succeeded", resumedFromStep: 0 }]);
    await world.untilEvent(id, progressOf(/^internevo-[0-9a-f]{16} runs on n1, n2$/), 5);
    await jobs.nothingIsLeft();
  }, 900_000);

  it("is cancelled while it trains: pods and JobSet have gone", async () => {
    const id = await jobs.submit({ steps: 100_000 });
    await world.untilEvent(id, stepEvent(3), 120);
    expect(world.rankPids()).toHaveLength(NODES);
    expect((await jobs.jobSets()).map(({ metadata }) => metadata.name)).toEqual([
      expect.stringMatching(new RegExp(`^${jobSetName("[0-9a-f]{16}")}$`)),
    ]);
    expect(await world.database.transaction((tx) => requestCancel(tx, id))).toBe("cancelling");
    await world.untilState(id, "cancelled", 60);
    await world.untilNoRanks();
    expect((await jobs.runOf(id)).attempts).toMatchObject([{ state: "stopped" }]);
    await jobs.nothingIsLeft();
  }, 900_000);

  it.each<[stage: JobState, over: Record<string, unknown>, cluster: Record<string, unknown>]>([
    ["profiling", {}, { name: "cancelled", profile: undefined }],
    ["trialling", { trials: { count: 1, warmupSteps: 0, steps: 1000, repeats: 0 } }, {}],
  ])(
    "is cancelled in the stage %s: pods and JobSet have gone",
    async (stage, over, cluster) => {
      const id = await jobs.submit(over, cluster);
      await jobs.untilRanks(id, stage);
      expect(await world.database.transaction((tx) => requestCancel(tx, id))).toBe("cancelling");
      await world.untilState(id, "cancelled", 60);
      await world.untilNoRanks();
      await jobs.nothingIsLeft();
    },
    900_000,
  );

  it("is told why Kueue holds it back, and runs when it may", async () => {
    // Room for one job of two pods with a CPU each.
    await stand.apply(queue(QUEUE, NODES + 1));
    try {
      const first = await jobs.submit({ steps: 100_000 });
      await world.untilEvent(first, stepEvent(3), 120);
      const id = await jobs.submit({ steps: 5 });
      const held = / waits: in Kueue's queue ranks: what its queue may use is in use \(.*unused quota/;
      await world.untilEvent(id, progressOf(held), 60);
      expect(await jobs.pods()).toHaveLength(NODES);
      await world.database.transaction((tx) => requestCancel(tx, first));
      await world.untilState(first, "cancelled", 60);
      await world.untilState(id, "succeeded", 200);
    } finally {
      await stand.apply(queue(QUEUE, NODES * CPUS));
    }
    await jobs.nothingIsLeft();
  }, 900_000);

  it("trains on while the API server is started again", async () => {
    const id = await jobs.submit({ steps: 400 });
    await world.untilEvent(id, stepEvent(5), 120);
    const ranks = world.rankPids();
    await stand.killApi();
    const { steps } = await jobs.runOf(id);
    await world.untilEvent(id, stepEvent(steps.length + 10), 60);
    await stand.startApi();
    expect(world.rankPids()).toEqual(ranks);
    await world.untilState(id, "succeeded", 300);
    const run = await jobs.runOf(id);
    expect(run.steps.map(({ step }) => step)).toEqual(upTo(400));
    expect(run.attempts).toMatchObject([{ number: 1, state: "succeeded" }]);
    await jobs.nothingIsLeft();
  }, 900_000);

  it("is measured, tried and trained though the API server is started again in each stage", async () => {
    const id = await jobs.submit(
      { steps: 200, trials: { count: 1, warmupSteps: 0, steps: 200, repeats: 0 } },
      { name: "restarted", memoryPerGpu: "512MiB", profile: undefined },
    );
    for (const stage of ["profiling", "trialling", "running"] as const) {
      await jobs.untilRanks(id, stage);
      await stand.killApi();
      // Watches and questions meet nobody.
      await sleep(2000);
      await stand.startApi();
    }
    await world.untilState(id, "succeeded", 300);
    const { steps, attempts } = await jobs.runOf(id);
    expect(steps.map(({ step }) => step)).toEqual(upTo(200));
    expect(attempts).toMatchObject([{ number: 1, state: "succeeded" }]);
    expect(await listTrials(world.database.db, id)).toMatchObject([{ state: "succeeded" }]);
    await jobs.nothingIsLeft();
  }, 900_000);

  it("goes on from its checkpoint when a node is lost while it trains", async () => {
    const id = await jobs.submit({ steps: 600, checkpointing: { everySteps: 20, keepLast: 2 } });
    await world.untilEvent(id, stepEvent(45), 120);
    await stand.killNode("n2");
    await eventually(
      "Kubernetes has found out that the node is lost",
      async () => world.rankPids().length === 0,
      120,
    );
    stand.startNode("n2");
    await world.untilState(id, "succeeded", 400);
    const { steps, attempts } = await jobs.runOf(id);
    expect(steps.map(({ step }) => step)).toEqual(upTo(600));
    expect(attempts.at(0)).toMatchObject({ state: "failed" });
    expect(attempts.at(-1)?.resumedFromStep).toBeGreaterThanOrEqual(40);
    await jobs.nothingIsLeft();
  }, 900_000);
});
