import { shippedProfile } from "@internevo/cost-model";
import { comparePlans, keepsGateUpOnHost, resolveJob, type JobSpec, type Plan } from "@internevo/domain";
import { measured, smallJobCase } from "@internevo/test-kit/job-cases";
import fc from "fast-check";
import { expect, it } from "vitest";
import { planJob } from "../src/index.ts";
import { bruteForce, type Judged } from "./brute-force.ts";

const onGpus = (job: JobSpec, memoryPerGpuBytes: number): JobSpec => ({
  ...job,
  memoryModel: "executor",
  cluster: { ...job.cluster, device: "cuda", memoryPerGpuBytes },
});

const order = (a: Judged, b: Judged) =>
  a.seconds - b.seconds || a.bytes - b.bytes || comparePlans(a.plan, b.plan);

it("finds what a plain search finds where communicators take memory of their own", () => {
  const seen = { some: 0, none: 0, mixed: 0 };
  const hosted = { listed: 0, feasible: 0, tooLarge: 0 };
  const hostedOf = (list: readonly { readonly plan: Plan }[]) =>
    list.filter(({ plan }) => keepsGateUpOnHost(plan)).length;
  fc.assert(
    fc.property(
      measured(smallJobCase),
      fc.double({ min: 0, max: 1, noNaN: true }),
      ([any, profile], share) => {
        // The memory ends among the plans.
        const every = Object.values(bruteForce(onGpus(any, 2 ** 50), profile)).flat();
        const sizes = every.map(({ bytes }) => bytes).sort((a, b) => a - b);
        const job = onGpus(any, sizes[Math.floor(share * (sizes.length - 1))] ?? 2 ** 30);
        const { feasible, tooLarge } = bruteForce(job, profile);
        feasible.sort(order);
        if (feasible.length > 0 && tooLarge.length > 0) seen.mixed += 1;
        else seen[feasible.length > 0 ? "some" : "none"] += 1;
        const top = 12;
        const result = planJob(job, profile, { top, plans: top, exhaustive: true });
        const { plans = [], counts, closest } = result;
        hosted.feasible += hostedOf(feasible);
        hosted.tooLarge += hostedOf(tooLarge);
        hosted.listed += hostedOf(plans);
        expect(plans.map(({ plan }) => plan)).toEqual(feasible.slice(0, top).map(({ plan }) => plan));
        expect(counts.feasible).toBe(feasible.length);
        expect(counts.rejected["memory-exceeded"] ?? 0).toBe(tooLarge.length);
        // Null also where the hosts have no room for any plan.
        if (feasible.length === 0 && closest !== null)
          expect(closest.peakMemoryBytes).toBe(Math.min(...tooLarge.map(({ bytes }) => bytes)));
      },
    ),
    { numRuns: 50, seed: 20_261_128 },
  );
  expect(seen.mixed).toBeGreaterThan(20);
  // Plans that keep gate and up on the host are among those that fit, that do not, and that are listed.
  expect(hosted.feasible).toBeGreaterThan(500);
  expect(hosted.tooLarge).toBeGreaterThan(1000);
  expect(hosted.listed).toBeGreaterThan(5);
});

it("lists no plan above the limit, whatever was planned before on the same profile", () => {
  const profile = shippedProfile("a800-128");
  const job = (memoryPerGpu: string, device: "cpu" | "cuda") =>
    resolveJob({
      name: "mistral-7b",
      model: {
        hiddenSize: 4096,
        layers: 32,
        heads: 32,
        kvHeads: 8,
        ffnHiddenSize: 14336,
        vocabularySize: 32000,
        slidingWindowTokens: 4096,
      },
      sequenceLengthTokens: "32k",
      globalBatchTokens: "1M",
      precision: "bf16",
      cluster: { name: "c", nodes: 1, gpusPerNode: 8, memoryPerGpu, device, profile: "a800-128" },
    });
  for (const device of ["cpu", "cuda", "cpu"] as const)
    for (const memory of ["73GB", "80GB", "40GB"]) {
      const spec = job(memory, device);
      const { candidates, plans = [] } = planJob(spec, profile, { top: 60, plans: 60 });
      expect(plans.length).toBeGreaterThan(0);
      for (const { predicted } of [...candidates, ...plans])
        expect(predicted.peakMemoryBytes).toBeLessThanOrEqual(spec.cluster.memoryPerGpuBytes);
    }
});
