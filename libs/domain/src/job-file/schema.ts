import { Type, type Static } from "typebox";
import { MAXIMUM_BATCH_TOKENS, MAXIMUM_SEQUENCE_TOKENS } from "../bounds.ts";
import { DataSchema } from "../data.ts";
import {
  CheckpointingSchema,
  ClusterSchema,
  HOST_MEMORY_WORDS,
  JobSpecSchema,
  ReplanningSchema,
  OptimizerSchema,
  TimelineSchema,
  TrialSettingsSchema,
  ValidationSchema,
} from "../job.ts";
import { formatInteger } from "../figures.ts";
import { ModelSchema, NAMED_MODELS, PAPER_VOCABULARY_SIZE } from "../model.ts";
import { PrecisionSchema } from "../precision.ts";
import { Line } from "../text.ts";
import { LEAST_PLAIN_MEMORY_BYTES } from "../units.ts";

const strict = { additionalProperties: false } as const;
export const modelNames = (): string => Object.keys(NAMED_MODELS).join(", ");
const aboutMemory = (): string =>
  `a text such as 80GB or 80GiB; a number without a unit is bytes, ${LEAST_PLAIN_MEMORY_BYTES} or more`;
const aboutNamedModels = (): string =>
  `a named model: ${modelNames()}; with the paper's vocabulary of ${formatInteger(PAPER_VOCABULARY_SIZE)} ` +
  "(LLaMA's is 32,000): { base: llama-7b, vocabularySize: 32000 } changes it";

/** Global batches of an evaluation, where a job does not say. */
export const DEFAULT_VALIDATION_BATCHES = 8;

/** Longer than any quantity with its unit. */
const QUANTITY_LENGTH = 40;
const tokens = (most: number) =>
  Type.Union([Type.Integer({ minimum: 1, maximum: most }), Type.String({ maxLength: QUANTITY_LENGTH })], {
    description: "tokens, or a text with k, M or G, which are powers of two: 4k is 4096, 4M is 4194304",
  });
export const MOST_TOKENS = {
  sequenceLengthTokens: MAXIMUM_SEQUENCE_TOKENS,
  globalBatchTokens: MAXIMUM_BATCH_TOKENS,
} as const;

/** A job as people write it (YAML or JSON): names, units and defaults are resolved by `resolveJob`. */
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
        hostMemory: Type.Optional(
          Type.Union([Type.String({ maxLength: QUANTITY_LENGTH }), Type.Integer({ minimum: 1 })], {
            description: `as memoryPerGpu; ${HOST_MEMORY_WORDS}`,
          }),
        ),
        launcher: Type.Optional(ClusterSchema.properties.launcher),
        device: ClusterSchema.properties.device,
        profile: Type.Optional(Line(500)),
        minNodes: ClusterSchema.properties.minNodes,
      },
      strict,
    ),
    validation: Type.Optional(
      Type.Object(
        {
          data: ValidationSchema.properties.data,
          everySteps: Type.Optional(ValidationSchema.properties.everySteps),
          batches: Type.Optional(ValidationSchema.properties.batches),
        },
        {
          ...strict,
          description: `the loss of held-out data while the job trains; everySteps: a tenth of the steps, batches: ${DEFAULT_VALIDATION_BATCHES} where they are left out`,
        },
      ),
    ),
    checkpointing: Type.Optional(Type.Object(Type.Partial(CheckpointingSchema).properties, strict)),
    trials: Type.Optional(Type.Object(Type.Partial(TrialSettingsSchema).properties, strict)),
    initialWeights: JobSpecSchema.properties.initialWeights,
    timeline: Type.Optional(
      Type.Union([Type.Object(Type.Partial(TimelineSchema).properties, strict), Type.Boolean()], {
        description: "true: the two steps behind the first",
      }),
    ),
    watchdog: JobSpecSchema.properties.watchdog,
    headroom: JobSpecSchema.properties.headroom,
    memoryModel: Type.Optional(JobSpecSchema.properties.memoryModel),
    timeModel: JobSpecSchema.properties.timeModel,
    measureAgain: JobSpecSchema.properties.measureAgain,
    until: JobSpecSchema.properties.until,
    project: JobSpecSchema.properties.project,
    priority: JobSpecSchema.properties.priority,
    preemptible: JobSpecSchema.properties.preemptible,
    replanning: Type.Optional(Type.Partial(ReplanningSchema, { additionalProperties: false })),
    tracking: JobSpecSchema.properties.tracking,
    labels: JobSpecSchema.properties.labels,
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
