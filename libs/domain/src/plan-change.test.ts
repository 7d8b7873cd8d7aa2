import { expect, it } from "vitest";
import { compareSteps } from "./plan-change.ts";

const steps = (from: number, to: number, attempt: number, stepTimeSeconds: number) =>
  Array.from({ length: to - from + 1 }, (_, index) => ({ step: from + index, attempt, stepTimeSeconds }));
const change = { appliedAtStep: 20, firstAttempt: 3, compareSteps: 5 };

it("compares medians of steps before and under the new plan, without the first of each start", () => {
  const run = [...steps(1, 20, 2, 2), ...steps(21, 21, 3, 90), ...steps(22, 40, 3, 1.5)];
  expect(compareSteps(run, change)).toEqual({
    secondsBefore: 2,
    secondsAfter: 1.5,
    measuredGain: 0.25,
    steps: 5,
  });
});

it("counts no step of the old plan that ran beyond the checkpoint", () => {
  const left = [...steps(1, 60, 2, 2)];
  expect(compareSteps(left, change)).toMatchObject({ secondsBefore: 2, secondsAfter: null, steps: 0 });
  const begun = [...steps(1, 20, 2, 2), ...steps(21, 23, 3, 1), ...steps(24, 60, 2, 2)];
  expect(compareSteps(begun, change)).toMatchObject({ secondsAfter: 1, steps: 2 });
});

it("has nothing to say of a change that was not made, or of a run without steps", () => {
  const none = { secondsBefore: null, secondsAfter: null, measuredGain: null, steps: 0 };
  expect(compareSteps(steps(1, 9, 1, 1), { ...change, appliedAtStep: null, firstAttempt: null })).toEqual(
    none,
  );
  expect(compareSteps([], change)).toEqual(none);
});
