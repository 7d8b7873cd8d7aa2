import { shippedProfile } from "@internevo/cost-model";
import {
  constraintsOf,
  NONE_DIVIDES_REMEDY,
  parsePlanLabel,
  resolveJob,
  type JobSpec,
  type PlanConstraints,
} from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { planJob, unmetOf } from "../src/index.ts";

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

  it("names the one wish that no plan has, why, and the nearest that some have", () => {
    expect(unmet({ tensorParallel: 3 })).toBe(
      "no plan of 16 ranks has tensorParallel 3: it does not divide the 16 ranks of the cluster; the nearest possible: 2 or 4",
    );
    expect(unmet({ microBatchSize: 5 })).toBe(
      "no plan of 16 ranks has microBatchSize 5: it does not divide the 256 sequences of a step; the nearest possible: 4 or 8",
    );
    expect(unmet({ pipelineChunks: 33 })).toBe(
      "no plan of 16 ranks has pipelineChunks 33: it is more than the 32 layers of the model; the nearest possible: 16",
    );
  });

  it("names the values that were asked for", () => {
    expect(unmet({ tensorParallel: [3, 5] })).toBe(
      "no plan of 16 ranks has tensorParallel 3 or 5: none of them divides the 16 ranks of the cluster; the nearest possible: 2 or 4 or 8",
    );
  });

  it("names of several wishes those that stand in the way by themselves", () => {
    expect(unmet({ tensorParallel: 3, pipelineParallel: 2 })).toBe(
      "no plan of 16 ranks has tensorParallel 3: it does not divide the 16 ranks of the cluster; the nearest possible: 2 or 4",
    );
    expect(unmet({ tensorParallel: 3, pipelineParallel: 5 })).toBe(
      "no plan of 16 ranks has tensorParallel 3: it does not divide the 16 ranks of the cluster; the nearest possible: 2 or 4. " +
        "None has pipelineParallel 5: it does not divide the 16 ranks of the cluster; the nearest possible: 4 or 8",
    );
    // As near as the other wishes let it be.
    expect(unmet({ tensorParallel: 7, pipelineParallel: 4 })).toContain("; the nearest possible: 4");
  });

  it("says together only of wishes of which each can be met, and names no others", () => {
    const together =
      "no plan of 16 ranks has tensorParallel 8 and pipelineParallel 4 together: " +
      "there are plans if you leave tensorParallel (4 is possible) or pipelineParallel (2 is possible) free";
    expect(unmet({ tensorParallel: 8, pipelineParallel: 4 })).toBe(together);
    expect(unmet({ microBatchSize: 1, tensorParallel: 8, forwardOverlap: "none", pipelineParallel: 4 })).toBe(
      together,
    );
  });

  it("says of one whole plan what does not divide, and the smallest change", () => {
    expect(unmet(constraintsOf(parsePlanLabel("b1 n4 a0 pp1 dp2 tp1 sp1 ps1 gs1 oss1")))).toBe(
      "the job's plan does not divide it: pipelineParallel 1 · dataParallel 2 · sequenceParallel 1 is 2, the cluster has 16 ranks; smallest change: dataParallel 2 → 16",
    );
  });
});

describe("a job that no plan divides", () => {
  /** On 24 ranks, with a sequence that 3 ranks cannot share. */
  const job = resolveJob({
    name: "odd",
    model: {
      hiddenSize: 3584,
      layers: 27,
      heads: 28,
      kvHeads: 4,
      ffnHiddenSize: 18_944,
      vocabularySize: 152_064,
    },
    sequenceLengthTokens: 32_768,
    globalBatchTokens: 192 * 32_768,
    cluster: { nodes: 3, gpusPerNode: 8, memoryPerGpu: "80GB" },
  });
  const of = (plan: PlanConstraints, changed: Partial<JobSpec> = {}) => unmetOf({ ...job, ...changed, plan });

  it("says what does not divide what, and what does", () => {
    expect(of({ tensorParallel: 3 })).toEqual({
      message:
        "no plan of 24 ranks has tensorParallel 3: it needs as many sequenceParallel, and sequenceLengthTokens 32768 is not divisible by sequenceParallel 3; the nearest possible: 2 or 4",
      remedy: "give another value, or leave it free",
    });
    expect(of({ tensorParallel: 8, pipelineParallel: 1 })?.message).toMatch(
      /has tensorParallel 8: .*heads 28 and kvHeads 4 cannot be split over 8 ranks; the nearest possible: 4$/,
    );
    expect(of({ tensorParallel: 7, microBatchSize: 5 })?.remedy).toBe(
      "give other values, or leave them free",
    );
    expect(of({ tensorParallel: 4, contextParallel: 2 })?.remedy).toBe(
      "give other values, or leave one of them free",
    );
    expect(of({ tensorParallel: 4 })).toBeUndefined();
  });

  it("does not blame what is fixed where nothing divides the job", () => {
    // One sequence, of a length that no ranks share, on more ranks than stages can be.
    const one = {
      sequenceLengthTokens: 32_767,
      globalBatchTokens: 32_767,
      model: { ...job.model, layers: 20 },
    };
    expect(of({ tensorParallel: 4 }, one)).toMatchObject({
      message: expect.stringMatching(/^no plan divides the job, whatever is fixed: /),
      remedy: NONE_DIVIDES_REMEDY,
    });
  });
});
