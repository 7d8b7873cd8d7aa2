import { parsePlanLabel, ProblemError, resolveJob, type Plan } from "@internevo/domain";
import { REQUIRED_PLAN_FIELDS } from "@internevo/test-kit";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { planFault, planOfJob } from "./legality.ts";

const jobOf = (over: Record<string, unknown> = {}) =>
  resolveJob({
    name: "seven",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 4_194_304,
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
    ...over,
  });
const job = jobOf();

/** Small numbers, divisors, and the largest that the schema lets through. */
const factor = fc.oneof(
  fc.integer({ min: 1, max: 9 }),
  fc.constantFrom(1, 2, 4, 8, 16, 32, 64, 128),
  fc.constantFrom(1_000_000, 2 ** 31 - 1),
);
const anyPlan: fc.Arbitrary<Plan> = fc.record(
  {
    microBatchSize: factor,
    microBatches: factor,
    recompute: fc.boolean(),
    pipelineParallel: factor,
    dataParallel: factor,
    tensorParallel: factor,
    sequenceParallel: factor,
    contextParallel: fc.oneof(fc.integer({ min: 1, max: 9 }), fc.constant(2 ** 20)),
    parameterSharding: factor,
    gradientSharding: factor,
    optimizerStateSharding: factor,
    forwardOverlap: fc.constantFrom("none", "block", "inter-layer", "intra-layer"),
    backwardOverlap: fc.constantFrom("none", "block", "intra-layer"),
    pipelineChunks: fc.oneof(fc.integer({ min: 1, max: 4 }), fc.constant(1024)),
    recomputeLayers: fc.oneof(fc.integer({ min: 0, max: 40 }), fc.constant(10_000)),
    gateUp: fc.constantFrom("kept", "again", "host"),
  },
  { requiredKeys: REQUIRED_PLAN_FIELDS },
);

function refusal(plan: Plan): ProblemError {
  try {
    planOfJob(plan, job);
  } catch (error) {
    if (error instanceof ProblemError) return error;
    throw error;
  }
  throw new Error("the plan was not refused");
}

describe("a plan held against its job", () => {
  it("is the plan itself where it divides", () => {
    const plan = parsePlanLabel("b1 n8 a0 pp1 dp128 tp1 sp1 ps8 gs1 oss16");
    expect(planOfJob(plan, job)).toBe(plan);
  });

  it.each([
    [
      "b1 n4 a0 pp1 dp128 tp1 sp1 ps8 gs1 oss16",
      "batch-not-divisible: microBatchSize 1 · microBatches 4 · dataParallel 128 is 512 sequences, the step has 1024",
      "smallest change: microBatches 4 → 8",
    ],
    [
      "b1 n8 a0 pp1 dp64 tp1 sp1 ps8 gs1 oss8",
      "ranks-not-divisible: pipelineParallel 1 · dataParallel 64 · sequenceParallel 1 is 64, the cluster has 128 ranks",
      "smallest change: dataParallel 64 → 128",
    ],
    [
      "b3 n8 a0 pp1 dp128 tp1 sp1 ps8 gs1 oss16",
      "batch-not-divisible: microBatchSize 3 · microBatches 8 · dataParallel 128 is 3072 sequences, the step has 1024",
      "choose microBatchSize and microBatches whose product is 8",
    ],
    [
      "b1 n8 a0 pp1 dp128 tp1 sp1 ps2147483647 gs5 oss16",
      "sharding-not-divisible: parameterSharding 2147483647 does not divide the 128 ranks of one slice",
      "choose a divisor of 128",
    ],
    [
      "b1 n8 a0 pp1 dp128 tp1 sp1 ps8 gs1 oss16 cp3",
      "context-not-possible: contextParallel 3 does not divide sequenceParallel 1",
      "choose contextParallel that divides sequenceParallel and cuts the sequence evenly, or leave it out",
    ],
  ])("is refused with what does not divide, and what to change: %s", (label, message, remedy) => {
    expect(refusal(parsePlanLabel(label))).toMatchObject({
      code: "plan-invalid",
      details: [
        {
          field: "plan",
          value: label,
          message,
          remedy: `${remedy}; why-not says which change also fits in memory`,
        },
      ],
    });
  });

  it("is refused in next to no time, whatever its factors, and a change that is named mends what it names", () => {
    let named = 0;
    fc.assert(
      fc.property(
        anyPlan.filter((plan) => planFault(plan, job) !== null),
        (plan) => {
          const [detail] = refusal(plan).details;
          expect(detail?.message).toMatch(/^[a-z-]+: ./);
          const [, field, from, to] =
            /^smallest change: (\w+) (\d+) → (\d+);/.exec(detail?.remedy ?? "") ?? [];
          if (field === undefined) return;
          named += 1;
          expect(String(plan[field as keyof Plan])).toBe(from);
          expect(planFault({ ...plan, [field]: Number(to) }, job)?.reason).not.toBe(
            planFault(plan, job)?.reason,
          );
        },
      ),
      { numRuns: 1000, seed: 7 },
    );
    expect(named).toBeGreaterThan(20);
  });
});
