import {
  NAMED_MODELS,
  resolveJob,
  type JobSpec,
  type MeasuredSlice,
  type Model,
  type Plan,
  type Profile,
  type SliceParts,
} from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { describe, expect, it } from "vitest";
import { CostModel } from "./cost-model.ts";
import { requiredMeasurements } from "./measurements.ts";
import { shippedProfile } from "./shipped-profiles.ts";
import { layersOfSlice, partsOf, sliceShape } from "./slice-corrections.ts";
import { spreadFactors } from "./spread.ts";

const profile = shippedProfile("a800-128");
const job = resolveJob({
  name: "job",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 4 * 1024 * 1024,
  precision: "bf16",
  cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
});
const model = NAMED_MODELS["llama-7b"] as Model;
const plain = (microBatchSize: number) => ({
  microBatchSize,
  sequenceLengthTokens: 4096,
  sequenceParallel: 1,
  tensorParallel: 1,
});
const ulysses = (microBatchSize: number) => ({ ...plain(microBatchSize), sequenceParallel: 8 });
type Slice = ReturnType<typeof plain> & { readonly contextParallel?: number };
const layoutOf = ({ sequenceParallel, tensorParallel, contextParallel }: Slice) => ({
  pipelineParallel: 1,
  dataParallel: 128 / sequenceParallel,
  sequenceParallel,
  tensorParallel,
  ...(contextParallel === undefined ? {} : { contextParallel }),
});

const timesAll = (parts: SliceParts, factor: number): SliceParts =>
  Object.fromEntries(
    Object.entries(parts).map(([name, value]: [string, number | readonly number[]]) => [
      name,
      typeof value === "number" ? factor * value : value.map((seconds) => factor * seconds),
    ]),
  ) as unknown as SliceParts;

/** What a trainer would have measured where every part takes so many times longer than it is composed of. */
function measured(slice: Slice, factor: number, spec: JobSpec = job): MeasuredSlice {
  const composed = new CostModel(spec, profile).sliceTime(slice.microBatchSize, layoutOf(slice));
  return {
    shape: sliceShape(spec, slice),
    layers: 2,
    microBatches: 2,
    parts: timesAll(partsOf(composed), factor),
    medianSeconds: 1,
    p10Seconds: 0.9,
    p90Seconds: 1.2,
    samples: 5,
  };
}
const withSlices = (...slices: MeasuredSlice[]): Profile => ({ ...profile, slices });
const timeOf = (spec: JobSpec, given: Profile, slice: Slice) =>
  new CostModel(spec, given).sliceTime(slice.microBatchSize, layoutOf(slice));

