import { describe, expect, it } from "vitest";
import type { TrainerEvent } from "@internevo/contracts";
import type { HostUse } from "@internevo/domain";
import { measurementOf } from "./trial-measurement.ts";

const started: Extract<TrainerEvent, { event: "started" }> = {
  event: "started",
  worldSize: 2,
  hosts: [],
  parameters: 1,
  memory: { parameters: 5 },
  plannedPeakBytes: 5,
  resumedFromStep: 0,
};
const step = (number: number, seconds: number, peak = 10): Extract<TrainerEvent, { event: "step" }> => ({
  event: "step",
  step: number,
  loss: 10 - number,
  gradientNorm: 1,
  learningRate: 1,
  // Those with a target: fewer than the step's.
  tokens: 60,
  stepTimeSeconds: seconds,
  tokensPerSecond: 1,
  computeSeconds: 1,
  communicationSeconds: seconds / 10,
  exposedCommunicationSeconds: 0,
  peakMemoryBytes: peak,
  residentPeakBytes: peak + 1,
});
const use = (othersSeconds: number): HostUse => ({
  host: "here",
  ranks: 2,
  cores: 2,
  seconds: 10,
  ranksSeconds: 15,
  othersSeconds,
  stolenSeconds: 0,
  loadBefore: 1,
  loadAfter: 2,
  runnableBefore: 1,
  runnableAfter: 3,
  involuntarySwitches: 7,
});

describe("measurementOf", () => {
  const run = {
    job: { globalBatchTokens: 100 },
    started,
    steps: [step(1, 100, 99), step(2, 1), step(3, 2), step(4, 3)],
    warmupSteps: 1,
    measuredSteps: 3,
    mostOthersPercent: 10,
  };

  it("leaves warm-up out of the times, and keeps its memory", () => {
    const measured = measurementOf(run);
    expect(measured).toMatchObject({
      stepTimeSeconds: 2,
      steps: 3,
      peakMemoryBytes: 99,
      residentPeakBytes: 100,
      loss: 6,
      tokensPerGpuPerSecond: 25,
      communicationSeconds: 0.2,
      memory: { parameters: 5 },
    });
    expect(measured.stepTimeSecondsP10).toBeCloseTo(1.2, 12);
    expect(measured.stepTimeSecondsP90).toBeCloseTo(2.8, 12);
    expect(measured.runs).toMatchObject([{ stepTimeSeconds: 2, steps: 3 }]);
    expect(measured.runs?.[0]).not.toHaveProperty("disturbances");
  });
  it("keeps what the hosts did, and says when others took more than their share", () => {
    expect(measurementOf({ ...run, hosts: [use(1)] }).runs).toMatchObject([{ hosts: [use(1)] }]);
    expect(measurementOf({ ...run, hosts: [use(1)] }).runs?.[0]).not.toHaveProperty("disturbances");
    expect(measurementOf({ ...run, hosts: [use(9)] }).runs).toMatchObject([
      { disturbances: [expect.stringContaining("here: others took 45%")] },
    ]);
  });
  it("refuses a trial that lacks steps", () => {
    expect(() => measurementOf({ ...run, steps: [step(1, 1), step(2, 1)], measuredSteps: 2 })).toThrow(
      /1 of 2/,
    );
    expect(() =>
      measurementOf({ ...run, started: undefined, steps: [step(2, 1)], measuredSteps: 1 }),
    ).toThrow();
  });
});
