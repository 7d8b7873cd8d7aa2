import { MEMORY_MODELS, NAMED_MODELS, parseQuantity, PRIORITIES, TIME_MODELS } from "@internevo/domain";
import fc from "fast-check";

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
    ffnHiddenSize: optional(fc.constantFrom(512, 768)),
    normEpsilon: optional(fc.constant(1e-6)),
    initStandardDeviation: optional(fc.constant(0.01)),
    headSize: optional(fc.constantFrom(32, 128)),
    queryKeyNorm: optional(fc.boolean()),
    queryKeyValueBias: optional(fc.boolean()),
    slidingWindowTokens: optional(positive(4096)),
    ropeScaling: optional(fc.constant({ kind: "linear", factor: 2 })),
  }),
);
const data = fc.oneof(
  fields({
    format: fc.constant("text"),
    paths: fc.uniqueArray(fc.constantFrom("/a.txt", "/b c.txt"), { minLength: 1, maxLength: 2 }),
  }),
  fields({
    format: fc.constantFrom("tokens", "megatron", "internevo"),
    path: fc.constant("/data/a.bin"),
    packing: fc.constant("documents"),
    endOfDocumentToken: optional(fc.integer({ min: 0, max: 255 })),
    maxDocumentsPerSequence: optional(positive(5000)),
  }),
  fields({
    format: fc.constant("mixture"),
    sources: fc.constant([
      { format: "text", paths: ["/a.txt"], weight: 0.25 },
      { format: "megatron", path: "/data/b", weight: 3 },
    ]),
    packing: optional(fc.constant("documents")),
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
/** Fields of a job that say nothing of other fields. */
const apart = {
  measureAgain: optional(fc.boolean()),
  until: optional(fc.constant("profiling")),
  project: optional(fc.constantFrom("nlp", "default")),
  priority: optional(fc.constantFrom(...PRIORITIES)),
  preemptible: optional(fc.boolean()),
  tracking: optional(fc.boolean()),
  labels: optional(fc.constantFrom({}, { team: "nlp" }, { "a/b": "“x: 1”", n: "1e3" })),
  validation: optional(
    fields({
      data: fc.constantFrom(
        { format: "text", paths: ["/held out.txt"] },
        { format: "tokens", path: "/data/held-out.bin" },
      ),
      everySteps: optional(positive(50)),
      batches: optional(positive(20)),
    }),
  ),
};
/** Of a job without a given profile. */
const replanning = fields({
  driftThreshold: optional(fc.constantFrom(0.05, 1)),
  gainThreshold: optional(fc.constantFrom(0, 0.1)),
  compareSteps: optional(fc.integer({ min: 2, max: 100 })),
  notInLastSteps: optional(fc.nat(1000)),
  lastingSeconds: optional(fc.constantFrom(0, 90)),
  leastPauseSeconds: optional(fc.constantFrom(0, 7200)),
});

const part = fields({
  name: fc.constantFrom("job", "a job: “1”", "null"),
  model,
  sequenceLengthTokens: length,
  precision: optional(fc.constantFrom("fp32", "bf16", "bf16-grad16")),
  optimizer: optional(
    fc.oneof(
      fields({
        schedule: optional(fc.constantFrom("cosine", "linear")),
        peakLearningRate: optional(fc.constantFrom(1e-4, 3e-3)),
        minLearningRate: optional(fc.constantFrom(0, 1e-5)),
        warmupSteps: optional(fc.nat(50)),
        decaySteps: optional(fc.integer({ min: 50, max: 2000 })),
        weightDecay: optional(fc.constantFrom(0, 0.05)),
        beta1: optional(fc.constantFrom(0, 0.8)),
        beta2: optional(fc.constantFrom(0.99, 0.999)),
        epsilon: optional(fc.constant(1e-6)),
        clipGlobalNorm: optional(fc.constantFrom(0, 0.5)),
      }),
      fc.constantFrom<object>(
        { schedule: "constant" },
        { schedule: "wsd" },
        { schedule: "wsd", annealingSteps: 7 },
      ),
    ),
  ),
  data: optional(data),
  steps: optional(fc.integer({ min: 50, max: 100_000 })),
  seed: optional(fc.nat(2 ** 31 - 1)),
  cluster,
  checkpointing: optional(fields({ everySteps: optional(positive(50)), keepLast: optional(positive(5)) })),
  trials: optional(
    fields({
      count: optional(positive(100)),
      repeats: optional(fc.integer({ min: 0, max: 10 })),
      warmupSteps: optional(fc.nat(5)),
      steps: optional(positive(20)),
      also: optional(fc.constantFrom(["cp1"], ["v1", "cp1 v1"])),
    }),
  ),
  initialWeights: optional(fc.constant("/weights")),
  timeline: optional(
    fc.oneof(fc.boolean(), fields({ firstStep: optional(positive(20)), steps: optional(positive(10)) })),
  ),
  watchdog: optional(
    fc.oneof(
      fc.constant(false),
      fields({
        beatSeconds: optional(fc.constantFrom(0.5, 1)),
        silenceSeconds: optional(fc.constantFrom(5, 60)),
        stallSeconds: optional(fc.constantFrom(0.5, 60)),
        stallFactor: optional(fc.constant(30)),
        firstStepSeconds: optional(fc.constant(900)),
      }),
    ),
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
  ...apart,
});

/** The tokens of a length as it may be written. */
const tokensOf = (length: unknown): number => parseQuantity(length as string | number, "lengthTokens") ?? 0;

/** Job files of any fields, in any of the ways in which people write them. */
export const jobFileCase: fc.Arbitrary<Record<string, unknown>> = fc
  .record({ written: part, sequences: positive(64), replanning: optional(replanning) })
  .map(({ written, sequences, replanning: asked }) => ({
    ...written,
    globalBatchTokens: sequences * tokensOf(written["sequenceLengthTokens"]),
    ...(asked === undefined || "profile" in (written["cluster"] as object) ? {} : { replanning: asked }),
  }));
