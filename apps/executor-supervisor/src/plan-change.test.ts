import type { PlanChange } from "@internevo/domain";
import { ensureRun, submitJob } from "@internevo/store";
import { exampleCandidate, exampleSpec } from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { JobFeed } from "@internevo/stages";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { PlanChanges, verdictOf } from "./plan-change.ts";

describe("a verdict", () => {
  const change = { compareSteps: 10, gainThreshold: 0.05 } as PlanChange;
  const compared = (secondsAfter: number, steps = 10) => ({
    secondsBefore: 2,
    secondsAfter,
    measuredGain: 1 - secondsAfter / 2,
    steps,
  });

  it("waits for the steps that were asked for", () => {
    expect(verdictOf(change, compared(1, 9))).toBeUndefined();
  });

  it("keeps what gains enough, and takes back what does not, with the figures", () => {
    expect(verdictOf(change, compared(1.5))).toMatchObject({
      state: "kept",
      reason: "a step took 2.00 s before and takes 1.50 s now, medians of 10 steps: +25.0%",
    });
    expect(verdictOf(change, compared(1.95))).toMatchObject({
      state: "returned",
      reason: expect.stringMatching(/: \+2\.5%, below the threshold of 5\.0%$/),
    });
  });

  it("keeps what cannot be compared, and what training ended under", () => {
    const nothing = { secondsBefore: null, secondsAfter: 1, measuredGain: null, steps: 10 };
    expect(verdictOf(change, nothing)).toMatchObject({ state: "kept" });
    expect(verdictOf(change, compared(3, 4), true)).toMatchObject({
      state: "kept",
      reason: expect.stringContaining("training is complete"),
    });
  });
});

describe("the look at what is asked for", () => {
  let test: TestDatabase;
  beforeAll(async () => void (test = await createTestDatabase()));
  afterAll(() => test.drop());

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
