import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { TrainerConfigSchema } from "@internevo/contracts";
import { resolveJob, validate, type JobSpec, type Plan } from "@internevo/domain";
import { encodeHeader } from "@internevo/data";
import { trainerConfig, type Trainer } from "@internevo/launcher";
import { buildMesh, divisors } from "@internevo/plan";
import fc from "fast-check";

const run = promisify(execFile);

/** A job and a plan for it; whether the plan divides the job is not said. */
export interface Case {
  readonly job: JobSpec;
  readonly plan: Plan;
}

export interface DryRun {
  /** What the trainer answers to a plan that it does not run; null for one that it runs. */
  readonly refusal: string | null;
  /** Bytes of every line of memory, of every stage and of the fullest. */
  readonly stages: readonly Readonly<Record<string, number>>[];
  readonly fullest: Readonly<Record<string, number>>;
  /** What the rank that needs most keeps in its host's memory. */
  readonly hostMemoryBytes: number;
}

/** How the trainer is asked: its directory for files, its threads, and the memory of a rank. */
export interface DryRunOptions {
  readonly trainer: Trainer;
  readonly directory: string;
  readonly threadsPerRank?: number;
  readonly memoryLimitBytes?: number | null;
}

/** Asks the trainer for its memory plan of every stage. It runs nothing. */
export async function dryRun({ job, plan }: Case, options: DryRunOptions): Promise<DryRun> {
  const { trainer, directory, threadsPerRank = 1, memoryLimitBytes = null } = options;
  const tokenCount = job.globalBatchTokens + 1;
  const dataPath = join(directory, `${tokenCount}.tokens`);
  await writeFile(
    dataPath,
    Buffer.concat([
      encodeHeader({ bytesPerToken: 2, tokenCount, vocabularySize: 2 }),
      Buffer.alloc(2 * tokenCount),
    ]),
  );
  const dataset = { path: dataPath } as Parameters<typeof trainerConfig>[0]["dataset"];
  const config = {
    ...trainerConfig({
      spec: job,
      plan,
      mesh: buildMesh(plan),
      dataset,
      steps: 1,
      checkpoint: null,
      threadsPerRank,
      timeline: job.timeline && { path: "any.json", ...job.timeline },
    }),
    memoryLimitBytes,
  };
  const path = join(directory, "config.json");
  await writeFile(
    path,
    JSON.stringify(validate(TrainerConfigSchema, config, "plan-invalid", "the trainer's configuration")),
  );
  const stdout = await run(trainer.path, ["--config", path, "--dry-run"]).then(
    ({ stdout }) => stdout,
    ({ stdout }: { stdout: string }) => stdout,
  );
  const event = JSON.parse(stdout.trim().split("\n").at(-1) ?? "{}") as {
    event: string;
    message: string;
    memory: Record<string, number>;
    hostMemoryBytes: number;
    stages: { memory: Record<string, number> }[];
  };
  if (event.event === "error") return { refusal: event.message, stages: [], fullest: {}, hostMemoryBytes: 0 };
  if (event.event !== "plan") throw new Error(`the trainer answered ${stdout}`);
  return {
    refusal: null,
    stages: event.stages.map(({ memory }) => withoutRuntime(memory)),
    fullest: withoutRuntime(event.memory),
    hostMemoryBytes: event.hostMemoryBytes,
  };
}

/** The measured memory of a process that starts no MPI says nothing about a run. */
export const withoutRuntime = ({
  runtime: _runtime,
  ...planned
}: Record<string, number>): Record<string, number> => planned;

const factor = (max: number) => fc.integer({ min: 1, max });

/** Any factors over any small model, whether they go together or not. */
const factors = fc.record({
  heads: fc.constantFrom(1, 2, 3, 4, 6, 8),
  kvFactor: fc.constantFrom(1, 2, 4),
  headHalf: fc.oneof(factor(5), { arbitrary: fc.constantFrom(16, 32, 48, 64, 96), weight: 3 }),
  device: fc.constantFrom("cpu", "cuda"),
  layers: factor(7),
  ffn: fc.oneof(
    factor(40),
    factor(12).map((width) => 24 * width),
  ),
  vocabulary: fc.oneof(fc.integer({ min: 2, max: 9 }), fc.integer({ min: 300, max: 700 })),
  tiedEmbeddings: fc.boolean(),
  sequence: fc.constantFrom(12, 24, 96, 600),
  contextParallel: fc.constantFrom(undefined, undefined, 1, 2, 3, 4, 8),
  timeline: fc.boolean(),
  packing: fc.constantFrom("none" as const, "documents" as const),
  maxDocumentsPerSequence: fc.constantFrom(undefined, 1, 17, 5000),
  precision: fc.constantFrom("fp32", "bf16", "bf16-grad16"),
  pipelineParallel: fc.constantFrom(1, 2, 3, 4),
  sequenceParallel: fc.constantFrom(1, 2, 3, 4, 8),
  config1: fc.boolean(),
  dataParallel: factor(4),
  microBatchSize: factor(3),
  microBatches: factor(6),
  recompute: fc.boolean(),
  recomputeLayers: fc.option(fc.integer({ min: 0, max: 4 }), { nil: undefined }),
  gateUp: fc.constantFrom(undefined, "kept" as const, "again" as const, "host" as const),
  pipelineChunks: fc.option(factor(3), { nil: undefined }),
  parameterSharding: fc.nat(),
  optimizerStateSharding: fc.nat(),
  gradients: fc.boolean(),
  forwardOverlap: fc.constantFrom(
    "none" as const,
    "block" as const,
    "inter-layer" as const,
    "intra-layer" as const,
  ),
  backwardOverlap: fc.constantFrom("none" as const, "block" as const, "intra-layer" as const),
});
type Factors = typeof factors extends fc.Arbitrary<infer Drawn> ? Drawn : never;
type Fields = Readonly<Record<string, unknown>>;

