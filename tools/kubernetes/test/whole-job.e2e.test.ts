import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { executorSupervisor } from "@internevo/executor-supervisor";
import type { JobStreamEvent } from "@internevo/contracts";
import { jobSetName, type JobSetStatus, type Pod } from "@internevo/launcher/kubernetes";
import { planner } from "@internevo/planner";
import { profiler } from "@internevo/profiler";
import { allSteps, findRun, listAttempts, listTrials, requestCancel } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { trialRunner } from "@internevo/trial-runner";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { queue } from "../src/manifests.ts";
import { KubernetesStand, QUEUE } from "../src/stand.ts";

type JobState = Parameters<World["untilState"]>[1];

const NODES = 2;
const CPUS = 4;

const stepEvent =
  (least: number) =>
  (event: JobStreamEvent): boolean =>
    event.type === "step" && (event.data["step"] as number) >= least;
const progressOf =
  (words: RegExp) =>
  (event: JobStreamEvent): boolean =>
    event.type === "progress" && words.test(String(event.data["message"]));
const upTo = (steps: number): number[] => Array.from({ length: steps }, (_, index) => index + 1);

describe("a job on a Kubernetes cluster", () => {
  let stand: KubernetesStand;
  let world: World;
  let directory: string;
  let environment: Record<string, string>;
  beforeAll(async () => {
    stand = await KubernetesStand.start({ nodes: NODES, cpusPerNode: CPUS });
    world = await createWorld();
    directory = mkdtempSync(join(tmpdir(), "internevo-kubernetes-site-"));
    const clustersFile = join(directory, "clusters.json");
    // By this variable the test finds ranks again.
    const marked = { ...stand.settings, environment: { INTERNEVO_STACK_DIRECTORY: world.dataDirectory } };
    writeFileSync(clustersFile, JSON.stringify({ clusters: { site: { kubernetes: marked } } }));
    environment = { INTERNEVO_CLUSTERS: clustersFile };
    for (const service of [profiler, planner, trialRunner, executorSupervisor])
      await world.start(service as typeof profiler, environment);
  }, 600_000);
  afterAll(async () => {
    await world?.close();
    await stand?.stop();
    rmSync(directory, { recursive: true, force: true });
  });
  afterEach(async ({ task }) => {
    if (task.result?.state === "fail") console.error(stand.logs());
    await world.endJobs();
  });

  const jobSets = () => stand.list<JobSetStatus>("/apis/jobset.x-k8s.io/v1alpha2", "jobsets");
  const pods = () => stand.list<Pod>("/api/v1", "pods");
  const nothingIsLeft = (): Promise<unknown> =>
    eventually(
      "no JobSet and no pod is left",
      async () => (await jobSets()).length === 0 && (await pods()).length === 0,
      60,
      stand.logs.bind(stand),
    );
  /** A job whose plan is tried once, for a step, without measuring the cluster, unless `over` says otherwise. */
  const submit = (
    over: Record<string, unknown> = {},
    cluster: Record<string, unknown> = {},
  ): Promise<string> =>
    world.submit(
      smallJob({
        cluster: {
          name: "site",
          launcher: "kubernetes",
          nodes: NODES,
          gpusPerNode: 1,
          memoryPerGpu: "4GiB",
          profile: world.profileId,
          ...cluster,
        },
        trials: { count: 1, warmupSteps: 0, steps: 1, repeats: 0 },
        ...over,
      }),
    );
  /** Waits until ranks of a job run in a stage. */
  const untilRanks = async (id: string, stage: JobState): Promise<void> => {
    await world.untilState(id, stage, 200);
    await eventually(`ranks run while ${stage}`, () => world.rankPids().length >= NODES, 60, world.logs);
  };
  const runOf = async (jobId: string) => {
    const run = await findRun(world.database.db, jobId);
    if (!run) throw new Error("the job has no run");
    return {
      steps: await allSteps(world.database.db, run.id),
      attempts: await listAttempts(world.database.db, run.id),
    };
  };

  it("is profiled, planned, tried and trained, each of it as a JobSet of its own", async () => {
    const id = await submit(
      { steps: 30, trials: { count: 2, warmupSteps: 1, steps: 2, repeats: 0 } },
      { memoryPerGpu: "512MiB", profile: undefined },
    );
    await world.untilState(id, "succeeded", 300);
    expect(await listTrials(world.database.db, id)).toMatchObject([
      { state: "succeeded" },
      { state: "succeeded" },
    ]);
    const { steps, attempts } = await runOf(id);
    expect(steps.map(({ step }) => step)).toEqual(upTo(30));
    expect(attempts).toMatchObject([{ number: 1, state: "succeeded", resumedFromStep: 0 }]);
    await world.untilEvent(id, progressOf(/^internevo-[0-9a-f]{16} runs on n1, n2$/), 5);
    await nothingIsLeft();
  }, 900_000);

  it("is cancelled while it trains: pods and JobSet have gone", async () => {
    const id = await submit({ steps: 100_000 });
    await world.untilEvent(id, stepEvent(3), 120);
    expect(world.rankPids()).toHaveLength(NODES);
    expect((await jobSets()).map(({ metadata }) => metadata.name)).toEqual([
      expect.stringMatching(new RegExp(`^${jobSetName("[0-9a-f]{16}")}$`)),
    ]);
    expect(await world.database.transaction((tx) => requestCancel(tx, id))).toBe("cancelling");
    await world.untilState(id, "cancelled", 60);
    await world.untilNoRanks();
    expect((await runOf(id)).attempts).toMatchObject([{ state: "stopped" }]);
    await nothingIsLeft();
  }, 900_000);

  it.each<[stage: JobState, over: Record<string, unknown>, cluster: Record<string, unknown>]>([
    ["profiling", {}, { profile: undefined }],
    ["trialling", { trials: { count: 1, warmupSteps: 0, steps: 1000, repeats: 0 } }, {}],
  ])(
    "is cancelled in the stage %s: pods and JobSet have gone",
    async (stage, over, cluster) => {
      const id = await submit(over, cluster);
      await untilRanks(id, stage);
      expect(await world.database.transaction((tx) => requestCancel(tx, id))).toBe("cancelling");
      await world.untilState(id, "cancelled", 60);
      await world.untilNoRanks();
      await nothingIsLeft();
    },
    900_000,
  );

  it("is told why Kueue holds it back, and runs when it may", async () => {
    // Room for one job of two pods with a CPU each.
    await stand.apply(queue(QUEUE, NODES + 1));
    try {
      const first = await submit({ steps: 100_000 });
      await world.untilEvent(first, stepEvent(3), 120);
      const id = await submit({ steps: 5 });
      const held = / waits: in Kueue's queue ranks: what its queue may use is in use \(.*unused quota/;
      await world.untilEvent(id, progressOf(held), 60);
      expect(await pods()).toHaveLength(NODES);
      await world.database.transaction((tx) => requestCancel(tx, first));
      await world.untilState(first, "cancelled", 60);
      await world.untilState(id, "succeeded", 200);
    } finally {
      await stand.apply(queue(QUEUE, NODES * CPUS));
    }
    await nothingIsLeft();
  }, 900_000);

  it("trains on while the API server is started again", async () => {
    const id = await submit({ steps: 400 });
    await world.untilEvent(id, stepEvent(5), 120);
    const ranks = world.rankPids();
    await stand.killApi();
    const { steps } = await runOf(id);
    await world.untilEvent(id, stepEvent(steps.length + 10), 60);
    await stand.startApi();
    expect(world.rankPids()).toEqual(ranks);
    await world.untilState(id, "succeeded", 300);
    const run = await runOf(id);
    expect(run.steps.map(({ step }) => step)).toEqual(upTo(400));
    expect(run.attempts).toMatchObject([{ number: 1, state: "succeeded" }]);
    await nothingIsLeft();
  }, 900_000);

  it("is measured, tried and trained though the API server is started again in each stage", async () => {
    const id = await submit(
      { steps: 200, trials: { count: 1, warmupSteps: 0, steps: 200, repeats: 0 } },
      { memoryPerGpu: "512MiB", profile: undefined },
    );
    for (const stage of ["profiling", "trialling", "running"] as const) {
      await untilRanks(id, stage);
      await stand.killApi();
      // Watches and questions meet nobody.
      await sleep(2000);
      await stand.startApi();
    }
    await world.untilState(id, "succeeded", 300);
    const { steps, attempts } = await runOf(id);
    expect(steps.map(({ step }) => step)).toEqual(upTo(200));
    expect(attempts).toMatchObject([{ number: 1, state: "succeeded" }]);
    expect(await listTrials(world.database.db, id)).toMatchObject([{ state: "succeeded" }]);
    await nothingIsLeft();
  }, 900_000);

  it("goes on from its checkpoint when a node is lost while it trains", async () => {
    const id = await submit({ steps: 600, checkpointing: { everySteps: 20, keepLast: 2 } });
    await world.untilEvent(id, stepEvent(45), 120);
    await stand.killNode("n2");
    await eventually(
      "Kubernetes has found out that the node is lost",
      async () => world.rankPids().length === 0,
      120,
    );
    stand.startNode("n2");
    await world.untilState(id, "succeeded", 400);
    const { steps, attempts } = await runOf(id);
    expect(steps.map(({ step }) => step)).toEqual(upTo(600));
    expect(attempts.at(0)).toMatchObject({ state: "failed" });
    expect(attempts.at(-1)?.resumedFromStep).toBeGreaterThanOrEqual(40);
    await nothingIsLeft();
  }, 900_000);
});
