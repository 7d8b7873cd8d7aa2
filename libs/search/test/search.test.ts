import { shippedProfile } from "@internevo/cost-model";
import { resolveJob, type Plan, type PlanningResult } from "@internevo/domain";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { comparePlans, planJob } from "../src/index.ts";
import { bruteForce, type Judged } from "./brute-force.ts";
import { jobCase, profileCase } from "./cases.ts";

const order = (a: Judged, b: Judged) => a.seconds - b.seconds || a.bytes - b.bytes || comparePlans(a.plan, b.plan);
const sum = (values: Iterable<number>) => [...values].reduce((total, value) => total + value, 0);

function expectSound(result: PlanningResult): void {
  for (const { predicted } of [...result.candidates, ...result.runnableCandidates]) {
    for (const value of [...Object.values(predicted.time), predicted.mfu, predicted.mfuFullAttention, predicted.hfu, predicted.speedOfLight]) {
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
  it("finds what a plain search over every factor finds", () => {
    fc.assert(
      fc.property(jobCase, profileCase, fc.integer({ min: 1, max: 12 }), (job, profile, top) => {
        const { feasible, tooLarge } = bruteForce(job, profile);
        feasible.sort(order);
        const result = planJob(job, profile, { top });
        expect(result.candidates.map(({ plan }) => plan)).toEqual(feasible.slice(0, top).map(({ plan }) => plan));
        expect(result.candidates.map(({ rank }) => rank)).toEqual(feasible.slice(0, top).map((_, i) => i + 1));
        expect(result.runnableCandidates.map(({ plan }) => plan)).toEqual(feasible.filter(({ runnable }) => runnable).slice(0, top).map(({ plan }) => plan));
        expect(result.runnableCandidates.map(({ rank }) => rank)).toEqual(feasible.flatMap(({ runnable }, index) => (runnable ? [index + 1] : [])).slice(0, top));
        expect(result.counts.feasible).toBe(feasible.length);
        expect(result.counts.rejected["memory-exceeded"]).toBe(tooLarge.length);
        expect(result.counts.evaluated).toBe(result.counts.feasible + sum(Object.values(result.counts.rejected)));
        const least = feasible.length > 0 || tooLarge.length === 0 ? null : tooLarge.reduce((a, b) => (a.bytes - b.bytes || comparePlans(a.plan, b.plan)) <= 0 ? a : b);
        expect(result.closest?.plan ?? null).toEqual(least?.plan ?? null);
        expectSound(result);
      }),
      { numRuns: 150, seed: 20_240_501 },
    );
  });

  it("locates every plan at its exact rank, or says why it is rejected", () => {
    fc.assert(
      fc.property(jobCase, profileCase, fc.nat(), (job, profile, pick) => {
        const { feasible, tooLarge } = bruteForce(job, profile);
        feasible.sort(order);
        const all = [...feasible, ...tooLarge];
        const asked = all[pick % Math.max(1, all.length)];
        if (!asked) return;
        const { located } = planJob(job, profile, { top: 1, locate: asked.plan });
        const rank = feasible.indexOf(asked) + 1;
        expect(located?.rank).toBe(rank || null);
        expect(located?.feasible).toBe(rank > 0);
        if (rank === 0) expect(located?.reason).toMatch(/^memory-exceeded/);
        expect(located?.predicted?.stepTimeSeconds).toBe(asked.seconds);
      }),
      { numRuns: 100, seed: 7 },
    );
  });

  it("answers the same, byte for byte", () => {
    fc.assert(
      fc.property(jobCase, profileCase, (job, profile) => {
        expect(JSON.stringify(planJob(structuredClone(job), structuredClone(profile)))).toBe(JSON.stringify(planJob(job, profile)));
      }),
      { numRuns: 30, seed: 3 },
    );
  });
});

describe("on 128 GPUs", () => {
  const job = resolveJob({
    name: "seven", model: "llama-7b", sequenceLengthTokens: 4096, globalBatchTokens: 4 * 1024 * 1024, precision: "bf16-grad16",
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
  });
  const profile = shippedProfile("a800-128");

  it("lists the same first plans whatever is asked for beside them", () => {
    const ten = planJob(job, profile);
    const many = planJob(job, profile, { top: 300 });
    expect(many.candidates.slice(0, 10)).toEqual(ten.candidates);
    for (const [index, { plan }] of many.candidates.entries()) {
      if (index % 60 === 0) expect(planJob(job, profile, { top: 1, locate: plan }).located?.rank).toBe(index + 1);
    }
    expectSound(many);
  });

  it("names the first constraint that a plan violates", () => {
    const plan: Plan = {
      microBatchSize: 2, microBatches: 4, recompute: false, pipelineParallel: 1, dataParallel: 128, tensorParallel: 1, sequenceParallel: 1,
      parameterSharding: 4, gradientSharding: 1, optimizerStateSharding: 2, ...profile.executor,
    };
    const reasonOf = (over: Partial<Plan>) => planJob(job, profile, { top: 1, locate: { ...plan, ...over } }).located?.reason ?? "none";
    expect(reasonOf({})).toBe("none");
    expect(reasonOf({ dataParallel: 64 })).toMatch(/^ranks-not-divisible.*128/);
    expect(reasonOf({ microBatches: 5 })).toMatch(/^batch-not-divisible/);
    expect(reasonOf({ tensorParallel: 2 })).toMatch(/^tensor-sequence-mismatch/);
    expect(reasonOf({ parameterSharding: 3 })).toMatch(/^sharding-not-divisible/);
    expect(reasonOf({ optimizerStateSharding: 64 })).toMatch(/^sharding-not-divisible/);
    expect(reasonOf({ gradientSharding: 3 })).toMatch(/^gradient-sharding-not-allowed/);
    expect(reasonOf({ dataParallel: 2, sequenceParallel: 64, microBatches: 256 })).toMatch(/^heads-not-divisible/);
    expect(reasonOf({ dataParallel: 2, pipelineParallel: 64, microBatches: 256 })).toMatch(/^more-stages-than-layers/);
    expect(reasonOf({ microBatchSize: 8, microBatches: 1 })).toMatch(/^memory-exceeded/);
  });

  it("finds more when it may use more memory, and never a slower best", () => {
    let feasible = -1;
    let best = Infinity;
    for (const memoryPerGpu of ["4GB", "16GB", "40GB", "80GB", "640GB"]) {
      const result = planJob(resolveJob({ ...jobFile(memoryPerGpu) }), profile);
      expect(result.counts.feasible).toBeGreaterThanOrEqual(feasible);
      expect(result.candidates[0]?.predicted.stepTimeSeconds ?? Infinity).toBeLessThanOrEqual(best);
      feasible = result.counts.feasible;
      best = result.candidates[0]?.predicted.stepTimeSeconds ?? Infinity;
    }
    expect(feasible).toBeGreaterThan(0);
  });

  const jobFile = (memoryPerGpu: string) => ({
    name: "seven", model: "llama-7b", sequenceLengthTokens: 4096, globalBatchTokens: 4 * 1024 * 1024, precision: "bf16-grad16",
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu },
  });
});
