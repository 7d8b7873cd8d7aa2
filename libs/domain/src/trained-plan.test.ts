import { aPlan } from "@internevo/test-kit";
import { expect, it } from "vitest";
import { planWentOverTo, trainedPlan, type PlansOfJob } from "./trained-plan.ts";

const [chosen, other] = [aPlan({ microBatches: 1 }), aPlan({ microBatches: 2 })];
const change = (state: "comparing" | "kept" | "returned"): PlansOfJob["planChange"] => ({
  state,
  from: { rank: 1, plan: chosen, stepTimeSeconds: 1 },
  to: { rank: 2, plan: other, stepTimeSeconds: 1 },
});
const job: PlansOfJob = {
  report: null,
  attempts: [{ plan: chosen }, { plan: other }],
  chosen: { plan: chosen },
};

it("is the plan of the last attempt, while it is compared and when it was kept", () => {
  for (const state of ["comparing", "kept"] as const) {
    expect(trainedPlan({ ...job, planChange: change(state) })).toBe(other);
    expect(planWentOverTo({ ...job, planChange: change(state) })).toBe(other);
  }
  expect(trainedPlan(job)).toBe(other);
});

it("is the plan before where the last attempt's was taken back, and no attempt has begun since", () => {
  const back = { ...job, planChange: change("returned") };
  expect(trainedPlan(back)).toBe(chosen);
  expect(planWentOverTo(back)).toBeNull();
  expect(trainedPlan({ ...back, attempts: [...job.attempts, { plan: chosen }] })).toBe(chosen);
});

it("is the report's for a training that is complete, and the chosen one before any attempt", () => {
  expect(trainedPlan({ ...job, report: { plan: other }, planChange: change("returned") })).toBe(other);
  expect(trainedPlan({ ...job, attempts: [] })).toBe(chosen);
  expect(trainedPlan({ ...job, attempts: [], chosen: null })).toBeNull();
});
