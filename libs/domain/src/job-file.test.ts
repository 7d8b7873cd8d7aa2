import { describe, expect, it } from "vitest";
import { documentsOf, type Data } from "./job.ts";
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

  it("suggests the model that an unknown one is near to", () => {
    expect(() => resolveJob(job({ model: "llama7b" }))).toThrow(expect.objectContaining({ details: [expect.objectContaining({ field: "model", remedy: expect.stringMatching(/^did you mean llama-7b\? Otherwise use one of llama-7b, /) })] }));
  });

  it("names faults of the schema and of sense together, each where the fields that it needs are well-formed", () => {
    const fields = (over: Record<string, unknown>): string[] => problemOf(job(over)).details.map(({ field }) => field).sort();
    expect(fields({ steps: "many", globalBatchTokens: 5000, model: { base: "llama-7b", heads: 31 } })).toEqual(["globalBatchTokens", "model.heads", "steps"]);
    expect(fields({ nonsense: 1, cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: "lots" } })).toEqual(["cluster.memoryPerGpu", "nonsense"]);
    expect(fields({ precision: "fp7", watchdog: { silenceSeconds: 1 }, optimizer: { peakLearningRate: 1e-4, minLearningRate: 1e-3 }, steps: 10 })).toEqual(["optimizer.minLearningRate", "precision", "watchdog.silenceSeconds"]);
    // What a field is held against may itself be wrong: then nothing is said of it.
    expect(fields({ sequenceLengthTokens: -1, globalBatchTokens: 5000 })).toEqual(["sequenceLengthTokens"]);
    expect(fields({ model: { base: "llama-7b", heads: "32" }, data: { format: "text", paths: ["a"], endOfDocumentToken: 5 } })).toEqual(["data.endOfDocumentToken", "model.heads"]);
    const { name: _name, ...nameless } = job({ globalBatchTokens: 5000 });
    expect(problemOf(nameless).details.map(({ field }) => field).sort()).toEqual(["globalBatchTokens", "name"]);
    for (const written of [null, [], "job", 7]) expect(problemOf(written).details.length).toBeGreaterThan(0);
  });

  const HOSTILE = { NUL: "a\u0000b", "an escape": "a\u001b[31mred", "a carriage return": "a\rb", "a line feed": "a\nb", "a C1 control": "a\u009b2Jb", delete: "a\u007f", "half a surrogate pair": "a\ud800b", "a line separator": "a\u2028b", "a change of direction": "a\u202eb", nothing: "", blanks: "  " };
  const cluster = { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" };
  it.each(
    Object.entries(HOSTILE).flatMap(([what, text]) => [
      [what, "name", job({ name: text })] as const,
      [what, "model.name", job({ model: { base: "llama-7b", name: text } })] as const,
      [what, "cluster.name", job({ cluster: { ...cluster, name: text } })] as const,
      [what, "cluster.profile", job({ cluster: { ...cluster, profile: text } })] as const,
      [what, "data.paths.1", job({ data: { format: "text", paths: ["/a", text] } })] as const,
      [what, "data.path", job({ data: { format: "tokens", path: text } })] as const,
    ]),
  )("refuses %s in %s, and says nothing that a terminal obeys", (_what, field, written) => {
    const problem = problemOf(written);
    expect(problem.details.map((detail) => detail.field)).toEqual([field]);
    expect(problem.message + problem.details[0]?.message + problem.details[0]?.remedy).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u2028\u202e]/);
  });

  it("takes the names of the world", () => {
    expect(resolveJob(job({ name: "Größe 模型 🚀 👩‍🔬 – v1.0/α" })).name).toContain("🚀");
  });

  it.each([
    ["a fault inside model", job({ model: { base: "llama-7b", hiddenSize: "big" } }), ["model.hiddenSize"]],
    ["a model that is no model", job({ model: 7 }), ["model"]],
    ["an empty list of paths", job({ data: { format: "text", paths: [] } }), ["data.paths"]],
    ["data of no format", job({ data: { path: "/x" } }), ["data.format"]],
    ["data of an unknown format", job({ data: { format: "parquet", path: "/x" } }), ["data.format"]],
    ["tokens with the paths of text", job({ data: { format: "tokens", paths: ["/x"] } }), ["data.path", "data.paths"]],
    ["a model named constructor", job({ model: "constructor" }), ["model"]],
    ["a model named __proto__", job({ model: "__proto__" }), ["model"]],
    ["a base named toString", job({ model: { base: "toString" } }), ["model.base"]],
    ["an unknown base, whatever else is given", job({ model: { base: "llama-8b", heads: 8 } }), ["model.base"]],
    ["two sizes that are missing", job({ model: { hiddenSize: 64, heads: 4 } }), ["model.layers", "model.vocabularySize"]],
    ["a hidden size that is missing", job({ model: { heads: 5, kvHeads: 2, layers: 1, vocabularySize: 300 } }), ["model.hiddenSize", "model.kvHeads"]],
    ["warm-up longer than the job", job({ steps: 10, optimizer: { warmupSteps: 11, decaySteps: 100 } }), ["optimizer.warmupSteps"]],
    ["warm-up that ends after the decay", job({ steps: 100, optimizer: { warmupSteps: 60, decaySteps: 50 } }), ["optimizer.warmupSteps"]],
    ["a least learning rate above the peak", job({ optimizer: { minLearningRate: 0.1, peakLearningRate: 0.01 } }), ["optimizer.minLearningRate"]],
    ["a default least learning rate above the peak that is given", job({ optimizer: { peakLearningRate: 1e-13 } }), ["optimizer.peakLearningRate"]],
    ["more ranks than any cluster has", job({ cluster: { ...cluster, nodes: 1_000_000, gpusPerNode: 8 } }), ["cluster.nodes"]],
    ["a memory beyond any", job({ cluster: { ...cluster, memoryPerGpu: "9000TB" } }), ["cluster.memoryPerGpu"]],
  ])("names exactly what is wrong with %s", (_what, written, fields) => {
    expect(problemOf(written).details.map((detail) => detail.field)).toEqual(fields);
  });

  const tiny = 1e-320;
  it.each([
    ["model.ropeTheta", { model: { base: "llama-7b", ropeTheta: tiny } }],
    ["model.ropeTheta", { model: { base: "llama-7b", ropeTheta: 1e300 } }],
    ["model.normEpsilon", { model: { base: "llama-7b", normEpsilon: tiny } }],
    ["model.initStandardDeviation", { model: { base: "llama-7b", initStandardDeviation: tiny } }],
    ["optimizer.peakLearningRate", { optimizer: { peakLearningRate: tiny, minLearningRate: 0 } }],
    ["optimizer.minLearningRate", { optimizer: { minLearningRate: tiny } }],
    ["optimizer.weightDecay", { optimizer: { weightDecay: tiny } }],
    ["optimizer.epsilon", { optimizer: { epsilon: tiny } }],
    ["optimizer.clipGlobalNorm", { optimizer: { clipGlobalNorm: tiny } }],
    ["optimizer.beta1", { optimizer: { beta1: 1 - 1e-12 } }],
    ["optimizer.beta2", { optimizer: { beta2: 1 - 1e-12 } }],
    ["checkpointing.everySteps", { checkpointing: { everySteps: 1e15, keepLast: 1 } }],
    ["seed", { seed: Number.NaN }],
    ["steps", { steps: Number.POSITIVE_INFINITY }],
  ])("bounds %s, and says the bounds", (field, over) => {
    const { details } = problemOf(job(over));
    expect(details.map((detail) => detail.field)).toEqual([field]);
    expect(details[0]?.remedy).toMatch(/\d/);
  });

  it("keeps zero where it means something", () => {
    const spec = resolveJob(job({ optimizer: { minLearningRate: 0, weightDecay: 0, clipGlobalNorm: 0, beta1: 0 } }));
    expect(spec.optimizer).toMatchObject({ minLearningRate: 0, weightDecay: 0, clipGlobalNorm: 0, beta1: 0 });
  });

  it("takes a small peak with the least learning rate at its tenth", () => {
    expect(resolveJob(job({ optimizer: { peakLearningRate: 1e-5 } })).optimizer.minLearningRate).toBeCloseTo(1e-6, 12);
  });
});

