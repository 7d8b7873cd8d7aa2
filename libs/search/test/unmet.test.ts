import { shippedProfile } from "@internevo/cost-model";
import { constraintsOf, parsePlanLabel, resolveJob, type PlanConstraints } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { planJob } from "../src/index.ts";

const profile = shippedProfile("a800-128");

/** What is said of a job on 16 ranks whose plan is asked to be so. */
function unmet(plan: PlanConstraints, memoryPerGpu = "80GB"): string | undefined {
  const job = resolveJob({
    name: "seven",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 2 ** 20,
    cluster: { nodes: 2, gpusPerNode: 8, memoryPerGpu },
  });
  // A job file says less: what does not divide the ranks by itself is refused there already.
  return planJob({ ...job, plan }, profile, { top: 1 }).unmet;
}

describe("a search that no plan can satisfy", () => {
  it("says nothing where a plan meets what is asked, whether it fits or not", () => {
    expect(unmet({ tensorParallel: 8 })).toBeUndefined();
    expect(unmet({ tensorParallel: 8 }, "1GB")).toBeUndefined();
  });

  it("names the one wish that no plan has", () => {
    expect(unmet({ tensorParallel: 3 })).toBe(
      "no plan of 16 ranks has tensorParallel 3: there are plans without tensorParallel",
    );
  });

  it("names the values that were asked for", () => {
    expect(unmet({ tensorParallel: [3, 5] })).toBe(
      "no plan of 16 ranks has tensorParallel 3 or 5: there are plans without tensorParallel",
    );
  });

  it("names of several wishes those that stand in the way", () => {
    expect(unmet({ tensorParallel: 8, pipelineParallel: 4 })).toBe(
      "no plan of 16 ranks has tensorParallel 8 and pipelineParallel 4 together: there are plans without tensorParallel or without pipelineParallel",
    );
    expect(unmet({ tensorParallel: 3, pipelineParallel: 2 })).toBe(
      "no plan of 16 ranks has tensorParallel 3 and pipelineParallel 2 together: there are plans without tensorParallel",
    );
    expect(unmet({ tensorParallel: 3, pipelineParallel: 5 })).toBe(
      "no plan of 16 ranks has tensorParallel 3 and pipelineParallel 5 together: no one of them alone stands in the way",
    );
  });

  it("says of one whole plan what does not divide, and the smallest change", () => {
    expect(unmet(constraintsOf(parsePlanLabel("b1 n4 a0 pp1 dp2 tp1 sp1 ps1 gs1 oss1")))).toBe(
      "the job's plan does not divide it: pipelineParallel 1 · dataParallel 2 · sequenceParallel 1 is 2, the cluster has 16 ranks; smallest change: dataParallel 2 → 16",
    );
  });
});
