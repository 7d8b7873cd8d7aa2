import { aPlan } from "@internevo/test-kit";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CostModel } from "@internevo/cost-model";
import { resolveJob, type Candidate, type Plan } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import { checkpointDirectory, timelinePath } from "@internevo/stages";
import { createTrials, listTrials, submitJob, transitionJob } from "@internevo/store";
import { parse } from "yaml";
import { createWorld, type World } from "@internevo/test-kit/world";
import { planner } from "@internevo/planner";
import { profiler } from "@internevo/profiler";
import { trialRunner } from "@internevo/trial-runner";
import { executorSupervisor } from "../src/index.ts";

const example = (name: string): string =>
  fileURLToPath(new URL(`../../../examples/${name}`, import.meta.url));

let world: World;
let directory: string;
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), "internevo-packed-"));
  execFileSync(process.execPath, [example("packed-data.mjs"), join(directory, "licences")]);
  world = await createWorld();
  for (const service of [profiler, planner, trialRunner]) await world.start(service as typeof profiler);
  await world.start(executorSupervisor);
});
afterAll(async () => {
  await world.close();
  rmSync(directory, { recursive: true, force: true });
});

/** The example, with its data where the test has written it, and fewer steps. */
function job(over: Record<string, unknown> = {}): Record<string, unknown> {
  const written = parse(readFileSync(example("packed-megatron.yaml"), "utf8")) as Record<
    string,
    Record<string, unknown>
  >;
  return {
    ...written,
    data: { ...written["data"], path: join(directory, "licences.bin") },
    steps: 24,
    cluster: { ...written["cluster"], name: "packed", memoryPerGpu: "512MiB" },
    trials: { count: 2, warmupSteps: 1, steps: 2 },
    ...over,
  };
}

/** A job that stands before its trials, with one plan to try. */
async function trialling(written: Record<string, unknown>, plan: Plan): Promise<string> {
  const spec = resolveJob(written);
  const [any] = planJob(spec, world.profile, { top: 1 }).runnableCandidates as [Candidate];
  const predicted = new CostModel(spec, world.profile).predict(planOfJob(plan, spec));
  return world.database.transaction(async (tx) => {
    const id = await submitJob(tx, spec);
    await transitionJob(tx, { jobId: id, from: "profiling", to: "planning" });
    await createTrials(tx, id, [{ ...any, rank: 1, plan, predicted }]);
    await transitionJob(tx, { jobId: id, from: "planning", to: "trialling" });
    return id;
  });
}

const ring = aPlan({
  microBatchSize: 2,
  microBatches: 8,
  sequenceParallel: 2,
  contextParallel: 2,
  parameterSharding: 2,
});

describe("the example of packed documents", () => {
  let losses: number[] = [];
  let trained = "";

  it("is profiled, planned, tried and trained, with a timeline of every trial and of the run", async () => {
    const id = await world.submit(job());
    await world.untilState(id, "succeeded", 400);
    losses = await world.lossesOf(id);
    expect(losses).toHaveLength(24);
    expect(losses.at(-1)).toBeLessThan((losses[0] as number) - 0.5);
    for (const of of ["trial-1", "trial-2", "attempt-1"]) {
      const { traceEvents } = JSON.parse(readFileSync(timelinePath(world.dataDirectory, id, of), "utf8")) as {
        traceEvents: unknown[];
      };
      expect(traceEvents.length, of).toBeGreaterThan(20);
    }
    const trials = await listTrials(world.database.db, id);
    for (const { candidate, measured } of trials) {
      const { runtime: _planned, ...wanted } = candidate.predicted.memory;
      const { runtime: _measured, checkpointStaging: _staging, ...found } = measured?.memory ?? {};
      expect(found).toEqual(wanted);
    }
    await world.untilNoRanks();
  }, 900_000);

  it("is tried and trained on a ring with the same losses, in the memory that was predicted", async () => {
    const id = (trained = await trialling(job(), ring));
    await world.untilState(id, "succeeded", 200);
    const onRing = await world.lossesOf(id);
    expect(onRing).toHaveLength(24);
    // From then on training amplifies what two plans round differently, whichever plans they are.
    for (const [step, loss] of onRing.slice(0, 8).entries())
      expect(Math.abs(loss / (losses[step] as number) - 1), `step ${step + 1}`).toBeLessThan(1e-6);
    const [trial] = await listTrials(world.database.db, id);
    expect(trial).toMatchObject({ state: "succeeded", candidate: { plan: { contextParallel: 2 } } });
    const { runtime: _planned, ...wanted } = trial?.candidate.predicted.memory ?? {};
    const { runtime: _measured, ...found } = trial?.measured?.memory ?? {};
    expect(found).toEqual(wanted);
    expect(found["contextStaging"]).toBeGreaterThan(0);
    await world.untilNoRanks();
  }, 900_000);

  it("begins with the weights of another run, and not from the beginning", async () => {
    const id = await trialling(
      job({
        initialWeights: join(checkpointDirectory(world.dataDirectory, trained), "step-24"),
        steps: 12,
        timeline: false,
        watchdog: false,
      }),
      { ...ring, contextParallel: 1, microBatchSize: 1, microBatches: 16 },
    );
    await world.untilState(id, "succeeded", 200);
    expect((await world.lossesOf(id))[0]).toBeLessThan((losses[0] as number) - 0.5);
  }, 900_000);

  it("fails before any rank starts when a sequence holds more documents than there is room for", async () => {
    const data = { ...(job()["data"] as Record<string, unknown>), maxDocumentsPerSequence: 1 };
    const id = await trialling(job({ data }), ring);
    await world.untilState(id, "failed", 60);
    expect((await world.job(id)).failure).toMatchObject({
      code: "data-invalid",
      message: expect.stringMatching(/has a sequence of \d+ documents, and there is room for 1/),
      remedy: expect.stringContaining("or more"),
    });
  }, 900_000);
});
