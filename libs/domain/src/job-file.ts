import { Type, type Static } from "typebox";
import { MAXIMUM_BATCH_TOKENS, MAXIMUM_RANKS, MAXIMUM_SEQUENCE_TOKENS } from "./bounds.ts";
import {
  CheckpointingSchema,
  ClusterSchema,
  DataSchema,
  DEFAULT_TRIAL_REPEATS,
  JobSpecSchema,
  OptimizerSchema,
  TimelineSchema,
  TrialSettingsSchema,
  WATCHDOG_DEFAULTS,
  type Cluster,
  type Data,
  type JobSpec,
  type Optimizer,
  type Timeline,
  type Watchdog,
} from "./job.ts";
import { SCHEDULED_LAUNCHERS, schedulerOf } from "./launchers.ts";
import {
  defaultFfnHiddenSize,
  MODEL_DEFAULTS,
  ModelSchema,
  NAMED_MODELS,
  PAPER_VOCABULARY_SIZE,
  plainModel,
  type Model,
} from "./model.ts";
import { didYouMean } from "./nearest.ts";
import type { PlanConstraints } from "./plan-constraints.ts";
import { boundedBy, type PlanField } from "./plan-fields.ts";
import { constraintsOf, parsePlanPart } from "./plan-text.ts";
import { PrecisionSchema } from "./precision.ts";
import { ProblemError, type ProblemDetail } from "./problem.ts";
import { Line } from "./text.ts";
import { ropeScalingFaults } from "./rope-scaling.ts";
import { formatCounted } from "./figures.ts";
import { formatBytes, LEAST_PLAIN_MEMORY_BYTES, parseQuantity, readMemory } from "./units.ts";
import { MOST_DETAILS, validate } from "./validate.ts";
import { formatInteger } from "./figures.ts";
import { modelWords } from "./words.ts";

const strict = { additionalProperties: false } as const;
const DEFAULT_STEPS = 100;
const modelNames = (): string => Object.keys(NAMED_MODELS).join(", ");
const aboutMemory = (): string =>
  `a text such as 80GB or 80GiB; a number without a unit is bytes, ${LEAST_PLAIN_MEMORY_BYTES} or more`;
const aboutNamedModels = (): string =>
  `a named model: ${modelNames()}; with the paper's vocabulary of ${formatInteger(PAPER_VOCABULARY_SIZE)} ` +
  "(LLaMA's is 32,000): { base: llama-7b, vocabularySize: 32000 } changes it";

/** Longer than any quantity with its unit. */
const QUANTITY_LENGTH = 40;
const tokens = (most: number) =>
  Type.Union([Type.Integer({ minimum: 1, maximum: most }), Type.String({ maxLength: QUANTITY_LENGTH })], {
    description: "tokens, or a text with k, M or G, which are powers of two: 4k is 4096, 4M is 4194304",
  });
const MOST_TOKENS = {
  sequenceLengthTokens: MAXIMUM_SEQUENCE_TOKENS,
  globalBatchTokens: MAXIMUM_BATCH_TOKENS,
} as const;

