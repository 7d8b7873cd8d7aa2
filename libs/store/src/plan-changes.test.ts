import { eq } from "drizzle-orm";
import { compareSteps, planLabel, type PlanChange } from "@internevo/domain";
import { exampleCandidate, examplePlanning, exampleSpec, exampleStep } from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
import { comparedSteps } from "./compared-steps.ts";
import type { Transaction } from "./database.ts";
import { submitJob, transitionJob } from "./jobs.ts";
import {
  beginPlanChange,
  dismissPlanChange,
  endPlanChange,
  endPlanChangeWithTraining,
  lastPlanChange,
  storePlanChange,
  type RunOfJob,
} from "./plan-changes.ts";
import { storePlanning } from "./plannings.ts";
import { createProposal, listProposals } from "./proposals.ts";
import { ensureRun, findRun, recordDisturbances, recordSteps, startAttempt } from "./runs.ts";
import { jobs, proposals } from "./schema/index.ts";
import { createWorkload, finishFiring, fireWorkloadNow } from "./workloads.ts";

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

const within = <T>(work: (tx: Transaction) => Promise<T>): Promise<T> => test.database.transaction(work);
const [old, better] = [exampleCandidate(1), exampleCandidate(2)];
const COMPARED = 5;

/** A job that trains under the old plan. */
async function aRun(): Promise<RunOfJob> {
  const jobId = await within((tx) => submitJob(tx, exampleSpec()));
  await test.database.db.update(jobs).set({ state: "running" }).where(eq(jobs.id, jobId));
  const { id } = await within((tx) => ensureRun(tx, jobId, old));
  return { id, jobId };
}

const ask = (run: RunOfJob, more: { readonly isTrial?: boolean; readonly proposalId?: string } = {}) =>
  within((tx) =>
    storePlanChange(tx, run, {
      origin: "workload",
      askedBy: "test",
      from: old,
      to: better,
      predictedGain: 0.5,
      gainThreshold: 0.05,
      compareSteps: COMPARED,
      ...more,
    }),
  );

/** The run's next attempt makes steps up to one, each as long as the plan says. */
async function train(run: RunOfJob, from: number, to: number, stepTimeSeconds: number): Promise<number> {
  const { number } = await within((tx) => startAttempt(tx, run.id, from));
  const steps = Array.from({ length: to - from }, (_, index) => ({
    ...exampleStep(from + index + 1, number),
    stepTimeSeconds,
  }));
  await within((tx) => recordSteps(tx, { runId: run.id, jobId: run.jobId }, steps));
  return number;
}

/** A proposal of a workload, which a run carries out. */
async function carriedOut(): Promise<{ readonly workloadId: string; readonly proposalId: string }> {
  const { id: workloadId } = await within((tx) =>
    createWorkload(tx, {
      name: crypto.randomUUID(),
      spec: exampleSpec(),
      cron: "0 3 * * *",
      nextRunAt: null,
    }),
  );
  return { workloadId, proposalId: await propose(workloadId, "applying") };
}

async function propose(workloadId: string, state?: "applying"): Promise<string> {
  const { id: firingId } = await within((tx) => fireWorkloadNow(tx, workloadId));
  const planningId = await within((tx) => storePlanning(tx, examplePlanning(3), { workloadId }));
  const proposal = await within((tx) =>
    createProposal(tx, {
      workloadId,
      firingId,
      planningId,
      current: old,
      proposed: better,
      predictedGain: 0.5,
      differences: [],
    }),
  );
  await within((tx) => finishFiring(tx, firingId, { state: "succeeded", outcome: "proposed a plan" }));
  if (!proposal) throw new Error("nothing was proposed");
  if (state) await test.database.db.update(proposals).set({ state }).where(eq(proposals.id, proposal.id));
  return proposal.id;
}

const statesOf = async (workloadId: string) =>
  (await listProposals(test.database.db, workloadId)).items.map(({ state }) => state);
