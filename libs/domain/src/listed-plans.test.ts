import { exampleCandidate, examplePlanning } from "@internevo/test-kit/fixtures";
import { expect, it } from "vitest";
import { listedPlan } from "./listed-plans.ts";

it("a rank is that of the trials, else of the search, and else of none", () => {
  const tried = { ...exampleCandidate(2), plan: exampleCandidate(7).plan };
  const listed = { trials: [{ candidate: tried }], planning: examplePlanning(3) };
  expect(listedPlan(1, listed)).toEqual(examplePlanning(3).candidates[0]?.plan);
  expect(listedPlan(2, listed)).toEqual(tried.plan);
  expect(listedPlan(4, listed)).toBeUndefined();
  expect(listedPlan(1, { trials: [], planning: null })).toBeUndefined();
});
