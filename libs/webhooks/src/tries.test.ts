import { WEBHOOK_BOUNDS } from "@internevo/contracts";
import { expect, it } from "vitest";
import { longestOf, secondsBeforeNextTry } from "./tries.ts";

const waits = (random: number): number[] =>
  Array.from(
    { length: WEBHOOK_BOUNDS.tries - 1 },
    (_, index) => secondsBeforeNextTry(index + 1, random) ?? 0,
  );
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

it("waits longer and longer, for about a day in all, and then no more", () => {
  const middle = waits(0.5);
  expect(middle.slice(0, 4)).toEqual([10, 30, 90, 270]);
  for (const [index, wait] of middle.entries()) expect(wait).toBeGreaterThanOrEqual(middle[index - 1] ?? 0);
  expect(sum(middle) / 3600).toBeGreaterThan(24);
  expect(sum(middle) / 3600).toBeLessThan(30);
  expect(secondsBeforeNextTry(WEBHOOK_BOUNDS.tries, 0.5)).toBeNull();
});

it("spreads what failed together", () => {
  expect(waits(0)[3]).toBeCloseTo(216, 6);
  expect(waits(1)[3]).toBeCloseTo(324, 6);
});

it("waits as long as it is asked to, within bounds", () => {
  expect(longestOf(10, null)).toBe(10);
  expect(longestOf(10, 60)).toBe(60);
  expect(longestOf(10, 1e9)).toBe(6 * 3600);
});
