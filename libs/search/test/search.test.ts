import { aPlan } from "@internevo/test-kit";
import { CostModel, shippedProfile } from "@internevo/cost-model";
import {
  comparePlans,
  resolveJob,
  type Plan,
  type PlanningResult,
  type RejectionReason,
} from "@internevo/domain";
import { familyOf } from "@internevo/plan";
import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { planJob } from "../src/index.ts";
import { bruteForce, type Judged } from "./brute-force.ts";
import { jobCase, measured, smallJobCase } from "@internevo/test-kit/job-cases";

const order = (a: Judged, b: Judged) =>
  a.seconds - b.seconds || a.bytes - b.bytes || comparePlans(a.plan, b.plan);
/** The best plan of every family, in order. Ranks, shards and batches are what a family has in common. */
function firstOfEach(plans: readonly Judged[]): Judged[] {
  const firsts = new Map<string, Judged>();
  for (const one of [...plans].sort(order))
    if (!firsts.has(familyOf(one.plan))) firsts.set(familyOf(one.plan), one);
  return [...firsts.values()];
}

/** Every plan is counted once: found to fit, rejected for a reason, or not looked at. */
function expectCounts({ counts }: PlanningResult, feasible: number, tooLarge: number): void {
  const found = counts.rejected["memory-exceeded"] ?? NaN;
  expect(counts.feasible).toBeLessThanOrEqual(feasible);
  expect(found).toBeLessThanOrEqual(tooLarge);
  expect(counts.feasible + found + (counts.pruned ?? 0)).toBe(feasible + tooLarge);
  expect(counts.evaluated).toBe(counts.feasible + (counts.pruned ?? 0) + sum(Object.values(counts.rejected)));
  if (feasible > 0) expect(counts.feasible).toBeGreaterThan(0);
}

const sum = (values: Iterable<number>) => [...values].reduce((total, value) => total + value, 0);

function expectSound(result: PlanningResult): void {
  for (const { predicted } of [...result.candidates, ...result.runnableCandidates]) {
    for (const value of [
      ...Object.values(predicted.time),
      predicted.mfu,
      predicted.mfuFullAttention,
      predicted.hfu,
      predicted.speedOfLight,
    ]) {
      expect(Number.isFinite(value)).toBe(true);
      expect(value).toBeGreaterThanOrEqual(0);
    }
    expect(predicted.stepTimeSeconds).toBeGreaterThan(0);
    expect(Math.abs(sum(Object.values(predicted.time)) / predicted.stepTimeSeconds - 1)).toBeLessThan(1e-9);
    expect(sum(Object.values(predicted.memory))).toBe(predicted.peakMemoryBytes);
    for (const bytes of Object.values(predicted.memory)) expect(Number.isSafeInteger(bytes)).toBe(true);
    expect(predicted.mfu).toBeLessThanOrEqual(predicted.mfuFullAttention);
    expect(predicted.mfu).toBeLessThanOrEqual(predicted.hfu);
  }
}

