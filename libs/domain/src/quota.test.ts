import { expect, it } from "vitest";
import { formatGpuHours, gpusFault, hoursFault, sizeFault, type QuotaStanding } from "./quota.ts";

const standing = (over: Partial<QuotaStanding>): QuotaStanding => ({
  name: "nlp",
  maxGpus: null,
  gpusInUse: 0,
  gpuHoursPerMonth: null,
  gpuHoursThisMonth: 0,
  ...over,
});

it("says in words why a quota lets nothing begin, and nothing where it does", () => {
  expect(gpusFault(standing({ maxGpus: 8, gpusInUse: 8 }), 1)).toBe("project nlp uses 8 of 8 GPUs");
  expect(gpusFault(standing({ maxGpus: 8, gpusInUse: 6 }), 4)).toBe(
    "project nlp uses 6 of 8 GPUs, and this needs 4",
  );
  expect(gpusFault(standing({ maxGpus: 8, gpusInUse: 6 }), 2)).toBeUndefined();
  expect(gpusFault(standing({ gpusInUse: 6 }), 2000)).toBeUndefined();
  expect(sizeFault(standing({ maxGpus: 8 }), 16)).toBe("project nlp may use 8 GPUs, and this needs 16");
  expect(sizeFault(standing({ maxGpus: 8 }), 8)).toBeUndefined();
  expect(hoursFault(standing({ gpuHoursPerMonth: 100, gpuHoursThisMonth: 120.44 }))).toBe(
    "project nlp has used 120 of 100 GPU-hours of this month",
  );
  expect(hoursFault(standing({ gpuHoursPerMonth: 100, gpuHoursThisMonth: 99.9 }))).toBeUndefined();
  expect(hoursFault(standing({ gpuHoursThisMonth: 1e9 }))).toBeUndefined();
  expect(hoursFault(standing({ gpuHoursPerMonth: 0 }))).toMatch("used 0 of 0");
});

it.each([
  [0, "0"],
  [0.0123456, "0.0123"],
  [12.345, "12.3"],
  [99.96, "100"],
  [1234.5, "1,235"],
  [123_456.7, "123,457"],
])("writes %s GPU-hours as %s", (hours, text) => expect(formatGpuHours(hours)).toBe(text));
