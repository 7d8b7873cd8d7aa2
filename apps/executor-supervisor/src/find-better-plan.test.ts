import type { Candidate, PlanningResult } from "@internevo/domain";
import { exampleCandidate } from "@internevo/test-kit/fixtures";
import { expect, it } from "vitest";
import { betterPlan } from "./find-better-plan.ts";

const from = exampleCandidate();
const lasting = (candidate: Candidate, stepTimeSeconds: number): Candidate => ({
  ...candidate,
  predicted: { ...candidate.predicted, stepTimeSeconds },
});
const other: Candidate = { ...from, plan: { ...from.plan, microBatches: from.plan.microBatches * 2 } };
const located = (seconds: number): NonNullable<PlanningResult["located"]> => ({
  feasible: true,
  reason: null,
  rank: 3,
  predicted: lasting(from, seconds).predicted,
});

it("finds the best plan where it gains enough by the same measurements", () => {
  const result = { located: located(2), runnableCandidates: [lasting(other, 1.5), lasting(from, 2)] };
  expect(betterPlan(from, result, 0.2)).toMatchObject({
    found: {
      predictedGain: 0.25,
      from: { plan: from.plan, rank: 3, predicted: { stepTimeSeconds: 2 } },
      to: { plan: other.plan, predicted: { stepTimeSeconds: 1.5 } },
    },
    reason: expect.stringMatching(/ is predicted to gain \+25\.0%$/),
  });
  expect(betterPlan(from, result, 0.3)).toEqual({
    reason: expect.stringMatching(/ is predicted to gain \+25\.0%, below the threshold of 30\.0%$/),
  });
});

it("finds nothing where the plan in use is the best, is not predicted, or nothing fits", () => {
  expect(betterPlan(from, { located: located(2), runnableCandidates: [lasting(from, 2)] }, 0)).toEqual({
    reason: "measured anew, the plan in use is still the best",
  });
  expect(betterPlan(from, { located: located(2), runnableCandidates: [] }, 0)).toEqual({
    reason: "no plan that can run fits",
  });
  expect(betterPlan(from, { runnableCandidates: [lasting(other, 1)] }, 0)).toEqual({
    reason: "the plan in use is not predicted: the search did not find it",
  });
});
