import { resolveJob, type Proposal } from "@internevo/domain";
import { carryOutProposal } from "@internevo/stages";
import {
  allSteps,
  createWorkload,
  findRun,
  fireWorkloadNow,
  getFiring,
  listAttempts,
  listPlanChanges,
  listProposals,
  updateWorkload,
} from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { givePlan, quicklyTried, slowestPlan } from "@internevo/test-kit/planned-job";
import { createWorld, type World } from "@internevo/test-kit/world";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { replanner } from "../src/index.ts";

const STEPS = 800;

let world: World;
beforeAll(async () => {
  world = await createWorld();
  for (const service of ["profiler", "planner", "trial-runner"]) await world.startProcess(service);
});
afterEach(() => world.endJobs());
afterAll(() => world.close());

it("has a run try what was proposed, and go on under it when somebody says so", async () => {
  const file = quicklyTried({ name: "nightly", steps: STEPS });
  const { db } = world.database;
  const jobId = await world.submit(file);
  const { given: worst } = await givePlan(world, jobId, slowestPlan);
  await world.startProcess("executor-supervisor");
  await world.start(replanner, { INTERNEVO_REPLANNER_POLL_SECONDS: "0.2" });

  let workload = await createWorkload(db, {
    name: "nightly",
    spec: resolveJob(file),
    cron: "0 3 * * *",
    timeZone: "UTC",
    // The run keeps the plan whatever it gains: on a busy machine its steps may take many times as long.
    gainThreshold: -1000,
    compareSteps: 25,
    notInLastSteps: 20,
    nextRunAt: null,
  });
  const newest = async (): Promise<Proposal | undefined> => (await listProposals(db, workload.id)).items[0];
  const untilProposal = (state: Proposal["state"]): Promise<Proposal> =>
    eventually(
      `a proposal that is ${state}`,
      async () => {
        const found = await newest();
        return found?.state === state && found;
      },
      120,
      world.logs,
    );
  await world.untilEvent(jobId, ({ type, data }) => type === "step" && (data["step"] as number) >= 10, 120);
  // Its cluster is held by the run, whose measurements do.
  const firing = await world.database.transaction((tx) => fireWorkloadNow(tx, workload.id));
  await eventually(
    "the end of the firing",
    async () => (await getFiring(db, firing.id))?.state === "succeeded",
    60,
    world.logs,
  );
  const proposed = await untilProposal("proposed");
  expect(proposed).toMatchObject({ jobId: null, measuredGain: null, current: { plan: worst.plan } });

  // With another policy its run tries it, and goes back.
  workload = (await updateWorkload(db, workload.id, { policy: "try" })) ?? workload;
  const tried = await untilProposal("tried");
  expect(tried).toMatchObject({ id: proposed.id, jobId, measuredGain: expect.any(Number) });
  expect(tried.reason).toMatch(/^tried: a step took /);
  const run = await findRun(db, jobId);
  expect(run?.candidate.plan).toEqual(worst.plan);
  expect((await listPlanChanges(db, jobId)).items).toMatchObject([
    { state: "returned", isTrial: true, origin: "workload", proposalId: proposed.id },
  ]);

  await world.database.transaction((tx) =>
    carryOutProposal(tx, {
      workload,
      proposalId: proposed.id,
      how: "apply",
      askedBy: "ada",
      origin: "person",
    }),
  );
  expect(await newest()).toMatchObject({ state: "applying" });
  const applied = await untilProposal("applied");
  expect(applied.measuredGain).toEqual(expect.any(Number));
  expect((await findRun(db, jobId))?.candidate.plan).toEqual(proposed.proposed.plan);

  await eventually(
    "the end of the job",
    async () => (await world.job(jobId)).report !== null,
    300,
    world.logs,
  );
  const attempts = await listAttempts(db, run?.id ?? "");
  expect(attempts.map(({ state }) => state)).toEqual(["stopped", "stopped", "stopped", "succeeded"]);
  const steps = await allSteps(db, run?.id ?? "");
  expect(steps.map(({ step }) => step)).toEqual(Array.from({ length: STEPS }, (_, index) => index + 1));
}, 1_200_000);
