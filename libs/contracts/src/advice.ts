import { Type, type Static, type TSchema } from "typebox";
import {
  CandidateSchema,
  EstimatesSchema,
  HEADROOM_WORDS,
  Line,
  MemoryLinesSchema,
  MemoryModelNameSchema,
  ModelSchema,
  PlanningResultSchema,
  PlanSchema,
  PredictionSchema,
  REJECTION_REASONS,
} from "@internevo/domain";

/**
 * Questions about plans, below `/api/v1/plans`: why not, explain, what if, memory, and configurations of
 * other frameworks.
 */

const nullable = <S extends TSchema>(schema: S) => Type.Union([schema, Type.Null()]);
const closed = { additionalProperties: false } as const;

/** The values that a sweep takes, and the sizes of cluster that are considered, at most. */
export const MOST_SWEPT_VALUES = 64;
/** Points of a front at most. */
export const MOST_PARETO_POINTS = 200;
/** The worst rank by which a plan can be named. */
export const MOST_RANKED = 1000;

export const SWEPT_AXES = [
  "sequence",
  "nodes",
  "batch",
  "memory",
  "intra-node-bandwidth",
  "inter-node-bandwidth",
  "compute-speed",
] as const;
export type SweptAxis = (typeof SWEPT_AXES)[number];

export const FRAMEWORK_NAMES = ["internevo", "megatron", "deepspeed", "torchtitan"] as const;
export type FrameworkName = (typeof FRAMEWORK_NAMES)[number];

export const HeadroomSchema = Line(40, { description: `${HEADROOM_WORDS}, or the job's own` });

/** What a question is about: a job file, or a job that was submitted; and the profile. */
const subject = {
  job: Type.Optional(Type.Unknown({ description: "a job file, as JSON; or give jobId" })),
  jobId: Type.Optional(Line(100, { description: "a job that was submitted, instead of a job file" })),
  profile: Type.Optional(
    Line(500, {
      description:
        "a shipped profile's name, or a stored one's id, name or cluster; without " +
        "it the one that the job was planned with, or names, or the cluster's newest",
    }),
  ),
  headroom: Type.Optional(HeadroomSchema),
};
export const AdviceSubjectSchema = Type.Object(subject, closed);
export type AdviceSubject = Static<typeof AdviceSubjectSchema>;

const RANK =
  "its rank in the job's own search: of a submitted job in the one by which it was planned, as far as that is kept";

export const PlanChoiceSchema = Type.Union(
  [
    Type.Integer({ minimum: 1, maximum: MOST_RANKED, description: RANK }),
    Line(500, { description: 'as tables show it, e.g. "b1 n4 a0 pp1 dp2 tp1 sp4 ps8 gs1 oss1"' }),
    PlanSchema,
  ],
  { description: "a plan: its rank, the text by which tables show it, or its fields" },
);
export type PlanChoice = Static<typeof PlanChoiceSchema>;

const FieldChangeSchema = Type.Object({
  field: Type.String(),
  from: Type.Union([Type.Number(), Type.Boolean(), Type.String()]),
  to: Type.Union([Type.Number(), Type.Boolean(), Type.String()]),
});
export type FieldChange = Static<typeof FieldChangeSchema>;
const ChangeSchema = Type.Object({
  plan: PlanSchema,
  changes: Type.Array(FieldChangeSchema),
  predicted: PredictionSchema,
});

