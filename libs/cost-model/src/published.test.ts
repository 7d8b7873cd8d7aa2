import { aPlan } from "@internevo/test-kit";
import { NAMED_MODELS, resolveJob, type JobSpec, type Model, type Plan } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CostModel } from "./cost-model.ts";
import { sumLines } from "./memory.ts";
import { publishedMemory, publishedScheme, publishedSchemeMemory } from "./published-memory.ts";
import { isPublishedPlan, type PublishedScheme } from "./published-plan.ts";
import { publishedTime } from "./published-time.ts";
import { shippedProfile } from "./shipped-profiles.ts";
import { totalSeconds } from "./step-time.ts";

const profile = shippedProfile("a800-128");
const GIBIBYTE = 2 ** 30;

function jobOf(model: string, lengthK: number, vocabularySize: number, memoryPerGpu = "80GiB"): JobSpec {
  return resolveJob({
    name: "published",
    model: { base: model, vocabularySize },
    sequenceLengthTokens: lengthK * 1024,
    globalBatchTokens: 4 * 1024 * 1024,
    precision: "bf16-grad16",
    memoryModel: "published",
    timeModel: "published",
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu },
  });
}

const planOf = (over: Partial<Plan>): Plan => aPlan({ gradientSharding: 1, ...over });

describe("the published planner", () => {
  it("gives 7B at 4k what its authors' own run gave", () => {
    const job = jobOf("llama-7b", 4, 103_168);
    const plan = planOf({
      microBatchSize: 2,
      microBatches: 4,
      dataParallel: 128,
      optimizerStateSharding: 32,
    });
    const { memory, peakMemoryBytes, stepTimeSeconds, tokensPerGpuPerSecond } = new CostModel(
      job,
      profile,
    ).predict(planOfJob(plan, job));
    const gibibytes = (...names: string[]) =>
      names.reduce((sum, name) => sum + (memory[name] ?? NaN), 0) / GIBIBYTE;
    expect(gibibytes("parameters", "gradients")).toBeCloseTo(27.27, 2);
    expect(gibibytes("optimizerStates")).toBeCloseTo(6.98, 2);
    expect(gibibytes("gatherPool", "reduceStaging")).toBeCloseTo(1.508, 3);
    expect(peakMemoryBytes / GIBIBYTE).toBeCloseTo(77.93, 2);
    expect(stepTimeSeconds).toBeCloseTo(6.394, 3);
    expect(tokensPerGpuPerSecond).toBeCloseTo(5125, 0);
  });

  // The answers that its repository prints (example_output.txt): 13B at 128k, a vocabulary of 50,256.
  const printed: readonly [
    scheme: PublishedScheme,
    plan: Partial<Plan>,
    memoryGibibytes: number,
    milliseconds: number,
  ][] = [
    ["isp", { dataParallel: 32, sequenceParallel: 4 }, 446.96, 40_702.825],
    ["isp", { dataParallel: 32, sequenceParallel: 4, optimizerStateSharding: 2 }, 376.06, 40_761.174],
    ["isp", { dataParallel: 32, sequenceParallel: 4, parameterSharding: 2 }, 352.43, 40_772.339],
    [
      "isp",
      { dataParallel: 32, sequenceParallel: 4, parameterSharding: 2, optimizerStateSharding: 2 },
      316.98,
      40_791.299,
    ],
    ...(
      [
        ["msp", 27.04, 88_515.844],
        ["fsp", 27.35, 90_265.844],
      ] as const
    ).map(
      ([scheme, memory, milliseconds]) =>
        [
          scheme,
          {
            microBatchSize: 2,
            microBatches: 2,
            recompute: true,
            pipelineParallel: 2,
            dataParallel: 8,
            tensorParallel: 8,
            sequenceParallel: 8,
            optimizerStateSharding: 8,
          },
          memory,
          milliseconds,
        ] as [PublishedScheme, Partial<Plan>, number, number],
    ),
  ];
  it.each(printed)("prints of %s with %o: %d GiB, %d ms", (scheme, over, memory, milliseconds) => {
    const job = jobOf("llama-13b", 128, 50_256);
    const plan = planOf({ microBatchSize: 1, microBatches: 1, ...over });
    expect(sumLines(publishedSchemeMemory(job, plan, scheme)) / GIBIBYTE).toBeCloseTo(memory, 1);
    const time = publishedTime(job, plan, scheme, profile);
    expect((time === null ? NaN : totalSeconds(time)) * 1000).toBeCloseTo(milliseconds, -0.5);
  });

  it("takes the faster tensor scheme that fits", () => {
    const plan = planOf({
      microBatchSize: 1,
      microBatches: 8,
      dataParallel: 16,
      tensorParallel: 8,
      sequenceParallel: 8,
      optimizerStateSharding: 16,
    });
    const [large, small] = [jobOf("llama-7b", 32, 103_168), jobOf("llama-7b", 32, 103_168, "20GiB")];
    expect(publishedScheme(large, plan)).toBe("msp");
    expect(publishedScheme(small, plan)).toBe("fsp");
    const [msp, fsp] = (["msp", "fsp"] as const).map((scheme) => publishedTime(large, plan, scheme, profile));
    expect(totalSeconds(fsp!)).toBeGreaterThan(totalSeconds(msp!));
    expect(sumLines(publishedMemory(small, plan))).toBeLessThan(sumLines(publishedMemory(large, plan)));
  });

  it("leaves a plan out whose attention was not measured", () => {
    const job = jobOf("llama-7b", 4, 103_168);
    const plan = planOf({ microBatchSize: 16, microBatches: 1, dataParallel: 64, sequenceParallel: 2 });
    expect(publishedTime(job, plan, "isp", profile)).toBeNull();
    expect(() => new CostModel(job, profile).time(planOfJob(plan, job))).toThrow(/leaves this plan out/);
  });
});

