import { describe, expect, it } from "vitest";
import { differencesOf, type Candidate, type Plan } from "@internevo/domain";
import { comparePlans } from "./compare.ts";

const plan = { microBatchSize: 1, microBatches: 4, recompute: false } as Plan;
const candidate = (over: Partial<Plan>, stepTimeSeconds: number) =>
  ({ plan: { ...plan, ...over }, predicted: { stepTimeSeconds } }) as Candidate;

it("differencesOf names fields with both values", () => {
  expect(differencesOf(plan, { ...plan, microBatchSize: 2, microBatches: 2 })).toEqual([
    { field: "microBatchSize", from: 1, to: 2 },
    { field: "microBatches", from: 4, to: 2 },
  ]);
  expect(differencesOf(null, plan)).toHaveLength(3);
});

describe("comparePlans", () => {
  it("proposes what gains at least the threshold", () => {
    expect(comparePlans(candidate({}, 10), candidate({ recompute: true }, 8), 0.1)).toMatchObject({
      kind: "better",
      predictedGain: expect.closeTo(0.2, 12),
    });
    expect(comparePlans(candidate({}, 10), candidate({ recompute: true }, 9.01), 0.1)).toMatchObject({
      kind: "keep",
      reason: expect.stringContaining("9.9%"),
    });
  });
  it("says how far the best other plan is from the threshold, with a sign", () => {
    const gains = (stepTimeSeconds: number) =>
      comparePlans(candidate({}, 10), candidate({ recompute: true }, stepTimeSeconds), 0.1);
    expect(gains(9.999)).toMatchObject({
      reason: "the best other plan gains ±0.0%, below the threshold of 10.0%",
    });
    expect(gains(10.3)).toMatchObject({
      reason: "the best other plan gains −3.0%, below the threshold of 10.0%",
    });
  });
  it("keeps an equal plan, and one that is not faster even without a threshold", () => {
    expect(comparePlans(candidate({}, 10), candidate({}, 5), 0)).toMatchObject({ kind: "keep" });
    expect(comparePlans(candidate({}, 10), candidate({ recompute: true }, 10), 0)).toMatchObject({
      kind: "keep",
    });
  });
  it("takes the first plan when none is in use", () => {
    expect(comparePlans(undefined, candidate({}, 1), 0.5).kind).toBe("first");
  });
});
