import { COLLECTIVES, plainModel, type JobSpec, type MeasuredSlice, type Profile } from "@internevo/domain";
import fc from "fast-check";

/** Small random jobs and profiles, sizes that do not divide and measurements with outliers included. */

const positive = (min: number, max: number) => fc.integer({ min, max });

export const jobCase: fc.Arbitrary<JobSpec> = fc
  .record({
    nodes: positive(1, 4),
    gpusPerNode: fc.constantFrom(1, 2, 3, 4),
    heads: fc.constantFrom(1, 2, 3, 4, 6, 8, 12),
    kvFactor: fc.constantFrom(1, 2, 4),
    headHalf: fc.constantFrom(1, 2, 4, 8),
    layers: positive(1, 6),
    ffn: positive(1, 40),
    vocabulary: positive(2, 600),
    sequence: fc.constantFrom(6, 8, 12, 48, 64, 96),
    sequences: fc.constantFrom(1, 2, 4, 6, 8, 12, 16, 24),
    tiedEmbeddings: fc.boolean(),
    precision: fc.constantFrom("fp32" as const, "bf16" as const, "bf16-grad16" as const),
    memoryModel: fc.constantFrom("executor" as const, "paper" as const),
    // From far too little to plenty.
    memoryExponent: fc.double({ min: 4, max: 9, noNaN: true }),
  })
  .map((c): JobSpec => ({
    name: "case",
    model: {
      name: "case",
      hiddenSize: c.heads * c.headHalf * 2,
      layers: c.layers,
      heads: c.heads,
      kvHeads: c.heads % c.kvFactor === 0 ? c.heads / c.kvFactor : c.heads,
      ffnHiddenSize: c.ffn,
      vocabularySize: c.vocabulary,
      tiedEmbeddings: c.tiedEmbeddings,
      ropeTheta: 10_000,
      normEpsilon: 1e-5,
      initStandardDeviation: 0.02,
    },
    sequenceLengthTokens: c.sequence,
    globalBatchTokens: c.sequence * c.sequences,
    precision: c.precision,
    optimizer: {
      peakLearningRate: 1e-3,
      minLearningRate: 0,
      warmupSteps: 0,
      decaySteps: 1,
      weightDecay: 0,
      beta1: 0.9,
      beta2: 0.95,
      epsilon: 1e-8,
      clipGlobalNorm: 1,
    },
    data: null,
    steps: 1,
    seed: 0,
    cluster: {
      name: "case",
      nodes: c.nodes,
      gpusPerNode: c.gpusPerNode,
      memoryPerGpuBytes: Math.round(10 ** c.memoryExponent),
      launcher: "local",
      profile: null,
    },
    checkpointing: null,
    trials: { count: 10, warmupSteps: 1, steps: 1 },
    memoryModel: c.memoryModel,
  }));

/** The same jobs of models that may have more than a LLaMA of their sizes. */
export const withModelFields = (jobs: fc.Arbitrary<JobSpec>): fc.Arbitrary<JobSpec> =>
  fc
    .tuple(
      jobs,
      fc.record({
        headSize: fc.constantFrom(undefined, 2, 6, 16, 64),
        queryKeyNorm: fc.constantFrom(undefined, true),
        queryKeyValueBias: fc.constantFrom(undefined, true),
        slidingWindowTokens: fc.constantFrom(undefined, 1, 5, 30, 4096),
        ropeScaling: fc.constantFrom(undefined, { kind: "linear" as const, factor: 2 }),
      }),
    )
    .map(([job, { headSize, queryKeyNorm, queryKeyValueBias, slidingWindowTokens, ropeScaling }]) => ({
      ...job,
      model: plainModel({
        ...job.model,
        ...(headSize === undefined ? {} : { headSize }),
        ...(queryKeyNorm === undefined ? {} : { queryKeyNorm }),
        ...(queryKeyValueBias === undefined ? {} : { queryKeyValueBias }),
        ...(slidingWindowTokens === undefined ? {} : { slidingWindowTokens }),
        ...(ropeScaling === undefined ? {} : { ropeScaling }),
      }),
    }));

