import { Type, type Static } from "typebox";
import { CheckpointingSchema, ClusterSchema, DataSchema, JobSpecSchema, OptimizerSchema, TrialSettingsSchema, type Cluster, type JobSpec } from "./job.ts";
import { defaultFfnHiddenSize, ModelSchema, NAMED_MODELS, type Model } from "./model.ts";
import { PrecisionSchema } from "./precision.ts";
import { ProblemError, type ProblemDetail } from "./problem.ts";
import { formatBytes, parseBytes } from "./units.ts";
import { validate } from "./validate.ts";

const strict = { additionalProperties: false } as const;

/** A job as people write it (YAML or JSON): names, units and defaults are resolved by {@link resolveJob}. */
export const JobFileSchema = Type.Object(
  {
    name: JobSpecSchema.properties.name,
    model: Type.Union([
      Type.String({ description: `a named model: ${Object.keys(NAMED_MODELS).join(", ")}` }),
      Type.Object({ base: Type.Optional(Type.String()), ...Type.Partial(ModelSchema).properties }, strict),
    ]),
    sequenceLengthTokens: JobSpecSchema.properties.sequenceLengthTokens,
    globalBatchTokens: JobSpecSchema.properties.globalBatchTokens,
    precision: Type.Optional(PrecisionSchema),
    optimizer: Type.Optional(Type.Object(Type.Partial(OptimizerSchema).properties, strict)),
    data: Type.Optional(DataSchema),
    steps: Type.Optional(JobSpecSchema.properties.steps),
    seed: Type.Optional(JobSpecSchema.properties.seed),
    cluster: Type.Object(
      {
        name: Type.Optional(ClusterSchema.properties.name),
        nodes: ClusterSchema.properties.nodes,
        gpusPerNode: ClusterSchema.properties.gpusPerNode,
        memoryPerGpu: Type.Union([Type.String(), Type.Integer({ minimum: 1 })], { description: "bytes, or a text such as 80GB or 80GiB" }),
        launcher: Type.Optional(ClusterSchema.properties.launcher),
        profile: Type.Optional(Type.String({ minLength: 1, maxLength: 500 })),
      },
      strict,
    ),
    checkpointing: Type.Optional(CheckpointingSchema),
    trials: Type.Optional(Type.Object(Type.Partial(TrialSettingsSchema).properties, strict)),
    memoryModel: Type.Optional(JobSpecSchema.properties.memoryModel),
  },
  { ...strict, $id: "https://internevo.dev/schemas/job.json", title: "InternEvo job" },
);
export type JobFile = Static<typeof JobFileSchema>;

function resolveModel(written: JobFile["model"], details: ProblemDetail[]): Model {
  const baseName = typeof written === "string" ? written : written.base;
  const base = baseName === undefined ? undefined : NAMED_MODELS[baseName];
  if (baseName !== undefined && base === undefined) {
    details.push({
      field: typeof written === "string" ? "model" : "model.base",
      value: baseName,
      message: "no such model",
      remedy: `use one of ${Object.keys(NAMED_MODELS).join(", ")}, or give hiddenSize, layers, heads and vocabularySize`,
    });
  }
  const { base: _, ...given }: Partial<Model> & { base?: string } = typeof written === "string" ? {} : written;
  for (const field of base || baseName !== undefined ? [] : (["hiddenSize", "layers", "heads", "vocabularySize"] as const)) {
    if (given[field] === undefined) details.push({ field: `model.${field}`, message: "is missing", remedy: "add it, or name a base model" });
  }
  const hiddenSize = given.hiddenSize ?? base?.hiddenSize ?? 1;
  const heads = given.heads ?? base?.heads ?? 1;
  const model: Model = {
    name: "custom",
    layers: 1,
    vocabularySize: 2,
    tiedEmbeddings: false,
    ropeTheta: 10_000,
    normEpsilon: 1e-5,
    initStandardDeviation: 0.02,
    ...base,
    ...given,
    hiddenSize,
    heads,
    kvHeads: given.kvHeads ?? (given.heads === undefined ? base?.kvHeads : undefined) ?? heads,
    ffnHiddenSize: given.ffnHiddenSize ?? (given.hiddenSize === undefined ? base?.ffnHiddenSize : undefined) ?? defaultFfnHiddenSize(hiddenSize),
  };
  if (hiddenSize % heads !== 0) {
    details.push({ field: "model.heads", value: heads, message: `does not divide hiddenSize ${hiddenSize}`, remedy: "choose heads that divide hiddenSize" });
  } else if ((hiddenSize / heads) % 2 !== 0) {
    details.push({ field: "model.heads", value: heads, message: `gives heads of odd size ${hiddenSize / heads}, which rotary positions cannot rotate`, remedy: "choose heads so that hiddenSize / heads is even" });
  }
  if (heads % model.kvHeads !== 0) {
    details.push({ field: "model.kvHeads", value: model.kvHeads, message: `does not divide heads ${heads}`, remedy: "choose kvHeads that divide heads" });
  }
  return model;
}