function caseOf(c: Factors, fields: Fields): Case {
  const { pipelineParallel, sequenceParallel, dataParallel, microBatchSize, microBatches } = c;
  const tensorParallel = c.config1 ? sequenceParallel : 1;
  const replicas = (dataParallel * sequenceParallel) / tensorParallel;
  const divisorOf = (ranks: number, pick: number) => divisors(ranks)[pick % divisors(ranks).length] as number;
  const parameterSharding = divisorOf(replicas, c.parameterSharding);
  const optimizerStateSharding = divisorOf(replicas / parameterSharding, c.optimizerStateSharding);
  const model = {
    hiddenSize: c.heads * c.headHalf * 2,
    layers: c.layers,
    heads: c.heads,
    kvHeads: c.heads % c.kvFactor === 0 ? c.heads / c.kvFactor : c.heads,
    ffnHiddenSize: c.ffn,
    vocabularySize: c.vocabulary,
    tiedEmbeddings: c.tiedEmbeddings,
    ...fields,
  };
  const job = resolveJob({
    name: "parity",
    model,
    sequenceLengthTokens: c.sequence,
    globalBatchTokens: c.sequence * microBatchSize * microBatches * dataParallel,
    precision: c.precision,
    cluster: {
      nodes: 1,
      gpusPerNode: pipelineParallel * dataParallel * sequenceParallel,
      memoryPerGpu: "1TB",
      device: c.device,
    },
    timeline: c.timeline,
    data: {
      format: "tokens",
      path: "any.tokens",
      ...(c.packing === "none"
        ? {}
        : {
            packing: c.packing,
            endOfDocumentToken: 1,
            ...(c.maxDocumentsPerSequence === undefined
              ? {}
              : { maxDocumentsPerSequence: c.maxDocumentsPerSequence }),
          }),
    },
  });
  return {
    job,
    plan: {
      microBatchSize,
      microBatches,
      recompute: c.recompute,
      pipelineParallel,
      dataParallel,
      tensorParallel,
      sequenceParallel,
      parameterSharding,
      gradientSharding: c.gradients ? optimizerStateSharding : 1,
      optimizerStateSharding,
      forwardOverlap: c.forwardOverlap,
      backwardOverlap: c.backwardOverlap,
      ...(c.contextParallel === undefined ? {} : { contextParallel: c.contextParallel }),
      ...(c.pipelineChunks === undefined ? {} : { pipelineChunks: c.pipelineChunks }),
      ...(c.recomputeLayers === undefined ? {} : { recomputeLayers: c.recomputeLayers }),
      ...(c.gateUp === undefined ? {} : { gateUp: c.gateUp }),
    },
  };
}

/**
 * Any factors over any small model, whether they go together or not: stages, tensor ranks, chunks, some
 * layers recomputed.
 */
export const anyCase: fc.Arbitrary<Case> = factors.map((drawn) => caseOf(drawn, {}));

/** What a model may have beyond LLaMA: each alone, several together, or none. */
const modelFields: fc.Arbitrary<Fields> = fc
  .record({
    headSize: fc.constantFrom(undefined, undefined, 2, 6, 32, 64, 96, 128),
    queryKeyNorm: fc.constantFrom(undefined, true),
    queryKeyValueBias: fc.constantFrom(undefined, true),
    slidingWindowTokens: fc.constantFrom(undefined, undefined, 1, 7, 50, 4096),
    ropeScaling: fc.constantFrom(
      undefined,
      undefined,
      { kind: "linear", factor: 2 },
      { kind: "llama3", factor: 8, originalPositions: 12, lowFrequencyFactor: 1, highFrequencyFactor: 4 },
      { kind: "yarn", factor: 4, originalPositions: 24 },
    ),
  })
  .map((fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)));

/**
 * The same over models that may have heads of their own size, norms of heads, biases, windows and scaled
 * positions.
 */
export const anyCaseWithFields: fc.Arbitrary<Case> = fc
  .tuple(factors, modelFields)
  .map(([drawn, fields]) => caseOf(drawn, fields));
