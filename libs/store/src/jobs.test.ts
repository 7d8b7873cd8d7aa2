import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { validate, type JobState } from "@internevo/domain";
import { JobDetailSchema, JobSummarySchema } from "@internevo/contracts";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import {
  exampleCandidate,
  exampleMeasurement,
  examplePlanning,
  exampleSpec,
  exampleStep,
} from "@internevo/test-kit/fixtures";
import { getJobDetail, listJobs } from "./job-reads.ts";
import { listJobEvents } from "./job-events.ts";
import {
  appendJobEvents,
  failJob,
  getJob,
  getJobState,
  inStateSince,
  requestCancel,
  resumeJob,
  stateForNewHolder,
  submitJob,
  transitionJob,
  updateJob,
  type StageState,
} from "./jobs.ts";
import { acquireLease, jobLease, releaseLease } from "./leases.ts";
import { getPlanning, storePlanning } from "./plannings.ts";
import {
  allSteps,
  ensureRun,
  findRun,
  finishAttempt,
  listAttempts,
  lastStoredStep,
  listStepMetrics,
  allValidations,
  listValidations,
  recordSteps,
  recordValidations,
  startAttempt,
} from "./runs.ts";
import { changeRunPlan } from "./plan-changes.ts";
import { outbox } from "./schema/index.ts";
import { createTrials, finishTrial, repeatTrial, startTrial } from "./trials.ts";
import { eq } from "drizzle-orm";

let test: TestDatabase;
beforeAll(async () => void (test = await createTestDatabase()));
afterAll(() => test.drop());

const submit = (name?: string) => test.database.transaction((tx) => submitJob(tx, exampleSpec(name)));
const messagesOf = async (jobId: string) =>
  (
    await test.database.db.select().from(outbox).where(eq(outbox.subjectId, jobId)).orderBy(outbox.sequence)
  ).map((row) => row.type);

describe("submitJob and transitionJob", () => {
  it("write state, history, event and messages together", async () => {
    const id = await submit();
    expect(await messagesOf(id)).toEqual(["job.transitioned", "job.profile"]);
    expect(
      await test.database.transaction((tx) =>
        transitionJob(tx, { jobId: id, from: "profiling", to: "planning", reason: "measured" }),
      ),
    ).toBe(true);
    expect(await messagesOf(id)).toEqual(["job.transitioned", "job.profile", "job.transitioned", "job.plan"]);
    const detail = await getJobDetail(test.database.db, id);
    expect(detail).toMatchObject({
      state: "planning",
      version: 2,
      reason: "measured",
      transitions: [
        { from: null, to: "profiling" },
        { from: "profiling", to: "planning", reason: "measured" },
      ],
    });
    expect((await listJobEvents(test.database.db, id)).map((event) => event.data["to"])).toEqual([
      "profiling",
      "planning",
    ]);
  });

  it("leave nothing when the transaction rolls back", async () => {
    const id = await submit();
    await expect(
      test.database.transaction(async (tx) => {
        await transitionJob(tx, { jobId: id, from: "profiling", to: "planning" });
        throw new Error("the effect failed");
      }),
    ).rejects.toThrow("the effect failed");
    expect(await getJobState(test.database.db, id)).toBe("profiling");
    expect(await messagesOf(id)).toEqual(["job.transitioned", "job.profile"]);
  });

  it("keep terminal states terminal, whoever comes at the same time", async () => {
    for (let round = 0; round < 10; round += 1) {
      const id = await submit();
      const to = ["failed", "cancelled", "planning", "failed", "cancelled"] as const;
      const done = await Promise.all(
        to.map((state) =>
          test.database.transaction((tx) => transitionJob(tx, { jobId: id, from: "profiling", to: state })),
        ),
      );
      expect(done.filter(Boolean)).toHaveLength(1);
      const won = to[done.indexOf(true)];
      expect(await getJobState(test.database.db, id)).toBe(won);
      const again = await Promise.all(
        (["planning", "trialling", "running"] as const).map((from) =>
          test.database.transaction((tx) => transitionJob(tx, { jobId: id, from, to: "failed" })),
        ),
      );
      expect(again.filter(Boolean)).toHaveLength(won === "planning" ? 1 : 0);
    }
  });

  it("tell of a job by its own id, however whoever moves it writes it", async () => {
    const id = await submit();
    const upper = id.toUpperCase();
    await test.database.transaction((tx) =>
      transitionJob(tx, { jobId: upper, from: "profiling", to: "planning" }),
    );
    expect(await messagesOf(id)).toEqual(["job.transitioned", "job.profile", "job.transitioned", "job.plan"]);
    const { rows } = await test.database.db.execute(
      `select data from outbox where lower(data ->> 'jobId') = '${id}'`,
    );
    expect(rows.filter((row) => JSON.stringify(row).includes(upper))).toEqual([]);
    expect(await getJob(test.database.db, upper)).toBeUndefined();
    await test.database.transaction(async (tx) => {
      expect(await requestCancel(tx, upper)).toBe("not-found");
      expect(await resumeJob(tx, upper)).toEqual({ outcome: "not-found" });
      expect(await stateForNewHolder(tx, upper)).toBeUndefined();
    });
    expect(await getJobState(test.database.db, id)).toBe("planning");
  });

  it("refuse a way that no job may go", async () => {
    const id = await submit();
    await expect(
      test.database.transaction((tx) => transitionJob(tx, { jobId: id, from: "succeeded", to: "running" })),
    ).rejects.toThrow(TypeError);
  });
});

