import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { planLabel, type Plan, type PlanChange } from "@internevo/domain";
import { planner } from "@internevo/planner";
import { profiler } from "@internevo/profiler";
import {
  allSteps,
  dismissPlanChange,
  findRun,
  getJobDetail,
  listAttempts,
  listJobEvents,
  listPlanChanges,
  storePlanChange,
} from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { createWorld, smallJob, type ServiceProcess, type World } from "@internevo/test-kit/world";
import { trialRunner } from "@internevo/trial-runner";

/** Each of some milliseconds, so that ranks can be frozen long before their last. */
const STEPS = 200;
const COMPARED = 20;
/** Keeps a plan however slow: its steps may come while other tests have the processors. */
const ANY_GAIN = -1e6;

let world: World;
let executor: ServiceProcess;
/** Of a run that nothing disturbed. */
let losses: number[];
let plan: Plan;

const startExecutor = (): Promise<ServiceProcess> => world.startProcess("executor-supervisor");

beforeAll(async () => {
  world = await createWorld();
  for (const service of [profiler, planner, trialRunner]) await world.start(service as typeof profiler);
  executor = await startExecutor();
  const id = await submit();
  await world.untilState(id, "succeeded", 300);
  losses = await world.lossesOf(id);
  expect(losses).toHaveLength(STEPS);
  plan = (await runOf(id)).candidate.plan;
}, 900_000);
afterAll(() => world.close());

