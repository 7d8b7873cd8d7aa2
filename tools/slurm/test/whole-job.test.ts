import { setTimeout as sleep } from "node:timers/promises";
import { allSteps, findRun, listAttempts, listTrials, requestCancel } from "@internevo/store";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { executorSupervisor } from "../../../apps/executor-supervisor/src/index.ts";
import { planner } from "../../../apps/planner/src/index.ts";
import { profiler } from "../../../apps/profiler/src/index.ts";
import { trialRunner } from "../../../apps/trial-runner/src/index.ts";
import { jobsOf } from "../../../libs/launcher/src/slurm/control.ts";
import { createWorld, smallJob, type World } from "../../../libs/stages/test/world.ts";
import { whyImpossible } from "../src/stand.ts";
import { createSite, type Site } from "./slurm-world.ts";

const impossible = whyImpossible();
if (impossible !== undefined) console.warn(`The tests of whole jobs on Slurm are skipped: ${impossible}`);

describe.skipIf(impossible !== undefined)("a job on a Slurm cluster", () => {
  let site: Site;
  let world: World;
  let environment: Record<string, string>;
  beforeAll(async () => {
    site = await createSite();
    world = await createWorld();
    environment = { INTERNEVO_CLUSTERS: site.clustersFile };
    for (const service of [profiler, planner, trialRunner]) await world.start(service as typeof profiler, environment);
  });
  afterAll(async () => {
    await world?.close();
    await site?.close();
  });
  afterEach(async () => {
    await site.slurm.slurm("scancel", "--user=root");
    await site.slurm.untilUp(3);
  });

  const jobs = async () => jobsOf(JSON.parse(await site.slurm.slurm("squeue", "--json"))).sort((a, b) => a.id - b.id);
  const ours = async () => (await jobs()).filter(({ name }) => name.startsWith("internevo-"));
  const cluster = (over: Record<string, unknown> = {}) => ({ name: "site", launcher: "slurm", nodes: 2, gpusPerNode: 1, memoryPerGpu: "4GiB", profile: world.profileId, ...over });
  const quick = (over: Record<string, unknown> = {}) => smallJob({ cluster: cluster(), trials: { count: 1, warmupSteps: 0, steps: 1 }, ...over });
  const stepEvent = (least: number) => (event: { type: string; data: Record<string, unknown> }) => event.type === "step" && (event.data["step"] as number) >= least;
  const waiting = (words: RegExp) => (event: { type: string; data: Record<string, unknown> }) => event.type === "progress" && words.test(String(event.data["message"]));
  async function runOf(jobId: string) {
    const run = await findRun(world.database.db, jobId);
    if (!run) throw new Error("the job has no run");
    return { steps: await allSteps(world.database.db, run.id), attempts: await listAttempts(world.database.db, run.id) };
  }
  const upTo = (steps: number): number[] => Array.from({ length: steps }, (_, index) => index + 1);
  const executor = () => world.startProcess("executor-supervisor", { ...environment, ...site.slurm.environment });

  it("is profiled, planned, tried and trained, each of it as a Slurm job of its own", async () => {
    const service = await executor();
    const id = await world.submit(smallJob({ cluster: { name: "site", launcher: "slurm", nodes: 2, gpusPerNode: 1, memoryPerGpu: "512MiB" }, steps: 30 }));
    await world.untilState(id, "succeeded", 300);
    expect(await listTrials(world.database.db, id)).toMatchObject([{ state: "succeeded" }, { state: "succeeded" }]);
    const { steps, attempts } = await runOf(id);
    expect(steps.map(({ step }) => step)).toEqual(upTo(30));
    expect(attempts).toMatchObject([{ number: 1, state: "succeeded", resumedFromStep: 0 }]);
    // The trainer's own memory, the probe, two trials and the run.
    expect((await ours()).map(({ state }) => state)).toEqual(["COMPLETED", "COMPLETED", "COMPLETED", "COMPLETED", "COMPLETED"]);
    await world.untilEvent(id, waiting(/^waits in Slurm's queue as job \d+: /), 5);
    await world.untilEvent(id, waiting(/^Slurm job \d+ runs on n\[1-2\]$/), 5);
    await service.kill();
  }, 320_000);

  it("goes on with the same ranks when its supervisor is killed, or told to stop, and is submitted once", async () => {
    const before = (await ours()).length;
    let service = await executor();
    const id = await world.submit(quick({ steps: 5000 }));
    await world.untilEvent(id, stepEvent(5), 120);
    const ranks = world.rankPids();
    expect(ranks).toHaveLength(2);
    await service.kill();
    await sleep(1000);
    expect(world.rankPids()).toEqual(ranks);
    service = await executor();
    const { steps: stored } = await runOf(id);
    await world.untilEvent(id, stepEvent(stored.length + 10), 60);
    process.kill(service.pid, "SIGTERM");
    await sleep(2000);
    expect(world.rankPids()).toEqual(ranks);
    service = await executor();
    await world.untilState(id, "succeeded", 200);
    const { steps, attempts } = await runOf(id);
    expect(steps.map(({ step }) => step)).toEqual(upTo(5000));
    expect(attempts).toMatchObject([{ number: 1, state: "succeeded", resumedFromStep: 0 }]);
    // A trial and the run.
    expect((await ours()).length - before).toBe(2);
    await service.kill();
  }, 400_000);

  it("is ended in Slurm when it is cancelled while nobody looks after it", async () => {
    const service = await executor();
    const id = await world.submit(quick({ steps: 100_000 }));
    await world.untilEvent(id, stepEvent(3), 120);
    await service.kill();
    // The dead supervisor's lease has to end first: until then it counts as alive.
    await sleep(9000);
    expect(await world.database.transaction((tx) => requestCancel(tx, id))).toBe("cancelled");
    expect(world.rankPids()).toHaveLength(2);
    const next = await executor();
    await world.untilNoRanks(20);
    for (const end = performance.now() + 20_000; (await ours()).at(-1)?.state !== "CANCELLED"; await sleep(200)) expect(performance.now()).toBeLessThan(end);
    await next.kill();
  }, 200_000);

  describe("with its supervisor here", () => {
    beforeAll(() => world.start(executorSupervisor, environment));

    it("goes on from its checkpoint on the nodes that are left when one is lost", async () => {
      const id = await world.submit(quick({ steps: 120, checkpointing: { everySteps: 10, keepLast: 2 } }));
      await world.untilEvent(id, stepEvent(25), 120);
      await site.slurm.killNode("n2");
      await world.untilState(id, "succeeded", 200);
      const { steps, attempts } = await runOf(id);
      expect(attempts).toMatchObject([{ state: "failed", failure: { code: "rank-lost" } }, { state: "succeeded" }]);
      expect(attempts[1]?.resumedFromStep).toBeGreaterThanOrEqual(20);
      expect(steps.map(({ step }) => step)).toEqual(upTo(120));
      expect((await ours()).at(-1)).toMatchObject({ state: "COMPLETED", nodes: "n[1,3]" });
      await site.slurm.startNode("n2");
    }, 300_000);

    it("fails in words when the nodes that are left are too few", async () => {
      const id = await world.submit(quick({ cluster: cluster({ nodes: 3 }), globalBatchTokens: 384, steps: 100_000, checkpointing: { everySteps: 10, keepLast: 2 } }));
      await world.untilEvent(id, stepEvent(12), 120);
      await site.slurm.killNode("n3");
      await world.untilState(id, "failed", 120);
      await site.slurm.startNode("n3");
      expect((await world.job(id)).failure).toMatchObject({
        code: "not-started", message: expect.stringMatching(/^Slurm job \d+ needs 3 nodes, and 2 of partition main can take jobs since .*: n3 is \S*(down|not_responding)/), remedy: expect.stringContaining("nodes: 2 or fewer"),
      });
      expect((await ours()).filter(({ state }) => state === "PENDING" || state === "RUNNING")).toEqual([]);
    }, 250_000);

    it("is cancelled while it waits in the queue, and while it runs", async () => {
      const other = Number(await site.slurm.slurm("sbatch", "--parsable", "--exclusive", "--nodes=3", "--job-name=other", "--output=/dev/null", "--wrap=sleep 600"));
      for (const end = performance.now() + 60_000; ; await sleep(100)) {
        const found = (await jobs()).find(({ id }) => id === other);
        if (found?.state === "RUNNING") break;
        if (performance.now() > end) throw new Error(`job ${other} does not run: ${JSON.stringify(found)}\n${site.slurm.logs()}`);
      }
      const id = await world.submit(quick());
      await world.untilEvent(id, waiting(/waits in Slurm's queue as job \d+: the nodes that it needs are busy/), 60);
      expect(await world.database.transaction((tx) => requestCancel(tx, id))).toBe("cancelling");
      await world.untilState(id, "cancelled", 30);
      expect((await ours()).at(-1)?.state).toBe("CANCELLED");
      await site.slurm.slurm("scancel", "--name=other");
      const running = await world.submit(quick({ steps: 100_000 }));
      await world.untilEvent(running, stepEvent(3), 120);
      expect(await world.database.transaction((tx) => requestCancel(tx, running))).toBe("cancelling");
      await world.untilState(running, "cancelled", 60);
      await world.untilNoRanks();
      expect((await runOf(running)).attempts).toMatchObject([{ state: "stopped" }]);
    }, 200_000);
  });
});
