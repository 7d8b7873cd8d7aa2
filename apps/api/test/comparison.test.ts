import { ComparisonSchema, MOST_CURVE_POINTS } from "@internevo/contracts";
import { shippedProfile } from "@internevo/cost-model";
import {
  measuredMfu,
  planLabel,
  resolveJob,
  worldSize,
  type Report,
  type StepMetric,
} from "@internevo/domain";
import {
  acquireLease,
  beginRetentionRun,
  changeRunPlan,
  createTrials,
  ensureRun,
  finishTrial,
  recordSteps,
  recordValidations,
  releaseLease,
  startAttempt,
  startTrial,
  storePlanning,
  storeProfile,
  submitJob,
  updateJob,
} from "@internevo/store";
import { removeDue } from "@internevo/stages";
import { exampleCandidate, exampleMeasurement, examplePlanning } from "@internevo/test-kit/fixtures";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { jobFile, problem, shaped, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi({ limits: { requestsPerMinute: 1e6 } });
}, 60_000);
afterAll(() => api.close());

const ask = (query: string) =>
  api.app.inject({ url: `/api/v1/comparison?${query}`, headers: { authorization: api.bearer.viewer } });
const compare = async (...ids: string[]) =>
  shaped(ComparisonSchema, await ask(ids.map((id) => `job=${id}`).join("&")));
const submit = (over: Record<string, unknown> = {}): Promise<string> =>
  api.database.transaction((tx) =>
    submitJob(tx, { ...resolveJob(jobFile(api, { name: "small", ...over })), project: "default" }),
  );

/** Trains a job for so many steps, each with the loss that is given, and of 512 tokens. */
async function train(
  jobId: string,
  steps: number,
  lossOf: (step: number) => number,
  secondsOf: (step: number) => number = () => 0.5,
  tokensWithTarget = 512,
): Promise<void> {
  const at = new Date().toISOString();
  await api.database.transaction(async (tx) => {
    await updateJob(tx, jobId, { chosen: exampleCandidate() });
    const run = await ensureRun(tx, jobId, exampleCandidate());
    await startAttempt(tx, run.id);
    const metrics = Array.from({ length: steps }, (_, index): StepMetric => ({
      step: index + 1,
      loss: lossOf(index + 1),
      gradientNorm: 1,
      learningRate: 1e-3,
      stepTimeSeconds: secondsOf(index + 1),
      tokensPerSecond: tokensWithTarget / secondsOf(index + 1),
      exposedCommunicationSeconds: 0,
      attempt: 1,
      at,
    }));
    await recordSteps(tx, { jobId, runId: run.id }, metrics);
    await recordValidations(tx, { jobId, runId: run.id }, [
      { step: 0, loss: 5, tokens: 10, seconds: 1, attempt: 1, at },
      { step: steps, loss: 2, tokens: 10, seconds: 1, attempt: 1, at },
    ]);
  });
}

/** A job has ended a year ago, and retention takes its steps. */
async function removeSteps(jobId: string): Promise<void> {
  const { database } = api;
  await database.db.execute(
    `update jobs set state = 'failed', ended_at = clock_timestamp() - interval '365 days' where id = '${jobId}'`,
  );
  const authorization = api.bearer.admin;
  const url = "/api/v1/retention";
  const set = (steps: number | null) =>
    api.app.inject({ method: "PATCH", url, headers: { authorization }, payload: { steps } });
  expect((await set(30)).statusCode).toBe(200);
  const fence = await acquireLease(database.db, "maintenance:retention", "test", 60);
  if (!fence) throw new Error("the lease is another's");
  const runId = await database.transaction((tx) => beginRetentionRun(tx, fence));
  const { signal } = new AbortController();
  await removeDue({ database, dataDirectory: api.directory, fence, runId, now: new Date(), signal });
  await releaseLease(database.db, fence);
  await set(null);
}

const FIGURES_OF_STEPS = ["stepTimeSeconds", "tokensPerGpuPerSecond", "mfu", "lossNats"] as const;