describe("slices that a trainer measured", () => {
  it("are what a slice of the same shape takes, part by part", () => {
    const parts: SliceParts = {
      forward: [1, 2, 3, 4],
      forwardAttention: 5,
      forwardCommunication: 6,
      backward: [7, 8, 9, 10],
      backwardAttention: 11,
      backwardCommunication: 12,
      embedding: 13,
      embeddingCommunication: 0,
      head: 14,
      headCommunication: 0,
    };
    const time = timeOf(job, withSlices({ ...measured(ulysses(2), 1), parts }), ulysses(2));
    const read = partsOf(time);
    for (const name of Object.keys(parts) as (keyof SliceParts)[])
      for (const [at, value] of [parts[name]].flat().entries())
        expect([read[name]].flat()[at], name).toBeCloseTo(value, 9);
    expect(time.forwardSeconds).toBeCloseTo(15, 9);
    expect(time.backwardSeconds).toBeCloseTo(45, 9);
    expect(time.forwardModules[0]).toBeCloseTo(6, 9);
    expect(time.backwardModules[1]).toBeCloseTo(19, 9);
  });

  it("correct sizes between them in between, and others as the nearest, each kind of sharing by its own", () => {
    const given = withSlices(measured(plain(1), 1.1), measured(plain(4), 1.4), measured(ulysses(2), 3));
    const factor = (slice: ReturnType<typeof plain>) =>
      timeOf(job, given, slice).forwardSeconds / timeOf(job, profile, slice).forwardSeconds;
    expect(factor(plain(1))).toBeCloseTo(1.1, 9);
    expect(factor(plain(2))).toBeCloseTo(Math.sqrt(1.1 * 1.4), 9);
    expect(factor(plain(8))).toBeCloseTo(1.4, 9);
    expect(factor(ulysses(8))).toBeCloseTo(3, 9);
    expect(factor({ ...plain(2), sequenceParallel: 2 })).toBeCloseTo(3, 9);
  });

  it("of another sequence length correct by what they took longer, not by what attention grows with the length", () => {
    const long = { ...job, sequenceLengthTokens: 4 * job.sequenceLengthTokens };
    const sharings = [
      plain(2),
      ulysses(2),
      { ...plain(2), sequenceParallel: 8, contextParallel: 8 },
      { ...plain(2), sequenceParallel: 8, tensorParallel: 8 },
    ];
    for (const slice of sharings) {
      const given = withSlices(measured(slice, 1.5));
      const there = { ...slice, sequenceLengthTokens: long.sequenceLengthTokens };
      const [plainParts, correctedParts] = [profile, given].map((each) =>
        partsOf(timeOf(long, each, there)),
      ) as [SliceParts, SliceParts];
      for (const [name, value] of Object.entries(timesAll(plainParts, 1.5)))
        expect([correctedParts[name as keyof SliceParts]].flat(), `${JSON.stringify(slice)} ${name}`).toEqual(
          [value].flat().map((each) => expect.closeTo(each, 9) as number),
        );
    }
  });

  it("count with the layers that are nearest to the model's, size by size", () => {
    const flat = {
      ...job,
      model: { ...model, hiddenSize: 256, ffnHiddenSize: 768, heads: 8, kvHeads: 8, layers: 2 },
    };
    const deep = { ...flat, model: { ...flat.model, layers: 8 } };
    const sizes = [plain(1), plain(4)];
    const layers = (spec: JobSpec) =>
      sizes.map((slice) => layersOfSlice(sliceShape(spec, slice), spec.model.layers));
    expect([layers(flat), layers(deep)]).toEqual([
      [2, 2],
      [3, 2],
    ]);
    const given = withSlices(
      { ...measured(plain(1), 1.1, flat), layers: 2 },
      { ...measured(plain(1), 1.3, flat), layers: 3 },
      { ...measured(plain(4), 1.2, flat), layers: 2 },
    );
    const factor = (spec: JobSpec, slice: ReturnType<typeof plain>) =>
      timeOf(spec, given, slice).forwardSeconds / timeOf(spec, profile, slice).forwardSeconds;
    expect(sizes.map((slice) => factor(flat, slice))).toEqual(
      [1.1, 1.2].map((each) => expect.closeTo(each, 9) as number),
    );
    expect(sizes.map((slice) => factor(deep, slice))).toEqual(
      [1.3, 1.2].map((each) => expect.closeTo(each, 9) as number),
    );
    expect(factor(deep, plain(2))).toBeCloseTo(Math.sqrt(1.3 * 1.2), 9);
  });

  it("make recomputation longer as the products that it repeats", () => {
    const time = timeOf(job, withSlices(measured(plain(2), 1.5)), plain(2));
    expect(time.recomputeSeconds).toBeCloseTo(1.5 * timeOf(job, profile, plain(2)).recomputeSeconds, 12);
  });

  it("of another model, or of another way to share, change nothing, and say so", () => {
    const other = { ...job, model: { ...model, ffnHiddenSize: 8192 } };
    const costs = new CostModel(job, withSlices(measured(plain(2), 2, other)));
    expect(costs.sliceTime(2, layoutOf(plain(2)))).toEqual(timeOf(job, profile, plain(2)));
    expect(costs.warnings.join("\n")).toContain("of other models");
    const alone = new CostModel(job, withSlices(measured(plain(2), 2)));
    expect(alone.sliceTime(2, layoutOf(ulysses(2)))).toEqual(timeOf(job, profile, ulysses(2)));
    expect(alone.warnings.join("\n")).toContain("did not measure in a trainer");
  });

  it("say what ranks wait for one another where they meet at every unit or every layer", () => {
    const plan: Plan = {
      microBatchSize: 2,
      microBatches: 4,
      recompute: false,
      ...layoutOf(plain(2)),
      parameterSharding: 8,
      gradientSharding: 1,
      optimizerStateSharding: 1,
      forwardOverlap: "none",
      backwardOverlap: "none",
    };
    const with_ = new CostModel(
      job,
      withSlices({ ...measured(plain(2), 1), waits: { unit: 1.2, layer: 1.05 } }),
    );
    const without = new CostModel(job, withSlices(measured(plain(2), 1)));
    const passes =
      plan.microBatches *
      model.layers *
      (without.sliceTime(2, plan).forwardSeconds + without.sliceTime(2, plan).backwardSeconds);
    const more = (changed: Partial<Plan>): number =>
      with_.predict(planOfJob({ ...plan, ...changed }, with_.job)).stepTimeSeconds -
      without.predict(planOfJob({ ...plan, ...changed }, without.job)).stepTimeSeconds;
    expect(more({}) / passes).toBeCloseTo(0.2, 9);
    expect(more({ forwardOverlap: "inter-layer", backwardOverlap: "block" }) / passes).toBeCloseTo(0.05, 9);
    // Ranks that meet once a step have waited in what was measured.
    expect(more({ parameterSharding: 1, optimizerStateSharding: 8 })).toBeCloseTo(0, 12);
    const backward = plan.microBatches * model.layers * without.sliceTime(2, plan).backwardSeconds;
    expect(
      more({ parameterSharding: 1, optimizerStateSharding: 8, gradientSharding: 8 }) / backward,
    ).toBeCloseTo(0.2, 9);
  });

  it("spread with the rest of the profile", () => {
    const plan: Plan = {
      microBatchSize: 2,
      microBatches: 4,
      recompute: false,
      ...layoutOf(plain(2)),
      parameterSharding: 1,
      gradientSharding: 1,
      optimizerStateSharding: 1,
      forwardOverlap: "none",
      backwardOverlap: "none",
    };
    const given = withSlices(measured(plain(2), 1));
    const factors = spreadFactors(job, given)?.(planOfJob(plan, job));
    // Times without a spread are taken to spread as the others of the profile do.
    expect(factors?.low).toBeCloseTo(0.9, 2);
    expect(factors?.high).toBeGreaterThan(1.19);
  });
});

