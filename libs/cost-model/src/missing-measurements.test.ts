import { resolveJob, type Profile } from "@internevo/domain";
import { exampleQuality } from "@internevo/test-kit/fixtures";
import { expect, it } from "vitest";
import { requiredMeasurements } from "./measurements.ts";
import { firstMeasurements, stillNoisyMeasurements, type Measurements } from "./missing-measurements.ts";
import { shippedProfile } from "./shipped-profiles.ts";

it("measures a noisy point of a noisy profile again, and not twice", () => {
  const { modules } = requiredMeasurements(
    resolveJob({
      name: "j",
      model: "llama-7b",
      sequenceLengthTokens: 4096,
      globalBatchTokens: 4_194_304,
      cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB", profile: "a800-128" },
    }),
  );
  const needed: Measurements = { modules: modules.slice(0, 4), collectives: [], overlaps: [], slices: [] };
  const marks = [{}, { noisy: true }, { noisy: true, stillNoisy: true }] as const;
  const profile: Profile = {
    ...shippedProfile("a800-128"),
    modules: marks.map((mark, index) => ({
      shape: modules[index] as (typeof modules)[number],
      medianSeconds: 1,
      ...mark,
    })),
    quality: exampleQuality({ verdict: "noisy", points: 3, noisyPoints: 2 }),
  };
  const { missing, noisy } = firstMeasurements(profile, needed);
  expect(missing.modules).toEqual([modules[3]]);
  expect(noisy.modules).toEqual([modules[1]]);
  expect(stillNoisyMeasurements(profile, needed).modules).toEqual([modules[2]]);
});
