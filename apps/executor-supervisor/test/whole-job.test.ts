import { readdir } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { checkpointDirectory } from "@internevo/stages";
import { allSteps, allValidations, findRun, listAttempts, listTrials, requestCancel } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { stepEvent } from "@internevo/test-kit/job-told";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { planner } from "@internevo/planner";
import { profiler } from "@internevo/profiler";
import { trialRunner } from "@internevo/trial-runner";
import { checkpointSteps } from "../src/checkpoints.ts";
import { executorSupervisor } from "../src/index.ts";

let world: World;
beforeAll(async () => {
  world = await createWorld();
  for (const service of [profiler, planner, trialRunner]) await world.start(service as typeof profiler);
  await world.start(executorSupervisor);
});
afterAll(() => world.close());

async function runOf(jobId: string) {
  const run = await findRun(world.database.db, jobId);
  if (!run) throw new Error("the job has no run");
  return {
    steps: await allSteps(world.database.db, run.id),
    validations: await allValidations(world.database.db, run.id),
    attempts: await listAttempts(world.database.db, run.id),
  };
}
/** What was told of a job, in order; of checkpoints also their step. */
async function eventsOf(jobId: string): Promise<string[]> {
  const { rows } = await world.database.db.execute<{ told: string }>(
    `select concat_ws(' ', type, data ->> 'step') as told from outbox
     where subject_id = '${jobId}' and project is not null order by sequence`,
  );
  return rows.map(({ told }) => told);
}
describe("a job through all services", () => {
  it("is profiled, planned, tried and trained, and reports", async () => {
    const began = performance.now();
    const id = await world.submit(
      smallJob({
        name: "whole",
        cluster: { name: "whole", nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" },
        steps: 60,
        trials: { count: 10, warmupSteps: 1, steps: 3 },
      }),
    );
    const stages: string[] = [];
    for (const state of ["planning", "trialling", "running", "succeeded"] as const) {
      await world.untilState(id, state, 300);
      stages.push(`${state} after ${((performance.now() - began) / 1000).toFixed(1)} s`);
    }
    console.info(stages.join(", "));
    const { report } = await world.job(id);
    const { steps, attempts } = await runOf(id);
    expect(steps.map((metric) => metric.step)).toEqual(Array.from({ length: 60 }, (_, index) => index + 1));
    expect(attempts).toMatchObject([{ number: 1, state: "succeeded", resumedFromStep: 0, lastStep: 60 }]);
    const trials = await listTrials(world.database.db, id);
    expect(trials).toHaveLength(10);
    expect(trials.filter((trial) => trial.state === "succeeded")).toHaveLength(10);
    expect(report).toMatchObject({ steps: 60, attempts: 1 });
    expect(report?.finalLossNats).toBeLessThan(steps[0]?.loss as number);
    expect(report?.unigramEntropyNats).toBeGreaterThan(2);
    expect(report?.timeErrorOverTrials).toBeGreaterThanOrEqual(0);
    expect(report?.memoryErrorOverTrials).toBeGreaterThanOrEqual(0);
    expect(report?.kendallTauOverTrials).not.toBeUndefined();
    expect((await readdir(checkpointDirectory(world.dataDirectory, id))).sort()).toEqual([
      "step-50",
      "step-60",
    ]);
    await world.untilNoRanks();
    expect(await eventsOf(id)).toEqual([
      "job.transitioned",
      "queue.granted",
      "profile.measured",
      "job.transitioned",
      "planning.done",
      "job.transitioned",
      ...trials.map(() => "trial.ended"),
      "job.transitioned",
      "attempt.begun",
      ...[10, 20, 30, 40, 50, 60].map((step) => `checkpoint.written ${step}`),
      "attempt.ended",
      "job.transitioned",
    ]);
  }, 900_000);

  it("goes on from the last checkpoint when a rank is killed, and ends with the same losses", async () => {
    const cluster = { name: "whole", nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" };
    // Steps enough that hundreds are left when the kill comes; what a rank says last must not be held back
    // here.
    const job = {
      cluster,
      steps: 800,
      validation: {
        data: { format: "text", paths: ["/usr/share/common-licenses/GPL-2"] },
        everySteps: 30,
        batches: 4,
      },
      trials: { count: 1, warmupSteps: 0, steps: 1 },
      checkpointing: { everySteps: 20, keepLast: 100 },
    };
    const undisturbed = await world.submit(smallJob(job));
    await world.untilState(undisturbed, "succeeded", 200);
    const id = await world.submit(smallJob(job));
    await world.untilEvent(id, stepEvent(45), 120);
    // It is written beside the steps, and may be in place many of them later.
    await eventually(
      "the checkpoint of step 40",
      async () => ((await checkpointSteps(checkpointDirectory(world.dataDirectory, id))).at(-1) ?? 0) >= 40,
    );
    const [, second] = world.rankPids();
    process.kill(second as number, "SIGKILL");
    await world.untilState(id, "succeeded", 200);
    const { steps, attempts } = await runOf(id);
    expect(attempts).toHaveLength(2);
    expect(attempts[0]).toMatchObject({ state: "failed", failure: { code: "rank-lost" } });
    expect(attempts[1]?.state).toBe("succeeded");
    expect(attempts[1]?.resumedFromStep).toBeGreaterThanOrEqual(40);
    expect((attempts[1]?.resumedFromStep ?? 1) % 20).toBe(0);
    expect(steps.map((metric) => metric.step)).toEqual(Array.from({ length: 800 }, (_, index) => index + 1));
    // Resuming under the same plan is bitwise: the interruption leaves no trace in the losses.
    expect(steps.map((metric) => metric.loss)).toEqual(
      (await runOf(undisturbed)).steps.map((metric) => metric.loss),
    );
    const { validations } = await runOf(id);
    expect(validations.map(({ step }) => step)).toEqual([
      ...Array.from({ length: 27 }, (_, index) => 30 * index),
      800,
    ]);
    expect(validations.map(({ loss }) => loss)).toEqual(
      (await runOf(undisturbed)).validations.map(({ loss }) => loss),
    );
    const { report } = await world.job(id);
    expect(report).toMatchObject({
      attempts: 2,
      validation: { lossNats: validations.at(-1)?.loss, evaluations: 28 },
    });
    expect(report?.validation?.best.lossNats).toBeLessThan(validations[0]?.loss as number);
  }, 900_000);

  it("is cancelled while it trains, and no rank is left", async () => {
    const id = await world.submit(
      smallJob({
        cluster: { name: "whole", nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" },
        steps: 100_000,
        trials: { count: 1, warmupSteps: 0, steps: 1 },
      }),
    );
    await world.untilEvent(id, stepEvent(2), 120);
    expect(world.rankPids()).toHaveLength(2);
    expect(await world.database.transaction((tx) => requestCancel(tx, id))).toBe("cancelling");
    await world.untilState(id, "cancelled", 30);
    await world.untilNoRanks();
    expect((await runOf(id)).attempts).toMatchObject([{ state: "stopped" }]);
    expect((await world.job(id)).report).toBeNull();
  }, 900_000);
});
