import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { allSteps, findRun, listAttempts, listTrials } from "@internevo/store";
import { checkpointDirectory } from "@internevo/stages";
import { checkpointSteps } from "../src/checkpoints.ts";
import { createBrake, type Brake } from "@internevo/test-kit/brake";
import { PATIENCE } from "@internevo/test-kit";
import { createWorld, smallJob, type ServiceProcess, type World } from "@internevo/test-kit/world";

let world: World;
let brake: Brake;
beforeAll(async () => {
  brake = createBrake(60);
  world = await createWorld();
  await Promise.all([world.startProcess("profiler"), world.startProcess("planner")]);
});
afterAll(async () => {
  await world.close();
  brake.dispose();
});

const CLUSTER = { name: "fragile", nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" };

/** kill -9 of a service, and its next start: what a process manager does. */
async function restart(service: ServiceProcess): Promise<ServiceProcess> {
  await service.kill();
  return world.startProcess(service.name);
}

describe("a killed service", () => {
  it("goes on with the next trial, and with training, and counts everything once", async () => {
    let trialRunner = await world.startProcess("trial-runner");
    const id = await world.submit(
      smallJob({
        cluster: CLUSTER,
        steps: 400,
        trials: { count: 3, warmupSteps: 1, steps: 30, repeats: 0 },
        checkpointing: { everySteps: 20, keepLast: 100 },
      }),
    );
    await world.untilEvent(
      id,
      (event) =>
        event.type === "trial" &&
        (event.data["trial"] as { state: string }).state === "running" &&
        event.data["trial"] !== null,
      300,
    );
    const runner = trialRunner.pid;
    trialRunner = await restart(trialRunner);
    expect(trialRunner.pid).not.toBe(runner);
    await world.untilState(id, "running", 120);
    const trials = await listTrials(world.database.db, id);
    expect(trials).toMatchObject([{ state: "succeeded" }, { state: "succeeded" }, { state: "succeeded" }]);

    const braked = { INTERNEVO_NATIVE_DIRECTORY: brake.nativeDirectory };
    let executor = await world.startProcess("executor-supervisor", braked);
    await world.untilEvent(id, (event) => event.type === "step" && (event.data["step"] as number) >= 50, 120);
    const before = world.rankPids();
    expect(before).toHaveLength(2);
    await executor.kill();
    brake.open("first", "second");
    executor = await world.startProcess("executor-supervisor", braked);
    await world.untilState(id, "succeeded", 200);
    const run = await findRun(world.database.db, id);
    const steps = await allSteps(world.database.db, run?.id as string);
    const attempts = await listAttempts(world.database.db, run?.id as string);
    expect(steps.map((metric) => metric.step)).toEqual(Array.from({ length: 400 }, (_, index) => index + 1));
    expect(attempts.map((attempt) => attempt.state)).toEqual(["lost", "succeeded"]);
    expect(attempts[1]?.resumedFromStep).toBeGreaterThanOrEqual(20);
    expect(world.rankPids().filter((pid) => before.includes(pid))).toEqual([]);
    await world.untilNoRanks();
    // Every trial and every step was announced as ended once.
    const seen = new Map<string, number>();
    await world.untilEvent(id, (event) => {
      const { trial } = event.data as { trial?: { id: string; state: string } };
      if (event.type === "trial" && trial?.state === "succeeded")
        seen.set(trial.id, (seen.get(trial.id) ?? 0) + 1);
      return event.type === "report";
    });
    expect([...seen.values()]).toEqual([1, 1, 1]);
    await executor.kill();
    await trialRunner.kill();
  }, 900_000);

  it.each([11, 40])(
    "goes on from a checkpoint although its ranks had written many more before it died (frozen at step %i)",
    async (frozenAt) => {
      const trialRunner = await world.startProcess("trial-runner");
      let executor = await world.startProcess("executor-supervisor");
      const id = await world.submit(
        smallJob({
          cluster: CLUSTER,
          steps: 600,
          trials: { count: 1, warmupSteps: 0, steps: 1, repeats: 0 },
          checkpointing: { everySteps: 10, keepLast: 2 },
        }),
      );
      await world.untilEvent(
        id,
        (event) => event.type === "step" && (event.data["step"] as number) >= frozenAt,
        120,
      );
      process.kill(executor.pid, "SIGSTOP");
      const stored = (await allSteps(world.database.db, (await findRun(world.database.db, id))?.id as string))
        .length;
      // Its ranks go on until nobody takes what they say.
      const last = async () =>
        (await checkpointSteps(checkpointDirectory(world.dataDirectory, id))).at(-1) ?? 0;
      await expect.poll(last, { timeout: 60_000 * PATIENCE, interval: 100 }).toBeGreaterThan(stored + 50);
      await executor.kill();
      await world.untilNoRanks(30);
      executor = await world.startProcess("executor-supervisor");
      await world.untilState(id, "succeeded", 300);
      const run = await findRun(world.database.db, id);
      const attempts = await listAttempts(world.database.db, run?.id as string);
      expect(attempts.map(({ state }) => state)).toEqual(["lost", "succeeded"]);
      expect(attempts[1]?.resumedFromStep).toBeGreaterThan(0);
      expect(attempts[1]?.resumedFromStep).toBeLessThanOrEqual(stored);
      expect((await allSteps(world.database.db, run?.id as string)).map(({ step }) => step)).toEqual(
        Array.from({ length: 600 }, (_, index) => index + 1),
      );
      await executor.kill();
      await trialRunner.kill();
    },
    900_000,
  );

  it("keeps the work of a service that is asked to stop: its ranks write a checkpoint", async () => {
    await world.startProcess("trial-runner");
    const executor = await world.startProcess("executor-supervisor");
    const id = await world.submit(
      smallJob({
        cluster: CLUSTER,
        steps: 1000,
        trials: { count: 1, warmupSteps: 0, steps: 1 },
        checkpointing: { everySteps: 1_000_000, keepLast: 1 },
      }),
    );
    await world.untilEvent(id, (event) => event.type === "step" && (event.data["step"] as number) >= 20, 120);
    process.kill(executor.pid, "SIGTERM");
    await world.untilEvent(
      id,
      (event) => event.type === "log" && String(event.data["message"]).startsWith("checkpoint at step"),
      30,
    );
    await world.untilNoRanks(15);
    await world.startProcess("executor-supervisor");
    await world.untilState(id, "succeeded", 200);
    const run = await findRun(world.database.db, id);
    const attempts = await listAttempts(world.database.db, run?.id as string);
    expect(attempts.map((attempt) => attempt.state)).toEqual(["stopped", "succeeded"]);
    expect(attempts[1]?.resumedFromStep).toBe(attempts[0]?.lastStep);
    expect((await allSteps(world.database.db, run?.id as string)).length).toBe(1000);
  }, 900_000);
});