/** No checkpoint but those that somebody asks for. */
const submit = (): Promise<string> =>
  world.submit(
    smallJob({
      name: "changing",
      cluster: { name: "shared", nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" },
      globalBatchTokens: 2048,
      steps: STEPS,
      // Frozen ranks are not lost.
      watchdog: false,
      trials: { count: 1, warmupSteps: 0, steps: 1, repeats: 0 },
      checkpointing: { everySteps: 1_000_000, keepLast: 1 },
    }),
  );

const runOf = async (id: string) => {
  const run = await findRun(world.database.db, id);
  if (!run) throw new Error(`job ${id} does not train`);
  return run;
};
const attemptsOf = async (id: string) => listAttempts(world.database.db, (await runOf(id)).id);
const changesOf = async (id: string): Promise<PlanChange[]> =>
  [...(await listPlanChanges(world.database.db, id)).items].reverse();
/** At work, and frozen there until the test lets them go on. */
async function frozenAtWork(id: string): Promise<void> {
  await world.untilEvent(id, ({ type, data }) => type === "step" && (data["step"] as number) >= 30, 120);
  world.signalRanks("SIGSTOP");
}
const said = (id: string, words: string) =>
  world.untilEvent(id, ({ type, data }) => type === "log" && String(data["message"]).includes(words), 120);
const ended = (id: string) =>
  eventually("the end of the job", async () => (await world.job(id)).report !== null, 300);

/** Asks for the best plan of another family. */
async function ask(id: string, gainThreshold: number): Promise<PlanChange> {
  const run = await runOf(id);
  const { planning } = (await getJobDetail(world.database.db, id)) ?? {};
  const to = planning?.candidates.find(({ plan }) => planLabel(plan) !== planLabel(run.candidate.plan));
  if (!to) throw new Error("the job has one plan only");
  return world.database.transaction((tx) =>
    storePlanChange(
      tx,
      { id: run.id, jobId: id },
      {
        origin: "person",
        askedBy: "test",
        from: run.candidate,
        to,
        predictedGain: 1 - to.predicted.stepTimeSeconds / run.candidate.predicted.stepTimeSeconds,
        gainThreshold,
        compareSteps: COMPARED,
      },
    ),
  );
}

/**
 * Every step once, and the losses of a run that nobody touched: bit by bit until the plan changes. From then on
 * float32 numbers may be added in another order, and each step builds on the rounding of those before. Within
 * 200 steps that came to 2.8e-6 of the loss at most.
 */
async function isUntouched(id: string): Promise<void> {
  const steps = await allSteps(world.database.db, (await runOf(id)).id);
  expect(steps.map(({ step }) => step)).toEqual(Array.from({ length: STEPS }, (_, index) => index + 1));
  const attempts = await attemptsOf(id);
  expect(attempts[0]?.plan, "the runs begin alike").toEqual(plan);
  const changed = attempts.find((attempt) => attempt.plan && planLabel(attempt.plan) !== planLabel(plan));
  // An attempt without a checkpoint does every step again.
  const changedAt = changed ? (changed.resumedFromStep ?? 0) : STEPS;
  expect(steps.slice(0, changedAt).map(({ loss }) => loss)).toEqual(losses.slice(0, changedAt));
  for (const { step, loss } of steps.slice(changedAt)) {
    expect(Math.abs(loss / (losses[step - 1] as number) - 1), `step ${step}`).toBeLessThan(1e-5);
  }
}

describe("a run whose plan is changed", () => {
  it("goes on under the new plan from a checkpoint, and keeps it where it gains enough", async () => {
    const id = await submit();
    await frozenAtWork(id);
    const change = await ask(id, ANY_GAIN);
    await said(id, "stop to change the plan");
    world.signalRanks("SIGCONT");
    await ended(id);
    const attempts = await attemptsOf(id);
    expect(attempts).toMatchObject([
      { state: "stopped", plan: change.from.plan },
      { state: "succeeded", plan: change.to.plan },
    ]);
    const at = attempts[0]?.lastStep ?? 0;
    expect(attempts[1]?.resumedFromStep, "nothing is done twice").toBe(at);
    const [kept] = await changesOf(id);
    expect(kept).toMatchObject({
      id: change.id,
      state: "kept",
      appliedAtStep: at,
      secondsBefore: expect.any(Number) as number,
      secondsAfter: expect.any(Number) as number,
      reason: expect.stringMatching(/^a step took .* before and takes .* now/),
    });
    expect(kept?.measuredGain).toBeCloseTo(1 - (kept?.secondsAfter ?? 0) / (kept?.secondsBefore ?? 1), 12);
    expect((await runOf(id)).candidate.plan).toEqual(change.to.plan);
    await isUntouched(id);
  }, 900_000);

  it("goes back by itself where the new plan gains less than asked", async () => {
    const id = await submit();
    await frozenAtWork(id);
    const change = await ask(id, 1);
    await said(id, "stop to change the plan");
    world.signalRanks("SIGCONT");
    await ended(id);
    expect(await attemptsOf(id)).toMatchObject([
      { state: "stopped", plan: change.from.plan },
      { state: "stopped", plan: change.to.plan },
      { state: "succeeded", plan: change.from.plan },
    ]);
    expect(await changesOf(id)).toMatchObject([
      { state: "returned", reason: expect.stringContaining("below the threshold of 100") },
    ]);
    expect((await runOf(id)).candidate.plan).toEqual(change.from.plan);
    await isUntouched(id);
  }, 900_000);

  it.each(["asked", "comparing"] as const)(
    "ends in one of the two plans when its supervisor is killed while the change is %s",
    async (when) => {
      const id = await submit();
      await frozenAtWork(id);
      // Frozen, it hears nothing until it is killed.
      if (when === "asked") process.kill(executor.pid, "SIGSTOP");
      const change = await ask(id, ANY_GAIN);
      if (when === "comparing") {
        await said(id, "stop to change the plan");
        world.signalRanks("SIGCONT");
        await eventually("the change", async () => (await changesOf(id))[0]?.state === "comparing", 60);
      }
      await executor.kill();
      executor = await startExecutor();
      await ended(id);
      const attempts = await attemptsOf(id);
      expect(attempts[0]).toMatchObject({ plan: change.from.plan });
      expect(attempts.at(-1)).toMatchObject({ state: "succeeded", plan: change.to.plan });
      expect(await changesOf(id)).toMatchObject([{ state: "kept" }]);
      await isUntouched(id);
    },
    900_000,
  );

  it("goes on as it was when the change is dismissed in time, and only then", async () => {
    const id = await submit();
    await frozenAtWork(id);
    process.kill(executor.pid, "SIGSTOP");
    const change = await ask(id, 0);
    await expect(ask(id, 0)).rejects.toMatchObject({ code: "conflict" });
    const dismiss = () =>
      world.database.transaction((tx) => dismissPlanChange(tx, id, change.id, "the test changed its mind"));
    expect(await dismiss()).toMatchObject({ state: "dismissed", reason: "the test changed its mind" });
    await expect(dismiss()).rejects.toMatchObject({ code: "conflict" });
    process.kill(executor.pid, "SIGCONT");
    world.signalRanks("SIGCONT");
    await ended(id);
    expect(await attemptsOf(id)).toMatchObject([{ state: "succeeded", plan: change.from.plan }]);
    await isUntouched(id);
  }, 900_000);

  it("goes on at once when somebody dismisses the search while the cluster is measured", async () => {
    await executor.kill();
    // A measurement of minutes.
    executor = await world.startProcess("executor-supervisor", {
      INTERNEVO_PROBE_SAMPLES: "10000",
      INTERNEVO_PROBE_POINT_SECONDS: "10",
    });
    const id = await submit();
    await frozenAtWork(id);
    const { id: runId, candidate } = await runOf(id);
    const change = await world.database.transaction((tx) =>
      storePlanChange(
        tx,
        { id: runId, jobId: id },
        {
          state: "searching",
          reason: "a test asks for it",
          origin: "drift",
          askedBy: "test",
          from: candidate,
          to: candidate,
          predictedGain: 0,
          gainThreshold: 0,
          compareSteps: COMPARED,
        },
      ),
    );
    await said(id, "stop to measure the cluster anew");
    world.signalRanks("SIGCONT");
    await world.untilEvent(
      id,
      ({ type, data }) =>
        type === "progress" &&
        data["stage"] === "running" &&
        /^measures \d+ points/.test(String(data["message"])),
      120,
    );
    await eventually("the probe", async () => world.rankPids().length === 2, 60);
    await world.database.transaction((tx) => dismissPlanChange(tx, id, change.id, "not now"));
    await eventually("the ranks again", async () => (await attemptsOf(id)).length === 2, 20);
    await ended(id);
    expect(await changesOf(id)).toMatchObject([
      { state: "dismissed", reason: "a test asks for it; not now", to: { plan: candidate.plan } },
    ]);
    expect(await attemptsOf(id)).toMatchObject([{ state: "stopped" }, { state: "succeeded" }]);
    await isUntouched(id);
    // Nothing is said any more of what was measured.
    const told = (await listJobEvents(world.database.db, id)).filter(({ type }) => type === "progress");
    expect(told.at(-1)?.data).toMatchObject({ stage: "running", message: "", total: STEPS });
    await executor.kill();
    executor = await startExecutor();
  }, 900_000);
});
