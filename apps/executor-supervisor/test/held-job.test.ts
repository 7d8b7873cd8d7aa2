import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { planner } from "@internevo/planner";
import { profiler } from "@internevo/profiler";
import { checkpointDirectory } from "@internevo/stages";
import { findRun, listAttempts, requestCancel, resumeJob } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { createBrake, type Brake } from "@internevo/test-kit/brake";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { trialRunner } from "@internevo/trial-runner";
import { checkpointSteps } from "../src/checkpoints.ts";
import { executorSupervisor } from "../src/index.ts";

const LIMIT = 2;

let world: World;
let brake: Brake;
/** Of a run that nothing disturbed. */
let losses: number[];
beforeAll(async () => {
  brake = createBrake(30);
  brake.open("first", "second");
  world = await createWorld();
  for (const service of [profiler, planner, trialRunner]) await world.start(service as typeof profiler);
  await world.start(executorSupervisor, {
    INTERNEVO_NATIVE_DIRECTORY: brake.nativeDirectory,
    INTERNEVO_EXECUTOR_SUPERVISOR_RESTART_LIMIT: String(LIMIT),
  });
  losses = await world.lossesOf(await trained(await submit()));
}, 900_000);
afterAll(async () => {
  await world.close();
  brake.dispose();
});

const EVERY_STEPS = 900;
/** Ranks that are braked hang behind some hundred steps: before the first checkpoint. */
const submit = (everySteps = EVERY_STEPS): Promise<string> =>
  world.submit(
    smallJob({
      cluster: { name: "held", nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" },
      steps: 1000,
      trials: { count: 1, warmupSteps: 0, steps: 1 },
      checkpointing: { everySteps, keepLast: 100 },
    }),
  );

async function trained(id: string): Promise<string> {
  await world.untilState(id, "succeeded", 300);
  return id;
}

const checkpoint = async (id: string): Promise<number> =>
  (await checkpointSteps(checkpointDirectory(world.dataDirectory, id))).at(-1) ?? 0;

const attemptsOf = async (id: string) => {
  const run = await findRun(world.database.db, id);
  return run ? listAttempts(world.database.db, run.id) : [];
};

/** Kills a rank of an attempt, once it said a step of at least this number. */
async function killRankOf(id: string, attempt: number, leastStep = 1): Promise<void> {
  await world.untilEvent(
    id,
    ({ type, data }) =>
      type === "step" && data["attempt"] === attempt && (data["step"] as number) >= leastStep,
    120,
  );
  process.kill(world.rankPids()[1] as number, "SIGKILL");
}

/** Follows states anew: those from before the job was let go on are past. */
async function resumed(id: string): Promise<void> {
  expect(await world.database.transaction((tx) => resumeJob(tx, id))).toMatchObject({
    outcome: "resumed",
    stage: "running",
  });
}
const untilEnded = (id: string) =>
  eventually("the end of the job", async () => (await world.job(id)).report !== null, 300);

describe("a training whose ranks are killed", () => {
  it("goes on as often as it takes while there are newer checkpoints, with the same losses", async () => {
    const id = await submit(100);
    let before = 0;
    for (let attempt = 1; attempt <= LIMIT + 1; attempt += 1) {
      await eventually("a newer checkpoint", async () => (await checkpoint(id)) > before, 120);
      before = await checkpoint(id);
      await killRankOf(id, attempt, before);
    }
    await trained(id);
    const attempts = await attemptsOf(id);
    expect(attempts.slice(0, -1)).toMatchObject(
      Array.from({ length: LIMIT + 1 }, () => ({ state: "failed", failure: { code: "rank-lost" } })),
    );
    expect(attempts.at(-1)).toMatchObject({ number: LIMIT + 2, state: "succeeded" });
    expect(await world.lossesOf(id)).toEqual(losses);
  }, 900_000);

  it("is held with its reason when there is none, and goes on to the same end when it is let", async () => {
    brake.close();
    const id = await submit();
    for (let attempt = 1; attempt <= LIMIT; attempt += 1) await killRankOf(id, attempt);
    await world.untilState(id, "held", 120);
    expect(await world.job(id)).toMatchObject({
      state: "held",
      failure: {
        code: "too-many-restarts",
        message: expect.stringMatching(/^2 attempts in a row ended without a newer checkpoint; the last: /),
        remedy: expect.stringContaining("internevo resume"),
      },
    });
    await world.untilNoRanks();
    await resumed(id);
    // What was tried before does not count any more.
    await killRankOf(id, LIMIT + 1);
    await world.untilEvent(id, ({ type, data }) => type === "step" && data["attempt"] === LIMIT + 2, 120);
    brake.open("first", "second");
    await untilEnded(id);
    expect(await world.job(id)).toMatchObject({ state: "succeeded", failure: null });
    expect(await attemptsOf(id)).toHaveLength(LIMIT + 2);
    expect(await world.lossesOf(id)).toEqual(losses);
  }, 900_000);

  it("goes on from its last checkpoint when it was cancelled, with the same losses", async () => {
    const id = await submit(100);
    await eventually("a checkpoint", async () => (await checkpoint(id)) >= 100, 120);
    const before = await checkpoint(id);
    await world.untilEvent(
      id,
      ({ type, data }) => type === "step" && (data["step"] as number) >= before,
      120,
    );
    await world.database.transaction((tx) => requestCancel(tx, id));
    await world.untilState(id, "cancelled", 60);
    await world.untilNoRanks();
    await resumed(id);
    await untilEnded(id);
    const attempts = await attemptsOf(id);
    expect(attempts).toMatchObject([{ state: "stopped" }, { state: "succeeded" }]);
    expect(attempts[1]?.resumedFromStep).toBeGreaterThanOrEqual(before);
    expect(await world.lossesOf(id)).toEqual(losses);
    expect(await world.database.transaction((tx) => resumeJob(tx, id))).toEqual({
      outcome: "not-resumable",
      state: "succeeded",
    });
  }, 900_000);
});
