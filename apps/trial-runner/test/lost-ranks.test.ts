import { setTimeout as sleep } from "node:timers/promises";
import { resolveJob, type Trial } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { createTrials, listTrials, resumeJob, submitJob, transitionJob } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { trialRunner } from "../src/index.ts";

let world: World;
beforeAll(async () => {
  world = await createWorld();
  await world.start(trialRunner, {
    INTERNEVO_LOST_RANK_LIMIT: "1",
    INTERNEVO_TRIAL_RUNNER_REPEAT_SECONDS: "0",
  });
});
afterEach(() => world.endJobs());
afterAll(() => world.close());

async function trialling(count: number, over: Record<string, unknown> = {}): Promise<string> {
  const spec = resolveJob(smallJob({ trials: { count, warmupSteps: 1, steps: 20 }, ...over }));
  const { runnableCandidates } = planJob(
    { ...spec, cluster: { ...spec.cluster, memoryPerGpuBytes: 1e12 } },
    world.profile,
    { top: 10 },
  );
  return world.database.transaction(async (tx) => {
    const id = await submitJob(tx, spec);
    await transitionJob(tx, { jobId: id, from: "profiling", to: "planning" });
    await createTrials(tx, id, runnableCandidates.slice(0, count));
    await transitionJob(tx, { jobId: id, from: "planning", to: "trialling" });
    return id;
  });
}

const untilTrials = (id: string, ended: number) =>
  eventually(
    `${ended} trials that ended`,
    async () =>
      (await listTrials(world.database.db, id)).filter(
        ({ state }) => state === "succeeded" || state === "failed",
      ).length >= ended,
    120,
  );

/** Kills all ranks that there are, again and again, until it is told to end. */
function killRanks(): { readonly end: () => Promise<void> } {
  let ends = false;
  const killing = (async () => {
    while (!ends) {
      for (const pid of world.rankPids())
        try {
          process.kill(pid, "SIGKILL");
        } catch {
          // It ended by itself.
        }
      await sleep(20);
    }
  })();
  return { end: () => ((ends = true), killing) };
}

it("is held when the ranks of one plan after another are lost, and measures what is left when it goes on", async () => {
  const id = await trialling(4);
  await untilTrials(id, 1);
  const killer = killRanks();
  await world.untilState(id, "held", 120);
  await killer.end();
  const { failure } = await world.job(id);
  expect(failure).toMatchObject({
    code: "too-many-restarts",
    message: expect.stringContaining("in a row ended without a measured trial; the last: "),
    remedy: expect.stringContaining("internevo resume"),
  });
  const before = await listTrials(world.database.db, id);
  const measured = before.filter(({ state }) => state === "succeeded");
  expect(measured.length).toBeGreaterThanOrEqual(1);
  expect(before.filter((trial) => trial.failure?.code === "rank-lost")).toHaveLength(2);
  expect(await world.database.transaction((tx) => resumeJob(tx, id))).toMatchObject({
    outcome: "resumed",
    from: "held",
    stage: "trialling",
  });
  await eventually("training", async () => (await world.job(id)).state === "running", 120);
  const after = await listTrials(world.database.db, id);
  expect(after.map(({ state }) => state)).toEqual(Array<Trial["state"]>(4).fill("succeeded"));
  // What was measured is not measured again.
  for (const trial of measured) expect(after).toContainEqual(trial);
}, 900_000);

it("fails a job whose loss is not finite, after one repetition of the first trial", async () => {
  const id = await trialling(3, {
    optimizer: { peakLearningRate: 10, minLearningRate: 10, warmupSteps: 0, weightDecay: 10 },
    trials: { count: 3, warmupSteps: 1, steps: 60 },
  });
  await world.untilState(id, "failed", 120);
  expect((await world.job(id)).failure).toMatchObject({
    code: "not-finite",
    message: expect.stringMatching(
      /^the loss or the gradient of step \d+ is not finite .*it was the same when the step was repeated/,
    ),
    remedy: expect.stringContaining("lower the learning rate"),
  });
  expect((await listTrials(world.database.db, id)).map(({ state }) => state)).toEqual([
    "failed",
    "cancelled",
    "cancelled",
  ]);
}, 300_000);
