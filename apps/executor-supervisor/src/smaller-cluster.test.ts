import { shippedProfile } from "@internevo/cost-model";
import { resolveJob, worldSize, type Failure } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { aJob } from "@internevo/test-kit";
import { describe, expect, it } from "vitest";
import { changeWords, nodesOf, planForFewerNodes, specOn } from "./smaller-cluster.ts";

const profile = shippedProfile("a800-128");
const failure: Failure = {
  code: "not-started",
  message: "Slurm job 7 needs 4 nodes, and fewer can take jobs",
};
const job = (cluster: Record<string, unknown>, over: Record<string, unknown> = {}) =>
  resolveJob(
    aJob({
      sequenceLengthTokens: 64,
      globalBatchTokens: 64 * 12,
      precision: "fp32",
      cluster: {
        name: "site",
        launcher: "slurm",
        nodes: 4,
        gpusPerNode: 1,
        memoryPerGpu: "4GiB",
        ...cluster,
      },
      ...over,
    }),
  );
const planFor = (spec: ReturnType<typeof job>, nodesLeft: number) =>
  planForFewerNodes({
    spec,
    profile,
    nodesLeft,
    failure,
    search: async (smaller, of) => planJob(smaller, of),
  });

describe("a job that lost nodes", () => {
  it("is planned again for those that are left, with the same batch", async () => {
    const smaller = await planFor(job({ minNodes: 2 }), 3);
    if (!("candidate" in smaller)) throw new Error(smaller.failure.message);
    const { plan } = smaller.candidate;
    expect([smaller.nodes, worldSize(plan), nodesOf(plan, { gpusPerNode: 1 })]).toEqual([3, 3, 3]);
    expect(plan.microBatchSize * plan.microBatches * plan.dataParallel).toBe(12);
  });

  it("leaves nodes idle over which nothing divides", async () => {
    const batch = { globalBatchTokens: 64 * 8, plan: { sequenceParallel: 1, pipelineParallel: 1 } };
    expect(await planFor(job({ minNodes: 1 }, batch), 3)).toMatchObject({ nodes: 2 });
    expect(await planFor(job({ minNodes: 3 }, batch), 3)).toMatchObject({
      failure: {
        code: "no-feasible-plan",
        message: expect.stringMatching(
          /^Slurm job 7 needs 4 nodes, .*; there is no plan for 3 nodes: no plan divides the job, .*dataParallel 3 does not divide the 8 sequences of a step/,
        ),
        remedy: expect.any(String),
      },
    });
  });

  it("fails where it does not allow it, or not so few", async () => {
    expect(await planFor(job({}), 3)).toEqual({ failure });
    expect(await planFor(job({ minNodes: 3 }), 2)).toMatchObject({
      failure: { code: "not-started", message: expect.stringContaining("cluster.minNodes 3 or more") },
    });
  });

  it("fails when what is left has too little memory", async () => {
    const spec = job(
      { minNodes: 1, memoryPerGpu: "2200MB" },
      { model: { hiddenSize: 512, layers: 16, heads: 4, vocabularySize: 256 } },
    );
    expect(await planFor(spec, 2)).toMatchObject({
      failure: {
        code: "no-feasible-plan",
        message: expect.stringMatching(/there is no plan for 2 to 1 nodes: no plan fits in 2\.05 GiB/),
      },
    });
  });

  it("says what happened", () => {
    const spec = job({ minNodes: 1 });
    const [before, after] = [4, 2].map((nodes) => ({
      nodes,
      plan: planJob(specOn(spec, nodes), profile).runnableCandidates[0]!.plan,
    }));
    expect(changeWords(before!, after!, 3, 40)).toMatch(
      /^the cluster has 3 nodes left of the 4 that training had: it was planned again for 2 nodes, and goes on from the checkpoint of step 40 with b\d+ .* \(before: b\d+ .*\)$/,
    );
    expect(changeWords(before!, after!, 3, 0)).toContain("goes on from its beginning with");
  });
});
