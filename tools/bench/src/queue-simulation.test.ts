import { describe, expect, it } from "vitest";
import { DEFAULT_QUEUE_SETTINGS } from "@internevo/domain";
import { drawJobs, jainIndex, simulateQueue, type SimulationOptions } from "./queue-simulation.ts";

const OPTIONS: SimulationOptions = {
  jobs: 600,
  projects: 8,
  clusters: 2,
  hostsOfACluster: 8,
  gpusOfAHost: 8,
  days: 60,
  load: 0.8,
  seed: 7,
};
const drawn = drawJobs(OPTIONS);
const fair = simulateQueue(drawn, "fair-share", OPTIONS);
const plain = simulateQueue(drawn, "submission", OPTIONS);

describe("the simulated queue", () => {
  it("starts every job, and lets nobody pass who has waited for the patience", () => {
    for (const settings of [undefined, { ...DEFAULT_QUEUE_SETTINGS, halfLifeHours: 24, patienceHours: 24 }]) {
      const result = simulateQueue(drawn, "fair-share", { ...OPTIONS, ...(settings && { settings }) });
      expect(result).toMatchObject({ neverStarted: 0, passedOverdue: 0, waitingHours: { jobs: 600 } });
    }
  });

  it("is fairer than plain submission order, at no loss of utilisation", () => {
    expect(fair.backloggedWeeks).toBeGreaterThan(10);
    expect(fair.fairness).toBeGreaterThan(plain.fairness + 0.05);
    expect(fair.utilisation).toBeGreaterThan(plain.utilisation - 0.02);
  });

  it("lets urgent jobs wait less", () => {
    const { low, normal, high } = fair.waitingHoursByPriority;
    expect(high?.p50).toBeLessThan(normal?.p50 ?? 0);
    expect(normal?.p50).toBeLessThan(low?.p50 ?? 0);
  });

  it("gives the same result for the same seed, and another for another", () => {
    expect(simulateQueue(drawJobs(OPTIONS), "fair-share", OPTIONS)).toEqual(fair);
    expect(drawJobs({ ...OPTIONS, seed: 8 }).jobs).not.toEqual(drawn.jobs);
  });
});

it("Jain's index is 1 where all are equal, and 1/n where one has everything", () => {
  expect(jainIndex([3, 3, 3])).toBeCloseTo(1, 12);
  expect(jainIndex([0, 0, 5, 0])).toBeCloseTo(0.25, 12);
  expect(jainIndex([])).toBe(1);
});