/** A job as people write it (YAML or JSON): names, units and defaults are resolved by {@link resolveJob}. */
export const JobFileSchema = Type.Object(
  {
    name: JobSpecSchema.properties.name,
    model: Type.Union([
      Type.String({ maxLength: 100, description: aboutNamedModels() }),
      Type.Object(
        { base: Type.Optional(Type.String({ maxLength: 100 })), ...Type.Partial(ModelSchema).properties },
        strict,
      ),
    ]),
    sequenceLengthTokens: tokens(MOST_TOKENS.sequenceLengthTokens),
    globalBatchTokens: tokens(MOST_TOKENS.globalBatchTokens),
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
        memoryPerGpu: Type.Union(
          [Type.String({ maxLength: QUANTITY_LENGTH }), Type.Integer({ minimum: 1 })],
          { description: aboutMemory() },
        ),
        launcher: Type.Optional(ClusterSchema.properties.launcher),
        device: ClusterSchema.properties.device,
        profile: Type.Optional(Line(500)),
        minNodes: ClusterSchema.properties.minNodes,
      },
      strict,
    ),
    checkpointing: Type.Optional(CheckpointingSchema),
    trials: Type.Optional(Type.Object(Type.Partial(TrialSettingsSchema).properties, strict)),
    initialWeights: JobSpecSchema.properties.initialWeights,
    timeline: Type.Optional(
      Type.Union([Type.Object(Type.Partial(TimelineSchema).properties, strict), Type.Boolean()], {
        description: "true: the two steps behind the first",
      }),
    ),
    watchdog: JobSpecSchema.properties.watchdog,
    memoryModel: Type.Optional(JobSpecSchema.properties.memoryModel),
    measureAgain: JobSpecSchema.properties.measureAgain,
    until: JobSpecSchema.properties.until,
    plan: Type.Optional(
      Type.Union(
        [
          Line(500, {
            description:
              'a plan or a part of one as tables show it, e.g. "tp8 pp2": what it names is fixed, the rest is free',
          }),
          JobSpecSchema.properties.plan,
        ],
        { description: "limits the plans that may be chosen; without it every plan may be" },
      ),
    ),
  },
  { ...strict, $id: "https://internevo.dev/schemas/job.json", title: "InternEvo job" },
);
export type JobFile = Static<typeof JobFileSchema>;

/** The named model, or undefined with a detail. */
function baseModel(written: JobFile["model"], details: ProblemDetail[]): Model | undefined {
  const name = typeof written === "string" ? written : written.base;
  if (name === undefined) return undefined;
  if (Object.hasOwn(NAMED_MODELS, name)) return NAMED_MODELS[name];
  details.push({
    field: typeof written === "string" ? "model" : "model.base",
    value: name,
    message: "no such model",
    remedy: `${didYouMean(name, Object.keys(NAMED_MODELS))}use one of ${modelNames()}, or give hiddenSize, layers, heads and vocabularySize`,
  });
  return undefined;
}

/** What of a model is known when its fields are held against each other. */
type KnownModel = { readonly [Field in keyof Model]?: Model[Field] | undefined };

/** What the size of heads must be, whether it is given or follows. */
function checkHeadSize({ hiddenSize, heads, headSize }: KnownModel, details: ProblemDetail[]): void {
  if (headSize !== undefined) {
    if (headSize % 2 !== 0)
      details.push({
        field: "model.headSize",
        value: headSize,
        message: "is odd, and rotary positions turn pairs of a head's elements",
        remedy: "give an even number, or leave it out for hiddenSize / heads",
      });
    return;
  }
  if (hiddenSize === undefined || heads === undefined) return;
  if (hiddenSize % heads !== 0) {
    details.push({
      field: "model.heads",
      value: heads,
      message: `does not divide hiddenSize ${hiddenSize}`,
      remedy: "choose heads that divide hiddenSize, or give headSize",
    });
  } else if ((hiddenSize / heads) % 2 !== 0) {
    details.push({
      field: "model.heads",
      value: heads,
      message: `gives heads of odd size ${hiddenSize / heads}, which rotary positions cannot rotate`,
      remedy: "choose heads so that hiddenSize / heads is even, or give headSize",
    });
  }
}

/** What the sizes must have to do with each other; only those that are known are held against each other. */
function checkModel(model: KnownModel, details: ProblemDetail[]): void {
  const { heads, kvHeads, ropeScaling, ropeTheta } = model;
  checkHeadSize(model, details);
  if (heads !== undefined && kvHeads !== undefined && heads % kvHeads !== 0) {
    details.push({
      field: "model.kvHeads",
      value: kvHeads,
      message: `does not divide heads ${heads}`,
      remedy: "choose kvHeads that divide heads",
    });
  }
  if (ropeScaling !== undefined)
    details.push(...ropeScalingFaults(ropeScaling, ropeTheta, "model.ropeScaling"));
}

