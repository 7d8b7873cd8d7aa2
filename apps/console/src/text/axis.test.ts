import { expect, it } from "vitest";
import { logDomain, logTicks } from "./axis.ts";

it.each([
  [1e3, 1e9, [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9]],
  [2e6, 9e8, [3e6, 1e7, 3e7, 1e8, 3e8]],
  [8e6, 1.1e8, [1e7, 2e7, 5e7, 1e8]],
  [9e7, 1.1e8, [9e7, 9.4e7, 9.8e7, 1.02e8, 1.06e8, 1.1e8]],
])("has ticks between %d and %d", (low, high, ticks) => {
  expect(logTicks(low, high, 10)).toEqual(ticks);
});

it("has from three to the asked number of ticks, all within, for every range", () => {
  for (let low = 1e-7; low < 1e12; low *= 3.7) {
    for (const factor of [1.3, 1.6, 2.5, 7, 40, 900, 1e6, 1e11]) {
      const ticks = logTicks(low, low * factor, 12);
      expect(ticks.length).toBeGreaterThanOrEqual(3);
      expect(ticks.length).toBeLessThanOrEqual(12);
      expect(Math.min(...ticks)).toBeGreaterThanOrEqual(low * (1 - 1e-9));
      expect(Math.max(...ticks)).toBeLessThanOrEqual(low * factor * (1 + 1e-9));
    }
  }
});

it("leaves room around values, also around one", () => {
  const [low, high] = logDomain([1e8]);
  expect(low).toBeLessThan(1e8);
  expect(high).toBeGreaterThan(1e8);
});