describe("planJob", () => {
  it("finds what a plain search over every field finds", () => {
    let plans = 0;
    const tensor = { listed: 0, feasible: 0, tooLarge: 0 };
    const tensorOf = (list: readonly { readonly plan: Plan }[]) =>
      list.filter(({ plan }) => plan.tensorParallel > 1 && plan.backwardOverlap !== "none").length;
    fc.assert(
      fc.property(measured(smallJobCase), fc.integer({ min: 1, max: 12 }), ([job, profile], top) => {
        const { feasible, tooLarge } = bruteForce(job, profile);
        plans += feasible.length + tooLarge.length;
        feasible.sort(order);
        tensor.feasible += tensorOf(feasible);
        tensor.tooLarge += tensorOf(tooLarge);
        tensor.listed += tensorOf(firstOfEach(feasible).slice(0, top));
        const result = planJob(job, profile, { top, plans: top });
        // Whatever the family, and the first of every family.
        expect(result.plans?.map(({ plan }) => plan)).toEqual(feasible.slice(0, top).map(({ plan }) => plan));
        const firsts = firstOfEach(feasible);
        expect(result.candidates.map(({ plan }) => plan)).toEqual(
          firsts.slice(0, top).map(({ plan }) => plan),
        );
        expect(result.candidates.map(({ rank }) => rank)).toEqual(firsts.slice(0, top).map((_, i) => i + 1));
        expect(result.runnableCandidates).toEqual(result.candidates);
        for (const [index, { tied }] of result.candidates.entries()) {
          const best = firsts[index] as Judged;
          expect(tied ?? 0).toBe(
            feasible.filter(
              (one) => one.seconds === best.seconds && familyOf(one.plan) === familyOf(best.plan),
            ).length - 1,
          );
        }
        expectCounts(result, feasible.length, tooLarge.length);
        const least =
          feasible.length > 0 || tooLarge.length === 0
            ? null
            : tooLarge.reduce((a, b) => ((a.bytes - b.bytes || comparePlans(a.plan, b.plan)) <= 0 ? a : b));
        expect(result.closest?.plan ?? null).toEqual(least?.plan ?? null);
        expectSound(result);
      }),
      { numRuns: 150, seed: 20_240_501 },
    );
    expect(plans).toBeGreaterThan(50_000);
    // Plans whose tensor ranks communicate beside the backward pass are among those that fit, that do not, and
    // that are listed.
    expect(tensor.feasible).toBeGreaterThan(200);
    expect(tensor.tooLarge).toBeGreaterThan(200);
    expect(tensor.listed).toBeGreaterThan(0);
  });

  it("loses nothing by what it does not look at", () => {
    let pruned = 0;
    fc.assert(
      fc.property(measured(jobCase), fc.integer({ min: 1, max: 12 }), ([job, profile], top) => {
        const some = planJob(job, profile, { top, plans: top });
        const all = planJob(job, profile, { top, plans: top, exhaustive: true });
        pruned += some.counts.pruned ?? 0;
        expect(all.counts.pruned).toBe(0);
        expect({ ...some, counts: null, warnings: null }).toEqual({ ...all, counts: null, warnings: null });
        expect(some.counts.evaluated).toBe(all.counts.evaluated);
        expectCounts(some, all.counts.feasible, all.counts.rejected["memory-exceeded"] ?? NaN);
        for (const [reason, count] of Object.entries(all.counts.rejected))
          if (reason !== "memory-exceeded")
            expect(some.counts.rejected[reason as RejectionReason]).toBe(count);
      }),
      { numRuns: 60, seed: 11 },
    );
    expect(pruned).toBeGreaterThan(10_000);
  });

  it("locates every plan behind exactly the families that are ahead of it, or says why it is rejected", () => {
    fc.assert(
      fc.property(measured(smallJobCase), fc.nat(), ([job, profile], pick) => {
        const { feasible, tooLarge } = bruteForce(job, profile);
        const all = [...feasible, ...tooLarge];
        const asked = all[pick % Math.max(1, all.length)];
        if (!asked) return;
        const { located } = planJob(job, profile, { top: 1, locate: asked.plan });
        const fits = feasible.includes(asked);
        expect(located?.rank).toBe(
          fits
            ? 1 +
                firstOfEach(feasible).filter(
                  (one) =>
                    one.seconds < asked.seconds || (one.seconds === asked.seconds && one.bytes < asked.bytes),
                ).length
            : null,
        );
        expect(located?.feasible).toBe(fits);
        if (!fits) expect(located?.reason).toMatch(/^memory-exceeded/);
        expect(located?.predicted?.stepTimeSeconds).toBe(asked.seconds);
      }),
      { numRuns: 100, seed: 7 },
    );
  });

  it("answers the same, byte for byte", () => {
    fc.assert(
      fc.property(measured(jobCase), ([job, profile]) => {
        expect(JSON.stringify(planJob(structuredClone(job), structuredClone(profile)))).toBe(
          JSON.stringify(planJob(job, profile)),
        );
      }),
      { numRuns: 30, seed: 3 },
    );
  });
});

