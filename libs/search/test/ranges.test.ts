import {
  CostModel,
  hasSpread,
  MOST_TIMES_ESTIMATE,
  partsOf,
  shippedProfile,
  sliceShape,
} from "@internevo/cost-model";
import { resolveJob, type Candidate, type Profile } from "@internevo/domain";
import { assert, double, integer, property } from "fast-check";
import { expect, it } from "vitest";
import { planJob } from "../src/index.ts";

const bare = shippedProfile("a800-128");
const job = resolveJob({
  name: "ranges",
  model: {
    name: "small",
    hiddenSize: 1024,
    layers: 8,
    heads: 16,
    kvHeads: 16,
    ffnHiddenSize: 2816,
    vocabularySize: 32000,
  },
  sequenceLengthTokens: 4096,
  globalBatchTokens: 2 ** 18,
  precision: "bf16",
  cluster: { nodes: 2, gpusPerNode: 8, memoryPerGpu: "80GB", profile: "a800-128" },
});

function spread(profile: Profile, by: number): Profile {
  const around = <T extends { medianSeconds: number }>(time: T): T => ({
    ...time,
    p10Seconds: time.medianSeconds * (1 - by),
    p90Seconds: time.medianSeconds * (1 + by),
  });
  return {
    ...profile,
    modules: profile.modules.map(around),
    collectives: profile.collectives.map((curve) => ({ ...curve, points: curve.points.map(around) })),
  };
}

it("says a range of the step time as wide as the profile's spread, around the same prediction", () => {
  assert(
    property(double({ min: 0.001, max: 0.5, noNaN: true }), (by) => {
      const { candidates } = planJob(job, spread(bare, by), { top: 4 });
      expect(candidates.map(({ plan }) => plan)).toEqual(
        planJob(job, bare, { top: 4 }).candidates.map(({ plan }) => plan),
      );
      for (const {
        predicted: { stepTimeSeconds, stepTimeRangeSeconds },
      } of candidates) {
        expect(stepTimeRangeSeconds?.low).toBeGreaterThanOrEqual(stepTimeSeconds * (1 - by) * (1 - 1e-9));
        // What the profile lacks is a tenth of a step at most: it may take longer than the noise alone says.
        expect(stepTimeRangeSeconds?.high).toBeLessThanOrEqual(
          stepTimeSeconds * (1 + by + 0.1 * MOST_TIMES_ESTIMATE),
        );
        expect(stepTimeRangeSeconds?.low).toBeLessThan(stepTimeSeconds);
        expect(stepTimeRangeSeconds?.high).toBeGreaterThan(stepTimeSeconds);
      }
    }),
    { numRuns: 10 },
  );
});

it("says none where the profile says no spread", () => {
  const without = (profile: Profile): Profile => ({
    ...profile,
    modules: profile.modules.map(({ shape, medianSeconds }) => ({ shape, medianSeconds })),
    collectives: profile.collectives.map((curve) => ({
      ...curve,
      points: curve.points.map(({ bytes, medianSeconds }) => ({ bytes, medianSeconds })),
    })),
  });
  expect(planJob(job, without(bare), { top: 1 }).candidates[0]?.predicted).not.toHaveProperty(
    "stepTimeRangeSeconds",
  );
});

/** The same numbers for the same seed, from 0 to 1. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Slices of the job that take other times than what they are composed of, each part its own. */
function withSlices(profile: Profile, next: () => number): Profile {
  const model = new CostModel(job, profile);
  const slices = [1, 4].flatMap((microBatchSize) =>
    [1, 8].map((sequenceParallel) => {
      const layout = { sequenceParallel, tensorParallel: 1, pipelineParallel: 1, dataParallel: 1 };
      const slice = { microBatchSize, sequenceLengthTokens: 4096, sequenceParallel, tensorParallel: 1 };
      const composed = partsOf(model.sliceTime(microBatchSize, layout));
      const scale = (seconds: number): number => seconds * (0.8 + next());
      const parts = Object.fromEntries(
        Object.entries(composed).map(([name, value]: [string, number | readonly number[]]) => [
          name,
          typeof value === "number" ? scale(value) : value.map(scale),
        ]),
      ) as unknown as typeof composed;
      return { shape: sliceShape(job, slice), layers: 8, microBatches: 2, parts, medianSeconds: 1 };
    }),
  );
  return { ...profile, slices };
}