describe("requestCancel", () => {
  it("cancels at once what nobody works on, and waits for a worker otherwise", async () => {
    const idle = await submit();
    expect(await test.database.transaction((tx) => requestCancel(tx, idle))).toBe("cancelled");
    expect(await test.database.transaction((tx) => requestCancel(tx, idle))).toBe("cancelled");
    const busy = await submit();
    const fence = await acquireLease(test.database.db, jobLease(busy), "worker", 30);
    expect(await test.database.transaction((tx) => requestCancel(tx, busy))).toBe("cancelling");
    expect(await test.database.transaction((tx) => requestCancel(tx, busy))).toBe("cancelling");
    if (fence) await releaseLease(test.database.db, fence);
    expect(await test.database.transaction((tx) => requestCancel(tx, busy))).toBe("cancelled");
    expect((await getJobDetail(test.database.db, busy))?.transitions.map((move) => move.to)).toEqual([
      "profiling",
      "cancelling",
      "cancelled",
    ]);
    expect(await test.database.transaction((tx) => requestCancel(tx, "no-uuid"))).toBe("not-found");
  });
});

describe("resumeJob", () => {
  const resume = (id: string) => test.database.transaction((tx) => resumeJob(tx, id));
  const move = (id: string, from: StageState, to: JobState) =>
    test.database.transaction((tx) =>
      transitionJob(tx, {
        jobId: id,
        from,
        to,
        ...(to === "failed" || to === "held"
          ? { failure: { code: "rank-lost", message: "rank 1 ended" } as const }
          : {}),
      }),
    );

  it("lets a job go on in the stage in which it stopped, as often as it stops", async () => {
    const id = await submit();
    await move(id, "profiling", "held");
    expect(await getJobDetail(test.database.db, id)).toMatchObject({
      state: "held",
      failure: { code: "rank-lost" },
      reason: "rank 1 ended",
      endedAt: null,
    });
    expect(await resume(id)).toEqual({ outcome: "resumed", from: "held", stage: "profiling" });
    await move(id, "profiling", "planning");
    await move(id, "planning", "trialling");
    await move(id, "trialling", "running");
    for (const from of ["failed", "held"] as const) {
      await move(id, "running", from);
      expect(await resume(id)).toEqual({ outcome: "resumed", from, stage: "running" });
      expect(await getJobDetail(test.database.db, id)).toMatchObject({
        state: "running",
        failure: null,
        reason: "let go on on request",
        endedAt: null,
      });
    }
    await test.database.transaction((tx) => requestCancel(tx, id));
    expect((await getJobDetail(test.database.db, id))?.endedAt).not.toBeNull();
    expect(await resume(id)).toMatchObject({ outcome: "resumed", from: "cancelled", stage: "running" });
    expect((await messagesOf(id)).filter((type) => type === "job.run")).toHaveLength(4);
    const { at } = (await getJobDetail(test.database.db, id))?.transitions.at(-1) ?? {};
    expect((await inStateSince(test.database.db, id)).toISOString()).toBe(at);
  });

  it("lets one of many at once go on, and none that goes on, has succeeded or is not there", async () => {
    const id = await submit();
    expect(await resume(id)).toEqual({ outcome: "not-resumable", state: "profiling" });
    await move(id, "profiling", "failed");
    const outcomes = await Promise.all([1, 2, 3, 4].map(() => resume(id)));
    expect(outcomes.map(({ outcome }) => outcome).sort()).toEqual([
      ...Array<string>(3).fill("not-resumable"),
      "resumed",
    ]);
    await move(id, "profiling", "succeeded");
    expect(await resume(id)).toEqual({ outcome: "not-resumable", state: "succeeded" });
    expect(await resume(randomUUID())).toEqual({ outcome: "not-found" });
    expect(await resume("no-uuid")).toEqual({ outcome: "not-found" });
  });

  it("cancels a held job at once, though the lease of whoever held it still lives", async () => {
    const id = await submit();
    await acquireLease(test.database.db, jobLease(id), "worker", 30);
    await move(id, "profiling", "held");
    expect(await test.database.transaction((tx) => requestCancel(tx, id))).toBe("cancelled");
    expect(await getJobDetail(test.database.db, id)).toMatchObject({ state: "cancelled", failure: null });
  });

  it("keeps what was measured, and what says something of its plan; other trials are run again", async () => {
    const id = await submit();
    await move(id, "profiling", "planning");
    await move(id, "planning", "trialling");
    const made = await test.database.transaction((tx) =>
      createTrials(tx, id, [1, 2, 3, 4].map(exampleCandidate)),
    );
    const outcomes = [
      { measured: exampleMeasurement() },
      { failure: { code: "out-of-memory", message: "too large" } },
      { failure: { code: "rank-lost", message: "rank 1 ended" } },
    ] as const;
    for (const [index, outcome] of outcomes.entries()) {
      await test.database.transaction((tx) => startTrial(tx, made[index]?.id ?? ""));
      await test.database.transaction((tx) => finishTrial(tx, made[index]?.id ?? "", outcome));
    }
    await test.database.transaction((tx) => requestCancel(tx, id));
    expect(await resume(id)).toMatchObject({ outcome: "resumed", stage: "trialling" });
    expect((await getJobDetail(test.database.db, id))?.trials).toMatchObject([
      { state: "succeeded", measured: exampleMeasurement() },
      { state: "failed", failure: { code: "out-of-memory" } },
      { state: "pending", failure: null, startedAt: null, endedAt: null },
      { state: "pending", failure: null, startedAt: null, endedAt: null },
    ]);
  });
});