const power = (most: number) => fc.integer({ min: 0, max: most }).map((exponent) => 2 ** exponent);
/** Plans of 128 ranks, all with measured attention. */
const plans = fc
  .record({
    model: fc.constantFrom("llama-7b", "llama-13b", "llama-30b", "llama-65b"),
    lengthK: fc.constantFrom(4, 8, 16, 32),
    b: fc.constantFrom(1, 2, 4),
    pp: power(3),
    sp: power(3),
    ps: power(3),
    oss: power(2),
    recompute: fc.boolean(),
  })
  .filter(({ pp, ps, oss }) => 128 % (pp * ps * oss) === 0)
  .map(({ model, lengthK, b, pp, sp, ps, oss, recompute }) => {
    const dataParallel = 128 / pp / sp;
    return {
      job: {
        ...jobOf(model, lengthK, 103_168),
        model: { ...(NAMED_MODELS[model] as Model), vocabularySize: 103_168 },
      },
      plan: planOf({
        microBatchSize: b,
        microBatches: 16,
        recompute,
        pipelineParallel: pp,
        dataParallel,
        sequenceParallel: sp,
        parameterSharding: ps,
        optimizerStateSharding: oss,
      }),
    };
  });
const bytesOf = (job: JobSpec, plan: Plan): number => sumLines(publishedMemory(job, plan));

describe("its arithmetic, whatever the plan", () => {
  it("needs less memory the more is sharded, and with recomputation", () => {
    fc.assert(
      fc.property(plans, ({ job, plan }) => {
        const bytes = bytesOf(job, plan);
        const { parameterSharding: ps, optimizerStateSharding: oss } = plan;
        expect(bytesOf(job, { ...plan, parameterSharding: 2 * ps })).toBeLessThan(bytes);
        expect(bytesOf(job, { ...plan, optimizerStateSharding: 2 * oss })).toBeLessThanOrEqual(bytes);
        expect(bytesOf(job, { ...plan, recompute: true })).toBeLessThanOrEqual(bytes);
        expect(bytesOf(job, { ...plan, microBatchSize: 2 * plan.microBatchSize })).toBeGreaterThanOrEqual(
          bytes,
        );
      }),
    );
  });

  it("never plans less than AdamW needs while it updates", () => {
    fc.assert(
      fc.property(plans, ({ job, plan }) => {
        const lines = publishedMemory(job, plan);
        const [parameters, gradients, states] = ["parameters", "gradients", "optimizerStates"].map(
          (name) => lines[name] ?? NaN,
        ) as [number, number, number];
        expect(sumLines(lines)).toBeGreaterThanOrEqual(parameters + gradients + (5 / 3) * states - 4);
      }),
    );
  });

  it("takes longer the more gathers and products lose to each other, and never less than products", () => {
    fc.assert(
      fc.property(plans, fc.double({ min: 0, max: 1, noNaN: true }), ({ job, plan }, penalty) => {
        const none = publishedTime(job, plan, "isp", profile, 0);
        const some = publishedTime(job, plan, "isp", profile, penalty);
        expect(totalSeconds(some!)).toBeGreaterThanOrEqual(totalSeconds(none!) * (1 - 1e-12));
        if (plan.parameterSharding === 1) expect(some).toEqual(none);
        // A step is (n + s_pp - 1) stages: the bubble is s_pp - 1 of n.
        const stages = totalSeconds({
          ...some!,
          gradientCommunicationSeconds: 0,
          pipelineCommunicationSeconds: 0,
          updateSeconds: 0,
        });
        const share = (plan.pipelineParallel - 1) / (plan.microBatches + plan.pipelineParallel - 1);
        expect(some!.pipelineBubbleSeconds).toBeCloseTo(stages * share, 9);
      }),
    );
  });

  it("looks at powers of two on 128 ranks, and at no fewer micro-batches than stages", () => {
    const divisors = [1, 2, 4, 8, 16, 32, 64, 128];
    for (const size of divisors) {
      const plan = planOf({ microBatches: 8, sequenceParallel: size, parameterSharding: 128 / size });
      expect(isPublishedPlan(plan, 128)).toBe(true);
    }
    for (const size of [3, 5, 10, 12, 20])
      expect(isPublishedPlan(planOf({ microBatches: 8, sequenceParallel: size }), 128)).toBe(false);
    expect(isPublishedPlan(planOf({ microBatches: 4, pipelineParallel: 8 }), 128)).toBe(false);
    expect(isPublishedPlan(planOf({ microBatches: 8, pipelineParallel: 8 }), 128)).toBe(true);
    expect(isPublishedPlan(planOf({ microBatches: 8, tensorParallel: 2, sequenceParallel: 2 }), 128)).toBe(
      true,
    );
    expect(
      isPublishedPlan(
        planOf({ microBatches: 8, tensorParallel: 2, sequenceParallel: 2, parameterSharding: 2 }),
        128,
      ),
    ).toBe(false);
  });
});