/** The model with every size; undefined, with details, when one of them cannot be known. */
function resolveModel(written: JobFile["model"], details: ProblemDetail[]): Model | undefined {
  const before = details.length;
  const base = baseModel(written, details);
  const { base: baseName, ...given }: Partial<Model> & { base?: string } =
    typeof written === "string" ? { base: written } : written;
  const { hiddenSize, layers, heads, vocabularySize } = { ...base, ...given };
  // A base that nobody knows has been told; what it would have said is not missing as well.
  if (baseName === undefined) {
    for (const [field, value] of Object.entries({ hiddenSize, layers, heads, vocabularySize })) {
      if (value === undefined)
        details.push({
          field: `model.${field}`,
          message: "is missing",
          remedy: "add it, or name a base model",
        });
    }
  }
  const kvHeads = given.kvHeads ?? (given.heads === undefined ? base?.kvHeads : undefined) ?? heads;
  checkModel({ ...base, ...given, hiddenSize, heads, kvHeads }, details);
  if (
    details.length > before ||
    hiddenSize === undefined ||
    layers === undefined ||
    heads === undefined ||
    kvHeads === undefined ||
    vocabularySize === undefined
  )
    return undefined;
  const ffnHiddenSize =
    given.ffnHiddenSize ??
    (given.hiddenSize === undefined ? base?.ffnHiddenSize : undefined) ??
    defaultFfnHiddenSize(hiddenSize);
  return plainModel({
    name: "custom",
    ...MODEL_DEFAULTS,
    ...base,
    ...given,
    hiddenSize,
    layers,
    heads,
    kvHeads,
    vocabularySize,
    ffnHiddenSize,
  });
}

function resolveCluster(written: JobFile["cluster"], details: ProblemDetail[]): Cluster {
  const { nodes, gpusPerNode, minNodes, device } = written;
  const memory = readMemory(written.memoryPerGpu);
  if (!("bytes" in memory))
    details.push({ field: "cluster.memoryPerGpu", value: written.memoryPerGpu, ...memory });
  if (nodes * gpusPerNode > MAXIMUM_RANKS) {
    details.push({
      field: "cluster.nodes",
      value: nodes,
      message: `times ${gpusPerNode} GPUs a node is more than ${MAXIMUM_RANKS} ranks`,
      remedy: `use at most ${Math.floor(MAXIMUM_RANKS / gpusPerNode)} nodes of ${gpusPerNode}`,
    });
  }
  const launcher = written.launcher ?? "local";
  if (minNodes !== undefined && schedulerOf({ launcher }) === null) {
    details.push({
      field: "cluster.minNodes",
      value: minNodes,
      message: `says with how few nodes training may go on, and launcher ${launcher} cannot tell how many are left`,
      remedy: `leave it out, or use launcher: ${SCHEDULED_LAUNCHERS}`,
    });
  } else if (minNodes !== undefined && minNodes > nodes) {
    details.push({
      field: "cluster.minNodes",
      value: minNodes,
      message: `is more than nodes ${nodes}`,
      remedy: `give at most ${nodes}`,
    });
  }
  return {
    name: written.name ?? `${nodes}x${gpusPerNode}`,
    nodes,
    gpusPerNode,
    memoryPerGpuBytes: "bytes" in memory ? memory.bytes : 0,
    launcher,
    profile: written.profile ?? null,
    ...(device === undefined ? {} : { device }),
    ...(minNodes === undefined ? {} : { minNodes }),
  };
}

function resolveOptimizer(
  written: Partial<Optimizer> | undefined,
  steps: number,
  details: ProblemDetail[],
): Optimizer {
  const peakLearningRate = written?.peakLearningRate ?? 3e-4;
  const decaySteps = written?.decaySteps ?? steps;
  const optimizer: Optimizer = {
    peakLearningRate,
    // Rounded: a tenth of 3e-4 is written 3e-5.
    minLearningRate: Number((peakLearningRate / 10).toPrecision(12)),
    warmupSteps: Math.min(2000, Math.ceil(steps / 20), decaySteps),
    decaySteps,
    weightDecay: 0.1,
    beta1: 0.9,
    beta2: 0.95,
    epsilon: 1e-8,
    clipGlobalNorm: 1,
    ...written,
  };
  const { minLearningRate, warmupSteps } = optimizer;
  if (minLearningRate > peakLearningRate) {
    details.push({
      field: "optimizer.minLearningRate",
      value: minLearningRate,
      message: `is more than peakLearningRate ${peakLearningRate}`,
      remedy: `give at most ${peakLearningRate}`,
    });
  }
  if (warmupSteps > steps || warmupSteps > decaySteps) {
    const [what, most] = warmupSteps > steps ? ["the job's steps", steps] : ["decaySteps", decaySteps];
    details.push({
      field: "optimizer.warmupSteps",
      value: warmupSteps,
      message: `is more than ${what} ${most}: the peak would never be reached`,
      remedy: `give at most ${Math.min(steps, decaySteps)}`,
    });
  }
  return optimizer;
}

