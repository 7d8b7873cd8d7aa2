import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import { createHealth, writtenSeldom } from "./health.ts";

/** Writes the number of its call, and takes some time. */
function counted(milliseconds: number): {
  readonly ask: () => Promise<string>;
  readonly calls: () => number;
} {
  let calls = 0;
  const ask = writtenSeldom(async () => {
    const text = String(++calls);
    await sleep(milliseconds);
    return text;
  });
  return { ask, calls: () => calls };
}

it("writes metrics once for all who ask meanwhile, and for a tenth of the time at most", async () => {
  const { ask, calls } = counted(20);
  expect(await Promise.all([ask(), ask(), ask()])).toEqual(["1", "1", "1"]);
  expect(await ask(), "right after it").toBe("1");
  const begun = performance.now();
  while (performance.now() - begun < 1000) await Promise.all(Array.from({ length: 50 }, ask));
  expect(calls()).toBeGreaterThan(1);
  expect(calls()).toBeLessThanOrEqual(1 + 1000 / (10 * 20));
});

it("writes again after a failure", async () => {
  let calls = 0;
  const ask = writtenSeldom(() => (++calls === 1 ? Promise.reject(new Error("no")) : Promise.resolve("yes")));
  await expect(ask()).rejects.toThrow("no");
  expect(await ask()).toBe("yes");
});

it("has figures that are a moment old at most", async () => {
  const health = createHealth("tested");
  expect(await health.metrics()).toContain('service="tested"');
});