function resolveCluster(written: JobFile["cluster"], details: ProblemDetail[]): Cluster {
  const memoryPerGpuBytes = parseBytes(written.memoryPerGpu);
  if (memoryPerGpuBytes === undefined || memoryPerGpuBytes === 0) {
    details.push({ field: "cluster.memoryPerGpu", value: written.memoryPerGpu, message: "is not a memory size", remedy: "write bytes, or a number with a unit such as 80GB or 80GiB" });
  }
  return {
    name: written.name ?? `${written.nodes}x${written.gpusPerNode}`,
    nodes: written.nodes,
    gpusPerNode: written.gpusPerNode,
    memoryPerGpuBytes: memoryPerGpuBytes || 1,
    launcher: written.launcher ?? "local",
    profile: written.profile ?? null,
  };
}

/**
 * Resolves a job as written: named models, units, defaults, and every check that needs no cluster.
 * @param written a parsed YAML or JSON document, not trusted.
 * @throws ProblemError `job-invalid`, with one detail a fault.
 */
export function resolveJob(written: unknown): JobSpec {
  const file = validate(JobFileSchema, written, "job-invalid", "the job");
  const details: ProblemDetail[] = [];
  const model = resolveModel(file.model, details);
  const cluster = resolveCluster(file.cluster, details);
  const { sequenceLengthTokens, globalBatchTokens } = file;
  if (globalBatchTokens % sequenceLengthTokens !== 0) {
    const floor = Math.floor(globalBatchTokens / sequenceLengthTokens) * sequenceLengthTokens;
    details.push({
      field: "globalBatchTokens",
      value: globalBatchTokens,
      message: `is not a multiple of sequenceLengthTokens ${sequenceLengthTokens}`,
      remedy: `use ${floor > 0 ? `${floor} or ` : ""}${floor + sequenceLengthTokens}`,
    });
  }
  if (file.data?.format === "text" && model.vocabularySize < 256) {
    details.push({ field: "model.vocabularySize", value: model.vocabularySize, message: "is too small for text, which is read as bytes", remedy: "use 256 or more" });
  }
  if (details.length > 0) throw new ProblemError("job-invalid", `the job is not valid: ${details[0]?.field}: ${details[0]?.message}`, details);
  const steps = file.steps ?? 100;
  const spec: JobSpec = {
    name: file.name,
    model,
    sequenceLengthTokens,
    globalBatchTokens,
    precision: file.precision ?? "bf16",
    optimizer: {
      peakLearningRate: 3e-4,
      minLearningRate: 3e-5,
      warmupSteps: Math.min(2000, Math.ceil(steps / 20)),
      decaySteps: steps,
      weightDecay: 0.1,
      beta1: 0.9,
      beta2: 0.95,
      epsilon: 1e-8,
      clipGlobalNorm: 1,
      ...file.optimizer,
    },
    data: file.data ?? null,
    steps,
    seed: file.seed ?? 0,
    cluster,
    checkpointing: file.checkpointing ?? { everySteps: Math.max(1, Math.ceil(steps / 10)), keepLast: 2 },
    trials: { count: 10, warmupSteps: 2, steps: 5, ...file.trials },
    memoryModel: file.memoryModel ?? "executor",
  };
  return validate(JobSpecSchema, spec, "job-invalid", "the job");
}

/** One line about a job, for people. */
export const describeJob = (spec: JobSpec): string =>
  `${spec.model.name} at ${spec.sequenceLengthTokens} tokens, ${spec.globalBatchTokens} tokens a step, ` +
  `${spec.cluster.nodes} × ${spec.cluster.gpusPerNode} ranks of ${formatBytes(spec.cluster.memoryPerGpuBytes)}, ${spec.precision}`;
