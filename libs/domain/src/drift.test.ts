import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { DriftWatch, driftWords, type DriftRule } from "./drift.ts";

const RULE: DriftRule = { driftThreshold: 0.1, compareSteps: 8, lastingSeconds: 0 };
const watched = (times: readonly number[], rule = RULE): DriftWatch => {
  const watch = new DriftWatch(rule);
  watch.add(times.map((stepTimeSeconds, index) => ({ step: index + 1, stepTimeSeconds })));
  return watch;
};
const steps = (count: number, seconds: number): number[] => Array<number>(count).fill(seconds);

describe("drift", () => {
  it("is noticed when three quarters of the latest steps are beyond the threshold", () => {
    // The first step warms up.
    const before = [9, ...steps(8, 1)];
    expect(watched([...before, ...steps(8, 1.2)]).drift()).toEqual({
      secondsThen: 1,
      secondsNow: 1.2,
      change: expect.closeTo(0.2, 12) as number,
      atStep: 17,
    });
    expect(watched([...before, ...steps(8, 0.8)]).drift()).toMatchObject({
      change: expect.closeTo(-0.2, 12) as number,
    });
    expect(watched([...before, ...steps(8, 1.09)]).drift()).toBeUndefined();
    // Half of them are a disturbance that may pass.
    expect(watched([...before, ...steps(4, 1), ...steps(4, 3)]).drift()).toBeUndefined();
    expect(watched([...before, ...steps(7, 3)]).drift(), "too few").toBeUndefined();
  });

  it("counts no step twice, and goes away when the steps are as they were", () => {
    const watch = watched([9, ...steps(8, 1)]);
    const slow = steps(8, 2).map((stepTimeSeconds, index) => ({ step: 10 + index, stepTimeSeconds }));
    watch.add(slow.slice(0, 4));
    watch.add(slow.slice(0, 4));
    expect(watch.drift()).toBeUndefined();
    watch.add(slow);
    expect(watch.drift()).toBeDefined();
    watch.add(steps(8, 1).map((stepTimeSeconds, index) => ({ step: 18 + index, stepTimeSeconds })));
    expect(watch.drift()).toBeUndefined();
  });

  it("is never seen in steps that stay within the threshold, in whatever batches they come", () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: 0.96, max: 1.04, noNaN: true }), { minLength: 1, maxLength: 60 }),
        fc.integer({ min: 1, max: 9 }),
        (times, batch) => {
          const watch = new DriftWatch(RULE);
          const all = times.map((stepTimeSeconds, index) => ({ step: index + 1, stepTimeSeconds }));
          for (let at = 0; at < all.length; at += batch) {
            watch.add(all.slice(at, at + batch));
            expect(watch.drift()).toBeUndefined();
          }
        },
      ),
    );
  });

  it("counts when it has lasted for as long as it has to", () => {
    const rule = { ...RULE, lastingSeconds: 30 };
    const before = [9, ...steps(8, 1)];
    expect(watched([...before, ...steps(14, 2)], rule).drift()).toBeUndefined();
    expect(watched([...before, ...steps(15, 2)], rule).drift()).toMatchObject({ atStep: 24 });
    // A quarter of a minute that passed says nothing of the half minute.
    expect(watched([...before, ...steps(16, 1), ...steps(8, 2)], rule).drift()).toBeUndefined();
    expect(watched([...before, ...steps(40, 1), ...steps(15, 2)], rule).drift()).toMatchObject({ change: 1 });
  });

  it("says in words what was noticed", () => {
    expect(driftWords({ secondsThen: 1, secondsNow: 1.5, change: 0.5, atStep: 1200 })).toBe(
      "at step 1,200 a step takes 1.50 s, 50.0% longer than the 1.00 s with which the ranks began",
    );
    expect(driftWords({ secondsThen: 2, secondsNow: 1.5, change: -0.25, atStep: 40 })).toContain(
      "25.0% less than the 2.00 s",
    );
  });
});
