import { refusalOf as problemOf, wholeJobFile as job } from "@internevo/test-kit/refused-job";
import { describe, expect, it } from "vitest";
import { documentsOf, type Data } from "./data.ts";
import { REPLANNING_DEFAULTS } from "./job.ts";
import { resolveJob } from "./job-file.ts";
import type { ProblemError } from "./problem.ts";

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
    expect(spec.model).toMatchObject({
      hiddenSize: 256,
      heads: 8,
      kvHeads: 8,
      ffnHiddenSize: 768,
      layers: 32,
    });
  });

  it("writes a model in one way, and as before where nothing new is said", () => {
    const model = (over: Record<string, unknown>) =>
      resolveJob(job({ model: { base: "llama-7b", ...over } })).model;
    const yarn = { kind: "yarn", factor: 4, originalPositions: 32_768 };
    expect(
      model({
        headSize: 128,
        queryKeyNorm: false,
        queryKeyValueBias: false,
        ropeScaling: { ...yarn, betaFast: 32, betaSlow: 1, truncate: true },
      }),
    ).toEqual({ ...model({}), ropeScaling: yarn });
    expect(Object.keys(model({}))).not.toContain("headSize");
    expect(
      model({
        headSize: 96,
        heads: 31,
        queryKeyNorm: true,
        queryKeyValueBias: true,
        slidingWindowTokens: 4096,
      }),
    ).toMatchObject({
      headSize: 96,
      heads: 31,
      kvHeads: 31,
      queryKeyNorm: true,
      queryKeyValueBias: true,
      slidingWindowTokens: 4096,
    });
  });

  it.each([
    [{ headSize: 65 }, "model.headSize", /is odd/, /even number/],
    [{ headSize: 514 }, "model.headSize", /is more than 512/, /from 2 to 512/],
    [{ slidingWindowTokens: 0 }, "model.slidingWindowTokens", /is less than 1/, /integer/],
    [{ queryKeyNorm: 1 }, "model.queryKeyNorm", /true or false/, /true or false/],
    [{ heads: 31 }, "model.heads", /does not divide hiddenSize 4096/, /or give headSize/],
    [
      { ropeScaling: { kind: "dynamic", factor: 2 } },
      "model.ropeScaling.kind",
      /./,
      /linear, llama3 or yarn/,
    ],
    [{ ropeScaling: { kind: "linear", factor: 0.5 } }, "model.ropeScaling.factor", /is less than 1/, /./],
    [
      {
        ropeScaling: {
          kind: "llama3",
          factor: 8,
          originalPositions: 8192,
          lowFrequencyFactor: 4,
          highFrequencyFactor: 4,
        },
      },
      "model.ropeScaling.highFrequencyFactor",
      /is not more than lowFrequencyFactor 4/,
      /1 and 4/,
    ],
    [
      { ropeScaling: { kind: "yarn", factor: 4, originalPositions: 8192, betaFast: 0.5 } },
      "model.ropeScaling.betaFast",
      /is less than betaSlow 1/,
      /at least betaSlow/,
    ],
    [
      { ropeTheta: 1, ropeScaling: { kind: "yarn", factor: 4, originalPositions: 8192 } },
      "model.ropeTheta",
      /is not more than 1/,
      /./,
    ],
  ])("names what is wrong in a model: %o", (over, field, message, remedy) => {
    const [detail] = problemOf(job({ model: { base: "llama-7b", ...over } })).details;
    expect(detail).toMatchObject({
      field,
      message: expect.stringMatching(message),
      remedy: expect.stringMatching(remedy),
    });
  });

  it.each([
    ["an unknown field", job({ sequenceLenght: 1 }), "sequenceLenght"],
    [
      "an unknown nested field",
      job({ cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: "1GB", gpu: 3 } }),
      "cluster.gpu",
    ],
    ["no GPUs", job({ cluster: { nodes: 1, gpusPerNode: 0, memoryPerGpu: "1GB" } }), "cluster.gpusPerNode"],
    ["heads that do not divide", job({ model: { base: "llama-7b", heads: 31 } }), "model.heads"],
    ["a batch that is no multiple", job({ globalBatchTokens: 5000 }), "globalBatchTokens"],
    ["an unknown model", job({ model: "llama-8b" }), "model"],
    [
      "a size without sense",
      job({ cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: "lots" } }),
      "cluster.memoryPerGpu",
    ],
    ["a missing field", { name: "x" }, "model"],
  ])("names the field of %s", (_what, written, field) => {
    const problem = problemOf(written);
    expect(problem.code).toBe("job-invalid");
    expect(problem.details.map((detail) => detail.field)).toContain(field);
    for (const detail of problem.details) expect(detail.remedy).not.toBe("");
  });

  it("reads lengths with their units, as the command line does", () => {
    expect(resolveJob(job({ sequenceLengthTokens: "4k", globalBatchTokens: "4M" }))).toEqual(
      resolveJob(job()),
    );
    expect(problemOf(job({ sequenceLengthTokens: "4kB" })).details).toEqual([
      {
        field: "sequenceLengthTokens",
        value: "4kB",
        message: "is not a number of tokens",
        remedy: expect.stringContaining("4k"),
      },
    ]);
    expect(
      problemOf(job({ globalBatchTokens: "5k" })).details.map(({ field, value }) => [field, value]),
    ).toEqual([["globalBatchTokens", "5k"]]);
    expect(problemOf(job({ sequenceLengthTokens: "2048G" })).details.map(({ message }) => message)).toEqual([
      `is more than ${2 ** 40}`,
    ]);
  });

  it.each([80, "80"])("takes memory of %j for a unit that was forgotten", (memoryPerGpu) => {
    expect(problemOf(job({ cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu } })).details).toEqual([
      {
        field: "cluster.memoryPerGpu",
        value: memoryPerGpu,
        message: "is 80 bytes",
        remedy: "did you mean 80GB? For bytes, write 80B",
      },
    ]);
    expect(
      resolveJob(job({ cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80B" } })).cluster
        .memoryPerGpuBytes,
    ).toBe(80);
  });

  it("suggests the model that an unknown one is near to", () => {
    expect(() => resolveJob(job({ model: "llama7b" }))).toThrow(
      expect.objectContaining({
        details: [
          expect.objectContaining({
            field: "model",
            remedy: expect.stringMatching(/^did you mean llama-7b\? Otherwise use one of llama-7b, /),
          }),
        ],
      }),
    );
  });

  it("names faults of the schema and of sense together, each where the fields that it needs are well-formed", () => {
    const fields = (over: Record<string, unknown>): string[] =>
      problemOf(job(over))
        .details.map(({ field }) => field)
        .sort();
    expect(
      fields({ steps: "many", globalBatchTokens: 5000, model: { base: "llama-7b", heads: 31 } }),
    ).toEqual(["globalBatchTokens", "model.heads", "steps"]);
    expect(fields({ nonsense: 1, cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: "lots" } })).toEqual([
      "cluster.memoryPerGpu",
      "nonsense",
    ]);
    expect(
      fields({
        precision: "fp7",
        watchdog: { silenceSeconds: 1 },
        optimizer: { peakLearningRate: 1e-4, minLearningRate: 1e-3 },
        steps: 10,
      }),
    ).toEqual(["optimizer.minLearningRate", "precision", "watchdog.silenceSeconds"]);
    // What a field is held against may itself be wrong: then nothing is said of it.
    expect(fields({ sequenceLengthTokens: -1, globalBatchTokens: 5000 })).toEqual(["sequenceLengthTokens"]);
    expect(
      fields({
        model: { base: "llama-7b", heads: "32" },
        data: { format: "text", paths: ["a"], endOfDocumentToken: 5 },
      }),
    ).toEqual(["data.endOfDocumentToken", "model.heads"]);
    const { name: _name, ...nameless } = job({ globalBatchTokens: 5000 });
    expect(
      problemOf(nameless)
        .details.map(({ field }) => field)
        .sort(),
    ).toEqual(["globalBatchTokens", "name"]);
    for (const written of [null, [], "job", 7]) expect(problemOf(written).details.length).toBeGreaterThan(0);
  });

  const HOSTILE = {
    NUL: "a\u0000b",
    "an escape": "a\u001b[31mred",
    "a carriage return": "a\rb",
    "a line feed": "a\nb",
    "a C1 control": "a\u009b2Jb",
    delete: "a\u007f",
    "half a surrogate pair": "a\ud800b",
    "a line separator": "a\u2028b",
    "a change of direction": "a\u202eb",
    "what takes no room": "a\u200bb",
    "a byte order mark": "\ufeffa",
    nothing: "",
    blanks: "  ",
  };
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
    expect(problem.message + problem.details[0]?.message + problem.details[0]?.remedy).not.toMatch(
      /[\u0000-\u001f\u007f-\u009f\u2028\u202e]/,
    );
  });

  it("takes the names of the world", () => {
    expect(resolveJob(job({ name: "Größe 模型 🚀 👩‍🔬 ❤️ 𝔄 𠀀 – v1.0/α" })).name).toContain("🚀");
  });

  it.each([
    ["a fault inside model", job({ model: { base: "llama-7b", hiddenSize: "big" } }), ["model.hiddenSize"]],
    ["a model that is no model", job({ model: 7 }), ["model"]],
    [
      "text that is named twice",
      job({ data: { format: "text", paths: ["/a", "/b", "/a", "/a"] } }),
      ["data.paths.2", "data.paths.3"],
    ],
    [
      "text of a mixture that is named twice in one source",
      job({
        data: {
          format: "mixture",
          sources: [
            { format: "text", paths: ["/a"], weight: 1 },
            { format: "text", paths: ["/b", "/b"], weight: 1 },
          ],
        },
      }),
      ["data.sources.1.paths.1"],
    ],
    [
      "held-out text that is named twice",
      job({
        data: { format: "text", paths: ["/a"] },
        validation: { data: { format: "text", paths: ["/b", "/b"] } },
      }),
      ["validation.data.paths.1"],
    ],
    ["an empty list of paths", job({ data: { format: "text", paths: [] } }), ["data.paths"]],
    ["data of no format", job({ data: { path: "/x" } }), ["data.format"]],
    ["data of an unknown format", job({ data: { format: "parquet", path: "/x" } }), ["data.format"]],
    [
      "tokens with the paths of text",
      job({ data: { format: "tokens", paths: ["/x"] } }),
      ["data.path", "data.paths"],
    ],
    ["a model named constructor", job({ model: "constructor" }), ["model"]],
    ["a model named __proto__", job({ model: "__proto__" }), ["model"]],
    ["a base named toString", job({ model: { base: "toString" } }), ["model.base"]],
    [
      "an unknown base, whatever else is given",
      job({ model: { base: "llama-8b", heads: 8 } }),
      ["model.base"],
    ],
    [
      "two sizes that are missing",
      job({ model: { hiddenSize: 64, heads: 4 } }),
      ["model.layers", "model.vocabularySize"],
    ],
    [
      "a hidden size that is missing",
      job({ model: { heads: 5, kvHeads: 2, layers: 1, vocabularySize: 300 } }),
      ["model.hiddenSize", "model.kvHeads"],
    ],
    [
      "held-out text that is trained on",
      job({
        data: { format: "text", paths: ["a.txt", "b.txt"] },
        validation: { data: { format: "text", paths: ["c.txt", "b.txt"] } },
      }),
      ["validation.data.paths.1"],
    ],
    [
      "held-out text that is trained on by a longer path",
      job({
        data: { format: "text", paths: ["/data/b.txt"] },
        validation: { data: { format: "text", paths: ["/data/x/.././b.txt"] } },
      }),
      ["validation.data.paths.0"],
    ],
    [
      "text that is named twice",
      job({ data: { format: "text", paths: ["/data/b.txt", "/data//b.txt"] } }),
      ["data.paths.1"],
    ],
    [
      "held-out tokens that are trained on",
      job({
        data: { format: "tokens", path: "/a.tokens" },
        validation: { data: { format: "tokens", path: "/a.tokens" } },
      }),
      ["validation.data.path"],
    ],
    [
      "held-out data that says how it is packed",
      job({
        data: { format: "tokens", path: "/a.tokens" },
        validation: { data: { format: "tokens", path: "/b.tokens", packing: "documents" } },
      }),
      ["validation.data.packing"],
    ],
    [
      "an evaluation of no batch",
      job({ validation: { data: { format: "tokens", path: "/b.tokens" }, batches: 0 } }),
      ["validation.batches"],
    ],
    [
      "a constant learning rate with a least one",
      job({ optimizer: { schedule: "constant", minLearningRate: 1e-5 } }),
      ["optimizer.minLearningRate"],
    ],
    [
      "a constant learning rate that decays",
      job({ steps: 100, optimizer: { schedule: "constant", decaySteps: 50 } }),
      ["optimizer.decaySteps"],
    ],
    [
      "annealing of a schedule that has none",
      job({ optimizer: { schedule: "linear", annealingSteps: 10 } }),
      ["optimizer.annealingSteps"],
    ],
    [
      "annealing that begins within warm-up",
      job({ steps: 100, optimizer: { schedule: "wsd", warmupSteps: 30, annealingSteps: 71 } }),
      ["optimizer.annealingSteps"],
    ],
    ["a schedule that nobody knows", job({ optimizer: { schedule: "polynomial" } }), ["optimizer.schedule"]],
    [
      "warm-up longer than the job",
      job({ steps: 10, optimizer: { warmupSteps: 11, decaySteps: 100 } }),
      ["optimizer.warmupSteps"],
    ],
    [
      "warm-up that ends after the decay",
      job({ steps: 100, optimizer: { warmupSteps: 60, decaySteps: 50 } }),
      ["optimizer.warmupSteps"],
    ],
    [
      "a least learning rate above the peak",
      job({ optimizer: { minLearningRate: 0.1, peakLearningRate: 0.01 } }),
      ["optimizer.minLearningRate"],
    ],
    [
      "a default least learning rate above the peak that is given",
      job({ optimizer: { peakLearningRate: 1e-13 } }),
      ["optimizer.peakLearningRate"],
    ],
    [
      "more ranks than any cluster has",
      job({ cluster: { ...cluster, nodes: 1_000_000, gpusPerNode: 8 } }),
      ["cluster.nodes"],
    ],
    [
      "a memory beyond any",
      job({ cluster: { ...cluster, memoryPerGpu: "9000TB" } }),
      ["cluster.memoryPerGpu"],
    ],
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

  it("gives each field of checkpointing its default", () => {
    for (const [checkpointing, everySteps, keepLast] of [
      [{}, 30, 2],
      [{ everySteps: 100 }, 100, 2],
      [{ keepLast: 5 }, 30, 5],
    ] as const)
      expect(resolveJob(job({ steps: 300, checkpointing })).checkpointing).toEqual({ everySteps, keepLast });
  });

  it("keeps zero where it means something", () => {
    const spec = resolveJob(
      job({ optimizer: { minLearningRate: 0, weightDecay: 0, clipGlobalNorm: 0, beta1: 0 } }),
    );
    expect(spec.optimizer).toMatchObject({ minLearningRate: 0, weightDecay: 0, clipGlobalNorm: 0, beta1: 0 });
  });

  it("takes a small peak with the least learning rate at its tenth", () => {
    expect(resolveJob(job({ optimizer: { peakLearningRate: 1e-5 } })).optimizer.minLearningRate).toBeCloseTo(
      1e-6,
      12,
    );
  });
});