export const WhyNotRequestSchema = Type.Object(
  {
    ...subject,
    plan: Type.Union(PlanChoiceSchema.anyOf, {
      description:
        'as for other questions, or a part of a plan as text, e.g. "tp8 pp2": the best of those with it',
    }),
  },
  closed,
);
export type WhyNotRequest = Static<typeof WhyNotRequestSchema>;
/** Beside answers that rest on a profile. */
const estimatedProfile = {
  estimatedProfile: Type.Optional(
    Type.String({ description: "where the profile is estimated from published figures: says so" }),
  ),
};
export const WhyNotSchema = Type.Object({
  plan: PlanSchema,
  ...estimatedProfile,
  bestOf: Type.Optional(
    Type.String({
      description:
        "where a part of a plan was asked for: that part; `plan` is the fastest " +
        "that fits and has it, or where none fits the one that needs least memory",
    }),
  ),
  binding: nullable(
    Type.Object(
      { reason: Type.Enum(REJECTION_REASONS), message: Type.String() },
      { description: "the constraint that rejects the plan; null when it is feasible" },
    ),
  ),
  notRunnableReason: nullable(
    Type.String({ description: "why InternEvo's own trainer cannot run a feasible plan; null when it can" }),
  ),
  predicted: nullable(PredictionSchema),
  excessBytes: nullable(
    Type.Number({
      description: "beyond the limit (positive) or left (negative); null where the factors do not divide",
    }),
  ),
  memory: Type.Array(Type.Object({ line: Type.String(), bytes: Type.Number() }), {
    description: "of the fullest rank, the largest first",
  }),
  smallestChange: nullable(ChangeSchema),
  standing: nullable(
    Type.Object(
      { rank: Type.Integer({ minimum: 1 }), of: Type.Integer({ minimum: 1 }), best: ChangeSchema },
      {
        description:
          "where a feasible plan stands among the families of plans with " +
          "the same ranks, shards, micro-batches and kind of schedule, by prediction",
      },
    ),
  ),
  measured: nullable(
    Type.Object(
      {
        stepTimeSeconds: Type.Number(),
        place: Type.Integer({ minimum: 1 }),
        of: Type.Integer({ minimum: 1, description: "plans that were measured" }),
        verdict: Type.Enum(["fastest", "tie", "slower", "only"], {
          description: "tie: the runs do not tell it from the fastest, or the fastest from others",
        }),
        tied: Type.Integer({ minimum: 1, description: "plans that tie with the fastest, itself among them" }),
        behind: Type.Number({ description: "how far it is behind the fastest, a fraction" }),
        fastest: Type.Object({
          rank: Type.Integer({ minimum: 1, description: "by prediction" }),
          plan: PlanSchema,
        }),
        disturbed: Type.Boolean({ description: "whether other work ran beside every run of it" }),
      },
      {
        description:
          "where the plan stands among those that the submitted job's trials measured; null where none measured it",
      },
    ),
  ),
});
export type WhyNotAnswer = Static<typeof WhyNotSchema>;

const SideSchema = Type.Object({ plan: PlanSchema, predicted: PredictionSchema, fits: Type.Boolean() });
const TermSchema = Type.Object({
  name: Type.String(),
  a: Type.Number(),
  b: Type.Number(),
  difference: Type.Number({ description: "b - a" }),
});
export type ExplanationTerm = Static<typeof TermSchema>;
const MeasuredSchema = Type.Object({
  stepTimeSeconds: Type.Number(),
  runStepTimeSeconds: Type.Optional(Type.Array(Type.Number())),
  disturbed: Type.Optional(
    Type.Literal(true, { description: "where other work ran beside every run of the plan" }),
  ),
});
export const ExplainRequestSchema = Type.Object(
  { ...subject, a: PlanChoiceSchema, b: PlanChoiceSchema },
  closed,
);
export type ExplainRequest = Static<typeof ExplainRequestSchema>;
export const ExplanationSchema = Type.Object({
  ...estimatedProfile,
  a: SideSchema,
  b: SideSchema,
  changes: Type.Array(FieldChangeSchema),
  time: Type.Array(TermSchema, {
    description:
      "seconds of a step by cause, the largest difference first; they add up to the difference of the step times",
  }),
  memory: Type.Array(TermSchema, {
    description: "bytes of the fullest rank by line, the largest difference first",
  }),
  tie: nullable(
    Type.Boolean({
      description:
        "whether the ranges of the two step times touch, so that only " +
        "trials tell the plans apart; null where the profile says no spread",
    }),
  ),
  measured: nullable(
    Type.Object(
      { a: MeasuredSchema, b: MeasuredSchema },
      {
        description:
          "step times of both, where the submitted job's trials measured both plans; everything else is predicted",
      },
    ),
  ),
  summary: Type.String({ description: "by what was measured where both were, then by prediction" }),
});
export type ExplanationAnswer = Static<typeof ExplanationSchema>;

export const MemoryRequestSchema = Type.Object({ ...subject, plan: PlanChoiceSchema }, closed);
export type MemoryRequest = Static<typeof MemoryRequestSchema>;
export const PlanMemorySchema = Type.Object({
  plan: PlanSchema,
  memoryModel: MemoryModelNameSchema,
  limitBytes: Type.Integer(),
  fullestStage: Type.Integer({ minimum: 0 }),
  stages: Type.Array(
    Type.Object({
      stage: Type.Integer({ minimum: 0 }),
      ranks: Type.Integer({ minimum: 1 }),
      bytes: Type.Number(),
      lines: MemoryLinesSchema,
    }),
    { description: "memory of one rank of each pipeline stage by line" },
  ),
});
export type PlanMemoryAnswer = Static<typeof PlanMemorySchema>;