const planOf = async (run: RunOfJob) => {
  const found = await findRun(test.database.db, run.jobId);
  return found && planLabel(found.candidate.plan);
};
const endJob = (run: RunOfJob, to: "cancelled" | "failed") =>
  within((tx) => transitionJob(tx, { jobId: run.jobId, from: "running", to }));
async function begin(change: PlanChange, atStep = 10, attempt = 2): Promise<void> {
  expect(await within((tx) => beginPlanChange(tx, change, { atStep, attempt }))).toBe(true);
}

it("is judged by steps under the plan before, not by those of a plan that was tried and taken back", async () => {
  const run = await aRun();
  await train(run, 0, 100, 2);
  const tried = await ask(run, { isTrial: true });
  await begin(tried, 100, 2);
  const trial = await train(run, 100, 110, 1);
  await within((tx) => recordDisturbances(tx, run.id, trial, ["here: others took 45%"]));
  const comparison = { secondsBefore: 2, secondsAfter: 1, measuredGain: 0.5, steps: COMPARED };
  await within((tx) => endPlanChange(tx, tried, { state: "returned", reason: "tried", comparison }));
  const back = await train(run, 110, 112, 2);
  await within((tx) => recordDisturbances(tx, run.id, back, ["there: others took 20%"]));

  await begin(await ask(run), 112, 4);
  await train(run, 112, 124, 1);
  const change = await lastPlanChange(test.database.db, run);
  if (!change) throw new Error("no change is stored");
  const { steps, disturbances } = await comparedSteps(test.database.db, run.id, change, 2 * COMPARED + 10);
  expect(compareSteps(steps, change)).toMatchObject({ secondsBefore: 2, secondsAfter: 1, measuredGain: 0.5 });
  expect(disturbances).toEqual(["there: others took 20%"]);
});

it.each(["cancelled", "failed"] as const)(
  "is taken back when its job is %s before it was judged",
  async (to) => {
    const run = await aRun();
    const { workloadId, proposalId } = await carriedOut();
    await begin(await ask(run, { proposalId }));
    expect(await planOf(run)).toBe(planLabel(better.plan));
    await endJob(run, to);
    expect(await lastPlanChange(test.database.db, run)).toMatchObject({
      state: "returned",
      measuredGain: null,
      reason: `the job ${to === "failed" ? "failed" : "was cancelled"}: it was not judged`,
    });
    expect(await planOf(run), "what goes on does so under the plan before").toBe(planLabel(old.plan));
    expect(await statesOf(workloadId), "nobody has refused it").toEqual(["proposed"]);
  },
);

it("leaves its proposal open where the job ended, or training was complete, before it was made", async () => {
  for (const end of [
    (run: RunOfJob) => endJob(run, "cancelled"),
    (run: RunOfJob) => within((tx) => endPlanChangeWithTraining(tx, run.id)),
  ]) {
    const run = await aRun();
    const { workloadId, proposalId } = await carriedOut();
    await ask(run, { proposalId });
    await end(run);
    expect(await lastPlanChange(test.database.db, run)).toMatchObject({ state: "dismissed" });
    expect(await statesOf(workloadId)).toEqual(["proposed"]);
  }
});

it("leaves the place to a newer proposal", async () => {
  const run = await aRun();
  const { workloadId, proposalId } = await carriedOut();
  await ask(run, { proposalId });
  await propose(workloadId);
  await endJob(run, "cancelled");
  expect(await statesOf(workloadId)).toEqual(["proposed", "superseded"]);
});

it("takes its proposal with it where somebody dismisses it", async () => {
  const run = await aRun();
  const { workloadId, proposalId } = await carriedOut();
  const change = await ask(run, { proposalId });
  await within((tx) => dismissPlanChange(tx, run.jobId, change.id, "not now"));
  expect(await statesOf(workloadId)).toEqual(["dismissed"]);
});