describe("trials and steps", () => {
  it("count each trial once", async () => {
    const id = await submit();
    const candidates = [exampleCandidate(1), exampleCandidate(4)];
    const first = await test.database.transaction((tx) => createTrials(tx, id, candidates));
    expect(await test.database.transaction((tx) => createTrials(tx, id, candidates))).toEqual(first);
    const [trial] = first;
    if (!trial) throw new Error("no trial");
    await test.database.transaction((tx) => startTrial(tx, trial.id));
    const ends = await Promise.all(
      [{ measured: exampleMeasurement() }, { failure: { code: "timeout" as const, message: "slow" } }].map(
        (outcome) => test.database.transaction((tx) => finishTrial(tx, trial.id, outcome)),
      ),
    );
    expect(ends.filter((end) => end !== undefined)).toHaveLength(1);
    expect(await test.database.transaction((tx) => startTrial(tx, trial.id))).toBeUndefined();
    expect(await getJobDetail(test.database.db, id)).toMatchObject({ trialsDone: 1, trialsTotal: 2 });
  });

  it("count each further run of a trial once, and none of a trial that did not succeed", async () => {
    const id = await submit();
    const [first, second] = await test.database.transaction((tx) =>
      createTrials(tx, id, [exampleCandidate(1), exampleCandidate(2)]),
    );
    const repeat = (trial: string, runStepTimeSeconds: number[]) =>
      test.database.transaction((tx) =>
        repeatTrial(tx, trial, { ...exampleMeasurement(), stepTimeSeconds: 7, runStepTimeSeconds }),
      );
    await test.database.transaction((tx) => startTrial(tx, first?.id ?? ""));
    expect(await repeat(first?.id ?? "", [8, 6])).toBeUndefined();
    await test.database.transaction((tx) =>
      finishTrial(tx, first?.id ?? "", { measured: exampleMeasurement() }),
    );
    const told = await Promise.all(
      [
        [8, 6],
        [8, 5],
      ].map((runs) => repeat(first?.id ?? "", runs)),
    );
    expect(told.filter((one) => one !== undefined)).toHaveLength(1);
    expect(await repeat(first?.id ?? "", [8, 6, 7])).toMatchObject({
      state: "succeeded",
      measured: { stepTimeSeconds: 7, runStepTimeSeconds: [8, 6, 7] },
    });
    await test.database.transaction((tx) => startTrial(tx, second?.id ?? ""));
    await test.database.transaction((tx) =>
      finishTrial(tx, second?.id ?? "", { failure: { code: "timeout", message: "slow" } }),
    );
    expect(await repeat(second?.id ?? "", [1, 1])).toBeUndefined();
    expect(await getJobDetail(test.database.db, id)).toMatchObject({ trialsDone: 2, trialsTotal: 2 });
  });

  it("leave no trial that seems to run when the job was cancelled", async () => {
    const id = await submit();
    const [first] = await test.database.transaction((tx) =>
      createTrials(tx, id, [exampleCandidate(1), exampleCandidate(2)]),
    );
    await test.database.transaction((tx) => startTrial(tx, first?.id ?? ""));
    await test.database.transaction((tx) => requestCancel(tx, id));
    const { trials, ...counted } = (await getJobDetail(test.database.db, id)) ?? {};
    // Nothing was tried.
    expect(counted).toMatchObject({ trialsDone: 0, trialsTotal: 2 });
    expect(trials).toMatchObject([
      { state: "cancelled", failure: { code: "cancelled" } },
      { state: "cancelled", failure: { code: "cancelled" } },
    ]);
  });

  it("go by the run's plan, which may change between attempts", async () => {
    const id = await submit();
    const { db } = test.database;
    const [first, second] = [exampleCandidate(1), exampleCandidate(2)];
    const run = await test.database.transaction((tx) => ensureRun(tx, id, first));
    await test.database.transaction((tx) => startAttempt(tx, run.id));
    await test.database.transaction((tx) => changeRunPlan(tx, run.id, second));
    await test.database.transaction((tx) => startAttempt(tx, run.id));
    expect(await findRun(db, id)).toEqual({ id: run.id, candidate: second });
    expect((await listAttempts(db, run.id)).map(({ plan }) => plan)).toEqual([first.plan, second.plan]);
    // A job that begins to train again keeps what it changed to.
    expect(await test.database.transaction((tx) => ensureRun(tx, id, first))).toMatchObject({
      candidate: second,
    });
  });

  it("have no attempt that seems to run when they have ended, whoever ended them", async () => {
    for (const [end, state] of [
      ["cancelled", "stopped"],
      ["failed", "lost"],
    ] as const) {
      const id = await submit();
      const run = await test.database.transaction((tx) => ensureRun(tx, id, exampleCandidate()));
      await test.database.transaction((tx) => startAttempt(tx, run.id));
      await test.database.transaction<unknown>((tx) =>
        end === "cancelled"
          ? requestCancel(tx, id)
          : failJob(tx, id, { code: "internal", message: "given up" }),
      );
      expect(await getJobDetail(test.database.db, id)).toMatchObject({
        state: end,
        attempts: [{ number: 1, state }],
      });
      expect(
        await test.database.transaction((tx) => finishAttempt(tx, run.id, 1, { state: "succeeded" })),
      ).toBe(false);
    }
  });

  it("count each validation loss once, and give them in pages", async () => {
    const id = await submit();
    const { db } = test.database;
    const run = await test.database.transaction((tx) => ensureRun(tx, id, exampleCandidate()));
    const record = (...losses: readonly (readonly [step: number, attempt: number, loss: number])[]) =>
      test.database.transaction((tx) =>
        recordValidations(
          tx,
          { jobId: id, runId: run.id },
          losses.map(([step, attempt, loss]) => ({
            step,
            attempt,
            loss,
            tokens: 4096,
            seconds: 0.25,
            at: "2026-01-01T00:00:00.000Z",
          })),
        ),
      );
    expect(await getJobDetail(db, id)).not.toHaveProperty("lastValidation");
    await record([0, 1, 6], [10, 1, 5.5]);
    await record([0, 1, 6]);
    // A later attempt goes on from step 10, and evaluates its weights again; late words of the first change nothing.
    await record([10, 2, 5.5], [20, 2, 5.25]);
    await record([20, 1, 99]);
    expect(
      (await allValidations(db, run.id)).map(({ step, attempt, loss }) => [step, attempt, loss]),
    ).toEqual([
      [0, 1, 6],
      [10, 2, 5.5],
      [20, 2, 5.25],
    ]);
    expect(
      (await listJobEvents(db, id))
        .filter(({ type }) => type === "validation")
        .map(({ data }) => data["step"]),
    ).toEqual([0, 10, 10, 20]);
    const first = await listValidations(db, id, { limit: 2 });
    expect([first.items.map(({ step }) => step), first.nextCursor]).toEqual([[0, 10], "10"]);
    const rest = await listValidations(db, id, { after: 10 });
    expect([rest.items.map(({ step }) => step), rest.nextCursor]).toEqual([[20], null]);
    expect((await getJobDetail(db, id))?.lastValidation).toEqual({
      step: 20,
      attempt: 2,
      loss: 5.25,
      tokens: 4096,
      seconds: 0.25,
      at: "2026-01-01T00:00:00.000Z",
    });
  });

  it("count each step once, the latest attempt's", async () => {
    const id = await submit();
    const { db } = test.database;
    const run = await test.database.transaction((tx) => ensureRun(tx, id, exampleCandidate()));
    const owner = { jobId: id, runId: run.id };
    await test.database.transaction((tx) => startAttempt(tx, run.id));
    const steps = [exampleStep(1, 1, 6), exampleStep(2, 1, 5.5), exampleStep(3, 1, 5.4)];
    await test.database.transaction((tx) => recordSteps(tx, owner, steps));
    await test.database.transaction((tx) => recordSteps(tx, owner, steps));
    const second = await test.database.transaction((tx) => startAttempt(tx, run.id, 2));
    expect(second).toMatchObject({ number: 2, resumedFromStep: 2 });
    await test.database.transaction((tx) =>
      recordSteps(tx, owner, [exampleStep(3, 2, 5.3), exampleStep(4, 2, 5.2)]),
    );
    // The first attempt's last words arrive late.
    await test.database.transaction((tx) => recordSteps(tx, owner, [exampleStep(3, 1, 99)]));
    expect((await allSteps(db, run.id)).map(({ step, attempt, loss }) => [step, attempt, loss])).toEqual([
      [1, 1, 6],
      [2, 1, 5.5],
      [3, 2, 5.3],
      [4, 2, 5.2],
    ]);
    expect(
      (await listJobEvents(db, id))
        .filter((event) => event.type === "step")
        .map((event) => event.data["step"]),
    ).toEqual([1, 2, 3, 3, 4]);
    expect(await test.database.transaction((tx) => finishAttempt(tx, run.id, 1, { state: "failed" }))).toBe(
      false,
    );
    expect(await getJobDetail(db, id)).toMatchObject({
      lastStep: 4,
      lastLoss: 5.2,
      attempts: [
        { number: 1, state: "lost", lastStep: 3 },
        { number: 2, state: "running", lastStep: 4 },
      ],
    });
    const page = await listStepMetrics(db, id, { limit: 3 });
    expect(page.nextCursor).toBe("3");
    expect((await listStepMetrics(db, id, { after: 3 })).items.map((metric) => metric.step)).toEqual([4]);
  });
});