describe("what a job may ask for beyond its model and its cluster", () => {
  const details = (over: Record<string, unknown>) =>
    problemOf(job(over)).details.map(({ field, remedy }) => (expect(remedy).toBeTruthy(), field));
  const tokens = (over: Record<string, unknown> = {}) => ({
    data: { format: "megatron", path: "/data/a.bin", ...over },
  });

  it("is left out of a job that does not ask for it", () => {
    const spec = resolveJob(job());
    for (const field of ["initialWeights", "timeline", "watchdog"]) expect(spec).not.toHaveProperty(field);
    expect(resolveJob(job({ timeline: false }))).not.toHaveProperty("timeline");
  });

  it("is kept as it is written, with defaults where some are", () => {
    const data = {
      format: "internevo",
      path: "/data/a.bin",
      packing: "documents",
      endOfDocumentToken: 2,
      maxDocumentsPerSequence: 50,
    };
    expect(
      resolveJob(
        job({
          data,
          initialWeights: "/weights",
          timeline: { firstStep: 7 },
          watchdog: { silenceSeconds: 30 },
        }),
      ),
    ).toMatchObject({
      data,
      initialWeights: "/weights",
      timeline: { firstStep: 7, steps: 2 },
      watchdog: { silenceSeconds: 30 },
    });
    expect(resolveJob(job({ timeline: true, watchdog: false }))).toMatchObject({
      timeline: { firstStep: 2, steps: 2 },
      watchdog: false,
    });
    expect(resolveJob(job({ timeline: true, steps: 1 })).timeline?.firstStep).toBe(1);
    expect([
      documentsOf(data as Data),
      documentsOf({ format: "tokens", path: "a", packing: "documents" }),
      documentsOf({ format: "tokens", path: "a" }),
      documentsOf(null),
    ]).toEqual([50, 1024, null, null]);
  });

  it("names with how few nodes training may go on where Slurm tells how many are left", () => {
    const on = (over: Record<string, unknown>) => ({
      cluster: { nodes: 4, gpusPerNode: 8, memoryPerGpu: "80GB", ...over },
    });
    expect(resolveJob(job(on({ launcher: "slurm", minNodes: 2 }))).cluster.minNodes).toBe(2);
    expect(resolveJob(job(on({ launcher: "slurm" }))).cluster).not.toHaveProperty("minNodes");
    for (const wrong of [
      { minNodes: 2 },
      { launcher: "ssh", minNodes: 2 },
      { launcher: "slurm", minNodes: 5 },
      { launcher: "slurm", minNodes: 0 },
    ])
      expect(details(on(wrong))).toEqual(["cluster.minNodes"]);
  });

  it("names what cannot be", () => {
    expect(details(tokens({ endOfDocumentToken: 2 }))).toEqual(["data.endOfDocumentToken"]);
    expect(details(tokens({ packing: "none", maxDocumentsPerSequence: 2 }))).toEqual([
      "data.maxDocumentsPerSequence",
    ]);
    expect(details(tokens({ packing: "documents", endOfDocumentToken: 100_000 }))).toEqual([
      "data.endOfDocumentToken",
    ]);
    expect(
      details({ data: { format: "text", paths: ["/a"], packing: "documents", endOfDocumentToken: 256 } }),
    ).toEqual(["data.endOfDocumentToken"]);
    expect(details({ timeline: { firstStep: 101 } })).toEqual(["timeline.firstStep"]);
    expect(details({ watchdog: { silenceSeconds: 1 } })).toEqual(["watchdog.silenceSeconds"]);
    expect(details({ watchdog: { beatSeconds: 2 } })).toEqual(["watchdog.silenceSeconds"]);
    expect(details({ watchdog: { beatSeconds: 0.04 } })).toEqual(["watchdog.beatSeconds"]);
    expect(resolveJob(job({ watchdog: { beatSeconds: 0.05 } })).watchdog).toMatchObject({
      beatSeconds: 0.05,
    });
    expect(details(tokens({ packing: "lines" }))).toContain("data.packing");
    expect(details({ watchdog: { stallSeconds: 0 } })).not.toEqual([]);
    expect(details({ timeline: { steps: 0 } })).not.toEqual([]);
    expect(details({ initialWeights: "" })).toEqual(["initialWeights"]);
  });
});

