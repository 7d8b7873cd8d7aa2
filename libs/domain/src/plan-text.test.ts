import { describe, expect, it } from "vitest";
import fc from "fast-check";
import { planLabel, type Plan } from "./plan.ts";
import { looksLikePlanLabel, parsePlanLabel } from "./plan-text.ts";

const factor = fc.integer({ min: 1, max: 4096 });
const beyond = fc.integer({ min: 2, max: 64 });
const plans = fc.record(
  {
    microBatchSize: factor,
    microBatches: factor,
    recompute: fc.boolean(),
    pipelineParallel: factor,
    dataParallel: factor,
    tensorParallel: factor,
    sequenceParallel: factor,
    parameterSharding: factor,
    gradientSharding: factor,
    optimizerStateSharding: factor,
    forwardOverlap: fc.constantFrom("none", "block", "inter-layer", "intra-layer"),
    backwardOverlap: fc.constantFrom("none", "block", "intra-layer"),
    contextParallel: beyond,
    pipelineChunks: beyond,
    recomputeLayers: beyond,
  },
  { requiredKeys: ["microBatchSize", "microBatches", "recompute", "pipelineParallel", "dataParallel", "tensorParallel", "sequenceParallel", "parameterSharding", "gradientSharding", "optimizerStateSharding", "forwardOverlap", "backwardOverlap"] },
) as fc.Arbitrary<Plan>;

describe("a plan's label", () => {
  it("is read as it is written, in any order", () => {
    fc.assert(
      fc.property(plans, fc.infiniteStream(fc.nat()), (plan, order) => {
        const label = planLabel(plan);
        expect(looksLikePlanLabel(label)).toBe(true);
        expect(parsePlanLabel(label)).toEqual(plan);
        const parts = label.split(" ").map((part) => ({ part, key: order.next().value as number }));
        expect(parsePlanLabel(parts.sort((x, y) => x.key - y.key).map(({ part }) => part).join("  "))).toEqual(plan);
      }),
    );
  });

  it.each([
    ["b1 n1 pp1 dp1 sp1 ps1 zz3", /zz3 is not known/],
    ["b1 n1 pp1 dp1 sp1", /ps \(parameterSharding\) is missing/],
    ["b1 b2 n1 pp1 dp1 sp1 ps1", /b2 is the second/],
    ["b0 n1 pp1 dp1 sp1 ps1", /b0 is not known/],
    ["b1 n1 a2 pp1 dp1 sp1 ps1", /a2 is not known/],
    ["b1 n1 pp1 dp1 sp1 ps1 ovblock/inter-layer", /is not known/],
  ])("refuses %s", (text, message) => {
    expect(() => parsePlanLabel(text)).toThrow(message);
  });

  it("is not a path", () => {
    for (const path of ["plan.json", "/tmp/b1 n1", "1", "b1"]) expect(looksLikePlanLabel(path)).toBe(false);
  });
});
