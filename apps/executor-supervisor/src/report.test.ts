import { describe, expect, it } from "vitest";
import type { Attempt, Candidate, Plan, Trial } from "@internevo/domain";
import { kendallTau, predictionErrors, reportOf } from "./report.ts";

const trial = (
  predictedSeconds: number,
  measuredSeconds: number | null,
  predictedBytes = 100,
  measuredBytes = 100,
): Pick<Trial, "candidate" | "measured"> => ({
  candidate: {
    predicted: { stepTimeSeconds: predictedSeconds, peakMemoryBytes: predictedBytes },
  } as Candidate,
  measured:
    measuredSeconds === null
      ? null
      : ({ stepTimeSeconds: measuredSeconds, peakMemoryBytes: measuredBytes } as Trial["measured"]),
});
/** Of twenty steps of four ranks, whose losses are 0 to 19. */
const steps = { steps: 20, seconds: 40, rankSeconds: 160, finalLosses: 18 + 19 };

describe("kendallTau", () => {
  it("is 1 for the same order, −1 for the opposite, and counts single inversions", () => {
    expect(
      kendallTau([
        [1, 10],
        [2, 20],
        [3, 30],
      ]),
    ).toBe(1);
    expect(
      kendallTau([
        [1, 30],
        [2, 20],
        [3, 10],
      ]),
    ).toBe(-1);
    expect(
      kendallTau([
        [1, 20],
        [2, 10],
        [3, 30],
      ]),
    ).toBeCloseTo(1 / 3, 12);
  });
  it("corrects for ties as τ-b does", () => {
    // 5 untied pairs on the left, 6 on the right, all agreeing.
    expect(
      kendallTau([
        [1, 1],
        [2, 2],
        [2, 3],
        [3, 4],
      ]),
    ).toBeCloseTo(5 / Math.sqrt(5 * 6), 12);
    expect(
      kendallTau([
        [1, 1],
        [1, 2],
      ]),
    ).toBeNull();
    expect(kendallTau([[1, 1]])).toBeNull();
  });
});

describe("predictionErrors", () => {
  it("averages over measured trials only", () => {
    const errors = predictionErrors([trial(1, 2, 110, 100), trial(3, 2, 100, 100), trial(9, null)]);
    expect(errors.timeErrorOverTrials).toBeCloseTo(0.5, 12);
    expect(errors.memoryErrorOverTrials).toBeCloseTo(0.05, 12);
  });
  it("says nothing where nothing was measured", () => {
    expect(predictionErrors([trial(1, null)])).toEqual({
      timeErrorOverTrials: null,
      memoryErrorOverTrials: null,
      kendallTauOverTrials: null,
    });
  });
});

describe("reportOf", () => {
  const plan = (dataParallel: number) => ({ pipelineParallel: 1, dataParallel, sequenceParallel: 1 }) as Plan;
  const options = {
    job: { globalBatchTokens: 200 },
    chosen: { plan: plan(4) } as Candidate,
    attempts: [] as Attempt[],
    trials: [],
    unigramEntropyNats: 3,
    hosts: [],
    mostOthersPercent: 10,
  };
  it("takes means of what was added up", () => {
    expect(reportOf({ ...options, steps })).toMatchObject({
      steps: 20,
      finalLossNats: 18.5,
      meanStepTimeSeconds: 2,
      tokensPerGpuPerSecond: 25,
      unigramEntropyNats: 3,
    });
  });
  it("tells the validation loss where something was evaluated", () => {
    const validation = { lossNats: 3.5, best: { step: 1, lossNats: 3 }, evaluations: 3, seconds: 1.5 };
    expect(reportOf({ ...options, steps, validation }).validation).toEqual(validation);
    expect(reportOf({ ...options, steps })).not.toHaveProperty("validation");
  });
  it("counts the ranks' time of all attempts, and names the plan of the last", () => {
    const attempts = [
      { number: 1, plan: plan(4) },
      { number: 2, plan: plan(2) },
    ] as Attempt[];
    const two = { steps: 2, seconds: 4, rankSeconds: 2 * 4 + 2 * 2, finalLosses: 1 };
    expect(reportOf({ ...options, attempts, steps: two })).toMatchObject({
      plan: plan(2),
      tokensPerGpuPerSecond: (200 + 200) / (2 * 4 + 2 * 2),
    });
  });
  it("says what disturbed the trials and the training", () => {
    const host = {
      host: "here",
      ranks: 2,
      cores: 2,
      seconds: 10,
      ranksSeconds: 10,
      othersSeconds: 8,
      stolenSeconds: 1,
      loadBefore: 1,
      loadAfter: 4,
      runnableBefore: 1,
      runnableAfter: 3,
      involuntarySwitches: 7,
    };
    expect(reportOf({ ...options, steps })).not.toHaveProperty("disturbances");
    expect(reportOf({ ...options, steps, hosts: [host], mostOthersPercent: 50 })).toMatchObject({
      hosts: [host],
    });
    expect(reportOf({ ...options, steps, hosts: [host], mostOthersPercent: 50 })).not.toHaveProperty(
      "disturbances",
    );
    expect(reportOf({ ...options, steps, hosts: [host] }).disturbances).toEqual([
      expect.stringMatching(/^The training was disturbed.*here: others took 45%.*5.0% of it stolen/),
    ]);
  });
});
