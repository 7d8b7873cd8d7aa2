import { describe, expect, it } from "vitest";
import type { TrainerEvent } from "@internevo/contracts";
import type { Candidate, Measurement } from "@internevo/domain";
import { measurementOf, quantile, trialToRepeat, winnerOf, withRun } from "./measurement.ts";

const started: Extract<TrainerEvent, { event: "started" }> = { event: "started", worldSize: 2, hosts: [], parameters: 1, memory: { parameters: 5 }, plannedPeakBytes: 5, resumedFromStep: 0 };
const step = (number: number, seconds: number, peak = 10): Extract<TrainerEvent, { event: "step" }> => ({
  event: "step", step: number, loss: 10 - number, gradientNorm: 1, learningRate: 1, tokens: 100, stepTimeSeconds: seconds, tokensPerSecond: 1, computeSeconds: 1, communicationSeconds: seconds / 10,
  exposedCommunicationSeconds: 0, peakMemoryBytes: peak, residentPeakBytes: peak + 1,
});

it("quantile interpolates", () => {
  expect([0, 0.5, 1, 0.25].map((q) => quantile([3, 1, 2], q))).toEqual([1, 2, 3, 1.5]);
  expect(() => quantile([], 0.5)).toThrow(RangeError);
});

describe("measurementOf", () => {
  it("leaves warm-up out of the times, and keeps its memory", () => {
    const measured = measurementOf({ started, steps: [step(1, 100, 99), step(2, 1), step(3, 2), step(4, 3)], warmupSteps: 1, measuredSteps: 3 });
    expect(measured).toMatchObject({ stepTimeSeconds: 2, steps: 3, peakMemoryBytes: 99, residentPeakBytes: 100, loss: 6, tokensPerGpuPerSecond: 25, communicationSeconds: 0.2, memory: { parameters: 5 } });
    expect(measured.stepTimeSecondsP10).toBeCloseTo(1.2, 12);
    expect(measured.stepTimeSecondsP90).toBeCloseTo(2.8, 12);
  });
  it("refuses a trial that lacks steps", () => {
    expect(() => measurementOf({ started, steps: [step(1, 1), step(2, 1)], warmupSteps: 1, measuredSteps: 2 })).toThrow(/1 of 2/);
    expect(() => measurementOf({ started: undefined, steps: [step(2, 1)], warmupSteps: 1, measuredSteps: 1 })).toThrow();
  });
});

describe("runs of a plan again", () => {
  const measured = (seconds: number, loss = 1): Measurement => ({ ...measurementOf({ started, steps: [step(1, 9), step(2, seconds, 7), step(3, seconds, 8)], warmupSteps: 1, measuredSteps: 2 }), loss });
  const trial = (rank: number, ...runs: number[]) => ({ candidate: { rank } as Candidate, measured: runs.length === 0 ? null : runs.slice(1).reduce((all, seconds) => withRun(all, measured(seconds)), measured(runs[0] as number)) });

  it("count by their middle, and keep what each said", () => {
    const all = withRun(withRun(measured(4), measured(1)), measured(2));
    expect(all).toMatchObject({ stepTimeSeconds: 2, runStepTimeSeconds: [4, 1, 2], stepTimeSecondsP10: 1, stepTimeSecondsP90: 4, steps: 6 });
    expect(all.tokensPerGpuPerSecond).toBeCloseTo(measured(2).tokensPerGpuPerSecond, 12);
    expect(all.communicationSeconds).toBeCloseTo((0.4 + 0.1 + 0.2) / 3, 12);
  });
  it("are of the fastest and those near it, at most three, the fewest runs first", () => {
    const ranks = (trials: ReturnType<typeof trial>[], repeats = 1) => trialToRepeat(trials, repeats)?.candidate.rank;
    expect(ranks([trial(1, 1.04), trial(2, 1), trial(3, 1.2), trial(4)])).toBe(2);
    expect(ranks([trial(1, 1.04), trial(2, 1, 1.5), trial(3, 1.2)])).toBe(1);
    expect(ranks([trial(1, 1.04, 1), trial(2, 1, 1.5), trial(3, 1.2)])).toBeUndefined();
    expect(ranks([trial(1, 1.04, 1), trial(2, 1, 1.5)], 2)).toBe(2);
    expect(ranks([trial(1, 1.01, 1), trial(2, 1, 1), trial(3, 1.02, 1), trial(4, 1.03)])).toBeUndefined();
    expect(ranks([trial(1, 1.06), trial(2, 1)])).toBeUndefined();
    expect(ranks([trial(1, 1.01), trial(2, 1)], 0)).toBeUndefined();
    expect(ranks([trial(1, 1), trial(2)])).toBeUndefined();
    expect(ranks([])).toBeUndefined();
  });
});

it("winnerOf takes the fastest measured, not the fastest predicted", () => {
  const trial = (rank: number, seconds: number | null) => ({ candidate: { rank } as Candidate, measured: seconds === null ? null : ({ stepTimeSeconds: seconds } as Measurement) });
  expect(winnerOf([trial(1, 3), trial(2, null), trial(3, 1), trial(4, 1)])?.rank).toBe(3);
  expect(winnerOf([trial(1, null)])).toBeUndefined();
  // Ran again in a slower hour; the third, which was slower than both in the same hour, is not the winner for that.
  const again = (rank: number, runStepTimeSeconds: readonly number[]) => ({ candidate: { rank } as Candidate, measured: { stepTimeSeconds: quantile(runStepTimeSeconds, 0.5), runStepTimeSeconds } as Measurement });
  expect(winnerOf([again(1, [2.0, 3.0]), again(2, [2.1, 2.7]), trial(3, 2.2)])?.rank).toBe(2);
});
