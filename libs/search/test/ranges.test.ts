import { shippedProfile } from "@internevo/cost-model";
import { resolveJob, type Profile } from "@internevo/domain";
import { assert, double, property } from "fast-check";
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
        // A module without a measurement is taken at the device's rate, which has no spread: at most as wide.
        expect(stepTimeRangeSeconds?.low).toBeGreaterThanOrEqual(stepTimeSeconds * (1 - by) * (1 - 1e-9));
        expect(stepTimeRangeSeconds?.high).toBeLessThanOrEqual(stepTimeSeconds * (1 + by) * (1 + 1e-9));
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
