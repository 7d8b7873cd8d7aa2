import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { planner } from "@internevo/planner";
import { profiler } from "@internevo/profiler";
import {
  allSteps,
  askedToGiveWay,
  findRun,
  getJobDetail,
  jobLease,
  listAttempts,
  listTrials,
  queuePlace,
  setQueueSettings,
} from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { createWorld, smallJob, type ServiceProcess, type World } from "@internevo/test-kit/world";
import { trialRunner } from "@internevo/trial-runner";

/** Each of some milliseconds, so that ranks can be frozen long before their last. */
const STEPS = 400;

let world: World;
/** Of a run that nothing disturbed. */
let losses: number[];
let executor: ServiceProcess;

const startExecutor = (): Promise<ServiceProcess> => world.startProcess("executor-supervisor");

beforeAll(async () => {
  world = await createWorld();
  await world.database.transaction((tx) => setQueueSettings(tx, { leastRunMinutes: 0 }));
  for (const service of [profiler, planner, trialRunner]) await world.start(service as typeof profiler);
  executor = await startExecutor();
  const id = await submit("undisturbed");
  await world.untilState(id, "succeeded", 300);
  losses = await world.lossesOf(id);
  expect(losses).toHaveLength(STEPS);
}, 900_000);
afterAll(() => world.close());

/** No checkpoint but those that somebody asks for. */
const submit = (name: string, over: Record<string, unknown> = {}): Promise<string> =>
  world.submit(
    smallJob({
      name,
      cluster: { name: "shared", nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" },
      globalBatchTokens: 2048,
      steps: STEPS,
      // Frozen ranks are not lost.
      watchdog: false,
      trials: { count: 1, warmupSteps: 0, steps: 1, repeats: 0 },
      checkpointing: { everySteps: 1_000_000, keepLast: 1 },
      ...over,
    }),
  );
const low = () => submit("patient", { priority: "low", preemptible: true });
const high = () => submit("urgent", { priority: "high", steps: 20 });

const attemptsOf = async (id: string) => {
  const run = await findRun(world.database.db, id);
  return run ? listAttempts(world.database.db, run.id) : [];
};
const stepsOf = async (id: string) => {
  const run = await findRun(world.database.db, id);
  return run ? (await allSteps(world.database.db, run.id)).map(({ step }) => step) : [];
};
/** At work, and frozen there until the test lets them go on. */
async function frozenAtWork(id: string): Promise<void> {
  await world.untilEvent(id, ({ type, data }) => type === "step" && (data["step"] as number) >= 10, 120);
  world.signalRanks("SIGSTOP");
}
/** Its supervisor has heard that it gives way, and told the ranks. */
const told = (id: string) =>
  world.untilEvent(
    id,
    ({ type, data }) => type === "log" && data["message"] === "asked to give way to job urgent",
    60,
  );
const ended = (id: string) =>
  eventually("the end of the job", async () => (await world.job(id)).report !== null, 300);

/** What is so of every job that gave way to `urgent` once, however that came about. */
async function gaveWayOnce(id: string): Promise<void> {
  expect(await world.lossesOf(id)).toEqual(losses);
  expect(await stepsOf(id), "each step is counted once").toEqual(
    Array.from({ length: STEPS }, (_, index) => index + 1),
  );
  const { transitions } = (await getJobDetail(world.database.db, id)) ?? {};
  expect(transitions?.map(({ to }) => to)).toEqual([
    "profiling",
    "planning",
    "trialling",
    "running",
    "succeeded",
  ]);
  expect((await listTrials(world.database.db, id)).map(({ state }) => state)).toEqual(["succeeded"]);
}

describe("a preemptible job of low priority that trains", () => {
  it("gives way to an urgent one, and goes on behind it from its checkpoint with the same losses", async () => {
    const patient = await low();
    await frozenAtWork(patient);
    const urgent = await high();
    await told(patient);
    world.signalRanks("SIGCONT");
    await world.untilEvent(
      patient,
      ({ type, data }) => type === "log" && String(data["message"]).startsWith("gave way to job urgent"),
      60,
    );
    const queued = await queuePlace(world.database.db, jobLease(patient));
    // It may have its turn again by now, where this test is slow.
    if (queued) expect(queued).toMatchObject({ position: 1, gaveWayTo: "job urgent" });
    const [first] = await attemptsOf(patient);
    expect(first).toMatchObject({ state: "stopped", gaveWayTo: "job urgent", failure: null });
    expect(first?.lastStep).toBeGreaterThanOrEqual(10);
    expect(await world.job(patient)).toMatchObject({ state: "running" });
    await world.untilState(urgent, "succeeded", 200);
    await ended(patient);
    const attempts = await attemptsOf(patient);
    expect(attempts).toMatchObject([{ state: "stopped" }, { state: "succeeded" }]);
    expect(attempts[1]?.resumedFromStep, "nothing is done twice").toBe(first?.lastStep);
    await gaveWayOnce(patient);
  }, 900_000);

  it("is left alone when it is not preemptible", async () => {
    const owner = await submit("steady", { priority: "low" });
    await frozenAtWork(owner);
    const urgent = await high();
    await eventually("the urgent job to wait", async () =>
      Boolean(await queuePlace(world.database.db, jobLease(urgent))),
    );
    expect(await askedToGiveWay(world.database.db, jobLease(owner))).toBeUndefined();
    world.signalRanks("SIGCONT");
    await ended(owner);
    await world.untilState(urgent, "succeeded", 200);
    expect(await attemptsOf(owner)).toMatchObject([{ state: "succeeded" }]);
    expect(await world.lossesOf(owner)).toEqual(losses);
  }, 900_000);

  it.each(["asked", "stopping"] as const)(
    "gives way although its supervisor is killed meanwhile: %s",
    async (when) => {
      const patient = await low();
      await frozenAtWork(patient);
      // Frozen, it hears nothing until it is killed.
      if (when === "asked") process.kill(executor.pid, "SIGSTOP");
      const urgent = await high();
      await eventually("the request", async () =>
        Boolean(await askedToGiveWay(world.database.db, jobLease(patient))),
      );
      if (when === "stopping") await told(patient);
      await executor.kill();
      expect(await world.job(patient)).toMatchObject({ state: "running" });
      executor = await startExecutor();
      await world.untilState(urgent, "succeeded", 300);
      await ended(patient);
      expect((await attemptsOf(patient))[0]).toMatchObject({ state: "stopped", gaveWayTo: "job urgent" });
      await gaveWayOnce(patient);
    },
    900_000,
  );
});