describe("on 128 GPUs", () => {
  const job = resolveJob({
    name: "seven",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 4 * 1024 * 1024,
    precision: "bf16-grad16",
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
  });
  const profile = shippedProfile("a800-128");

  it("lists the same first plans whatever is asked for beside them", () => {
    const ten = planJob(job, profile);
    const many = planJob(job, profile, { top: 300 });
    expect(many.candidates.slice(0, 10)).toEqual(ten.candidates);
    for (const [index, { plan }] of many.candidates.entries()) {
      if (index % 60 === 0)
        expect(planJob(job, profile, { top: 1, locate: plan }).located?.rank).toBe(index + 1);
    }
    expectSound(many);
  });

  it("predicts and lists no other plans than those of the ranks that are asked for", () => {
    const many = planJob(job, profile, { top: 300 });
    const predict = vi.spyOn(CostModel.prototype, "predict");
    const { candidates, counts } = planJob(job, profile, { top: 300, ranks: [250, 3, 4000] });
    expect(candidates).toEqual([many.candidates[2], many.candidates[249]]);
    expect(counts).toEqual(many.counts);
    expect(predict).toHaveBeenCalledTimes(2);
    predict.mockRestore();
  });

  it("chooses tensor ranks that communicate beside the backward pass, where the executor does", () => {
    const { tensorActivations: _waited, ...executor } = profile.executor;
    const long = { ...job, sequenceLengthTokens: 32_768 };
    const [waiting, hiding] = [profile, { ...profile, executor }].map((each) =>
      planJob(long, each, { top: 1 }),
    );
    const [before, after] = [waiting?.candidates[0], hiding?.candidates[0]];
    expect(before?.plan.tensorParallel).toBe(1);
    expect(after?.plan.tensorParallel).toBeGreaterThan(1);
    expect(after?.plan.backwardOverlap).not.toBe("none");
    expect(after?.predicted.stepTimeSeconds).toBeLessThan(before?.predicted.stepTimeSeconds ?? 0);
  });

  it("names the first constraint that a plan violates", () => {
    const plan: Plan = aPlan({
      microBatchSize: 2,
      microBatches: 4,
      dataParallel: 128,
      parameterSharding: 4,
      optimizerStateSharding: 2,
      forwardOverlap: profile.executor.forwardOverlap,
      backwardOverlap: profile.executor.backwardOverlap,
    });
    const reasonOf = (over: Partial<Plan>) =>
      planJob(job, profile, { top: 1, locate: { ...plan, ...over } }).located?.reason ?? "none";
    expect(reasonOf({})).toBe("none");
    expect(reasonOf({ dataParallel: 64 })).toMatch(/^ranks-not-divisible.*128/);
    expect(reasonOf({ microBatches: 5 })).toMatch(/^batch-not-divisible/);
    expect(reasonOf({ tensorParallel: 2 })).toMatch(/^tensor-sequence-mismatch/);
    expect(reasonOf({ parameterSharding: 3 })).toMatch(/^sharding-not-divisible/);
    expect(reasonOf({ optimizerStateSharding: 64 })).toMatch(/^sharding-not-divisible/);
    expect(reasonOf({ gradientSharding: 3 })).toMatch(/^gradient-sharding-not-allowed/);
    expect(reasonOf({ dataParallel: 2, sequenceParallel: 64, microBatches: 256 })).toMatch(
      /^heads-not-divisible/,
    );
    expect(reasonOf({ dataParallel: 2, pipelineParallel: 64, microBatches: 256 })).toMatch(
      /^more-stages-than-layers/,
    );
    expect(reasonOf({ microBatchSize: 8, microBatches: 1 })).toMatch(/^memory-exceeded/);
  });

  it("finds more when it may use more memory, and never a slower best", () => {
    let feasible = -1;
    let best = Infinity;
    for (const memoryPerGpu of ["4GB", "16GB", "40GB", "80GB", "640GB"]) {
      const limited = resolveJob({
        ...jobFile(memoryPerGpu),
        plan: {
          pipelineParallel: [1, 4],
          sequenceParallel: [1, 2],
          microBatchSize: 1,
          pipelineChunks: 1,
          forwardOverlap: ["none", "inter-layer"],
          backwardOverlap: "intra-layer",
        },
      });
      const result = planJob(limited, profile, { exhaustive: true });
      expect(result.counts.feasible).toBeGreaterThanOrEqual(feasible);
      expect(result.candidates[0]?.predicted.stepTimeSeconds ?? Infinity).toBeLessThanOrEqual(best);
      feasible = result.counts.feasible;
      best = result.candidates[0]?.predicted.stepTimeSeconds ?? Infinity;
    }
    expect(feasible).toBeGreaterThan(0);
  });

  const jobFile = (memoryPerGpu: string) => ({
    name: "seven",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 4 * 1024 * 1024,
    precision: "bf16-grad16",
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu },
  });
});

describe("jobs of one model and length", () => {
  it("share times and bytes, and answer as they do alone, with the same warnings", () => {
    fc.assert(
      fc.property(
        measured(jobCase),
        fc.array(
          fc.tuple(
            fc.integer({ min: 1, max: 4 }),
            fc.constantFrom("executor" as const, "paper" as const),
            fc.boolean(),
            fc.integer({ min: 1, max: 3 }),
          ),
          { minLength: 1, maxLength: 3 },
        ),
        ([job, profile], others) => {
          // Of the same object times are shared, of a copy they are not.
          for (const [times, memoryModel, unsharded, threadsPerRank] of others) {
            planJob(
              {
                ...job,
                globalBatchTokens: job.globalBatchTokens * times,
                memoryModel,
                ...(unsharded ? { plan: { ...job.plan, parameterSharding: 1 } } : {}),
              },
              profile,
              { threadsPerRank },
            );
          }
          expect(JSON.stringify(planJob(job, profile))).toBe(
            JSON.stringify(planJob(job, structuredClone(profile))),
          );
          const more = { ...job, cluster: { ...job.cluster, nodes: 2 * job.cluster.nodes } };
          expect(JSON.stringify(planJob(more, profile))).toBe(
            JSON.stringify(planJob(more, structuredClone(profile))),
          );
        },
      ),
      { numRuns: 60, seed: 29 },
    );
  });
});
