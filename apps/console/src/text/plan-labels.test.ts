import { planLabel, type Plan } from "@internevo/domain";
import { expect, it } from "vitest";
import { planLabels } from "./plan-labels.ts";

const plan = (over: Partial<Plan>): Plan => ({ microBatchSize: 1, microBatches: 2, recompute: false, pipelineParallel: 1, dataParallel: 64, tensorParallel: 1, sequenceParallel: 2, parameterSharding: 1, gradientSharding: 1, optimizerStateSharding: 4, forwardOverlap: "none", backwardOverlap: "none", ...over });

it("leaves out what all plans have in common, and says it once", () => {
  const labels = planLabels([plan({}), plan({ tensorParallel: 2, optimizerStateSharding: 64 }), plan({ forwardOverlap: "block" })]);
  expect(labels).toEqual({ common: "b1 n2 a0 pp1 dp64 sp2 ps1 gs1", own: ["tp1 oss4", "tp2 oss64", "tp1 oss4 ovblock/none"] });
});

it("writes a plan whole that stands alone, or whose others are the same", () => {
  expect(planLabels([plan({})])).toEqual({ common: "", own: [planLabel(plan({}))] });
  expect(planLabels([plan({}), plan({})]).own).toEqual([planLabel(plan({})), planLabel(plan({}))]);
  expect(planLabels([])).toEqual({ common: "", own: [] });
});