describe("a run that goes on from a checkpoint", () => {
  it("is where it makes steps again, and not where it was", async () => {
    const id = await submit("again");
    const { database } = test;
    const run = await database.transaction((tx) => ensureRun(tx, id, exampleCandidate()));
    const record = (attempt: number, ...steps: readonly [step: number, loss: number][]): Promise<void> =>
      database.transaction((tx) =>
        recordSteps(
          tx,
          { jobId: id, runId: run.id },
          steps.map(([step, loss]) => exampleStep(step, attempt, loss)),
        ),
      );
    const reached = async (): Promise<unknown> => {
      const detail = await getJobDetail(database.db, id);
      const reached = [detail?.lastStep, detail?.lastLoss];
      const listed = (await listJobs(database.db, { limit: 100 })).items.find((job) => job.id === id);
      expect([listed?.lastStep, listed?.lastLoss]).toEqual(reached);
      return reached;
    };
    expect(await reached()).toEqual([0, null]);
    await database.transaction((tx) => startAttempt(tx, run.id));
    await record(1, [1, 6], [2, 5], [3, 4], [4, 3]);
    await database.transaction((tx) => startAttempt(tx, run.id, 1));
    expect(await reached()).toEqual([4, 3]);
    await record(2, [2, 5.5]);
    expect(await reached()).toEqual([2, 5.5]);
    await record(2, [3, 4.5], [4, 3.5], [5, 2]);
    expect(await reached()).toEqual([5, 2]);
  });

  it("has no steps that only an attempt made which it does not go on from", async () => {
    const id = await submit("another line");
    const { database } = test;
    const run = await database.transaction((tx) => ensureRun(tx, id, exampleCandidate()));
    const begin = (from: number) => database.transaction((tx) => startAttempt(tx, run.id, from));
    const record = (attempt: number, ...steps: readonly number[]): Promise<void> =>
      database.transaction((tx) =>
        recordSteps(
          tx,
          { jobId: id, runId: run.id },
          steps.map((step) => exampleStep(step, attempt, attempt)),
        ),
      );
    const stored = (): Promise<number> => lastStoredStep(database.db, run.id);
    expect(await stored()).toBe(0);
    await begin(0);
    await record(1, 1, 2, 3, 4, 5);
    expect(await stored()).toBe(5);
    // It makes them all again, perhaps under another plan, and a checkpoint of its fourth step came before it was told.
    await begin(0);
    expect(await stored()).toBe(0);
    await record(2, 1, 2);
    expect(await stored()).toBe(2);
    await begin(2);
    expect(await stored()).toBe(2);
    await record(3, 3, 4);
    expect(await stored()).toBe(4);
    await record(3, 6);
    expect(await stored(), "step 5 is not its own").toBe(4);
  });
});

