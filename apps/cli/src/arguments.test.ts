import { expect, it } from "vitest";
import { durationArgument, instantArgument, shareArgument, spanArgument } from "./arguments.ts";

it("reads durations, with minutes as min or m", () => {
  expect(["90s", "30min", "30m", "1.5h", "30d"].map(durationArgument)).toEqual([
    90, 1800, 1800, 5400, 2_592_000,
  ]);
  for (const text of ["0", "0s", "5", "1w", "m", "-1m"])
    expect(() => durationArgument(text), text).toThrow(/such as 12h or 30d \(s, m, h, d\)/);
});

it("reads shares with and without a percent sign", () => {
  expect(["5%", "0.05", "100%", "0"].map(shareArgument(0, 1))).toEqual([0.05, 0.05, 1, 0]);
  expect(shareArgument(-1, 1)("-2%")).toBe(-0.02);
  for (const text of ["", "5", "101%", "-1%", "five"])
    expect(() => shareArgument(0, 1)(text), text).toThrow(/from 0% to 100%, such as 5% or 0\.05/);
});

it("reads spans that may be none", () => {
  expect(["0", "0s", "0min", "0m", "10m"].map(spanArgument)).toEqual([0, 0, 0, 0, 600]);
  for (const text of ["", "5", "1w", "-1m"])
    expect(() => spanArgument(text), text).toThrow(/such as 10m or 12h \(s, m, h, d\), or 0/);
});

it("reads instants as they are written, and takes no other text for one", () => {
  expect(instantArgument("2026-01-31")).toBe("2026-01-31T00:00:00.000Z");
  expect(instantArgument("2026-01-31T12:00Z")).toBe("2026-01-31T12:00:00.000Z");
  expect(instantArgument("2024-02-29 12:00:01.5+01:00")).toBe("2024-02-29T11:00:01.500Z");
  for (const text of [
    "7",
    "0",
    "-5",
    "30",
    "2026",
    "2026-02-30",
    "2026-11-31",
    "2026-13-01",
    "May",
    "2026-01-31T25:00Z",
    "",
  ])
    expect(() => instantArgument(text), text).toThrow(/give an instant such as/);
});

it("reads how long ago an instant is", () => {
  const ago = Date.now() - Date.parse(instantArgument("30m"));
  expect(Math.abs(ago - 1_800_000)).toBeLessThan(60_000);
});
