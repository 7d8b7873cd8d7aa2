import { requiredMeasurements, shippedProfile } from "@internevo/cost-model";
import { resolveJob } from "@internevo/domain";
import { exampleQuality } from "@internevo/test-kit/fixtures";
import { expect, it } from "vitest";
import { measuringSeconds } from "./measured-first.ts";

it("says how long points take to measure, by the last measurement of the cluster", () => {
  const needed = requiredMeasurements(
    resolveJob({
      name: "j",
      model: "llama-7b",
      sequenceLengthTokens: 4096,
      globalBatchTokens: 4_194_304,
      cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB", profile: "a800-128" },
    }),
  );
  const one = { modules: needed.modules.slice(0, 3), collectives: [], overlaps: [], slices: [] };
  const profile = shippedProfile("a800-128");
  const quality = exampleQuality({ points: 3, secondsPerPoint: 0.5 });
  expect(measuringSeconds(one, { ...profile, quality })).toBe(1.5);
  expect(measuringSeconds({ ...one, modules: [] }, { ...profile, quality })).toBeNull();
  expect(measuringSeconds(one, profile), "how long it took is not known").toBeNull();
  expect(measuringSeconds(one, undefined)).toBeNull();
});
