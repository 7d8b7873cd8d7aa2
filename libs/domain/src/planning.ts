import { Type, type Static } from "typebox";
import { MemoryModelNameSchema, TimeModelNameSchema } from "./cost-models.ts";
import { PlanSchema } from "./plan.ts";
import { TOKENS_COUNTED } from "./speed.ts";

/** Why a plan was rejected: a closed set, CountSchema for every plan of the space. */
export const REJECTION_REASONS = [
  "batch-not-divisible",
  "sequence-not-divisible",
  "heads-not-divisible",
  "more-stages-than-layers",
  "ranks-not-divisible",
  "sharding-not-divisible",
  "gradient-sharding-not-allowed",
  "tensor-sequence-mismatch",
  "tensor-not-divisible",
  "context-not-possible",
  "chunks-not-possible",
  "recompute-layers-not-possible",
  "gate-up-not-possible",
  "memory-exceeded",
] as const;
export type RejectionReason = (typeof REJECTION_REASONS)[number];
export const RejectionReasonSchema = Type.Enum(REJECTION_REASONS);

/** Bytes by named line, of the fullest rank; the names are those of the executor's memory plan. */
export const MemoryLinesSchema = Type.Record(Type.String(), Type.Integer({ minimum: 0 }));
export type MemoryLines = Static<typeof MemoryLinesSchema>;

/** Seconds of one step by cause; they add up to the step time. */
export const TimeBreakdownSchema = Type.Object(
  {
    computeSeconds: Type.Number(),
    recomputeSeconds: Type.Number(),
    sequenceCommunicationSeconds: Type.Number({
      description: "exposed all-to-all, or tensor-parallel all-gather and reduce-scatter",
    }),
    parameterCommunicationSeconds: Type.Number({
      description: "exposed all-gather of parameters and reduce-scatter of gradients over the s_ps group",
    }),
    gradientCommunicationSeconds: Type.Number({ description: "reduction over the replicas" }),
    pipelineBubbleSeconds: Type.Number(),
    pipelineCommunicationSeconds: Type.Number(),
    hostCopySeconds: Type.Optional(
      Type.Number({
        description:
          "exposed copies of gate and up to the host's memory and back; absent where a plan has none",
      }),
    ),
    updateSeconds: Type.Number({
      description: "gradient norm, optimizer step, all-gather of updated parameters",
    }),
  },
  { additionalProperties: false },
);
export type TimeBreakdown = Static<typeof TimeBreakdownSchema>;

export const PredictionSchema = Type.Object(
  {
    stepTimeSeconds: Type.Number({ exclusiveMinimum: 0 }),
    stepTimeRangeSeconds: Type.Optional(
      Type.Object(
        { low: Type.Number({ exclusiveMinimum: 0 }), high: Type.Number({ exclusiveMinimum: 0 }) },
        {
          additionalProperties: false,
          description:
            "the step time with every measurement at the 10th, and at the 90th percentile of its samples, and wider where something was estimated because nothing was measured for it; absent where the profile says no spread",
        },
      ),
    ),
    tokensPerGpuPerSecond: Type.Number({ exclusiveMinimum: 0, description: TOKENS_COUNTED }),
    peakMemoryBytes: Type.Integer({ minimum: 0 }),
    memory: MemoryLinesSchema,
    hostMemoryBytes: Type.Optional(
      Type.Integer({
        minimum: 1,
        description:
          "what the rank that needs most keeps in its host's memory, beside its own; absent where it is nothing",
      }),
    ),
    time: TimeBreakdownSchema,
    mfu: Type.Number({ description: "causal: what the model needs, over the peak" }),
    mfuFullAttention: Type.Number({
      description: "attention CountSchema without the causal mask, as in the paper",
    }),
    hfu: Type.Number({ description: "with recomputed work" }),
    speedOfLight: Type.Number({ description: "the kernels' time at the profiled peak, over the step time" }),
  },
  { additionalProperties: false },
);
export type Prediction = Static<typeof PredictionSchema>;

/**
 * Where the ranks of a plan sit: the fastest-varying dimension first, and how many nodes one group of each
 * dimension touches.
 */
export const PlacementPlanSchema = Type.Object(
  {
    rankOrder: Type.Array(Type.String()),
    nodesPerGroup: Type.Record(Type.String(), Type.Integer({ minimum: 1 })),
  },
  { additionalProperties: false },
);
export type PlacementPlan = Static<typeof PlacementPlanSchema>;

export const CandidateSchema = Type.Object(
  {
    rank: Type.Integer({
      minimum: 1,
      description:
        "1 is the fastest predicted; of a plan that is not the best of its family, 1 and how many families have a faster one",
    }),
    plan: PlanSchema,
    placement: PlacementPlanSchema,
    predicted: PredictionSchema,
    runnable: Type.Boolean({ description: "whether InternEvo's own trainer can run this plan" }),
    notRunnableReason: Type.Union([Type.String(), Type.Null()], {
      description: "why it cannot, such as: heads of 512 elements on GPUs, where 256 is the most",
    }),
    tied: Type.Optional(
      Type.Integer({
        minimum: 1,
        description: "so many further plans with the same ranks, shards and batches take exactly as long",
      }),
    ),
  },
  { additionalProperties: false },
);
export type Candidate = Static<typeof CandidateSchema>;