/** A job of few plans, so that each can be looked at: some fields are fixed, or may have some values only. */
export const smallJobCase: fc.Arbitrary<JobSpec> = fc
  .record({
    job: jobCase,
    nodes: positive(1, 2),
    gpusPerNode: fc.constantFrom(1, 2, 3, 4),
    layers: positive(1, 5),
    sequences: fc.constantFrom(1, 2, 4, 6),
    hostMemoryBytes: fc.constantFrom(undefined, 4096, 100_000, 1e9),
    forward: fc.constantFrom(
      undefined,
      "none" as const,
      ["none" as const, "inter-layer" as const],
      ["block" as const, "inter-layer" as const],
      ["inter-layer" as const, "intra-layer" as const],
    ),
    backward: fc.constantFrom(
      "none" as const,
      ["none" as const, "intra-layer" as const],
      ["block" as const],
      ["block" as const, "intra-layer" as const],
    ),
    other: fc.constantFrom(
      {},
      {},
      {},
      { recompute: false },
      { recompute: true },
      { recomputeLayers: [0, 2] },
      { gateUp: "again" as const },
      { gateUp: "kept" as const },
      { gateUp: "host" as const },
      { pipelineChunks: [1, 2] },
      { contextParallel: 2 },
      { sequenceParallel: [2, 4] },
      { gradientSharding: 1, microBatchSize: [1, 2] },
    ),
  })
  .map(({ job, nodes, gpusPerNode, layers, sequences, hostMemoryBytes, forward, backward, other }) => ({
    ...job,
    model: { ...job.model, layers },
    globalBatchTokens: job.sequenceLengthTokens * sequences,
    cluster: {
      ...job.cluster,
      nodes,
      gpusPerNode,
      ...(hostMemoryBytes === undefined ? {} : { hostMemoryBytes }),
    },
    plan: {
      ...(forward === undefined ? {} : { forwardOverlap: forward }),
      backwardOverlap: backward,
      ...other,
    },
  }));

/** Times over ten orders of magnitude, in no order: every point may be an outlier. */
const seconds = fc.double({ min: -9, max: 1, noNaN: true }).map((exponent) => 10 ** exponent);

const curve = fc.record({
  op: fc.constantFrom(...COLLECTIVES),
  groupSize: positive(2, 16),
  placement: fc.constantFrom("intra-node" as const, "inter-node" as const, "mixed" as const),
  points: fc.array(fc.record({ bytes: positive(1, 1e6), medianSeconds: seconds }), {
    minLength: 1,
    maxLength: 5,
  }),
});

const pass = fc.constantFrom("forward" as const, "backward" as const);
const precision = fc.constantFrom("fp32" as const, "bf16" as const);
const module = fc.record({
  shape: fc.oneof(
    fc.record({
      module: fc.constant("linear" as const),
      pass,
      precision,
      rows: positive(1, 200),
      inputs: positive(1, 200),
      outputs: positive(1, 400),
    }),
    fc.record({
      module: fc.constant("attention" as const),
      pass,
      precision,
      batch: positive(1, 4),
      sequence: fc.constantFrom(8, 12, 64),
      heads: positive(1, 12),
      kvHeads: positive(1, 4),
      headSize: fc.constantFrom(2, 4, 8),
    }),
    fc.record({
      module: fc.constantFrom("rmsnorm" as const, "swiglu" as const),
      pass,
      precision,
      rows: positive(1, 200),
      width: positive(1, 100),
    }),
    fc.record({
      module: fc.constantFrom("adamw" as const, "squared-norm" as const, "accumulate" as const),
      pass: fc.constant("update" as const),
      precision,
      elements: positive(1, 100_000),
    }),
  ),
  medianSeconds: seconds,
});

const copyRate = fc.double({ min: 6, max: 14, noNaN: true }).map((exponent) => 10 ** exponent);