export const SweepRequestSchema = Type.Object(
  {
    ...subject,
    axis: Type.Enum(SWEPT_AXES, {
      description: "what is varied; bandwidths and the speed of computation are factors of the measured ones",
    }),
    values: Type.Array(Type.Number({ exclusiveMinimum: 0 }), {
      minItems: 1,
      maxItems: MOST_SWEPT_VALUES,
      description: "tokens, nodes, bytes, or factors",
    }),
  },
  closed,
);
export type SweepRequest = Static<typeof SweepRequestSchema>;
const SweepRowSchema = Type.Object({
  value: Type.Number(),
  best: nullable(CandidateSchema),
  tokensPerSecond: Type.Number({ description: "of the whole cluster; 0 where there is no plan" }),
  feasible: Type.Integer({
    description: "plans that the search looked at and found to fit; it looks at fewer where many fit",
  }),
  reason: nullable(Type.String({ description: "why there is no plan" })),
});
/** Beside every answer about other circumstances. */
const estimated = { estimates: Type.Optional(EstimatesSchema) };

export const SweepSchema = Type.Object({
  axis: Type.Enum(SWEPT_AXES),
  rows: Type.Array(SweepRowSchema),
  ...estimated,
});
export type SweepAnswer = Static<typeof SweepSchema>;
export type SweepAnswerRow = Static<typeof SweepRowSchema>;

export const LargestSequenceRequestSchema = Type.Object(
  {
    ...subject,
    unitTokens: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 2 ** 30,
        description: "lengths tried are multiples of it; default 1024",
      }),
    ),
    sequences: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 2 ** 20, description: "of a step; default 1" }),
    ),
  },
  closed,
);
export type LargestSequenceRequest = Static<typeof LargestSequenceRequestSchema>;
export const LargestSequenceSchema = Type.Object({
  sequenceLengthTokens: Type.Integer({ minimum: 0, description: "0 when not even one unit fits" }),
  globalBatchTokens: Type.Integer({
    minimum: 0,
    description: "of the step that was planned, in place of the job's: `sequences` of that length",
  }),
  best: nullable(CandidateSchema),
  next: Type.Object(
    {
      sequenceLengthTokens: Type.Integer(),
      reason: Type.String(),
      leastBytes: nullable(Type.Number()),
      leastSequences: Type.Optional(
        Type.Integer({
          minimum: 1,
          description:
            "where a step of so few sequences cannot be divided: ask with so many `sequences`, the fewest that can",
        }),
      ),
    },
    { description: "one unit further: what ends it" },
  ),
  tried: Type.Integer(),
  ...estimated,
});
export type LargestSequenceAnswer = Static<typeof LargestSequenceSchema>;

export const ParetoRequestSchema = Type.Object(
  {
    ...subject,
    points: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: MOST_PARETO_POINTS,
        description: `default ${MOST_PARETO_POINTS}; the front is cut at its slow end`,
      }),
    ),
  },
  closed,
);
export type ParetoRequest = Static<typeof ParetoRequestSchema>;
export const ParetoSchema = Type.Object({
  front: Type.Array(CandidateSchema, {
    description: "plans than which none is both faster and smaller, the fastest first",
  }),
  isWhole: Type.Boolean({ description: "false: the front goes on beyond the points that were asked for" }),
  ...estimated,
});
export type ParetoAnswer = Static<typeof ParetoSchema>;

export const CheapestClusterRequestSchema = Type.Object(
  {
    ...subject,
    tokens: Type.Number({ exclusiveMinimum: 0, maximum: 1e18, description: "to train on" }),
    seconds: Type.Number({ exclusiveMinimum: 0, maximum: 1e10, description: "that it may take" }),
    pricePerGpuHour: Type.Optional(Type.Number({ minimum: 0, maximum: 1e6, description: "in any currency" })),
    nodes: Type.Optional(
      Type.Array(Type.Integer({ minimum: 1 }), {
        minItems: 1,
        maxItems: MOST_SWEPT_VALUES,
        description: "sizes considered; default: 1 to the job's nodes in powers of two, and the job's",
      }),
    ),
  },
  closed,
);
export type CheapestClusterRequest = Static<typeof CheapestClusterRequestSchema>;
const ClusterChoiceSchema = Type.Object({
  nodes: Type.Integer(),
  gpus: Type.Integer(),
  best: CandidateSchema,
  seconds: Type.Number(),
  gpuHours: Type.Number(),
  cost: nullable(Type.Number()),
  meetsDeadline: Type.Boolean(),
});
export type ClusterChoiceAnswer = Static<typeof ClusterChoiceSchema>;
export const CheapestClusterSchema = Type.Object({
  cheapest: nullable(ClusterChoiceSchema),
  considered: Type.Array(ClusterChoiceSchema),
  ...estimated,
});
export type CheapestClusterAnswer = Static<typeof CheapestClusterSchema>;

