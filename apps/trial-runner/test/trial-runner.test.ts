import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { CostModel } from "@internevo/cost-model";
import { choiceOf, choiceWords, resolveJob, runsOf, type Candidate } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import { createTrials, getJob, listTrials, requestCancel, submitJob, transitionJob } from "@internevo/store";
import { aPlan } from "@internevo/test-kit";
import { createBrake, type Brake } from "@internevo/test-kit/brake";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { trialRunner } from "../src/index.ts";

let world: World;
let brake: Brake;
beforeAll(async () => {
  brake = createBrake(30);
  brake.open("first", "second");
  world = await createWorld();
  await world.start(trialRunner, { INTERNEVO_NATIVE_DIRECTORY: brake.nativeDirectory });
});
afterAll(async () => {
  await world.close();
  brake.dispose();
});

afterEach(() => world.endJobs());

/** A job that stands before its trials, with these plans to try. */
async function trialling(
  job: Record<string, unknown>,
  choose: (runnable: Candidate[]) => Candidate[],
): Promise<string> {
  const spec = resolveJob(job);
  const { runnableCandidates } = planJob(
    { ...spec, cluster: { ...spec.cluster, memoryPerGpuBytes: 1e12 } },
    world.profile,
    { top: 10 },
  );
  return world.database.transaction(async (tx) => {
    const id = await submitJob(tx, spec);
    await transitionJob(tx, { jobId: id, from: "profiling", to: "planning" });
    await createTrials(tx, id, choose(runnableCandidates));
    await transitionJob(tx, { jobId: id, from: "planning", to: "trialling" });
    return id;
  });
}
const first = (count: number) => (runnable: Candidate[]) => runnable.slice(0, count);

