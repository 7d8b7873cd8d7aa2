import { describe, expect, it } from "vitest";
import type { Attempt, Candidate, Plan, StepMetric, Trial } from "@internevo/domain";
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
const step = (number: number, loss: number): StepMetric => ({
  step: number,
  loss,
  gradientNorm: 1,
  learningRate: 1,
  stepTimeSeconds: 2,
  // Of the tokens with a target, as an earlier version stored it: the report counts all of the step.
  tokensPerSecond: 60,
  exposedCommunicationSeconds: 0,
  attempt: 1,
  at: "",
});

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
  it("takes the mean loss of the last tenth", () => {
    const report = reportOf({
      ...options,
      steps: Array.from({ length: 20 }, (_, index) => step(index + 1, index)),
    });
    expect(report).toMatchObject({
      steps: 20,
      finalLossNats: 18.5,
      meanStepTimeSeconds: 2,
      tokensPerGpuPerSecond: 25,
      unigramEntropyNats: 3,
    });
  });
  it("tells the validation loss at the end, and where it was lowest", () => {
    const loss = (at: number, value: number) => ({
      step: at,
      loss: value,
      tokens: 64,
      seconds: 0.5,
      attempt: 1,
      at: "2026-01-01T00:00:00.000Z",
    });
    const steps = [step(1, 1), step(2, 1)];
    const validations = [loss(0, 5), loss(1, 3), loss(2, 3.5)];
    expect(reportOf({ ...options, steps, validations }).validation).toEqual({
      lossNats: 3.5,
      best: { step: 1, lossNats: 3 },
      evaluations: 3,
      seconds: 1.5,
    });
    expect(reportOf({ ...options, steps })).not.toHaveProperty("validation");
  });
  it("counts each step by the ranks of its own attempt, and names the plan of the last", () => {
    const attempts = [
      { number: 1, plan: plan(4) },
      { number: 2, plan: plan(2) },
    ] as Attempt[];
    const report = reportOf({ ...options, attempts, steps: [step(1, 1), { ...step(2, 1), attempt: 2 }] });
    expect(report).toMatchObject({ plan: plan(2), tokensPerGpuPerSecond: (200 + 200) / (2 * 4 + 2 * 2) });
  });
  it("gives the throughput that goes with the mean step time, however steps vary", () => {
    const steps = [step(1, 1), { ...step(2, 1), stepTimeSeconds: 10 }];
    const { meanStepTimeSeconds, tokensPerGpuPerSecond } = reportOf({ ...options, steps });
    expect([meanStepTimeSeconds, tokensPerGpuPerSecond]).toEqual([6, 200 / 6 / 4]);
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
    const steps = [step(1, 1)];
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
  it("refuses steps with a gap", () => {
    expect(() => reportOf({ ...options, steps: [step(1, 1), step(3, 1)] })).toThrow(/step 2 is missing/);
    expect(() => reportOf({ ...options, steps: [] })).toThrow(/missing/);
  });
});