const FrameworkSchema = Type.Enum(FRAMEWORK_NAMES);
const FileSchema = Type.Object(
  { name: Type.String({ minLength: 1, maxLength: 500 }), text: Type.String() },
  closed,
);
export const ExportRequestSchema = Type.Object(
  {
    ...subject,
    plan: Type.Optional(
      Type.Union(PlanChoiceSchema.anyOf, {
        description: "as for other questions; default: the best that the framework can say field by field",
      }),
    ),
    framework: FrameworkSchema,
  },
  closed,
);
export type ExportRequest = Static<typeof ExportRequestSchema>;
const writtenPrediction = {
  plan: PlanSchema,
  peakMemoryBytes: Type.Number(),
  memory: MemoryLinesSchema,
  memoryLimitBytes: Type.Number(),
  fits: Type.Boolean(),
  stepTimeSeconds: nullable(Type.Number()),
  runtimeBytes: nullable(Type.Number()),
};
export const ExportedConfigurationSchema = Type.Object({
  framework: FrameworkSchema,
  version: Type.String({ description: "whose option names and defaults these are" }),
  files: Type.Array(Type.Object({ name: Type.String(), text: Type.String() }), {
    description: "the first names the others",
  }),
  plan: Type.Object({ ...PlanSchema.properties }, { description: "what the files say" }),
  inexpressible: Type.Array(
    Type.Object({
      field: Type.String(),
      value: Type.Optional(Type.Unknown()),
      nearest: Type.Optional(Type.Unknown()),
      reason: Type.String(),
    }),
    { description: "what the framework has no option for, and what the files say instead" },
  ),
  predicted: Type.Object(writtenPrediction, {
    description: "what the plan that the files say needs and takes in our executor",
  }),
  best: Type.Optional(
    nullable(
      Type.Object(writtenPrediction, {
        description:
          "the fastest plan that fits and that the framework can say field by field; null where none does. Only where the files say another plan than the one asked for, or do not fit",
      }),
    ),
  ),
});
export type ExportedConfigurationAnswer = Static<typeof ExportedConfigurationSchema>;

export const ImportRequestSchema = Type.Object(
  {
    framework: FrameworkSchema,
    files: Type.Array(FileSchema, {
      minItems: 1,
      maxItems: 8,
      description: "the configuration, then files that it names",
    }),
    name: Type.Optional(Line(200, { description: "of the job; default: imported" })),
    nodes: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 2 ** 20, description: "default: as the configuration says" }),
    ),
    gpusPerNode: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 4096, description: "default: as the configuration says" }),
    ),
    memoryPerGpu: Type.Optional(Line(40, { description: "for example 80GB; default: the profile's" })),
    profile: Line(500, { description: "a shipped profile's name, or a stored one's id, name or cluster" }),
  },
  closed,
);
export type ImportRequest = Static<typeof ImportRequestSchema>;
const LaunchSchema = Type.Object({
  nodes: Type.Integer({ minimum: 1 }),
  gpusPerNode: Type.Integer({ minimum: 1 }),
});
export const ImportAnswerSchema = Type.Object({
  imported: Type.Object({
    framework: FrameworkSchema,
    version: Type.String(),
    launch: LaunchSchema,
    launchOrigin: Type.Object(
      {
        isAsked: Type.Boolean({ description: "the request gave the ranks, whatever the configuration says" }),
        said: nullable(LaunchSchema),
      },
      { description: "who says the ranks; `said`: the configuration, null where it does not" },
    ),
    model: ModelSchema,
    plan: PlanSchema,
    takenAs: Type.Array(
      Type.Object({
        option: Type.String(),
        value: Type.Optional(Type.Unknown()),
        as: Type.String(),
        errs: Type.Optional(
          Type.Object(
            {
              time: Type.Optional(Type.Enum(["too short", "too long"])),
              memory: Type.Optional(Type.Enum(["too small", "too large"])),
            },
            { description: "how the predicted figures err for it" },
          ),
        ),
      }),
      { description: "options without an exact counterpart, or left open, and what they were taken as" },
    ),
    warnings: Type.Array(
      Type.Object({
        field: Type.String(),
        value: Type.Optional(Type.Unknown()),
        message: Type.String({ description: "the framework's rule" }),
        remedy: Type.String(),
      }),
      { description: "what the framework itself refuses, or does not do, though a plan stands for it" },
    ),
    ignored: Type.Array(Type.String(), { description: "options that say nothing about time or memory" }),
  }),
  job: Type.Unknown({ description: "the same as a job file" }),
  planning: Type.Object(
    { ...PlanningResultSchema.properties },
    { description: "the job's best plan, and in `located` where the imported one stands" },
  ),
});
export type ImportAnswer = Static<typeof ImportAnswerSchema>;
