import { ProblemError, resolveJob } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { checkCluster } from "@internevo/launcher";
import { clusterWarnings } from "./cluster-warnings.ts";

const capabilities = { hasProgram: () => false, maximumLocalRanks: 8, localMemoryBytes: 64 * 2 ** 30 };
const jobOn = (cluster: object) =>
  resolveJob({
    name: "job",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 8 * 4096,
    cluster: { name: "here", nodes: 1, gpusPerNode: 2, memoryPerGpu: "80GiB", ...cluster },
  });

describe("a cluster of this machine", () => {
  it("shares the machine's memory among ranks on the CPU", async () => {
    await expect(checkCluster(jobOn({}).cluster, capabilities)).rejects.toMatchObject({
      code: "job-invalid",
      details: [{ field: "cluster.memoryPerGpu", value: "80GiB", remedy: "use 32GiB or less" }],
    });
  });
  it("says a size that it takes", async () => {
    const odd = { ...capabilities, localMemoryBytes: 23.5 * 2 ** 30 };
    const error: unknown = await checkCluster(jobOn({}).cluster, odd).catch((thrown: unknown) => thrown);
    const remedy = error instanceof ProblemError ? (error.details[0]?.remedy ?? "") : "";
    const memoryPerGpu = /^use (\S+) or less$/.exec(remedy)?.[1];
    await expect(checkCluster(jobOn({ memoryPerGpu }).cluster, odd)).resolves.toBeUndefined();
  });
  it("refuses GPUs where the programs have no CUDA backend, or this machine shows fewer", async () => {
    const on = (cuda: { hasBackend: boolean; gpus: number | null }) =>
      checkCluster(jobOn({ device: "cuda" }).cluster, { ...capabilities, cuda });
    await expect(on({ hasBackend: false, gpus: 8 })).rejects.toMatchObject({
      code: "job-invalid",
      details: [
        { field: "cluster.device", value: "cuda", remedy: expect.stringContaining("INTERNEVO_CUDA=1") },
      ],
    });
    await expect(on({ hasBackend: true, gpus: 0 })).rejects.toMatchObject({
      details: [
        {
          field: "cluster.gpusPerNode",
          message: "gives 2 ranks on GPUs, and this machine shows 0 NVIDIA GPUs",
          remedy: expect.stringContaining("device: cpu"),
        },
      ],
    });
    await expect(on({ hasBackend: true, gpus: 1 })).rejects.toMatchObject({
      details: [{ field: "cluster.gpusPerNode", remedy: expect.stringContaining("use 1 at most") }],
    });
    for (const gpus of [2, null]) await expect(on({ hasBackend: true, gpus })).resolves.toBeUndefined();
    await expect(
      checkCluster(jobOn({ memoryPerGpu: "1GiB" }).cluster, {
        ...capabilities,
        cuda: { hasBackend: false, gpus: 0 },
      }),
    ).resolves.toBeUndefined();
  });
  it("warns of more ranks than cores, which only ranks on them share", () => {
    expect(clusterWarnings(jobOn({ gpusPerNode: 4 }), { cores: 2 })).toMatchObject([
      { field: "cluster.gpusPerNode", value: 4, message: "gives 4 ranks, and this machine has 2 cores" },
    ]);
    for (const [cluster, cores] of [
      [{}, 2],
      [{ device: "cuda", gpusPerNode: 4 }, 2],
      [{ launcher: "slurm", gpusPerNode: 4 }, 2],
      [{ gpusPerNode: 4 }, undefined],
    ] as const)
      expect(clusterWarnings(jobOn(cluster), { cores })).toEqual([]);
  });
  it("has memory of its own on each GPU, whatever the machine has", async () => {
    await expect(checkCluster(jobOn({ device: "cuda" }).cluster, capabilities)).resolves.toBeUndefined();
  });
});
