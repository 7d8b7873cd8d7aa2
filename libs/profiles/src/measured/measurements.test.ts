import { countMissing, missingMeasurements, shippedProfile, type Measurements } from "@internevo/cost-model";
import type { MeasuredSlice, Profile, SliceRequest, SliceShape } from "@internevo/domain";
import { expect, it } from "vitest";
import { mergeProfiles } from "./measurements.ts";

const shape = (microBatchSize: number, sequenceLengthTokens = 256): SliceShape => ({
  precision: "fp32",
  hiddenSize: 128,
  heads: 8,
  kvHeads: 4,
  ffnHiddenSize: 384,
  vocabularySize: 256,
  microBatchSize,
  sequenceLengthTokens,
  sequenceParallel: 1,
  tensorParallel: 1,
  contextParallel: 1,
});
const slice = (each: SliceShape, seconds = 1, layers = 2): MeasuredSlice => ({
  shape: each,
  layers,
  microBatches: 1,
  medianSeconds: seconds,
  parts: {
    forward: [1, 1, 1, 1],
    forwardAttention: 1,
    forwardCommunication: 0,
    backward: [1, 1, 1, 1],
    backwardAttention: 1,
    backwardCommunication: 0,
    embedding: 1,
    embeddingCommunication: 0,
    head: 1,
    headCommunication: 0,
  },
});
const base = shippedProfile("a800-128");
const withSlices = (...slices: MeasuredSlice[]): Profile => ({ ...base, slices });
const of = (layers: number, ...shapes: SliceShape[]): SliceRequest[] =>
  shapes.map((each) => ({ shape: each, layers }));
const needing = (slices: SliceRequest[]): Measurements => ({
  modules: [],
  collectives: [],
  overlaps: [],
  slices,
});

it("slices of a sequence of which none was run are missing", () => {
  expect(countMissing(base, needing(of(2, shape(1), shape(4))))).toBe(2);
  expect(countMissing(withSlices(slice(shape(1))), needing(of(2, shape(1, 512))))).toBe(1);
});

it("a slice that another of its sequence stands in for does not make a profile stale, and is measured with the rest", () => {
  const profile = withSlices(slice(shape(1)));
  expect(countMissing(profile, needing(of(2, shape(1), shape(4))))).toBe(0);
  expect(missingMeasurements(profile, needing(of(2, shape(1), shape(4)))).slices).toEqual(of(2, shape(4)));
});

it("slices of a deeper or a flatter model of the same widths do not stand in", () => {
  const profile = withSlices(slice(shape(1)), slice(shape(4)));
  expect(countMissing(profile, needing(of(8, shape(1), shape(4))))).toBe(2);
  const both = mergeProfiles(profile, withSlices(slice(shape(1), 3, 8)));
  expect(both.slices?.map((each) => [each.shape.microBatchSize, each.layers])).toEqual([
    [1, 2],
    [4, 2],
    [1, 8],
  ]);
  expect(countMissing(both, needing(of(8, shape(1), shape(4))))).toBe(0);
});

it("merged profiles have the slices of both, the newer's where both have one", () => {
  const merged = mergeProfiles(
    withSlices(slice(shape(1)), slice(shape(4))),
    withSlices(slice(shape(4), 2), slice(shape(8))),
  );
  expect(merged.slices?.map((each) => [each.shape.microBatchSize, each.medianSeconds])).toEqual([
    [1, 1],
    [4, 2],
    [8, 1],
  ]);
});

it("merged profiles have the better of both devices' figures: the newer was perhaps measured under load", () => {
  const device = (peak: number, bandwidth: number, runtimeBytes: number): Profile => ({
    ...base,
    device: {
      ...base.device,
      peakFlopsPerSecondFp32: peak,
      peakFlopsPerSecondBf16: 2 * peak,
      memoryBandwidthBytesPerSecond: bandwidth,
      runtimeBytes,
    },
  });
  expect(mergeProfiles(device(112e9, 5e9, 7), device(35e9, 9e9, 8)).device).toMatchObject({
    peakFlopsPerSecondFp32: 112e9,
    peakFlopsPerSecondBf16: 224e9,
    memoryBandwidthBytesPerSecond: 9e9,
    runtimeBytes: 8,
  });
});