describe("a job's plan", () => {
  const constrained = (plan: unknown, over: Record<string, unknown> = {}) =>
    job({ cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB" }, plan, ...over });
  const faultsOf = (plan: unknown, over: Record<string, unknown> = {}) => {
    try {
      resolveJob(constrained(plan, over));
    } catch (error) {
      return (error as ProblemError).details;
    }
    return [];
  };

  it("may be a text as tables show it, all of a plan or a part", () => {
    expect(resolveJob(constrained("tp8 pp1")).plan).toEqual({ tensorParallel: 8, pipelineParallel: 1 });
    expect(resolveJob(constrained({ tensorParallel: [1, 8] })).plan).toEqual({ tensorParallel: [1, 8] });
    expect(resolveJob(constrained("b1 n1 pp1 dp8 sp1 ps8")).plan).toMatchObject({
      microBatches: 1,
      parameterSharding: 8,
      pipelineChunks: 1,
      forwardOverlap: "none",
    });
    expect(faultsOf("tp8 zz3")).toMatchObject([
      { field: "plan", value: "tp8 zz3", message: "zz3 is not known" },
    ]);
    expect(faultsOf(8)).toMatchObject([{ field: "plan" }]);
  });

  it.each([
    [
      { tensorParallel: 4 },
      { nodes: 1, gpusPerNode: 2 },
      "plan.tensorParallel",
      4,
      "does not divide the 2 ranks of the cluster",
      "give 2, or leave it out",
    ],
    [
      "tp3",
      { nodes: 1, gpusPerNode: 8 },
      "plan.tensorParallel",
      3,
      "does not divide the 8 ranks of the cluster",
      "give 2 or 4, or leave it out",
    ],
    [
      { pipelineParallel: [64, 128] },
      { nodes: 16, gpusPerNode: 8 },
      "plan.pipelineParallel",
      [64, 128],
      "is more than the 32 layers of the model",
      "give at most 32, or leave it out",
    ],
    [
      { microBatches: 2 ** 31 - 1 },
      { nodes: 1, gpusPerNode: 8 },
      "plan.microBatches",
      2 ** 31 - 1,
      "does not divide",
      "give",
    ],
  ])(
    "that cannot be met is refused, with what can be: %j",
    (plan, cluster, field, value, message, remedy) => {
      const [detail, ...others] = faultsOf(plan, { cluster: { ...cluster, memoryPerGpu: "80GB" } });
      expect(others).toEqual([]);
      expect([detail?.field, detail?.value]).toEqual([field, value]);
      expect(detail?.message).toContain(message);
      expect(detail?.remedy).toContain(remedy);
      expect(
        faultsOf(plan, { cluster: { ...cluster, memoryPerGpu: "80GB" }, steps: 0 }).map((each) => each.field),
      ).toEqual(["steps", field]);
    },
  );

  it("is held against the largest jobs as fast", () => {
    expect(
      faultsOf(
        { microBatchSize: 3, tensorParallel: 7 },
        { sequenceLengthTokens: 1, globalBatchTokens: 2 ** 50 },
      ).map(({ field }) => field),
    ).toEqual(["plan.tensorParallel", "plan.microBatchSize"]);
  });
});

describe("replanning", () => {
  it("is what its defaults say, where it leaves something out", () => {
    expect(resolveJob(job({ replanning: {} })).replanning).toEqual(REPLANNING_DEFAULTS);
    expect(resolveJob(job({ replanning: { gainThreshold: 0 } })).replanning).toEqual({
      ...REPLANNING_DEFAULTS,
      gainThreshold: 0,
    });
    expect(resolveJob(job()).replanning).toBeUndefined();
  });

  it.each([
    [
      { replanning: {}, cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB", profile: "a800-128" } },
      "replanning",
      "a800-128",
    ],
    [{ replanning: { driftThreshold: 0.0009 } }, "replanning.driftThreshold", "0.001"],
    [{ replanning: { compareSteps: 1 } }, "replanning.compareSteps", "1"],
    [{ replanning: { every: 1 } }, "replanning.every", ""],
  ])("is refused where it makes no sense: %j", (over, field, words) => {
    const [detail, ...others] = problemOf(job(over)).details;
    expect(others).toEqual([]);
    expect(detail?.field).toBe(field);
    expect(`${detail?.message} ${JSON.stringify(detail?.value)}`).toContain(words);
    expect(detail?.remedy).toBeTruthy();
  });
});
