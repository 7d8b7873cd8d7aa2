import { shippedProfile } from "@internevo/cost-model";
import { resolveJob } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { aJob } from "@internevo/test-kit";
import { expect, it } from "vitest";
import { noFeasiblePlan } from "./no-plan.ts";

const profile = shippedProfile("a800-128");
const rates = { toHostBytesPerSecond: 1e10, toDeviceBytesPerSecond: 1e10 };
const withRates = { ...profile, device: { ...profile.device, ...rates } };

function said(cluster: Record<string, unknown>, over: Record<string, unknown> = {}): string {
  const spec = resolveJob(
    aJob({ ...over, cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: "4GiB", ...cluster } }),
  );
  const result = planJob(spec, withRates);
  expect(result.counts.feasible).toBe(0);
  return noFeasiblePlan(spec, result).message;
}

it("says of plans that fit why none is chosen, and not that they do not fit", () => {
  expect(said({}, { timeModel: "published" })).toBe(
    "plans fit in 4.00 GiB a rank, and the time model published knows the time of none: profile a800-128 has no attention of their size",
  );
  expect(said({ hostMemory: "1KiB" }, { plan: { gateUp: "host" } })).toBe(
    "no plan fits in the memory of its hosts, 1.00 KiB a node: those that fit in 4.00 GiB a rank keep the products of gate and up there",
  );
  expect(said({ memoryPerGpu: "80B" })).toMatch(/^no plan fits in 80 B a rank; the one that needs the least/);
});

it("counts the plans that were rejected, one too", () => {
  const one = { microBatchSize: 1, recompute: false, recomputeLayers: 0, gateUp: "kept" };
  const tight = { gpusPerNode: 1, memoryPerGpu: "80B" };
  const plan = { ...one, forwardOverlap: "none", backwardOverlap: "none" };
  expect(said(tight, { plan })).toContain("Why 1 plan was rejected: ");
  expect(said(tight)).toMatch(/Why [\d,]+ plans were rejected: /);
});

it("names the headroom where it takes what a plan would need", () => {
  const spec = resolveJob(
    aJob({ headroom: "99.9%", cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: "4GiB" } }),
  );
  const { message, remedy } = noFeasiblePlan(spec, planJob(spec, withRates));
  expect(message).toMatch(/^no plan fits in 4\.10 MiB a rank, which headroom 99\.9% leaves of 4\.00 GiB; /);
  expect(remedy).toMatch(/^give a headroom that leaves [\d.]+ .iB or more$/);
});
