import { resolveJob, type JobSpec } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { requiredMeasurements } from "./measurements.ts";
import { MOST_SIZES_OF_LAYOUTS, slicesOf } from "./plan-slices.ts";

/** 20,000 divisors: the batch has hundreds of thousands of slices, each a legal one. */
const MANY_DIVISORS = 65_214_507_758_400;

const jobOf = (sequences: number, plan: object = {}, nodes = 1): JobSpec =>
  resolveJob({
    name: "divisors",
    model: { hiddenSize: 64, layers: 2, heads: 8, kvHeads: 8, vocabularySize: 256 },
    sequenceLengthTokens: 16,
    globalBatchTokens: 16 * sequences,
    precision: "fp32",
    steps: 4,
    cluster: { nodes, gpusPerNode: 8, memoryPerGpu: "1GB" },
    plan,
  });

const seconds = (work: () => void): number => {
  const begin = process.threadCpuUsage();
  work();
  const { user, system } = process.threadCpuUsage(begin);
  return (user + system) / 1e6;
};

const sizesOf = (spec: JobSpec): number[] =>
  [...new Set(slicesOf(spec).map(({ microBatchSize }) => microBatchSize))].sort((a, b) => a - b);

describe("slicesOf", () => {
  it("has every size that a plan of an ordinary job may have, whatever its plan allows", () => {
    const sizes = [1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 18, 20, 24, 30, 36, 40, 45, 60, 72, 90, 120, 180, 360];
    expect(sizesOf(jobOf(360))).toEqual(sizes);
    expect(slicesOf(jobOf(360, { microBatchSize: 1 }))).toEqual(slicesOf(jobOf(360)));
  });

  it("has some of a batch with very many divisors, of each layout the smallest and the largest", () => {
    const spec = jobOf(MANY_DIVISORS);
    const slices = slicesOf(spec);
    expect(slices.length).toBeLessThanOrEqual(MOST_SIZES_OF_LAYOUTS);
    expect(slices.length).toBeGreaterThan(MOST_SIZES_OF_LAYOUTS / 2);
    const alone = slices.filter(({ sequenceParallel }) => sequenceParallel === 1);
    // A factor of a plan has 31 bits at most: so many micro-batches are a step, and so large is one.
    const least = MANY_DIVISORS / (2 ** 31 - 1);
    expect(Math.min(...alone.map(({ microBatchSize }) => microBatchSize))).toBeGreaterThan(least / 8);
    expect(Math.max(...alone.map(({ microBatchSize }) => microBatchSize))).toBeLessThan(2 ** 31);
  });

  it("has those alone that the job's plan allows where the batch has very many divisors", () => {
    const [, some, other] = sizesOf(jobOf(MANY_DIVISORS)) as [number, number, number];
    expect(sizesOf(jobOf(MANY_DIVISORS, { microBatchSize: [some, other] }))).toEqual([some, other]);
    const inStages = slicesOf(jobOf(MANY_DIVISORS, { pipelineParallel: 2, sequenceParallel: 1 }));
    expect(inStages.every(({ inStages: is, sequenceParallel: ranks }) => is && ranks === 1)).toBe(true);
  });

  it("lists within a second what a job needs whose batch has very many divisors", () => {
    for (const sequences of [MANY_DIVISORS, 963_761_198_400]) {
      let needed: ReturnType<typeof requiredMeasurements> | undefined;
      expect(seconds(() => (needed = requiredMeasurements(jobOf(sequences))))).toBeLessThan(1);
      expect(needed?.slices.length).toBeLessThanOrEqual(40);
      expect(needed?.slices.length).toBeGreaterThan(10);
    }
    expect(seconds(() => requiredMeasurements(jobOf(55_440, {}, 945)))).toBeLessThan(1);
  });
});
