import { aPlan, REQUIRED_PLAN_FIELDS } from "@internevo/test-kit";
import { describe, expect, it } from "vitest";
import fc from "fast-check";
import { planLabel } from "./plan-fields.ts";
import type { Plan } from "./plan.ts";
import type { ProblemError } from "./problem.ts";
import {
  constraintsOf,
  looksLikePlanLabel,
  parsePlanLabel,
  parsePlanPart,
  planPartLabel,
} from "./plan-text.ts";

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
    gateUp: fc.constant("again" as const),
  },
  { requiredKeys: REQUIRED_PLAN_FIELDS },
) as fc.Arbitrary<Plan>;

describe("a plan's label", () => {
  it("is read as it is written, in any order", () => {
    fc.assert(
      fc.property(plans, fc.infiniteStream(fc.nat()), (plan, order) => {
        const label = planLabel(plan);
        expect(looksLikePlanLabel(label)).toBe(true);
        expect(parsePlanLabel(label)).toEqual(plan);
        const parts = label.split(" ").map((part) => ({ part, key: order.next().value as number }));
        expect(
          parsePlanLabel(
            parts
              .sort((x, y) => x.key - y.key)
              .map(({ part }) => part)
              .join("  "),
          ),
        ).toEqual(plan);
      }),
    );
  });

  it("is read with commas, as a command line has it without quotes", () => {
    expect(parsePlanPart("tp8,pp2")).toEqual(parsePlanPart("tp8 pp2"));
    expect(parsePlanPart(" tp8 , pp2 ")).toEqual(parsePlanPart("tp8 pp2"));
    expect(looksLikePlanLabel("tp8,pp2")).toBe(true);
  });

  it.each([
    ["b1 n1 pp1 dp1 sp1 ps1 zz3", /zz3 is not known/],
    ["b1 n1 pp1 dp1 sp1", /^`b1 n1 pp1 dp1 sp1` is not a whole plan: ps is missing$/],
    ["tp8", /^`tp8` is not a whole plan: b, n, pp, dp, sp, ps are missing$/],
    ["", /is empty/],
    ["b1 n1 pp1 dp1 sp1 ps1 ov8/8", /ov8\/8 is not known/],
    ["toString1", /toString1 is not known/],
    ["b99999999999", /is not known/],
    ["b1 b2 n1 pp1 dp1 sp1 ps1", /b2 is the second/],
    ["b0 n1 pp1 dp1 sp1 ps1", /b0 is not known/],
    ["b1 n1 a2 pp1 dp1 sp1 ps1", /a2 is not known/],
    ["b1 n1 pp1 dp1 sp1 ps1 ovblock/inter-layer", /is not known/],
  ])("refuses %s", (text, message) => {
    expect(() => parsePlanLabel(text)).toThrow(message);
  });

  it.each([
    ["TP=8,PP=1,DP=16", "tp8 pp1 dp16"],
    ["tp: 8", undefined],
    ["TP=8 vpp=2 mbs=4", "tp8 v2 b4"],
  ])("of another program is told in its own words: %s", (text, own) => {
    try {
      parsePlanLabel(text);
      expect.unreachable();
    } catch (error) {
      const [detail] = (error as ProblemError).details;
      if (own === undefined) expect(detail?.remedy).not.toBe("");
      else
        expect(detail).toMatchObject({
          value: text,
          message: "its parts are written as another program writes them",
          remedy: `write "${own}"`,
        });
    }
  });

  it("may be a part of a plan, which leaves the rest open", () => {
    expect(parsePlanPart("tp8 pp2")).toEqual({ tensorParallel: 8, pipelineParallel: 2 });
    expect(planPartLabel(parsePlanPart("tp8 pp2 a1 ovblock/none"))).toBe("a1 pp2 tp8 ovblock/none");
    expect(constraintsOf(parsePlanPart("tp1 cp1"))).toEqual({ tensorParallel: 1, contextParallel: 1 });
  });

  it("that is whole leaves nothing open, not even what it leaves out", () => {
    expect(constraintsOf(parsePlanPart("b1 n4 pp1 dp2 sp4 ps8"))).toEqual({
      ...aPlan({ microBatches: 4, dataParallel: 2, sequenceParallel: 4, parameterSharding: 8 }),
      recomputeLayers: 0,
      contextParallel: 1,
      pipelineChunks: 1,
      gateUp: "kept",
    });
  });

  it("is not a path", () => {
    for (const path of ["plan.json", "/tmp/b1 n1", "1", "b", "b1/n1"])
      expect(looksLikePlanLabel(path)).toBe(false);
  });
});
