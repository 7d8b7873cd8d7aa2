import { expect, it } from "vitest";
import { brokenPromises, type Stored } from "./src/random/judge.ts";
import { brokenPlanPromises } from "./src/random/plan-changes.ts";
import { drawKills, TARGETS } from "./src/random/kills.ts";

it("deaths are the same for the same seed, of everything, and some come at once", () => {
  const drawn = drawKills(1000, 5, 4);
  expect(drawKills(1000, 5, 4)).toEqual(drawn);
  expect(drawKills(1000, 6, 4)).not.toEqual(drawn);
  expect(new Set(drawn.map(({ target }) => target))).toEqual(new Set(TARGETS));
  const mean = drawn.reduce((sum, { afterSeconds }) => sum + afterSeconds, 0) / drawn.length;
  expect(mean).toBeGreaterThan(3.5);
  expect(mean).toBeLessThan(4.5);
  expect(drawn.filter(({ afterSeconds }) => afterSeconds < 0.5).length).toBeGreaterThan(50);
});

it("every promise that a job breaks is told", () => {
  const losses = [3, 2, 1];
  const expected = { trials: 1, steps: 3, losses };
  const kept: Stored = {
    state: "succeeded",
    reason: null,
    trials: [{ state: "succeeded", measured: true }],
    steps: losses.map((loss, index) => ({ step: index + 1, loss, attempt: index === 0 ? 1 : 2 })),
    attempts: 2,
    plans: { changes: [], attempts: ["a", "a"], run: "a" },
  };
  expect(brokenPromises(kept, expected)).toEqual([]);
  const [first, second] = kept.steps as [Stored["steps"][number], Stored["steps"][number]];
  for (const [over, words] of [
    [{ state: "failed", reason: "a rank was lost" }, "it ended as failed: a rank was lost"],
    [{ trials: [...kept.trials, ...kept.trials] }, "it has 2 trials and not 1"],
    [{ trials: [{ state: "failed", measured: false }] }, "1 of its trials were not measured"],
    [{ steps: [...kept.steps, ...kept.steps.slice(2)] }, "its 4 steps are not each of 1 to 3 once"],
    [{ steps: kept.steps.slice(0, 2) }, "its 2 steps are not each of 1 to 3 once"],
    [
      { steps: [{ ...first, attempt: 3 }, second, ...kept.steps.slice(2)] },
      "its step 2 is of attempt 2, and the one before is of a later one",
    ],
    [
      { steps: [first, { ...second, loss: 2.000001 }, ...kept.steps.slice(2)] },
      "the loss of step 2 is not that of a run that nothing disturbed",
    ],
  ] as const)
    expect(brokenPromises({ ...kept, ...over }, expected)).toContain(words);
});

it("losses under another plan lie no further apart than undisturbed runs of both", () => {
  const losses = Array.from({ length: 100 }, () => 2);
  // The two plans drift apart from the 60th step on.
  const otherLosses = losses.map((loss, index) => (index + 1 < 60 ? loss : loss * (1 + 1e-4)));
  const change = { state: "kept", from: "a", to: "b", appliedAtStep: 50 } as const;
  const told = (step: number, relative: number, others: { readonly otherLosses?: readonly number[] }) =>
    brokenPromises(
      {
        state: "succeeded",
        reason: null,
        trials: [],
        steps: losses.map((loss, index) => ({
          step: index + 1,
          loss: loss * (index + 1 === step ? 1 + relative : 1),
          attempt: 1,
        })),
        attempts: 2,
        plans: { changes: [change], attempts: ["a", "b"], run: "b" },
      },
      { trials: 0, steps: losses.length, losses, ...others },
    );
  for (const [step, relative, isTold] of [
    [50, 1e-9, true],
    [51, 5e-7, false],
    [59, 2e-6, true],
    [60, 1.5e-4, false],
    [60, 3e-4, true],
  ] as const)
    expect(told(step, relative, { otherLosses })).toHaveLength(isTold ? 1 : 0);
  expect(told(60, 1.5e-4, {})).toHaveLength(1);
});

it("a plan that is between two is told", () => {
  const change = { from: "a", to: "b", appliedAtStep: 2 };
  for (const [state, attempts, run, words] of [
    ["kept", ["a", "b", "b"], "b", undefined],
    ["returned", ["a", "b", "a"], "a", undefined],
    ["dismissed", ["a", "a"], "a", undefined],
    ["comparing", ["a", "b"], "a", "its change of plan is still comparing"],
    ["kept", ["a", "b"], "a", "its change of plan is kept, and its plan is a"],
    ["kept", ["a", "b", "a", "b"], "b", "its attempts changed their plan 3 times: it is kept"],
    ["dismissed", ["a", "b"], "a", "its attempts changed their plan 1 times: it is dismissed"],
    ["returned", ["a", "c", "a"], "a", "an attempt had the plan c, which is neither"],
  ] as const) {
    const broken = brokenPlanPromises({ changes: [{ ...change, state }], attempts, run });
    if (words === undefined) expect(broken).toEqual([]);
    else expect(broken).toContain(words);
  }
});
