import { expect, it } from "vitest";
import { secondsBeforeRetry, secondsBeforeStartOver } from "./waits.ts";

it("waits longer and longer, a minute at most, and spreads what failed together", () => {
  expect([0, 1, 2, 3, 10].map((failures) => secondsBeforeRetry(failures, null, 0.5))).toEqual([
    1, 2, 4, 8, 60,
  ]);
  expect(secondsBeforeRetry(3, null, 0)).toBeCloseTo(6.4);
  expect(secondsBeforeRetry(3, null, 1)).toBeCloseTo(9.6);
});

it("waits as long as it is asked to, within its bound", () => {
  expect(secondsBeforeRetry(0, 30, 0.5)).toBe(30);
  expect(secondsBeforeRetry(0, 1e9, 0.5)).toBe(60);
});

it("sends everything once more ever more seldom", () => {
  const waits = [0, 1, 2, 3, 9].map((before) => secondsBeforeStartOver(before, 0.5));
  expect(waits).toEqual([2, 8, 32, 128, 6 * 3600]);
});
