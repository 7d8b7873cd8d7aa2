import { shippedProfile } from "@internevo/cost-model";
import { describe, expect, it } from "vitest";
import { simulateStep } from "@internevo/simulator";
import { CostModel } from "@internevo/cost-model";
import { planOfJob } from "@internevo/plan";
import { frameworkMemory } from "./reproduce/framework-requests.ts";
import { publishedJob } from "./reproduce/judgements.ts";
import { paperJob, paperRows, PROFILE } from "./reproduce/paper.ts";
import { groupsOfTen, simulatedSeconds } from "./reproduce/ranking.ts";

const profile = shippedProfile(PROFILE);
const rowOf = (model: string, lengthK: number) =>
  paperRows().find((row) => row.model === model && row.lengthK === lengthK && row.system === "internevo")!;

describe("what a framework asks for", () => {
  const row = rowOf("llama-13b", 8);
  const job = publishedJob(row);

  it("lies in pieces without memory management, and hardly with it", () => {
    const [managed, unmanaged] = [true, false].map((each) => frameworkMemory(job, row.plan, each, Infinity));
    expect(managed!.reservedBytes / managed!.liveBytes).toBeLessThan(1.01);
    expect(unmanaged!.reservedBytes / unmanaged!.liveBytes).toBeGreaterThan(1.1);
    expect(unmanaged!.liveBytes).toBeLessThan(managed!.liveBytes);
  });

  it("ends where the device has no more, and only there", () => {
    const { reservedBytes } = frameworkMemory(job, row.plan, false, Infinity);
    expect(frameworkMemory(job, row.plan, false, reservedBytes)).toMatchObject({
      outOfMemory: false,
      swaps: 0,
    });
    expect(frameworkMemory(job, row.plan, false, reservedBytes / 2).outOfMemory).toBe(true);
  });

  it("holds the micro-batches of a first stage, not of all of the step", () => {
    const staged = rowOf("llama-13b", 4);
    const of = (microBatches: number) =>
      frameworkMemory(publishedJob(staged), { ...staged.plan, microBatches }, true, Infinity).liveBytes;
    expect(of(16)).toBe(of(4));
    expect(of(2)).toBeGreaterThan(of(1) * 1.2);
  });
});

it("adds a long pipeline's micro-batches at its steady pace", () => {
  const { plan, lengthK, batchTokens } = rowOf("llama-30b", 8);
  const job = { ...paperJob("llama-30b", lengthK, { batchTokens }) };
  const whole = simulateStep(new CostModel(job, profile), planOfJob(plan, job)).stepTimeSeconds;
  expect(Math.abs(simulatedSeconds(job, plan, profile) / whole - 1)).toBeLessThan(0.005);
});

it("names groups of ten", () => {
  expect(
    groupsOfTen(Array.from({ length: 23 }, (_, i) => i)).map(({ name, plans }) => [name, plans.length]),
  ).toEqual([
    ["1–10", 10],
    ["11–20", 10],
    ["21–23", 3],
  ]);
});