/** What packing has to do with the rest of a job. */
function checkData(data: Data, model: Model | undefined, details: ProblemDetail[]): void {
  const { packing, endOfDocumentToken, maxDocumentsPerSequence } = data;
  if (packing !== "documents") {
    for (const [field, value] of Object.entries({ endOfDocumentToken, maxDocumentsPerSequence })) {
      if (value !== undefined)
        details.push({
          field: `data.${field}`,
          value,
          message: "says something of packed documents, and documents are not packed",
          remedy: "add packing: documents, or leave it out",
        });
    }
  }
  if (model === undefined) return;
  if (data.format === "text" && model.vocabularySize < 256) {
    details.push({
      field: "model.vocabularySize",
      value: model.vocabularySize,
      message: "is too small for text, which is read as bytes",
      remedy: "use 256 or more",
    });
  }
  const tokens = data.format === "text" ? 256 : model.vocabularySize;
  if (endOfDocumentToken !== undefined && endOfDocumentToken >= tokens) {
    details.push({
      field: "data.endOfDocumentToken",
      value: endOfDocumentToken,
      message: `is no token: they are 0 to ${tokens - 1}`,
      remedy: "give the token that ends a document",
    });
  }
}

function resolveTimeline(
  written: JobFile["timeline"],
  steps: number,
  details: ProblemDetail[],
): Timeline | undefined {
  if (written === undefined || written === false) return undefined;
  const given = written === true ? {} : written;
  const timeline = { firstStep: Math.min(2, steps), steps: 2, ...given };
  if (timeline.firstStep > steps)
    details.push({
      field: "timeline.firstStep",
      value: timeline.firstStep,
      message: `is behind the last of the job's steps ${steps}`,
      remedy: `give at most ${steps}`,
    });
  return timeline;
}

function checkWatchdog(watchdog: Watchdog | false | undefined, details: ProblemDetail[]): void {
  if (watchdog === undefined || watchdog === false) return;
  const { beatSeconds, silenceSeconds } = { ...WATCHDOG_DEFAULTS, ...watchdog };
  if (silenceSeconds < 3 * beatSeconds) {
    details.push({
      field: "watchdog.silenceSeconds",
      value: silenceSeconds,
      message: `is less than three beats of ${beatSeconds} s`,
      remedy: `give at least ${3 * beatSeconds}, or a shorter beatSeconds`,
    });
  }
}

type Lengths = Pick<JobSpec, "sequenceLengthTokens" | "globalBatchTokens">;

/** Tokens as written; undefined, with a detail, where they are none. */
function readTokens(
  written: Pick<JobFile, "sequenceLengthTokens" | "globalBatchTokens">,
  field: keyof typeof MOST_TOKENS,
  details: ProblemDetail[],
): number | undefined {
  const value = written[field];
  const count = parseQuantity(value, "lengthTokens");
  if (count !== undefined && count >= 1 && count <= MOST_TOKENS[field]) return count;
  const bound = (count ?? 0) < 1 ? "is less than 1" : `is more than ${MOST_TOKENS[field]}`;
  const message = count === undefined ? "is not a number of tokens" : bound;
  details.push({
    field,
    value,
    message,
    remedy: "give tokens, or a number with k, M or G, such as 4k for 4096",
  });
  return undefined;
}

/**
 * The lengths of a sequence and of a batch; undefined, with details, where they are none or do not divide.
 */
