import { Type, type Static } from "typebox";
import { HostUseSchema } from "./host-use.ts";
import { CandidateSchema, MemoryLinesSchema } from "./planning.ts";
import { PlanSchema } from "./plan.ts";
import { TOKENS_COUNTED } from "./speed.ts";

/** One run of a plan, over its steps after warm-up. */
export const TrialRunSchema = Type.Object(
  {
    stepTimeSeconds: Type.Number({ exclusiveMinimum: 0, description: "median of the steps" }),
    stepTimeSecondsP10: Type.Number({ exclusiveMinimum: 0 }),
    stepTimeSecondsP90: Type.Number({ exclusiveMinimum: 0 }),
    steps: Type.Integer({ minimum: 1 }),
    communicationSeconds: Type.Number(),
    hosts: Type.Optional(Type.Array(HostUseSchema, { description: "what else the hosts did meanwhile" })),
    disturbances: Type.Optional(
      Type.Array(Type.String(), {
        description: "why its times may be wrong; absent where nothing disturbed it",
      }),
    ),
  },
  { additionalProperties: false },
);
export type TrialRun = Static<typeof TrialRunSchema>;

/** What a trial or a run measured, over the steps after warm-up. */
export const MeasurementSchema = Type.Object(
  {
    stepTimeSeconds: Type.Number({
      exclusiveMinimum: 0,
      description: "median of the steps; of several runs, of their medians",
    }),
    stepTimeSecondsP10: Type.Number({ exclusiveMinimum: 0 }),
    stepTimeSecondsP90: Type.Number({ exclusiveMinimum: 0 }),
    steps: Type.Integer({ minimum: 1 }),
    runStepTimeSeconds: Type.Optional(
      Type.Array(Type.Number({ exclusiveMinimum: 0 }), {
        description: "median step time of each run that counts, where the plan was run more than once",
      }),
    ),
    runs: Type.Optional(
      Type.Array(TrialRunSchema, {
        description: "every run; those that were disturbed count only where all were",
      }),
    ),
    tokensPerGpuPerSecond: Type.Number({ description: TOKENS_COUNTED }),
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
export const FAILURE_CODES = [
  "out-of-memory",
  "plan-unsupported",
  "data-invalid",
  "checkpoint-invalid",
  "communication",
  "rank-lost",
  "not-finite",
  "timeout",
  "cancelled",
  "no-feasible-plan",
  "profile-missing",
  "too-many-restarts",
  "not-started",
  "internal",
] as const;
export const FailureSchema = Type.Object(
  {
    code: Type.Enum(FAILURE_CODES),
    message: Type.String(),
    rank: Type.Optional(Type.Integer()),
    remedy: Type.Optional(Type.String()),
  },
  { additionalProperties: false },
);
export type Failure = Static<typeof FailureSchema>;
export type FailureCode = Failure["code"];

/** What a trial can say of its plan by failing; other failures say nothing of it, and it can be tried again. */
export const FAILURES_OF_PLANS = [
  "out-of-memory",
  "plan-unsupported",
  "timeout",
] as const satisfies readonly FailureCode[];

/** `cancelled`: its job ended before it did; it says nothing of its plan. */
export const TRIAL_STATES = ["pending", "running", "succeeded", "failed", "cancelled"] as const;
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
export type TrialState = Trial["state"];

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
    gaveWayTo: Type.Optional(
      Type.String({ description: "it ended so that this job could have its hosts, in words" }),
    ),
    startedAt: Type.String(),
    endedAt: Type.Union([Type.String(), Type.Null()]),
  },
  { additionalProperties: false },
);
export type Attempt = Static<typeof AttemptSchema>;
export type AttemptState = Attempt["state"];

export const StepMetricSchema = Type.Object(
  {
    step: Type.Integer({ minimum: 1 }),
    loss: Type.Number(),
    gradientNorm: Type.Number(),
    learningRate: Type.Number(),
    stepTimeSeconds: Type.Number(),
    tokensPerSecond: Type.Number({ description: TOKENS_COUNTED }),
    exposedCommunicationSeconds: Type.Number(),
    attempt: Type.Integer({ minimum: 1 }),
    at: Type.String(),
  },
  { additionalProperties: false },
);
export type StepMetric = Static<typeof StepMetricSchema>;

/** The loss of held-out data at a step, 0 before training; by one attempt or another, it is the same. */
export const ValidationLossSchema = Type.Object(
  {
    step: Type.Integer({ minimum: 0 }),
    loss: Type.Number({ description: "mean over the tokens of all batches, nats per token" }),
    tokens: Type.Integer({ minimum: 1, description: "tokens that were predicted" }),
    seconds: Type.Number({ description: "that the evaluation took" }),
    attempt: Type.Integer({ minimum: 1 }),
    at: Type.String(),
  },
  { additionalProperties: false },
);
export type ValidationLoss = Static<typeof ValidationLossSchema>;

/** How many of a training's last steps its final loss is the mean of: a tenth of them. */
export const stepsOfFinalLoss = (steps: number): number => Math.max(1, Math.ceil(steps / 10));

/** The end of a job's story: figures that a person or a machine reads first. */
export const ReportSchema = Type.Object(
  {
    // Of the last attempt.
    plan: PlanSchema,
    steps: Type.Integer(),
    finalLossNats: Type.Number({ description: "mean of the last tenth of the steps, nats per token" }),
    validation: Type.Optional(
      Type.Object(
        {
          lossNats: Type.Number({ description: "after the last step, nats per token" }),
          best: Type.Object(
            { step: Type.Integer({ minimum: 0 }), lossNats: Type.Number() },
            { additionalProperties: false, description: "the lowest, and after which step" },
          ),
          evaluations: Type.Integer({ minimum: 1 }),
          seconds: Type.Number({ description: "that all evaluations took" }),
        },
        { additionalProperties: false, description: "of held-out data, where the job names some" },
      ),
    ),
    unigramEntropyNats: Type.Union([Type.Number(), Type.Null()], {
      description: "of the training tokens, nats per token",
    }),
    meanStepTimeSeconds: Type.Number(),
    tokensPerGpuPerSecond: Type.Number({ description: TOKENS_COUNTED }),
    attempts: Type.Integer(),
    timeErrorOverTrials: Type.Union([Type.Number(), Type.Null()], {
      description: "mean |predicted − measured| / measured",
    }),
    memoryErrorOverTrials: Type.Union([Type.Number(), Type.Null()]),
    kendallTauOverTrials: Type.Union([Type.Number(), Type.Null()]),
    choice: Type.Optional(
      Type.Object(
        {
          verdict: Type.Enum(["winner", "tie", "only"], {
            description:
              "winner: faster than every other measured plan by more than the noise of both; tie: not, and of those that no other plan beats in time and memory, the leanest was chosen; only: nothing else was measured",
          }),
          tied: Type.Array(PlanSchema, { description: "the plans that tie, the chosen one first" }),
          within: Type.Union([Type.Number(), Type.Null()], {
            description:
              "how far the slowest of the tied plans is behind the fastest, or the next behind the winner; a fraction",
          }),
          noise: Type.Number({ description: "of the chosen plan's measured time, a fraction of it" }),
          words: Type.String(),
        },
        { additionalProperties: false },
      ),
    ),
    disturbances: Type.Optional(
      Type.Array(Type.String(), {
        description: "what disturbed the trials or the training, so that their times may be wrong",
      }),
    ),
    hosts: Type.Optional(
      Type.Array(HostUseSchema, { description: "what the hosts did during the last attempt" }),
    ),
  },
  { additionalProperties: false },
);
export type Report = Static<typeof ReportSchema>;