describe("what a job may ask for beyond its model and its cluster", () => {
  const details = (over: Record<string, unknown>) => problemOf(job(over)).details.map(({ field, remedy }) => (expect(remedy).toBeTruthy(), field));
  const tokens = (over: Record<string, unknown> = {}) => ({ data: { format: "megatron", path: "/data/a.bin", ...over } });

  it("is left out of a job that does not ask for it", () => {
    const spec = resolveJob(job());
    for (const field of ["initialWeights", "timeline", "watchdog"]) expect(spec).not.toHaveProperty(field);
    expect(resolveJob(job({ timeline: false }))).not.toHaveProperty("timeline");
  });

  it("is kept as it is written, with defaults where some are", () => {
    const data = { format: "internevo", path: "/data/a.bin", packing: "documents", endOfDocumentToken: 2, maxDocumentsPerSequence: 50 };
    expect(resolveJob(job({ data, initialWeights: "/weights", timeline: { firstStep: 7 }, watchdog: { silenceSeconds: 30 } }))).toMatchObject({ data, initialWeights: "/weights", timeline: { firstStep: 7, steps: 2 }, watchdog: { silenceSeconds: 30 } });
    expect(resolveJob(job({ timeline: true, watchdog: false }))).toMatchObject({ timeline: { firstStep: 2, steps: 2 }, watchdog: false });
    expect(resolveJob(job({ timeline: true, steps: 1 })).timeline?.firstStep).toBe(1);
    expect([documentsOf(data as Data), documentsOf({ format: "tokens", path: "a", packing: "documents" }), documentsOf({ format: "tokens", path: "a" }), documentsOf(null)]).toEqual([50, 1024, null, null]);
  });

  it("names with how few nodes training may go on where Slurm tells how many are left", () => {
    const on = (over: Record<string, unknown>) => ({ cluster: { nodes: 4, gpusPerNode: 8, memoryPerGpu: "80GB", ...over } });
    expect(resolveJob(job(on({ launcher: "slurm", minNodes: 2 }))).cluster.minNodes).toBe(2);
    expect(resolveJob(job(on({ launcher: "slurm" }))).cluster).not.toHaveProperty("minNodes");
    for (const wrong of [{ minNodes: 2 }, { launcher: "ssh", minNodes: 2 }, { launcher: "slurm", minNodes: 5 }, { launcher: "slurm", minNodes: 0 }]) expect(details(on(wrong))).toEqual(["cluster.minNodes"]);
  });

  it("names what cannot be", () => {
    expect(details(tokens({ endOfDocumentToken: 2 }))).toEqual(["data.endOfDocumentToken"]);
    expect(details(tokens({ packing: "none", maxDocumentsPerSequence: 2 }))).toEqual(["data.maxDocumentsPerSequence"]);
    expect(details(tokens({ packing: "documents", endOfDocumentToken: 100_000 }))).toEqual(["data.endOfDocumentToken"]);
    expect(details({ data: { format: "text", paths: ["/a"], packing: "documents", endOfDocumentToken: 256 } })).toEqual(["data.endOfDocumentToken"]);
    expect(details({ timeline: { firstStep: 101 } })).toEqual(["timeline.firstStep"]);
    expect(details({ watchdog: { silenceSeconds: 1 } })).toEqual(["watchdog.silenceSeconds"]);
    expect(details({ watchdog: { beatSeconds: 2 } })).toEqual(["watchdog.silenceSeconds"]);
    expect(details(tokens({ packing: "lines" }))).toContain("data.packing");
    expect(details({ watchdog: { stallSeconds: 0 } })).not.toEqual([]);
    expect(details({ timeline: { steps: 0 } })).not.toEqual([]);
    expect(details({ initialWeights: "" })).toEqual(["initialWeights"]);
  });
});
