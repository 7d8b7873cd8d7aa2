import { shippedProfile } from "@internevo/cost-model";
import { exampleQuality } from "@internevo/test-kit/fixtures";
import { expect, it } from "vitest";
import { measuringSeconds } from "./measured-first.ts";

it("says how long points take to measure, by the last measurement of the cluster", () => {
  const profile = shippedProfile("a800-128");
  const quality = exampleQuality({ points: 3, secondsPerPoint: 0.5 });
  expect(measuringSeconds(3, { ...profile, quality })).toBe(1.5);
  expect(measuringSeconds(0, { ...profile, quality })).toBeNull();
  expect(measuringSeconds(3, profile), "how long it took is not known").toBeNull();
  expect(measuringSeconds(3, undefined)).toBeNull();
});
