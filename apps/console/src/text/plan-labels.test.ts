import { planLabel, type Plan } from "@internevo/domain";
import { aPlan } from "@internevo/test-kit";
import { expect, it } from "vitest";
import { planLabels } from "./plan-labels.ts";
import { dimensionsOf, dimensionValue, explainPlan } from "./words.ts";

const plan = (over: Partial<Plan>): Plan =>
  aPlan({ microBatches: 2, dataParallel: 64, sequenceParallel: 2, optimizerStateSharding: 4, ...over });

it("leaves out what all plans have in common, and says it once", () => {
  const labels = planLabels([
    plan({}),
    plan({ tensorParallel: 2, optimizerStateSharding: 64 }),
    plan({ forwardOverlap: "block" }),
    plan({ forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" }),
  ]);
  expect(labels).toEqual({
    common: "b1 n2 a0 pp1 dp64 sp2 ps1 gs1",
    own: ["tp1 oss4", "tp2 oss64", "tp1 oss4 overlaps blocks, none", "tp1 oss4 overlaps layers, modules"],
  });
});

it("names what is beyond the paper only where a plan has it", () => {
  expect(planLabel(plan({ pipelineChunks: 1, recomputeLayers: 0 }))).toBe(planLabel(plan({})));
  expect(planLabel(plan({ pipelineChunks: 2, recomputeLayers: 3 }))).toBe(`${planLabel(plan({}))} v2 k3`);
  expect(dimensionsOf([plan({}), plan({ pipelineChunks: 1 })]).map(({ symbol }) => symbol)).toEqual([
    "b",
    "n",
    "a",
    "pp",
    "dp",
    "tp",
    "sp",
    "ps",
    "gs",
    "oss",
  ]);
  expect(dimensionsOf([plan({}), plan({ recomputeLayers: 3 })]).at(-1)).toMatchObject({
    key: "recomputeLayers",
    symbol: "k",
  });
  expect(dimensionValue(plan({}), "pipelineChunks")).toBe("1");
  expect(planLabel(plan({ contextParallel: 1 }))).toBe(planLabel(plan({})));
  expect(planLabel(plan({ contextParallel: 2, pipelineChunks: 2 }))).toBe(`${planLabel(plan({}))} cp2 v2`);
  expect(dimensionsOf([plan({}), plan({ contextParallel: 2 })]).at(-1)).toMatchObject({
    key: "contextParallel",
    symbol: "cp",
  });
  expect(explainPlan(plan({ contextParallel: 2 }))[0]).toContain("2 ranks share every sequence (a ring)");
  expect(explainPlan(plan({ sequenceParallel: 8, contextParallel: 2 }))[0]).toContain(
    "(Ulysses over 4, 2 such groups in a ring)",
  );
});

it("writes a plan whole that stands alone, or whose others are the same", () => {
  expect(planLabels([plan({})])).toEqual({ common: "", own: [planLabel(plan({}))] });
  expect(planLabels([plan({}), plan({})]).own).toEqual([planLabel(plan({})), planLabel(plan({}))]);
  expect(planLabels([])).toEqual({ common: "", own: [] });
});
