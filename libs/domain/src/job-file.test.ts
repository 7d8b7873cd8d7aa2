import { describe, expect, it } from "vitest";
import { resolveJob } from "./job-file.ts";
import { ProblemError } from "./problem.ts";

const job = (over: Record<string, unknown> = {}) => ({
  name: "seven",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 4 * 1024 * 1024,
  cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
  ...over,
});

function problemOf(written: unknown): ProblemError {
  try {
    resolveJob(written);
  } catch (error) {
    if (error instanceof ProblemError) return error;
    throw error;
  }
  throw new Error("the job was accepted");
}

describe("resolveJob", () => {
  it("fills in names, units and defaults", () => {
    const spec = resolveJob(job());
    expect(spec.model.hiddenSize).toBe(4096);
    expect(spec.cluster.memoryPerGpuBytes).toBe(80e9);
    expect(spec.precision).toBe("bf16");
    expect(spec.cluster.profile).toBeNull();
  });

  it("derives widths from the sizes that are given", () => {
    const spec = resolveJob(job({ model: { base: "llama-7b", hiddenSize: 256, heads: 8 } }));
    expect(spec.model).toMatchObject({ hiddenSize: 256, heads: 8, kvHeads: 8, ffnHiddenSize: 768, layers: 32 });
  });

  it.each([
    ["an unknown field", job({ sequenceLenght: 1 }), "sequenceLenght"],
    ["an unknown nested field", job({ cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: "1GB", gpu: 3 } }), "cluster.gpu"],
    ["no GPUs", job({ cluster: { nodes: 1, gpusPerNode: 0, memoryPerGpu: "1GB" } }), "cluster.gpusPerNode"],
    ["heads that do not divide", job({ model: { base: "llama-7b", heads: 31 } }), "model.heads"],
    ["a batch that is no multiple", job({ globalBatchTokens: 5000 }), "globalBatchTokens"],
    ["an unknown model", job({ model: "llama-8b" }), "model"],
    ["a size without sense", job({ cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: "lots" } }), "cluster.memoryPerGpu"],
    ["a missing field", { name: "x" }, "model"],
  ])("names the field of %s", (_what, written, field) => {
    const problem = problemOf(written);
    expect(problem.code).toBe("job-invalid");
    expect(problem.details.map((detail) => detail.field)).toContain(field);
    for (const detail of problem.details) expect(detail.remedy).not.toBe("");
  });
});