describe("a comparison", () => {
  it("has what differs of the job files and of the clusters, and nothing else", async () => {
    const ids = [
      await submit(),
      await submit({ name: "other", optimizer: { peakLearningRate: 1e-3 } }),
      await submit({ cluster: { name: "here", nodes: 1, gpusPerNode: 2, memoryPerGpu: "2GiB" } }),
    ] as const;
    const comparison = await compare(...ids);
    expect(comparison.jobs.map(({ id, name, plan }) => [id, name, plan])).toEqual([
      [ids[0], "small", null],
      [ids[1], "other", null],
      [ids[2], "small", null],
    ]);
    expect(comparison.file).toEqual([
      { field: "optimizer.peakLearningRate", values: [3e-4, 1e-3, 3e-4] },
      { field: "optimizer.minLearningRate", values: [3e-5, 1e-4, 3e-5] },
    ]);
    expect(comparison.cluster).toEqual([{ field: "memoryPerGpu", values: ["1GiB", "1GiB", "2GiB"] }]);
    expect([comparison.plan, comparison.profile, comparison.figures]).toEqual([[], [], []]);
  });

  it("has the plan that a job trains with now, where it was changed", async () => {
    const [kept, changed] = [await submit(), await submit()];
    const chosen = exampleCandidate();
    const other = { ...chosen, plan: { ...chosen.plan, recomputeLayers: 1 } };
    await train(kept, 10, () => 1);
    await train(changed, 10, () => 1);
    await api.database.transaction(async (tx) => {
      for (const job of [kept, changed]) {
        const [trial] = await createTrials(tx, job, [chosen]);
        await startTrial(tx, trial?.id ?? "");
        await finishTrial(tx, trial?.id ?? "", { measured: exampleMeasurement() });
      }
      const run = await ensureRun(tx, changed, chosen);
      await changeRunPlan(tx, run.id, other);
      await startAttempt(tx, run.id);
    });
    const { jobs, plan, figures } = await compare(kept, changed);
    expect(jobs.map((each) => each.plan)).toEqual([planLabel(chosen.plan), planLabel(other.plan)]);
    expect(plan).toEqual([{ field: "recomputeLayers", values: expect.any(Array) }]);
    // Nobody measured the other plan: the chosen one's memory is not its own.
    expect(figures.find(({ figure }) => figure === "peakMemoryBytes")?.values).toEqual([
      exampleMeasurement().peakMemoryBytes,
      null,
    ]);
  });

  it("has the profiles that the plans were chosen by, also where a run measured its cluster anew", async () => {
    const ids = [await submit(), await submit()] as const;
    const profile = shippedProfile("a800-128");
    await api.database.transaction(async (tx) => {
      const storeAs = (name: string) =>
        storeProfile(tx, { clusterKey: name, profile: { ...profile, name }, freshForSeconds: 60 });
      for (const [at, id] of ids.entries()) {
        const profileId = await storeAs(`first of ${at}`);
        const planningId = await storePlanning(tx, examplePlanning(1), { jobId: id, profileId });
        await updateJob(tx, id, { planningId, profileId: await storeAs("measured anew") });
      }
    });
    const names = (await compare(...ids)).profile.find(({ field }) => field === "name");
    expect(names?.values).toEqual(["first of 0", "first of 1"]);
  });

  it("has figures and losses, thinned where there are many steps", async () => {
    const [short, long] = [await submit(), await submit({ steps: 1000 })];
    await train(short, 10, (step) => step);
    await train(long, 1000, (step) => step);
    const { figures, losses, plan } = await compare(short, long);
    expect(plan).toEqual([]);
    expect(Object.fromEntries(figures.map(({ figure, values }) => [figure, values]))).toMatchObject({
      steps: [10, 1000],
      stepTimeSeconds: [0.5, 0.5],
      tokensPerGpuPerSecond: [512, 512],
      mfu: [expect.any(Number), expect.any(Number)],
      lossNats: [10, expect.closeTo(950.5, 0)],
      validationLossNats: [2, 2],
    });
    expect(losses[0]).toEqual({
      training: Array.from({ length: 10 }, (_, index) => ({ step: index + 1, loss: index + 1 })),
      validation: [
        { step: 0, loss: 5 },
        { step: 10, loss: 2 },
      ],
    });
    const thinned = losses[1]?.training ?? [];
    expect(thinned).toHaveLength(334);
    expect([thinned[0], thinned.at(-1)]).toEqual([
      { step: 3, loss: 2 },
      { step: 1000, loss: 1000 },
    ]);
  });

  it("has losses of held-out data in as few points", async () => {
    const [few, many] = [await submit(), await submit({ steps: 1000 })];
    const at = new Date().toISOString();
    const validate = (jobId: string, count: number): Promise<void> =>
      api.database.transaction(async (tx) => {
        const run = await ensureRun(tx, jobId, exampleCandidate());
        await startAttempt(tx, run.id);
        const losses = Array.from({ length: count }, (_, step) => ({
          step,
          loss: step,
          tokens: 10,
          seconds: 1,
        }));
        const those = { jobId, runId: run.id };
        await recordValidations(
          tx,
          those,
          losses.map((loss) => ({ ...loss, attempt: 1, at })),
        );
      });
    await validate(few, MOST_CURVE_POINTS);
    await validate(many, 3 * MOST_CURVE_POINTS);
    const [exact, thinned] = (await compare(few, many)).losses.map(({ validation }) => validation);
    expect(exact).toEqual(Array.from({ length: MOST_CURVE_POINTS }, (_, step) => ({ step, loss: step })));
    expect(thinned).toEqual(
      Array.from({ length: MOST_CURVE_POINTS }, (_, index) => ({ step: 3 * index + 2, loss: 3 * index + 1 })),
    );
  });

  it("counts what slow steps lose as they lose it: all tokens by all of the time", async () => {
    const [even, uneven] = [await submit(), await submit({ steps: 1000 })];
    await train(even, 1000, (step) => step);
    // The mean step is as long, and the mean of the rates is 2.9 times as high.
    await train(
      uneven,
      1000,
      (step) => step,
      (step) => (step % 2 === 0 ? 0.9 : 0.1),
    );
    const { figures } = await compare(even, uneven);
    const valuesOf = (name: string) => figures.find(({ figure }) => figure === name)?.values ?? [];
    for (const name of ["stepTimeSeconds", "tokensPerGpuPerSecond", "mfu"]) {
      const [one, other] = valuesOf(name);
      expect([name, other]).toEqual([name, expect.closeTo(one ?? Number.NaN, 9)]);
    }
  });

  it("has the MFU that step times say, however many tokens of packed documents have a target", async () => {
    const [whole, packed] = [await submit(), await submit()];
    const half = (): number => 0.5;
    await train(whole, 10, half);
    await train(packed, 10, half, half, 300);
    const { figures } = await compare(whole, packed);
    const valuesOf = (name: string) => figures.find(({ figure }) => figure === name)?.values;
    // Its plan has two ranks.
    expect(valuesOf("tokensPerGpuPerSecond")).toEqual([512, 512]);
    const steps = { steps: 10, seconds: 10 * 0.5, ranks: worldSize(exampleCandidate().plan) };
    const mfu = measuredMfu(exampleCandidate(), [steps]);
    expect(valuesOf("mfu")).toEqual([mfu, mfu]);
  });

  it("has the figures of a report, also where retention took the steps or attempts had fewer ranks", async () => {
    const [whole, removed] = [await submit(), await submit()];
    const chosen = exampleCandidate();
    const secondsOf = (step: number) => (step === 10 ? 5 : 0.5);
    const meanStepTimeSeconds = (9 * 0.5 + 5) / 10;
    // One rank made the last step, and two those before.
    const rankSeconds = 9 * 0.5 * worldSize(chosen.plan) + 5;
    const report: Report = {
      plan: chosen.plan,
      steps: 10,
      finalLossNats: 3,
      unigramEntropyNats: null,
      meanStepTimeSeconds,
      tokensPerGpuPerSecond: (10 * 512) / rankSeconds,
      attempts: 2,
      timeErrorOverTrials: null,
      memoryErrorOverTrials: null,
      kendallTauOverTrials: null,
    };
    for (const job of [whole, removed]) {
      await train(job, 10, (step) => step, secondsOf);
      await api.database.transaction((tx) => updateJob(tx, job, { report }));
    }
    await removeSteps(removed);
    const { figures } = await compare(whole, removed);
    const valuesOf = (name: string) => figures.find(({ figure }) => figure === name)?.values;
    const mfu = measuredMfu(chosen, [{ steps: 10, seconds: rankSeconds, ranks: 1 }]);
    const expected = [meanStepTimeSeconds, (10 * 512) / rankSeconds, mfu, 3];
    for (const [at, name] of FIGURES_OF_STEPS.entries()) {
      const value = expect.closeTo(expected[at] ?? Number.NaN, 9) as number;
      expect([name, valuesOf(name)]).toEqual([name, [value, value]]);
    }
  });

  it("has no figures of a job without a report whose steps retention took", async () => {
    const [kept, removed] = [await submit(), await submit()];
    for (const job of [kept, removed]) await train(job, 10, (step) => step);
    await removeSteps(removed);
    const { figures } = await compare(kept, removed);
    for (const name of FIGURES_OF_STEPS)
      expect([name, figures.find(({ figure }) => figure === name)?.values]).toEqual([
        name,
        [expect.any(Number), null],
      ]);
    expect(figures.find(({ figure }) => figure === "steps")?.values).toEqual([10, 10]);
  });

  it("is of 2 to 8 jobs that are there, each once", async () => {
    const id = await submit();
    expect(problem(await ask(""), 400, "bad-request").errors?.[0]?.field).toBe("job");
    expect(problem(await ask(`job=${id}`), 400, "bad-request").errors?.[0]).toMatchObject({ field: "job" });
    const nine = Array.from({ length: 9 }, () => `job=${crypto.randomUUID()}`).join("&");
    expect(problem(await ask(nine), 400, "bad-request").errors?.[0]).toMatchObject({ field: "job" });
    expect(problem(await ask(`job=${id}&job=${id}`), 400, "bad-request").errors?.[0]).toMatchObject({
      message: "is named twice",
    });
    for (const absent of [crypto.randomUUID(), id.toUpperCase()])
      expect(problem(await ask(`job=${id}&job=${absent}`), 404, "not-found").errors?.[0]).toMatchObject({
        field: "job",
        value: absent,
      });
  });
});
