import { Type, type Static } from "typebox";
import { CandidateSchema, MemoryLinesSchema } from "./planning.ts";
import { PlanSchema } from "./plan.ts";

/** What a trial or a run measured, over the steps after warm-up. */
export const MeasurementSchema = Type.Object(
  {
    stepTimeSeconds: Type.Number({ exclusiveMinimum: 0, description: "median of the steps; of several runs, of their medians" }),
    stepTimeSecondsP10: Type.Number({ exclusiveMinimum: 0 }),
    stepTimeSecondsP90: Type.Number({ exclusiveMinimum: 0 }),
    steps: Type.Integer({ minimum: 1 }),
    runStepTimeSeconds: Type.Optional(Type.Array(Type.Number({ exclusiveMinimum: 0 }), { description: "median step time of each run, where the plan was run more than once" })),
    tokensPerGpuPerSecond: Type.Number(),
    peakMemoryBytes: Type.Integer(),
    residentPeakBytes: Type.Integer(),
    memory: MemoryLinesSchema,
    loss: Type.Number(),
    communicationSeconds: Type.Number(),
  },
  { additionalProperties: false },
);
export type Measurement = Static<typeof MeasurementSchema>;

/** Why a trial, an attempt or a job failed; out of memory is a result, not a crash. */
export const FAILURE_CODES = ["out-of-memory", "plan-unsupported", "data-invalid", "checkpoint-invalid", "communication", "rank-lost", "timeout", "cancelled", "no-feasible-plan", "profile-missing", "too-many-restarts", "not-started", "internal"] as const;
export const FailureSchema = Type.Object(
  { code: Type.Enum(FAILURE_CODES), message: Type.String(), rank: Type.Optional(Type.Integer()), remedy: Type.Optional(Type.String()) },
  { additionalProperties: false },
);
export type Failure = Static<typeof FailureSchema>;
export type FailureCode = Failure["code"];

export const TRIAL_STATES = ["pending", "running", "succeeded", "failed"] as const;
export const TrialSchema = Type.Object(
  {
    id: Type.String(),
    candidate: CandidateSchema,
    state: Type.Enum(TRIAL_STATES),
    measured: Type.Union([MeasurementSchema, Type.Null()]),
    failure: Type.Union([FailureSchema, Type.Null()]),
    startedAt: Type.Union([Type.String(), Type.Null()]),
    endedAt: Type.Union([Type.String(), Type.Null()]),
  },
  { additionalProperties: false },
);
export type Trial = Static<typeof TrialSchema>;

export const ATTEMPT_STATES = ["running", "succeeded", "failed", "lost", "stopped"] as const;
export const AttemptSchema = Type.Object(
  {
    number: Type.Integer({ minimum: 1 }),
    state: Type.Enum(ATTEMPT_STATES),
    resumedFromStep: Type.Integer({ minimum: 0 }),
    lastStep: Type.Integer({ minimum: 0 }),
    failure: Type.Union([FailureSchema, Type.Null()]),
    // What its ranks ran; attempts of earlier versions do not say.
    plan: Type.Optional(PlanSchema),
    startedAt: Type.String(),
    endedAt: Type.Union([Type.String(), Type.Null()]),
  },
  { additionalProperties: false },
);
export type Attempt = Static<typeof AttemptSchema>;

export const StepMetricSchema = Type.Object(
  {
    step: Type.Integer({ minimum: 1 }),
    loss: Type.Number(),
    gradientNorm: Type.Number(),
    learningRate: Type.Number(),
    stepTimeSeconds: Type.Number(),
    tokensPerSecond: Type.Number(),
    exposedCommunicationSeconds: Type.Number(),
    attempt: Type.Integer({ minimum: 1 }),
    at: Type.String(),
  },
  { additionalProperties: false },
);
export type StepMetric = Static<typeof StepMetricSchema>;

/** The end of a job's story: figures that a person or a machine reads first. */
export const ReportSchema = Type.Object(
  {
    // Of the last attempt.
    plan: PlanSchema,
    steps: Type.Integer(),
    finalLossNats: Type.Number({ description: "mean of the last tenth of the steps, nats per token" }),
    unigramEntropyNats: Type.Union([Type.Number(), Type.Null()], { description: "of the training tokens, nats per token" }),
    meanStepTimeSeconds: Type.Number(),
    tokensPerGpuPerSecond: Type.Number(),
    attempts: Type.Integer(),
    timeErrorOverTrials: Type.Union([Type.Number(), Type.Null()], { description: "mean |predicted − measured| / measured" }),
    memoryErrorOverTrials: Type.Union([Type.Number(), Type.Null()]),
    kendallTauOverTrials: Type.Union([Type.Number(), Type.Null()]),
  },
  { additionalProperties: false },
);
export type Report = Static<typeof ReportSchema>;
