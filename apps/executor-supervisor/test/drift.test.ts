import { spawn } from "node:child_process";
import { once } from "node:events";
import { planner } from "@internevo/planner";
import { profiler } from "@internevo/profiler";
import { allSteps, findRun, getJobDetail, listAttempts, listPlanChanges } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { givePlan, quicklyTried, slowestPlan } from "@internevo/test-kit/planned-job";
import { createWorld, type World } from "@internevo/test-kit/world";
import { trialRunner } from "@internevo/trial-runner";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";

const STEPS = 400;

let world: World;
beforeAll(async () => {
  world = await createWorld();
  for (const service of [profiler, planner, trialRunner]) await world.start(service as typeof profiler);
});
afterEach(() => world.endJobs());
afterAll(() => world.close());

/** Other work on every core, as many times as there are ranks. @returns what ends it */
function burden(): () => Promise<void> {
  const others = Array.from({ length: 6 }, () => spawn(process.execPath, ["-e", "for (;;);"]));
  return async () => {
    for (const other of others) {
      const ended = once(other, "exit");
      other.kill("SIGKILL");
      await ended;
    }
  };
}

it("measures its cluster when its steps take longer, and goes on under the plan that is better", async () => {
  const id = await world.submit(
    quicklyTried({
      name: "drifting",
      steps: STEPS,
      replanning: { driftThreshold: 0.5, compareSteps: 10, notInLastSteps: 20, lastingSeconds: 0 },
    }),
  );
  const { given: worst, profileId } = await givePlan(world, id, slowestPlan);
  await world.startProcess("executor-supervisor");
  await world.untilEvent(id, ({ type, data }) => type === "step" && (data["step"] as number) >= 30, 120);
  const unburden = burden();
  try {
    await world.untilEvent(
      id,
      ({ type, data }) => type === "log" && String(data["message"]).includes("to measure the cluster anew"),
      120,
    );
  } finally {
    await unburden();
  }
  await eventually("the end of the job", async () => (await world.job(id)).report !== null, 600);
  const change = (await listPlanChanges(world.database.db, id)).items.at(-1);
  // Which of the two is what the machine had to spare says: the test does not depend on it.
  const isKept = (change?.measuredGain ?? NaN) >= (change?.gainThreshold ?? NaN);
  expect(change).toMatchObject({
    state: isKept ? "kept" : "returned",
    measuredGain: expect.any(Number),
    origin: "drift",
    askedBy: "executor-supervisor",
    from: { plan: worst.plan },
    firstAttempt: 2,
  });
  expect(change?.predictedGain ?? 0).toBeGreaterThan(0.02);
  const run = await findRun(world.database.db, id);
  const attempts = await listAttempts(world.database.db, run?.id ?? "");
  expect(attempts[0]).toMatchObject({ state: "stopped", plan: worst.plan });
  expect(attempts[1]).toMatchObject({ plan: change?.to.plan, resumedFromStep: attempts[0]?.lastStep });
  expect(run?.candidate.plan).toEqual(isKept ? change?.to.plan : worst.plan);
  const steps = await allSteps(world.database.db, run?.id ?? "");
  expect(steps.map(({ step }) => step)).toEqual(Array.from({ length: STEPS }, (_, index) => index + 1));
  // The profile of the job is the newest one.
  expect((await getJobDetail(world.database.db, id))?.profileId).not.toBe(profileId);
}, 1_200_000);
