import { resolveJob } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { checkCluster } from "./check-cluster.ts";

const capabilities = { slurm: false, maximumLocalRanks: 8, localMemoryBytes: 64 * 2 ** 30 };
const jobOn = (cluster: object) =>
  resolveJob({ name: "job", model: "llama-7b", sequenceLengthTokens: 4096, globalBatchTokens: 8 * 4096, cluster: { name: "here", nodes: 1, gpusPerNode: 2, memoryPerGpu: "80GiB", ...cluster } });

describe("a cluster of this machine", () => {
  it("shares the machine's memory among ranks on the CPU", async () => {
    await expect(checkCluster(jobOn({}), capabilities)).rejects.toMatchObject({ code: "job-invalid", details: [{ field: "cluster.memoryPerGpu", remedy: "use 32.0 GiB or less" }] });
  });
  it("has memory of its own on each GPU, whatever the machine has", async () => {
    await expect(checkCluster(jobOn({ device: "cuda" }), capabilities)).resolves.toBeUndefined();
  });
});
