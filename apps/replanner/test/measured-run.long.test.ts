import { resolveJob, type Proposal } from "@internevo/domain";
import {
  allSteps,
  createWorkload,
  findRun,
  fireWorkloadNow,
  getFiring,
  getJobDetail,
  listAttempts,
  listPlanChanges,
  listProposals,
} from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { givePlan, quicklyTried, slowestPlan } from "@internevo/test-kit/planned-job";
import { createWorld, type World } from "@internevo/test-kit/world";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { replanner } from "../src/index.ts";

const STEPS = 500;

let world: World;
beforeAll(async () => {
  world = await createWorld();
  for (const service of ["profiler", "planner", "trial-runner"]) await world.startProcess(service);
});
afterEach(() => world.endJobs());
afterAll(() => world.close());

it("has a run whose measurements are old measure its cluster at a checkpoint, and apply what is found", async () => {
  const file = quicklyTried({ name: "measured at work", steps: STEPS });
  const { db } = world.database;
  const jobId = await world.submit(file);
  const { given: worst, profileId } = await givePlan(world, jobId, slowestPlan);
  await world.startProcess("executor-supervisor");
  await world.start(replanner, { INTERNEVO_REPLANNER_POLL_SECONDS: "0.2" });
  await world.untilEvent(jobId, ({ type, data }) => type === "step" && (data["step"] as number) >= 10, 120);
  await db.execute("update profiles set fresh_until = clock_timestamp()");
  const workload = await createWorkload(db, {
    name: "measured at work",
    spec: resolveJob(file),
    cron: "0 3 * * *",
    timeZone: "UTC",
    policy: "apply",
    mayMeasureRuns: true,
    // More steps than are left: the run keeps the plan at its end, however busy the machine was meanwhile.
    gainThreshold: 0,
    compareSteps: 1000,
    notInLastSteps: 20,
    nextRunAt: null,
  });
  const firing = await world.database.transaction((tx) => fireWorkloadNow(tx, workload.id));
  const fired = await eventually(
    "the end of the firing",
    async () => {
      const found = await getFiring(db, firing.id);
      return found?.state === "pending" ? undefined : found;
    },
    60,
    world.logs,
  );
  expect(fired).toMatchObject({
    state: "succeeded",
    outcome: `job ${jobId} measures the cluster at its next checkpoint, and searches`,
  });
  const proposal: Proposal = await eventually(
    "the answer to what was found",
    async () => (await listProposals(db, workload.id)).items.find(({ state }) => state === "applied"),
    200,
    world.logs,
  );
  expect(proposal).toMatchObject({ jobId, current: { plan: worst.plan }, measuredGain: expect.any(Number) });
  expect((await listPlanChanges(db, jobId)).items).toMatchObject([
    {
      state: "kept",
      isTrial: false,
      origin: "workload",
      askedBy: "replanner",
      proposalId: proposal.id,
      from: { plan: worst.plan },
      to: { plan: proposal.proposed.plan },
    },
  ]);
  // By what was measured at the checkpoint, and nothing older.
  expect((await getJobDetail(db, jobId))?.profileId).not.toBe(profileId);
  const run = await findRun(db, jobId);
  expect(run?.candidate.plan).toEqual(proposal.proposed.plan);
  await eventually(
    "the end of the job",
    async () => (await world.job(jobId)).report !== null,
    300,
    world.logs,
  );
  const attempts = await listAttempts(db, run?.id ?? "");
  expect(attempts.map(({ state }) => state)).toEqual(["stopped", "succeeded"]);
  expect(attempts[1]).toMatchObject({ plan: proposal.proposed.plan, resumedFromStep: attempts[0]?.lastStep });
  const steps = await allSteps(db, run?.id ?? "");
  expect(steps.map(({ step }) => step)).toEqual(Array.from({ length: STEPS }, (_, index) => index + 1));
}, 1_200_000);