describe("trial-runner", () => {
  it("measures every plan and goes on with the fastest measured, or the leanest of those that tie with it", async () => {
    const id = await trialling(smallJob({ trials: { count: 3, warmupSteps: 1, steps: 3 } }), first(3));
    await world.untilState(id, "running", 120);
    const trials = await listTrials(world.database.db, id);
    expect(trials.map((trial) => trial.state)).toEqual(["succeeded", "succeeded", "succeeded"]);
    for (const { measured } of trials) {
      // Further runs of plans that the first does not tell apart count as well.
      expect(measured?.steps).toBe(3 * (measured?.runStepTimeSeconds?.length ?? 1));
      expect(measured?.loss).toBeGreaterThan(3);
      expect(measured?.loss).toBeLessThan(8);
      expect(
        measured &&
          measured.stepTimeSecondsP10 <= measured.stepTimeSeconds &&
          measured.stepTimeSeconds <= measured.stepTimeSecondsP90,
      ).toBe(true);
      // The peak is what was planned or less, and the lines say what it is made of.
      const planned = Object.values(measured?.memory ?? {}).reduce((sum, bytes) => sum + bytes, 0);
      expect(measured && measured.peakMemoryBytes <= planned * 1.01).toBe(true);
      expect(Object.keys(measured?.memory ?? {})).toContain("optimizerStates");
    }
    // What the hosts did meanwhile is known of every run.
    for (const { measured } of trials)
      for (const run of measured ? runsOf(measured) : [])
        expect(run.hosts).toMatchObject([
          { ranks: 2, cores: expect.any(Number), ranksSeconds: expect.any(Number) },
        ]);
    const choice = choiceOf(trials);
    const job = await getJob(world.database.db, id);
    expect(job?.chosen?.plan).toEqual(choice?.chosen.plan);
    expect(job?.reason).toBe(choice && choiceWords(choice));
    expect(
      await world.untilEvent(id, (event) => event.type === "progress" && event.data["done"] === 3),
    ).toBeDefined();
    await world.untilNoRanks();
  }, 900_000);

  it.each([
    [2, { pipelineParallel: 2 }],
    [2, { tensorParallel: 2, sequenceParallel: 2 }],
    [4, { pipelineParallel: 2, tensorParallel: 2, sequenceParallel: 2 }],
    [2, { sequenceParallel: 2, contextParallel: 2 }],
    [
      4,
      {
        sequenceParallel: 4,
        contextParallel: 2,
        parameterSharding: 2,
        forwardOverlap: "inter-layer" as const,
      },
    ],
    [
      4,
      { pipelineParallel: 2, pipelineChunks: 2, dataParallel: 2, parameterSharding: 2, recomputeLayers: 1 },
    ],
  ])(
    "measures a plan of %i ranks with %o in the memory that was predicted",
    async (ranks, factors) => {
      const microBatches = 8 / ("dataParallel" in factors ? factors.dataParallel : 1);
      const plan = aPlan({ ...factors, microBatches });
      const model = { ...(smallJob()["model"] as Record<string, unknown>), layers: 4 };
      const job = smallJob({
        model,
        cluster: { name: `ranks-${ranks}`, nodes: 1, gpusPerNode: ranks, memoryPerGpu: "512MiB" },
      });
      const predicted = new CostModel(resolveJob(job), world.profile).predict(
        planOfJob(plan, resolveJob(job)),
      );
      const id = await trialling(job, ([any]) => [{ ...(any as Candidate), rank: 1, plan, predicted }]);
      await world.untilState(id, "running", 120);
      const [trial] = await listTrials(world.database.db, id);
      expect(trial).toMatchObject({ state: "succeeded", candidate: { plan } });
      const { runtime: _measured, ...lines } = trial?.measured?.memory ?? {};
      const { runtime: _predicted, ...wanted } = predicted.memory;
      expect(Object.values(lines).reduce((sum, bytes) => sum + bytes, 0)).toBe(
        Object.values(wanted).reduce((sum, bytes) => sum + bytes, 0),
      );
    },
    900_000,
  );

  it("counts a plan that the executor refuses as a failed trial, and goes on with the others", async () => {
    const id = await trialling(smallJob(), ([good]) => {
      if (!good) throw new Error("no plan");
      return [
        { ...good, rank: 1, plan: { ...good.plan, pipelineChunks: 2 } },
        { ...good, rank: 2 },
      ];
    });
    await world.untilState(id, "running", 120);
    expect(await listTrials(world.database.db, id)).toMatchObject([
      { state: "failed", failure: { code: "plan-unsupported" }, measured: null },
      { state: "succeeded" },
    ]);
  }, 900_000);

  it("counts running out of memory as a result, and fails a job none of whose plans runs", async () => {
    const id = await trialling(
      smallJob({ cluster: { name: "tight", nodes: 1, gpusPerNode: 2, memoryPerGpu: "1MiB" } }),
      first(2),
    );
    await world.untilState(id, "failed", 120);
    expect(await listTrials(world.database.db, id)).toMatchObject([
      { state: "failed", failure: { code: "out-of-memory" } },
      { state: "failed", failure: { code: "out-of-memory" } },
    ]);
    expect((await world.job(id)).failure).toMatchObject({
      code: "out-of-memory",
      message: expect.stringContaining("none of 2 trials succeeded"),
    });
  }, 900_000);

  it.each([
    ["a file that is missing", { format: "text", paths: ["/absent.txt"] }, "/absent.txt does not exist"],
    ["text shorter than a sequence", { format: "text", paths: ["/etc/hostname"] }, "fewer than one sequence"],
  ])("fails a job whose data is %s, before any rank starts", async (_what, data, message) => {
    const id = await trialling(smallJob({ data }), first(1));
    await world.untilState(id, "failed", 60);
    expect((await world.job(id)).failure).toMatchObject({
      code: "data-invalid",
      message: expect.stringContaining(message),
      remedy: expect.any(String),
    });
    expect(await listTrials(world.database.db, id)).toMatchObject([
      { state: "cancelled", startedAt: null, failure: { code: "cancelled" } },
    ]);
  });

  it("tries a plan again when one of its ranks is killed", async () => {
    brake.close();
    const id = await trialling(smallJob({ trials: { count: 1, warmupSteps: 1, steps: 400 } }), first(1));
    await world.untilEvent(
      id,
      (event) => event.type === "progress" && String(event.data["message"]).includes("step"),
      60,
    );
    process.kill(world.rankPids()[1] as number, "SIGKILL");
    brake.open("first", "second");
    await world.untilState(id, "running", 120);
    expect(await listTrials(world.database.db, id)).toMatchObject([
      { state: "succeeded", measured: { steps: 400 } },
    ]);
    expect(
      await world.untilEvent(
        id,
        (event) => event.type === "log" && String(event.data["message"]).includes("tried again"),
      ),
    ).toBeDefined();
  }, 900_000);

  it("stops when the job is cancelled", async () => {
    const id = await trialling(smallJob({ trials: { count: 1, warmupSteps: 1, steps: 10_000 } }), first(1));
    await world.untilEvent(
      id,
      (event) => event.type === "progress" && String(event.data["message"]).includes("step"),
      60,
    );
    expect(await world.database.transaction((tx) => requestCancel(tx, id))).toBe("cancelling");
    await world.untilState(id, "cancelled", 30);
    await world.untilNoRanks();
  }, 900_000);
});
