import { expect, it } from "vitest";
import { durationArgument, instantArgument, spanArgument } from "./arguments.ts";

it("reads durations, with minutes as min or m", () => {
  expect(["90s", "30min", "30m", "1.5h", "30d"].map(durationArgument)).toEqual([
    90, 1800, 1800, 5400, 2_592_000,
  ]);
  for (const text of ["0", "0s", "5", "1w", "m", "-1m"])
    expect(() => durationArgument(text), text).toThrow(/such as 12h or 30d \(s, m, h, d\)/);
});

it("reads spans that may be none", () => {
  expect(["0", "0s", "0min", "0m", "10m"].map(spanArgument)).toEqual([0, 0, 0, 0, 600]);
  for (const text of ["", "5", "1w", "-1m"])
    expect(() => spanArgument(text), text).toThrow(/such as 10m or 12h \(s, m, h, d\), or 0/);
});

it("reads how long ago an instant is", () => {
  const ago = Date.now() - Date.parse(instantArgument("30m"));
  expect(Math.abs(ago - 1_800_000)).toBeLessThan(60_000);
});