it("requiredMeasurements asks for slices of every way to share a sequence, few of each", () => {
  const small = resolveJob({
    name: "small",
    model: {
      name: "m",
      hiddenSize: 128,
      layers: 4,
      heads: 8,
      kvHeads: 4,
      ffnHiddenSize: 384,
      vocabularySize: 256,
    },
    sequenceLengthTokens: 256,
    globalBatchTokens: 4096,
    precision: "fp32",
    cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB" },
  });
  const { slices } = requiredMeasurements(small);
  const kinds = new Set(
    slices.map(
      ({ shape: { sequenceParallel: sp, tensorParallel: tp, contextParallel: cp } }) => `${sp} ${tp} ${cp}`,
    ),
  );
  expect(kinds).toEqual(new Set(["1 1 1", "2 1 1", "2 1 2", "2 2 1"]));
  expect(slices.length).toBeLessThanOrEqual(14);
  expect(new Set(slices.map((slice) => JSON.stringify(slice))).size).toBe(slices.length);
  // A GPU's timeline is of its own events: what is measured there is the same.
  expect(requiredMeasurements({ ...small, cluster: { ...small.cluster, device: "cuda" } }).slices).toEqual(
    slices,
  );
  expect(requiredMeasurements({ ...small, cluster: { ...small.cluster, launcher: "slurm" } }).slices).toEqual(
    [],
  );
  // On a large cluster the trainer runs no more than some dozens.
  expect(requiredMeasurements(job).slices.length).toBeLessThanOrEqual(40);
});
