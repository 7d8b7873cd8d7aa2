import type { PlanChange } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { verdictOf } from "./plan-change.ts";

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