function resolveLengths(
  written: Pick<JobFile, "sequenceLengthTokens" | "globalBatchTokens">,
  details: ProblemDetail[],
): Lengths | undefined {
  const sequenceLengthTokens = readTokens(written, "sequenceLengthTokens", details);
  const globalBatchTokens = readTokens(written, "globalBatchTokens", details);
  if (sequenceLengthTokens === undefined || globalBatchTokens === undefined) return undefined;
  if (globalBatchTokens % sequenceLengthTokens !== 0) {
    const floor = Math.floor(globalBatchTokens / sequenceLengthTokens) * sequenceLengthTokens;
    details.push({
      field: "globalBatchTokens",
      value: written.globalBatchTokens,
      message: `is not a multiple of sequenceLengthTokens ${sequenceLengthTokens}`,
      remedy: `use ${floor > 0 ? `${floor} or ` : ""}${floor + sequenceLengthTokens}`,
    });
  }
  return { sequenceLengthTokens, globalBatchTokens };
}

/** Of one field of a job's `plan`: what its values must divide, or be at most. */
interface Bound {
  readonly fields: readonly PlanField[];
  readonly whole: number;
  readonly what: string;
  readonly divides: boolean;
}

/**
 * Constraints on plans that no plan of the job meets, each by itself; how they go together only a search
 * tells.
 */
function checkPlan(
  plan: PlanConstraints,
  cluster: JobFile["cluster"],
  lengths: Lengths | undefined,
  model: Model | undefined,
  details: ProblemDetail[],
): void {
  const ranks = cluster.nodes * cluster.gpusPerNode;
  const sequences = lengths && lengths.globalBatchTokens / lengths.sequenceLengthTokens;
  const bounds: Bound[] = [
    { fields: boundedBy("ranks"), whole: ranks, what: `the ${ranks} ranks of the cluster`, divides: true },
    ...(sequences !== undefined && Number.isInteger(sequences)
      ? [
          {
            fields: boundedBy("sequences"),
            whole: sequences,
            what: `the ${sequences} sequences of a step`,
            divides: true,
          },
        ]
      : []),
    ...(model === undefined
      ? []
      : [
          {
            fields: boundedBy("layers"),
            whole: model.layers,
            what: `the ${model.layers} layers of the model`,
            divides: false,
          },
        ]),
  ];
  for (const { fields, whole, what, divides } of bounds)
    for (const field of fields) {
      const given = plan[field];
      if (given === undefined) continue;
      const values = [given].flat() as number[];
      if (values.some((value) => (divides ? whole % value === 0 : value <= whole))) continue;
      const nearest = divides ? nearestDivisors(whole, values[0] as number).join(" or ") : `at most ${whole}`;
      details.push({
        field: `plan.${field}`,
        value: given,
        message: divides ? `does not divide ${what}` : `is more than ${what}`,
        remedy: `give ${nearest}, or leave it out`,
      });
    }
}

/** Of a step with more than 2^32 sequences not all divisors are looked at. */
const MOST_TRIED = 2 ** 16;

/** The divisors of a number next to a value, below and above. */
function nearestDivisors(whole: number, value: number): number[] {
  let [below, above] = [1, whole];
  for (let small = 1; small <= MOST_TRIED && small * small <= whole; small += 1) {
    if (whole % small !== 0) continue;
    for (const divisor of [small, whole / small]) {
      if (divisor <= value) below = Math.max(below, divisor);
      else above = Math.min(above, divisor);
    }
  }
  return [...new Set(above > value ? [below, above] : [below])];
}

/** A plan's text, or its fields, as what a search may choose. */
function resolvePlan(
  file: Pick<JobFile, "plan" | "cluster">,
  lengths: Lengths | undefined,
  model: Model | undefined,
  details: ProblemDetail[],
): PlanConstraints | undefined {
  let plan = file.plan;
  if (typeof plan === "string") {
    try {
      plan = constraintsOf(parsePlanPart(plan));
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      details.push(...error.details);
      return undefined;
    }
  }
  if (plan !== undefined) checkPlan(plan, file.cluster, lengths, model, details);
  return plan;
}

/**
 * What is wrong by the schema, and with it what makes no sense in the fields that are well-formed, so that
 * both are told at once.
 */
