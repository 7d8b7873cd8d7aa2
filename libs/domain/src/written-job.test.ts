import fc from "fast-check";
import { expect, it } from "vitest";
import { MEMORY_MODELS, NAMED_MODELS, resolveJob, TIME_MODELS, writtenJob, type JobSpec } from "./index.ts";

const positive = (most: number) => fc.integer({ min: 1, max: most });
const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
/** Leaves out what is undefined, as a job file does. */
const without = (value: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(value).filter(([, inner]) => inner !== undefined));
const fields = (inner: Record<string, fc.Arbitrary<unknown>>) => fc.record(inner).map(without);

const length = fc.constantFrom<string | number>(512, 4096, "4k", "1.5k", "32k", 3000);
const model = fc.oneof(
  fc.constantFrom(...Object.keys(NAMED_MODELS)),
  fields({
    base: fc.constantFrom(...Object.keys(NAMED_MODELS)),
    name: optional(fc.constantFrom("mine", "llama-7b")),
    layers: optional(positive(100)),
    vocabularySize: optional(fc.integer({ min: 256, max: 100_000 })),
    tiedEmbeddings: optional(fc.boolean()),
  }),
  fields({
    hiddenSize: fc.constantFrom(256, 1024),
    layers: positive(20),
    heads: fc.constantFrom(4, 8),
    kvHeads: optional(fc.constantFrom(1, 2, 4)),
    vocabularySize: fc.integer({ min: 256, max: 100_000 }),
    ropeTheta: optional(fc.constantFrom(1e4, 5e5)),
  }),
);
const data = fc.oneof(
  fields({
    format: fc.constant("text"),
    paths: fc.array(fc.constantFrom("/a.txt", "/b c.txt"), { minLength: 1, maxLength: 3 }),
  }),
  fields({
    format: fc.constantFrom("tokens", "megatron", "internevo"),
    path: fc.constant("/data/a.bin"),
    packing: fc.constant("documents"),
    endOfDocumentToken: optional(fc.integer({ min: 0, max: 255 })),
    maxDocumentsPerSequence: optional(positive(5000)),
  }),
);
const cluster = fields({
  name: optional(fc.constantFrom("here", "a cluster: 1")),
  nodes: fc.integer({ min: 2, max: 16 }),
  gpusPerNode: positive(8),
  memoryPerGpu: fc.oneof(
    fc.constantFrom("80GB", "2GiB", "1.5GiB", "81B", "0.3 TB", 2 ** 20),
    fc.integer({ min: 2 ** 20, max: 2 ** 50 }),
  ),
  hostMemory: optional(fc.constantFrom("512GiB", "1TB", 2 ** 30)),
  device: optional(fc.constantFrom("cpu", "cuda")),
  profile: optional(fc.constantFrom("a800-128", "null", "8f2f")),
}).chain((written) =>
  fc.constantFrom(
    written,
    { ...written, launcher: "local" },
    { ...written, launcher: "slurm" },
    { ...written, launcher: "slurm", minNodes: 2 },
  ),
);
const jobFile = fields({
  name: fc.constantFrom("job", "a job: “1”", "null"),
  model,
  sequenceLengthTokens: length,
  precision: optional(fc.constantFrom("fp32", "bf16", "bf16-grad16")),
  optimizer: optional(
    fields({
      peakLearningRate: optional(fc.constantFrom(1e-4, 3e-3)),
      weightDecay: optional(fc.constantFrom(0, 0.05)),
      epsilon: optional(fc.constant(1e-6)),
    }),
  ),
  data: optional(data),
  steps: optional(fc.integer({ min: 50, max: 100_000 })),
  seed: optional(fc.nat(2 ** 31 - 1)),
  cluster,
  checkpointing: optional(fc.record({ everySteps: positive(50), keepLast: positive(5) })),
  trials: optional(
    fields({ count: optional(positive(100)), repeats: optional(fc.integer({ min: 0, max: 10 })) }),
  ),
  initialWeights: optional(fc.constant("/weights")),
  timeline: optional(
    fc.oneof(fc.boolean(), fields({ firstStep: optional(positive(20)), steps: optional(positive(10)) })),
  ),
  watchdog: optional(
    fc.oneof(fc.constant(false), fields({ stallSeconds: optional(fc.constantFrom(0.5, 60)) })),
  ),
  headroom: optional(fc.constantFrom("5%", "1B")),
  memoryModel: optional(fc.constantFrom(...MEMORY_MODELS)),
  timeModel: optional(fc.constantFrom(...TIME_MODELS)),
  plan: optional(
    fc.oneof(
      fields({
        tensorParallel: optional(fc.constantFrom<number | number[]>(1, [1, 2])),
        recompute: optional(fc.boolean()),
      }),
      fc.constantFrom("tp1", "pp1 a0"),
    ),
  ),
}).chain((written) =>
  fc
    .integer({ min: 1, max: 64 })
    .map((sequences) => ({
      ...written,
      globalBatchTokens:
        sequences *
        resolveJob({
          ...job,
          sequenceLengthTokens: written["sequenceLengthTokens"],
          globalBatchTokens: written["sequenceLengthTokens"],
        }).sequenceLengthTokens,
    })),
);

const job = { name: "job", model: "llama-7b", cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: "80GB" } };
const small = { ...job, sequenceLengthTokens: 4096, globalBatchTokens: 4096 };

it("stands for the same job again, of any job file, and is the same text the second time", () => {
  fc.assert(
    fc.property(jobFile, (written) => {
      const spec = resolveJob(written);
      const document = JSON.parse(JSON.stringify(writtenJob(spec))) as unknown;
      expect(resolveJob(document)).toEqual(spec);
      expect(writtenJob(resolveJob(document))).toEqual(document);
    }),
  );
});

it("writes units, and leaves out what a job file cannot name", () => {
  const document = writtenJob(resolveJob(small));
  expect(document.cluster).toEqual({
    name: "1x1",
    nodes: 1,
    gpusPerNode: 1,
    memoryPerGpu: "80GB",
    launcher: "local",
  });
  expect(document).not.toHaveProperty("data");
  const uncheckpointed: JobSpec = { ...resolveJob(small), checkpointing: null };
  expect(writtenJob(uncheckpointed)).not.toHaveProperty("checkpointing");
});
