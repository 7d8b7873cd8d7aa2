import { executorSupervisor } from "@internevo/executor-supervisor";
import { worldSize } from "@internevo/domain";
import { planner } from "@internevo/planner";
import { profiler } from "@internevo/profiler";
import { trialRunner } from "@internevo/trial-runner";
import type { World } from "@internevo/test-kit/world";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { topologyQueue } from "../src/manifests.ts";
import type { KubernetesStand } from "../src/stand.ts";
import { progressOf, stepEvent, upTo } from "@internevo/test-kit/job-told";
import { CPUS, createJobWorld, NODES, type JobWorld } from "./job-world.ts";

const HOST = "kubernetes.io/hostname";
/** Kueue places the jobs of this queue: their pods ask for most of a node, so that no two share one. */
const PLACED = "placed";
const LOST = "n2";

describe("a job on Kubernetes that loses a node", () => {
  let jobs: JobWorld;
  let stand: KubernetesStand;
  let world: World;
  let isKilled = false;
  beforeAll(async () => {
    jobs = await createJobWorld({
      [PLACED]: { queue: PLACED, preferredTopology: HOST, cpuPerRank: CPUS - 1 },
    });
    ({ stand, world } = jobs);
    await stand.apply(
      topologyQueue({
        name: PLACED,
        levels: [HOST],
        nodeLabels: { "internevo.dev/test": "agent" },
        quota: { cpu: String(NODES * CPUS) },
      }),
    );
    for (const service of [profiler, planner, trialRunner, executorSupervisor])
      await world.start(service as typeof profiler, jobs.environment);
  }, 600_000);
  afterAll(() => jobs?.close());
  afterEach(async ({ task }) => {
    if (task.result?.state === "fail") console.error(stand.logs());
    await world.endJobs();
    if (isKilled) stand.startNode(LOST);
    isKilled = false;
    await stand.untilReady(NODES);
  });
  const loseNode = async (): Promise<void> => {
    isKilled = true;
    await stand.killNode(LOST);
  };

  it.each(["site", PLACED])(
    "is planned again for those that are left where it allows that (cluster %s)",
    async (name) => {
      const id = await jobs.submit(
        { steps: 400, checkpointing: { everySteps: 20, keepLast: 2 } },
        { name, minNodes: 1 },
      );
      await world.untilEvent(id, stepEvent(45), 200);
      await loseNode();
      await world.untilState(id, "succeeded", 400);
      const { steps, attempts } = await jobs.runOf(id);
      expect(steps.map(({ step }) => step)).toEqual(upTo(400));
      expect(attempts.at(0)).toMatchObject({ state: "failed", failure: { code: "rank-lost" } });
      expect(attempts.at(-2)).toMatchObject({
        state: "failed",
        failure: {
          code: "not-started",
          message: expect.stringMatching(/needs 2 nodes, and 1 can take pods since .*: n2 is not ready/),
        },
      });
      expect(attempts.at(-1)?.resumedFromStep).toBeGreaterThanOrEqual(40);
      expect([attempts[0], attempts.at(-1)].map((each) => each?.plan && worldSize(each.plan))).toEqual([
        2, 1,
      ]);
      await jobs.nothingIsLeft();
    },
    900_000,
  );

  it.each<[name: string, words: RegExp]>([
    ["site", / waits: .*no node has room for it \(0\/2 nodes are available/],
    [PLACED, / waits: in Kueue's queue placed: no part of the topology has room for all of its pods \(/],
  ])(
    "waits and says why, and fails with the names of those that are lost, where it allows no fewer (cluster %s)",
    async (name, words) => {
      const id = await jobs.submit({ steps: 100_000 }, { name });
      await world.untilEvent(id, stepEvent(12), 200);
      await loseNode();
      await world.untilEvent(id, progressOf(words), 120);
      await world.untilState(id, "failed", 120);
      expect((await world.job(id)).failure).toMatchObject({
        code: "not-started",
        message: expect.stringMatching(/needs 2 nodes, and 1 can take pods since .*: n2 is not ready/),
        remedy: expect.stringContaining("cluster.minNodes"),
      });
      await jobs.nothingIsLeft();
    },
    900_000,
  );
});
