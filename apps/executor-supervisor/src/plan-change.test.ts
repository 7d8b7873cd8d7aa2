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

  it("says why a comparison is in doubt, and decides what a person asked for as ever", () => {
    const busy = ["here: others took 45% of the processor time"];
    const person = { ...change, origin: "person" } as PlanChange;
    expect(verdictOf(person, compared(1.5), false, busy)).toMatchObject({
      state: "kept",
      reason: expect.stringMatching(
        /: \+25\.0%; in doubt, since other work ran on the hosts meanwhile \(here: /,
      ),
    });
    const noisy = { ...compared(1.95), noiseBefore: 0.04, noiseAfter: 0.03 };
    expect(verdictOf(person, noisy)).toMatchObject({
      state: "returned",
      reason: expect.stringMatching(
        /below the threshold of 5\.0%; in doubt, since the noise of both, ±4\.0%/,
      ),
    });
  });

  it("keeps nothing by a workload's policy alone whose comparison is in doubt", () => {
    const busy = ["here: others took 45% of the processor time"];
    const policy = { ...change, origin: "workload" } as PlanChange;
    expect(verdictOf(policy, compared(1.5))).toMatchObject({ state: "kept" });
    expect(verdictOf(policy, compared(1.5), false, busy)).toMatchObject({
      state: "returned",
      proposalWaits: true,
      reason: expect.stringMatching(/^tried: .*; in doubt, since other work ran/),
    });
    expect(verdictOf(policy, compared(1.95), false, busy)).not.toHaveProperty("proposalWaits");
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
