import { REPLANNING_DEFAULTS, type Replanning } from "@internevo/domain";
import {
  dismissPlanChange,
  ensureRun,
  findRun,
  listPlanChanges,
  recordSteps,
  startAttempt,
  storePlanChange,
  submitJob,
} from "@internevo/store";
import { exampleCandidate, exampleSpec, exampleStep } from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { storedRun } from "@internevo/test-kit/stored-run";
import { JobFeed } from "@internevo/stages";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { PlanChanges, type ChangedRun } from "../src/plan-change.ts";

describe("a change that a workload's policy made", () => {
  let test: TestDatabase;
  beforeAll(async () => void (test = await createTestDatabase()));
  afterAll(() => test.drop());

  /** A run whose steps take half as long under another plan; its supervisor is another one at each start. */
  async function changed(disturbances: readonly string[]) {
    const { database } = test;
    const { jobId, runId } = await storedRun(database, "changed");
    const from = exampleCandidate();
    const to = { ...exampleCandidate(2), rank: 2 };
    const run = { id: runId, jobId };
    const supervisor = (): PlanChanges =>
      new PlanChanges({
        database,
        feed: new JobFeed({ append: async () => {}, onError: () => {} }),
        run,
        fenced: (work) => database.transaction(work),
        search: () => expect.unreachable("nothing is searched"),
        onError: (error) => expect.unreachable(String(error)),
      });
    const steps = (first: number, attempt: number, stepTimeSeconds: number) =>
      database.transaction((tx) =>
        recordSteps(
          tx,
          { jobId, runId },
          Array.from({ length: 20 }, (_, at) => ({ ...exampleStep(first + at, attempt), stepTimeSeconds })),
        ),
      );
    await steps(1, 1, 2);
    await database.transaction((tx) =>
      storePlanChange(tx, run, {
        origin: "workload",
        askedBy: "replanner",
        from,
        to,
        predictedGain: 0.5,
        gainThreshold: 0.05,
        compareSteps: 10,
      }),
    );
    const first = supervisor();
    await first.sawDisturbances(1, disturbances);
    await first.settle({ atStep: 20, attempt: 2 });
    await database.transaction((tx) => startAttempt(tx, runId, 20));
    await steps(21, 2, 1);
    await supervisor().settle({ atStep: 40, attempt: 3 });
    const [change] = (await listPlanChanges(database.db, jobId)).items;
    return { change, from, to, plan: (await findRun(database.db, jobId))?.candidate.plan };
  }

  it("is judged by what the ranks said before the supervisor started again", async () => {
    const { change, from, plan } = await changed(["here: others took 45% of the processor time"]);
    expect(change).toMatchObject({
      state: "returned",
      reason: expect.stringMatching(
        /^tried: .*: \+50\.0%; in doubt, since other work ran on the hosts meanwhile \(here: /,
      ),
    });
    expect(plan).toEqual(from.plan);
  });

  it("is kept where they said that nothing else ran", async () => {
    const { change, to, plan } = await changed([]);
    expect(change).toMatchObject({ state: "kept", reason: expect.stringMatching(/: \+50\.0%$/) });
    expect(plan).toEqual(to.plan);
  });
});

describe("the look at what is asked for", () => {
  let test: TestDatabase;
  beforeAll(async () => void (test = await createTestDatabase()));
  afterAll(() => test.drop());

  /** Ranks begin whose steps take twice as long all at once. */
  function drift(changes: PlanChanges): void {
    changes.begin();
    changes.saw(
      [9, 1, 1, 1, 1, 2, 2, 2, 2].map((stepTimeSeconds, index) => ({ step: index + 1, stepTimeSeconds })),
    );
  }
  /** A run with such ranks. */
  async function drifting(rule: Partial<Replanning>, search: ChangedRun["search"]) {
    const { database } = test;
    const jobId = await database.transaction((tx) => submitJob(tx, exampleSpec()));
    const from = exampleCandidate();
    const run = await database.transaction((tx) => ensureRun(tx, jobId, from));
    const feed = new JobFeed({ append: async () => {}, onError: () => {} });
    const changes = new PlanChanges({
      database,
      feed,
      run: { id: run.id, jobId },
      fenced: (work) => database.transaction(work),
      replanning: {
        rule: { ...REPLANNING_DEFAULTS, compareSteps: 4, notInLastSteps: 10, lastingSeconds: 0, ...rule },
        steps: 40,
      },
      search,
      onError: (error) => expect.unreachable(String(error)),
    });
    drift(changes);
    const changesOf = async () => (await listPlanChanges(database.db, jobId)).items;
    const planOf = async () => (await findRun(database.db, jobId))?.candidate.plan;
    return { jobId, from, changes, changesOf, planOf };
  }
  const stopOf = (changes: PlanChanges): Promise<string> => {
    const ended = new AbortController();
    return new Promise((resolve) => {
      void changes.watch(ended.signal, (why) => {
        ended.abort();
        resolve(why);
      });
    });
  };
  const NO_PROFILE = { persist: async () => {} };

  it("stops ranks whose steps have changed, and goes on under the plan that a search finds", async () => {
    const from = exampleCandidate();
    const plan = { ...from.plan, microBatches: from.plan.microBatches * 2 };
    const found = { from, to: { ...from, rank: 2, plan }, predictedGain: 0.3 };
    const { changes, changesOf, planOf } = await drifting({}, async () => ({
      ...NO_PROFILE,
      found,
      reason: "found",
    }));
    const why = "at step 9 a step takes 2.00 s, 100.0% longer than the 1.00 s with which the ranks began";
    expect(await stopOf(changes)).toBe(`to measure the cluster anew: ${why}`);
    expect(await changesOf()).toMatchObject([
      {
        state: "searching",
        origin: "drift",
        askedBy: "executor-supervisor",
        reason: why,
        predictedGain: null,
      },
    ]);
    await changes.settle({ atStep: 9, attempt: 2 });
    expect(await changesOf()).toMatchObject([
      { state: "comparing", appliedAtStep: 9, firstAttempt: 2, predictedGain: 0.3, to: { plan } },
    ]);
    expect(await planOf()).toEqual(plan);
  });

  it("goes on as it was where no plan is better, or somebody dismisses the search", async () => {
    const one = await drifting({}, async () => ({
      ...NO_PROFILE,
      reason: "the plan in use is still the best",
    }));
    await stopOf(one.changes);
    await one.changes.settle({ atStep: 9, attempt: 2 });
    expect(await one.changesOf()).toMatchObject([
      { state: "dismissed", reason: "the plan in use is still the best", predictedGain: null },
    ]);
    expect(await one.planOf()).toEqual(one.from.plan);
    const other = await drifting({}, async ({ jobId, id }) => {
      await test.database.transaction((tx) => dismissPlanChange(tx, jobId, id, "not now"));
      return {
        ...NO_PROFILE,
        found: { from: other.from, to: other.from, predictedGain: 1 },
        reason: "found",
      };
    });
    await stopOf(other.changes);
    await other.changes.settle({ atStep: 9, attempt: 2 });
    expect(await other.changesOf()).toMatchObject([
      { state: "dismissed", reason: expect.stringMatching(/^at step 9 .*; not now$/) },
    ]);
  });

  it("ends a search that is taken back while it measures, and goes on at once", async () => {
    const begun = Promise.withResolvers<void>();
    let reason: unknown;
    const { jobId, from, changes, changesOf, planOf } = await drifting({}, (_, signal) => {
      begun.resolve();
      return new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => {
          reason = signal.reason;
          reject(signal.reason as Error);
        });
      });
    });
    await stopOf(changes);
    const settled = changes.settle({ atStep: 9, attempt: 2 });
    await begun.promise;
    const [change] = await changesOf();
    await test.database.transaction((tx) => dismissPlanChange(tx, jobId, change?.id ?? "", "not now"));
    await settled;
    expect(reason).toMatchObject({ message: "the search was taken back" });
    expect(await changesOf()).toMatchObject([{ state: "dismissed" }]);
    expect(await planOf()).toEqual(from.plan);
  });

  it("tells what ends a search but that it is taken back", async () => {
    const { changes } = await drifting({}, () => Promise.reject(new Error("the cluster is gone")));
    await stopOf(changes);
    await expect(changes.settle({ atStep: 9, attempt: 2 })).rejects.toThrow("the cluster is gone");
  });

  it("looks again when the pause after a look in vain is over, and not before", async () => {
    const inVain = async () => ({ ...NO_PROFILE, reason: "the plan in use is still the best" });
    const patient = await drifting({}, inVain);
    await stopOf(patient.changes);
    await patient.changes.settle({ atStep: 9, attempt: 2 });
    drift(patient.changes);
    const ended = new AbortController();
    const watching = patient.changes.watch(ended.signal, () => expect.unreachable());
    ended.abort();
    await watching;
    expect(await patient.changesOf()).toHaveLength(1);

    const hasty = await drifting({ leastPauseSeconds: 0 }, inVain);
    await stopOf(hasty.changes);
    await hasty.changes.settle({ atStep: 9, attempt: 2 });
    drift(hasty.changes);
    await stopOf(hasty.changes);
    expect((await hasty.changesOf()).map(({ state }) => state)).toEqual(["searching", "dismissed"]);
  });

  it("leaves the last steps alone", async () => {
    const { changes, changesOf } = await drifting({ notInLastSteps: 31 }, () => expect.unreachable());
    const ended = new AbortController();
    const watching = changes.watch(ended.signal, () => expect.unreachable());
    ended.abort();
    await watching;
    expect(await changesOf()).toEqual([]);
  });

  it("goes on whatever keeps it from looking, and ends with its ranks", async () => {
    const { database } = test;
    const jobId = await database.transaction((tx) => submitJob(tx, exampleSpec()));
    const run = await database.transaction((tx) => ensureRun(tx, jobId, exampleCandidate()));
    const told = Promise.withResolvers<unknown>();
    const feed = new JobFeed({ append: async () => {}, onError: () => {} });
    const changes = new PlanChanges({
      database,
      feed,
      run: { id: run.id, jobId },
      fenced: (work) => database.transaction(work),
      search: () => Promise.reject(new Error("nothing is searched")),
      onError: told.resolve,
    });
    const reads = vi.spyOn(database.db, "select").mockImplementation((): never => {
      throw new Error("no look is possible");
    });
    const ended = new AbortController();
    const watching = changes.watch(ended.signal, () => {
      throw new Error("nothing is asked for");
    });
    expect(await told.promise).toMatchObject({ message: "no look is possible" });
    reads.mockRestore();
    ended.abort();
    await watching;
    await feed.close();
  });
});
