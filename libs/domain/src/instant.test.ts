import { expect, it } from "vitest";
import { instantMilliseconds } from "./instant.ts";

it.each([
  ["2026-01-31T23:00:00Z", "2026-01-31T23:00:00.000Z"],
  ["2026-01-31t23:00:00.25z", "2026-01-31T23:00:00.250Z"],
  ["2026-01-31 23:00:00+01:30", "2026-01-31T21:30:00.000Z"],
  ["2016-12-31T23:59:60Z", "2017-01-01T00:00:00.000Z"],
  ["2016-12-31T23:59:60.5Z", "2017-01-01T00:00:00.500Z"],
  ["2017-01-01T00:59:60+01:00", "2017-01-01T00:00:00.000Z"],
  ["0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000Z"],
])("%s is %s", (text, instant) => {
  expect(new Date(instantMilliseconds(text)).toISOString()).toBe(instant);
});

it("is NaN for what is no time", () => {
  expect(instantMilliseconds("yesterday")).toBeNaN();
});