const profileCase: fc.Arbitrary<Profile> = fc
  .record({
    collectives: fc.array(curve, { maxLength: 12 }),
    modules: fc.array(module, { maxLength: 12 }),
    overlaps: fc.array(
      fc.record({
        op: fc.constantFrom(...COLLECTIVES),
        groupSize: positive(2, 16),
        slowdown: fc.double({ min: 0.5, max: 3, noNaN: true }),
        alone: fc.option(fc.tuple(seconds, seconds), { nil: undefined }),
        placement: fc.constantFrom("intra-node" as const, "mixed" as const, undefined),
        module: fc.option(module, { nil: undefined }),
      }),
      { maxLength: 5 },
    ),
    forwardOverlap: fc.constantFrom("none" as const, "inter-layer" as const, "intra-layer" as const),
    backwardOverlap: fc.constantFrom("none" as const, "intra-layer" as const),
    runtimeBytes: fc.constantFrom(0, 1000),
    // Of copies to the host and back: so slow that computation hides no part of them, or so fast that it does.
    copies: fc.option(fc.tuple(copyRate, copyRate), { nil: undefined }),
  })
  .map((c): Profile => ({
    schemaVersion: 1,
    name: "case",
    cluster: { nodes: 1, gpusPerNode: 4 },
    device: {
      name: "case",
      peakFlopsPerSecondFp32: 1e9,
      peakFlopsPerSecondBf16: 2e9,
      memoryBandwidthBytesPerSecond: 1e9,
      ...(c.copies === undefined
        ? {}
        : { toHostBytesPerSecond: c.copies[0], toDeviceBytesPerSecond: c.copies[1] }),
      runtimeBytes: c.runtimeBytes,
    },
    executor: { forwardOverlap: c.forwardOverlap, backwardOverlap: c.backwardOverlap },
    collectives: c.collectives,
    modules: c.modules,
    overlaps: c.overlaps.map(({ op, groupSize, slowdown, alone, placement, module: one }) => ({
      op,
      groupSize,
      slowdown,
      ...(one === undefined ? {} : { shape: one.shape }),
      ...(placement === undefined ? {} : { placement }),
      ...(alone === undefined ? {} : { computeSeconds: alone[0], communicationSeconds: alone[1] }),
    })),
    provenance: { source: "random", measuredAt: null, versions: {}, command: null, notes: [] },
  }));

const four = fc.tuple(seconds, seconds, seconds, seconds);
const wait = fc.double({ min: 1, max: 3, noNaN: true });

/**
 * Micro-batches as a trainer may have run them, of a job whose widths are not known yet: waits of ranks for
 * one another among them.
 */
const slices = fc.array(
  fc.record({
    microBatchSize: fc.constantFrom(1, 2, 4),
    sharing: fc.constantFrom(
      [1, 1, 1] as const,
      [1, 1, 1] as const,
      [2, 1, 1] as const,
      [2, 1, 2] as const,
      [2, 2, 1] as const,
    ),
    waits: fc.option(fc.record({ unit: wait, layer: wait }), { nil: undefined }),
    parts: fc.record({
      forward: four,
      forwardAttention: seconds,
      forwardCommunication: seconds,
      backward: four,
      backwardAttention: seconds,
      backwardCommunication: seconds,
      embedding: seconds,
      embeddingCommunication: seconds,
      head: seconds,
      headCommunication: seconds,
    }),
  }),
  { maxLength: 4 },
);

/** A job and a profile, which in half of the cases has micro-batches of the job's widths. */
export const measured = (jobs: fc.Arbitrary<JobSpec>): fc.Arbitrary<readonly [JobSpec, Profile]> =>
  fc.tuple(jobs, profileCase, fc.option(slices, { nil: undefined })).map(([job, profile, list]) => {
    if (list === undefined) return [job, profile];
    const { hiddenSize, heads, kvHeads, ffnHiddenSize, vocabularySize } = job.model;
    const { headSize, queryKeyNorm, queryKeyValueBias, slidingWindowTokens } = job.model;
    const widths = {
      precision: job.precision === "fp32" ? ("fp32" as const) : ("bf16" as const),
      hiddenSize,
      heads,
      kvHeads,
      ffnHiddenSize,
      vocabularySize,
      ...(headSize === undefined ? {} : { headSize }),
      ...(queryKeyNorm === undefined ? {} : { queryKeyNorm }),
      ...(queryKeyValueBias === undefined ? {} : { queryKeyValueBias }),
      ...(slidingWindowTokens === undefined ? {} : { slidingWindowTokens }),
      sequenceLengthTokens: job.sequenceLengthTokens,
    };
    const own = list.map(
      ({
        microBatchSize,
        sharing: [sequenceParallel, tensorParallel, contextParallel],
        waits,
        parts,
      }): MeasuredSlice => ({
        shape: { ...widths, microBatchSize, sequenceParallel, tensorParallel, contextParallel },
        layers: 2,
        microBatches: 1,
        parts,
        ...(waits ? { waits } : {}),
        medianSeconds: 1,
        samples: 4,
      }),
    );
    return [job, { ...profile, slices: own }];
  });
