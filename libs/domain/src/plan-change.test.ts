import { expect, it } from "vitest";
import { compareSteps, comparisonDoubt } from "./plan-change.ts";
import { LEAST_CLEAR_GAIN } from "./trial-statistics.ts";

const steps = (from: number, to: number, attempt: number, stepTimeSeconds: number) =>
  Array.from({ length: to - from + 1 }, (_, index) => ({ step: from + index, attempt, stepTimeSeconds }));
const change = { appliedAtStep: 20, firstAttempt: 3, compareSteps: 5 };

it("compares medians of steps before and under the new plan, without the first of each start", () => {
  const run = [...steps(1, 20, 2, 2), ...steps(21, 21, 3, 90), ...steps(22, 40, 3, 1.5)];
  expect(compareSteps(run, change)).toEqual({
    secondsBefore: 2,
    secondsAfter: 1.5,
    measuredGain: 0.25,
    // Half of how far runs of one plan lie apart, as for trials.
    noiseBefore: 0.025,
    noiseAfter: 0.025,
    steps: 5,
  });
});

it("counts no step of the old plan that ran beyond the checkpoint", () => {
  const left = [...steps(1, 60, 2, 2)];
  expect(compareSteps(left, change)).toMatchObject({ secondsBefore: 2, secondsAfter: null, steps: 0 });
  const begun = [...steps(1, 20, 2, 2), ...steps(21, 23, 3, 1), ...steps(24, 60, 2, 2)];
  expect(compareSteps(begun, change)).toMatchObject({ secondsAfter: 1, steps: 2 });
});

it("has the noise of both medians, as trials have it", () => {
  const uneven = [1, 2, 3, 2, 2].map((stepTimeSeconds, index) => ({
    step: 16 + index,
    attempt: 2,
    stepTimeSeconds,
  }));
  const run = [...steps(1, 15, 2, 2), ...uneven, ...steps(21, 40, 3, 1.5)];
  const compared = compareSteps(run, change);
  // From the 10th to the 90th percentile, over the steps' root.
  expect(compared.noiseBefore).toBeCloseTo((2.6 - 1.4) / 2 / Math.sqrt(5) / 2, 12);
  expect(compared.noiseAfter).toBe(0.025);
});

it("is in doubt where the noise is as large as the gain, or other work ran", () => {
  const compared = (after: number) =>
    compareSteps([...steps(1, 20, 2, 2), ...steps(21, 40, 3, after)], change);
  expect(comparisonDoubt(compared(1.5), [])).toBeUndefined();
  expect(comparisonDoubt(compared(1.95), [])).toBe(
    "the noise of both, ±2.5% and ±2.5%, is as large as what lies between them",
  );
  expect(comparisonDoubt(compared(1.5), ["here: others took 45%", "there: others took 20%"])).toBe(
    "other work ran on the hosts meanwhile (here: others took 45%; and 1 more)",
  );
  expect(comparisonDoubt(compareSteps([], change), ["here: others took 45%"])).toBeUndefined();
});

it("is in doubt below the gain that two starts can show, however even their steps are", () => {
  const gaining = (gain: number) =>
    compareSteps([...steps(1, 20, 2, 2), ...steps(21, 40, 3, 2 * (1 - gain))], change);
  expect(comparisonDoubt(gaining(LEAST_CLEAR_GAIN - 0.001), [])).toMatch(/^the noise of both/);
  expect(comparisonDoubt(gaining(LEAST_CLEAR_GAIN + 0.001), [])).toBeUndefined();
});

it("has nothing to say of a change that was not made, or of a run without steps", () => {
  const none = { secondsBefore: null, secondsAfter: null, measuredGain: null, steps: 0 };
  expect(compareSteps(steps(1, 9, 1, 1), { ...change, appliedAtStep: null, firstAttempt: null })).toEqual(
    none,
  );
  expect(compareSteps([], change)).toEqual(none);
});