/**
 * Says of a plan, or of a job, that the trainer cannot run it. @param reason as `notRunnableReason` gives it.
 */
export const withoutTrainer = (reason: string): string => `InternEvo's own trainer cannot run it: ${reason}`;
/** Says the same of all plans of a list. */
export const noneWithoutTrainer = (reason: string): string =>
  `InternEvo's own trainer can run none of these: ${reason}`;

export const CountsSchema = Type.Object(
  {
    evaluated: Type.Integer({ minimum: 0 }),
    feasible: Type.Integer({ minimum: 0 }),
    rejected: Type.Record(RejectionReasonSchema, Type.Integer({ minimum: 0 })),
    pruned: Type.Optional(
      Type.Integer({
        minimum: 0,
        description:
          "plans that need not be looked at: a bound says that each is slower than all that are listed",
      }),
    ),
  },
  { additionalProperties: false },
);

export const LocatedSchema = Type.Object(
  {
    rank: Type.Union([
      Type.Integer({
        minimum: 1,
        description: "1 and how many families have a faster plan, or one as fast that needs less memory",
      }),
      Type.Null(),
    ]),
    feasible: Type.Boolean(),
    reason: Type.Union([Type.String(), Type.Null()]),
    predicted: Type.Union([PredictionSchema, Type.Null()]),
  },
  { additionalProperties: false },
);

const CountSchema = (what: string) => Type.Integer({ minimum: 0, description: what });

/** What is estimated of a planning result, since the profile lacks its measurement. */
export const EstimatesSchema = Type.Object(
  {
    profile: Type.String({ description: "the profile that lacks them, or has them noisily" }),
    needed: CountSchema("measurements that the step times of this job's plans rest on"),
    missing: Type.Object(
      {
        modules: CountSchema("times of single modules"),
        collectives: CountSchema("times of collectives of one size over one group"),
        overlaps: CountSchema("slow-downs of a module beside a collective"),
        slices: CountSchema("micro-batches that the trainer itself runs"),
      },
      { additionalProperties: false, description: "those that the profile lacks, and that are estimated" },
    ),
    noisy: CountSchema("those that the profile has noisily"),
    estimatedProfile: Type.Optional(
      Type.String({
        description: "where the profile's own points are estimates from published figures: says so",
      }),
    ),
    measuredBy: Type.String({ description: "the command that measures them" }),
    planWith: Type.Union([Type.String(), Type.Null()], {
      description:
        "the value of --profile that takes what was measured; null: the command takes it by itself",
    }),
    varies: Type.Optional(
      Type.Array(Type.String(), {
        description:
          "fields of the job that an answer varies; the command measures for their values in the job",
      }),
    ),
  },
  { additionalProperties: false, description: "which step times are estimated; there only where some are" },
);
export type Estimates = Static<typeof EstimatesSchema>;

/**
 * What the planner answers. `candidates` are the k best different plans: the best of each of the k best
 * families, where a family is all plans with the same ranks, shards, batches and kind of schedule (plain or
 * interleaved), whatever their overlap, number of chunks and recomputed layers. `runnableCandidates` are
 * those of them that InternEvo's own trainer can run. `plans` are, when they were asked for, the k best of
 * all, whatever their family.
 */
export const PlanningResultSchema = Type.Object(
  {
    schemaVersion: Type.Literal(1),
    job: Type.String(),
    profile: Type.String(),
    memoryModel: MemoryModelNameSchema,
    timeModel: Type.Optional(TimeModelNameSchema),
    memoryLimitBytes: Type.Integer({ minimum: 1 }),
    candidates: Type.Array(CandidateSchema),
    runnableCandidates: Type.Array(CandidateSchema),
    plans: Type.Optional(Type.Array(CandidateSchema)),
    counts: CountsSchema,
    closest: Type.Union(
      [
        Type.Object({ plan: PlanSchema, peakMemoryBytes: Type.Integer(), memory: MemoryLinesSchema }),
        Type.Null(),
      ],
      { description: "when nothing fits: the plan that needs the least memory" },
    ),
    unmet: Type.Optional(
      Type.String({ description: "when no plan at all meets what the job's `plan` asks for: why" }),
    ),
    documents: Type.Optional(
      Type.String({ description: "of a job that packs documents: whether attention was counted with them" }),
    ),
    warnings: Type.Array(Type.String()),
    estimates: Type.Optional(EstimatesSchema),
    located: Type.Optional(LocatedSchema),
  },
  { additionalProperties: false },
);
export type PlanningResult = Static<typeof PlanningResultSchema>;