describe("read models", () => {
  it("have the shapes of the API", async () => {
    const id = await submit("shapes");
    const planning = examplePlanning(3);
    await test.database.transaction(async (tx) => {
      const planningId = await storePlanning(tx, planning, { jobId: id });
      await updateJob(tx, id, { planningId, chosen: exampleCandidate(2) });
      expect(await getPlanning(tx, planningId)).toEqual(planning);
      await createTrials(tx, id, planning.candidates);
      const run = await ensureRun(tx, id, exampleCandidate(2));
      await startAttempt(tx, run.id);
      await recordSteps(tx, { jobId: id, runId: run.id }, [exampleStep(1, 1)]);
    });
    const detail = await getJobDetail(test.database.db, id);
    validate(JobDetailSchema, detail, "internal", "the detail");
    expect(detail).toMatchObject({
      planning,
      lastStep: 1,
      lastLoss: 5,
      traceId: expect.stringMatching(/^[0-9a-f]{32}$/),
    });
    const page = await listJobs(test.database.db, { limit: 1 });
    validate(JobSummarySchema, page.items[0], "internal", "the summary");
    expect(page.items[0]?.progress).toBeNull();
    await test.database.transaction(async (tx) =>
      appendJobEvents(
        tx,
        id,
        [1, 2].map((done) => ({
          type: "progress" as const,
          data: { stage: "profiling", message: "a gather", done, total: 40 },
        })),
      ),
    );
    const progress = {
      stage: "profiling",
      message: "a gather",
      done: 2,
      total: 40,
      waits: false,
      at: expect.stringMatching(/^\d{4}-.*Z$/) as string,
    };
    expect((await listJobs(test.database.db, { limit: 1 })).items[0]?.progress).toEqual(progress);
    expect((await getJobDetail(test.database.db, id))?.progress).toEqual(progress);
  });

  it("are found by any part of their name, taken as it is written", async () => {
    const names = ["Fifty%-off", "fifty-x-off", "a_b", "aXb", String.raw`back\slash`, "backslash"];
    for (const name of names) await submit(name);
    const found = async (name: string) =>
      (await listJobs(test.database.db, { limit: 200, name })).items.map((job) => job.name).toSorted();
    expect(await found("FIFTY")).toEqual(["Fifty%-off", "fifty-x-off"]);
    expect(await found("%")).toEqual(["Fifty%-off"]);
    expect(await found("a_b")).toEqual(["a_b"]);
    expect(await found("\\")).toEqual([String.raw`back\slash`]);
    expect(await found("no such name")).toEqual([]);
  });

  it("page through all jobs once, while more arrive", async () => {
    for (let index = 0; index < 7; index += 1) await submit(`page-${index}`);
    const all = (await listJobs(test.database.db, { limit: 200 })).items.map((job) => job.id);
    const seen: string[] = [];
    for (let cursor: string | null = null; ;) {
      const page: Awaited<ReturnType<typeof listJobs>> = await listJobs(test.database.db, {
        limit: 3,
        cursor,
      });
      seen.push(...page.items.map((job) => job.id));
      cursor = page.nextCursor;
      await submit("newer");
      if (cursor === null) break;
    }
    expect(seen).toEqual(all);
    await expect(listJobs(test.database.db, { cursor: "nonsense" })).rejects.toMatchObject({
      code: "bad-request",
    });
    await expect(listJobs(test.database.db, { limit: 0 })).rejects.toMatchObject({ code: "bad-request" });
  });
});