/** Every measurement with a spread of its own; some with none. */
function noisy(profile: Profile, seed: number, times: number): Profile {
  const next = random(seed);
  const around = <T extends { medianSeconds: number }>(time: T): T => {
    const [below, above, none] = [next(), next(), next() < 0.1];
    const { medianSeconds } = time;
    return none
      ? time
      : {
          ...time,
          p10Seconds: medianSeconds / (1 + times * below),
          p90Seconds: medianSeconds * (1 + times * above),
        };
  };
  return {
    ...profile,
    modules: profile.modules.map(({ shape, medianSeconds }) => around({ shape, medianSeconds })),
    collectives: profile.collectives.map((curve) => ({
      ...curve,
      points: curve.points.map(({ bytes, medianSeconds }) => around({ bytes, medianSeconds })),
    })),
    ...(profile.slices ? { slices: profile.slices.map(around) } : {}),
  };
}

const rangesOf = (profile: Profile): Candidate["predicted"][] =>
  planJob(job, profile, { top: 6 }).candidates.map(({ predicted }) => predicted);

it("holds the prediction for every noise, and more noise never makes it narrower", () => {
  assert(
    property(integer({ min: 1, max: 2 ** 30 }), (seed) => {
      const next = random(seed);
      const profile = next() < 0.5 ? bare : withSlices(bare, next);
      const [quiet, loud] = [0.3 * next(), 1.5].map((times) => rangesOf(noisy(profile, seed, times)));
      expect(quiet?.length).toBeGreaterThan(0);
      for (const [index, { stepTimeSeconds, stepTimeRangeSeconds }] of (quiet ?? []).entries()) {
        const wider = loud?.[index]?.stepTimeRangeSeconds;
        expect(stepTimeRangeSeconds?.low).toBeLessThan(stepTimeSeconds);
        expect(stepTimeRangeSeconds?.high).toBeGreaterThan(stepTimeSeconds);
        expect(wider?.low).toBeLessThanOrEqual(stepTimeRangeSeconds?.low as number);
        expect(wider?.high).toBeGreaterThanOrEqual(stepTimeRangeSeconds?.high as number);
      }
    }),
    { numRuns: 12 },
  );
});

it("is turned round by no low slice over lower modules", () => {
  // Modules that spread widely downwards, and slices that hardly do: corrections by ratios would go up.
  const sliced = withSlices(bare, random(1));
  const profile: Profile = {
    ...sliced,
    modules: sliced.modules.map(({ shape, medianSeconds }, index) => ({
      shape,
      medianSeconds,
      p10Seconds: (index % 2 === 0 ? 0.4 : 0.99) * medianSeconds,
      p90Seconds: medianSeconds,
    })),
    slices: (sliced.slices ?? []).map((slice) => ({ ...slice, p10Seconds: 0.99, p90Seconds: 1.01 })),
  };
  for (const { stepTimeSeconds, stepTimeRangeSeconds } of rangesOf(profile)) {
    expect(stepTimeRangeSeconds?.low).toBeLessThanOrEqual(0.99 * stepTimeSeconds);
    expect(stepTimeRangeSeconds?.high).toBeGreaterThanOrEqual(1.009 * stepTimeSeconds);
  }
});

it("is wide where a profile has no module of the job's precision", () => {
  const spreadOut = noisy(bare, 7, 0.001);
  const others = spreadOut.modules.filter(({ shape }) => shape.precision !== job.precision);
  const profile: Profile = { ...spreadOut, modules: others };
  expect(hasSpread(profile)).toBe(true);
  for (const { stepTimeSeconds, stepTimeRangeSeconds } of rangesOf(profile)) {
    expect(stepTimeRangeSeconds?.high).toBeGreaterThan(0.3 * MOST_TIMES_ESTIMATE * stepTimeSeconds);
    expect(stepTimeRangeSeconds?.low).toBeLessThanOrEqual(stepTimeSeconds);
  }
});