function withSenseOf(written: unknown, faults: ProblemError): ProblemError {
  if (
    typeof written !== "object" ||
    written === null ||
    Array.isArray(written) ||
    faults.details.length >= MOST_DETAILS
  )
    return faults;
  const faulty = new Set(faults.details.map(({ field }) => field.split(/[.[]/, 1)[0]));
  const job = written as Record<string, unknown>;
  const known = (...fields: (keyof JobFile)[]): boolean =>
    fields.every((field) => !faulty.has(field) && Object.hasOwn(job, field) && job[field] !== undefined);
  const file = written as JobFile;
  const details: ProblemDetail[] = [];
  const model = known("model") ? resolveModel(file.model, details) : undefined;
  if (known("cluster")) resolveCluster(file.cluster, details);
  const lengths = known("sequenceLengthTokens", "globalBatchTokens")
    ? resolveLengths(file, details)
    : undefined;
  if (known("data") && file.data) checkData(file.data, model, details);
  const stepsKnown = !faulty.has("steps");
  if (known("optimizer") && stepsKnown)
    resolveOptimizer(file.optimizer, file.steps ?? DEFAULT_STEPS, details);
  if (known("timeline") && stepsKnown) resolveTimeline(file.timeline, file.steps ?? DEFAULT_STEPS, details);
  if (known("watchdog")) checkWatchdog(file.watchdog, details);
  if (known("plan", "cluster")) resolvePlan(file, lengths, model, details);
  return details.length === 0
    ? faults
    : new ProblemError(faults.code, faults.message, [...faults.details, ...details].slice(0, MOST_DETAILS), {
        cause: faults,
      });
}

/**
 * Resolves a job as written: named models, units, defaults, and every check that needs no cluster.
 * @param written a parsed YAML or JSON document, not trusted.
 * @throws ProblemError `job-invalid`, with one detail a fault.
 */
export function resolveJob(written: unknown): JobSpec {
  let file: JobFile;
  try {
    file = validate(JobFileSchema, written, "job-invalid", "the job");
  } catch (error) {
    throw error instanceof ProblemError ? withSenseOf(written, error) : error;
  }
  const details: ProblemDetail[] = [];
  const model = resolveModel(file.model, details);
  const cluster = resolveCluster(file.cluster, details);
  const lengths = resolveLengths(file, details);
  if (file.data) checkData(file.data, model, details);
  const steps = file.steps ?? DEFAULT_STEPS;
  const optimizer = resolveOptimizer(file.optimizer, steps, details);
  const timeline = resolveTimeline(file.timeline, steps, details);
  checkWatchdog(file.watchdog, details);
  const plan = resolvePlan(file, lengths, model, details);
  if (details.length > 0 || model === undefined || lengths === undefined)
    throw new ProblemError(
      "job-invalid",
      `the job is not valid: ${details[0]?.field}: ${details[0]?.message}`,
      details,
    );
  const spec: JobSpec = {
    name: file.name,
    model,
    ...lengths,
    precision: file.precision ?? "bf16",
    optimizer,
    data: file.data ?? null,
    steps,
    seed: file.seed ?? 0,
    cluster,
    checkpointing: file.checkpointing ?? { everySteps: Math.max(1, Math.ceil(steps / 10)), keepLast: 2 },
    trials: { count: 10, warmupSteps: 2, steps: 5, repeats: DEFAULT_TRIAL_REPEATS, ...file.trials },
    ...(file.initialWeights === undefined ? {} : { initialWeights: file.initialWeights }),
    ...(timeline === undefined ? {} : { timeline }),
    ...(file.watchdog === undefined ? {} : { watchdog: file.watchdog }),
    memoryModel: file.memoryModel ?? "executor",
    ...(file.measureAgain === undefined ? {} : { measureAgain: file.measureAgain }),
    ...(file.until === undefined ? {} : { until: file.until }),
    ...(plan === undefined ? {} : { plan }),
  };
  return validate(JobSpecSchema, spec, "job-invalid", "the job");
}

/** One line about a job, for people. */
export const describeJob = (spec: JobSpec): string =>
  `${modelWords(spec.model)} at ${formatCounted(spec.sequenceLengthTokens, "token")}, ${formatCounted(spec.globalBatchTokens, "token")} a step, ` +
  `${spec.cluster.nodes} × ${spec.cluster.gpusPerNode} ranks of ${formatBytes(spec.cluster.memoryPerGpuBytes)}, ${spec.precision}`;
