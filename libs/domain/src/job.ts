import watchdogDefaults from "../../../native/src/protocol/watchdog_defaults.json" with { type: "json" };
import { Type, type Static } from "typebox";
import {
  MAXIMUM_BATCH_TOKENS,
  MAXIMUM_BYTES,
  MAXIMUM_RANKS,
  MAXIMUM_SEQUENCE_TOKENS,
  MAXIMUM_STEPS,
  zeroOr,
} from "./bounds.ts";
import { MemoryModelNameSchema, TimeModelNameSchema } from "./cost-models.ts";
import { DataSchema, HeldOutDataSchema } from "./data.ts";
import { LAUNCHERS, SCHEDULED_LAUNCHERS } from "./launchers.ts";
import { ModelSchema } from "./model.ts";
import { PackedDocumentsSchema } from "./packed-documents.ts";
import { PlanConstraintsSchema, type PlanConstraints } from "./plan-constraints.ts";
import { PrecisionSchema } from "./precision.ts";
import { LabelsSchema, PreemptibleSchema, PrioritySchema } from "./priority.ts";
import { DEFAULT_PROJECT, ProjectNameSchema } from "./project.ts";
import { Line } from "./text.ts";

const aboutFewerNodes = (): string =>
  `with launcher ${SCHEDULED_LAUNCHERS}: when nodes are lost, training is planned again for those that are left, if they are so many; without it the job then fails`;

/** What ranks compute on: one GPU of NVIDIA's each, or threads of the host. */
export const DEVICES = ["cpu", "cuda"] as const;

/** Of a cluster's hostMemoryBytes. */
export const HOST_MEMORY_WORDS =
  "memory of a node's host that ranks on GPUs may keep activations in; left out, or on processors: no plan that needs it is chosen unless plan.gateUp asks for it";

/** Of a job's `headroom`. */
export const HEADROOM_WORDS =
  "memory of each GPU that plans leave free: a share such as 5%, or a size such as 4GB; default: none";

/**
 * A cluster, resolved. `gpusPerNode` counts ranks a node: GPUs where `device` is cuda, else parts of the
 * host's cores.
 */
export const ClusterSchema = Type.Object(
  {
    name: Line(100),
    nodes: Type.Integer({ minimum: 1, maximum: MAXIMUM_RANKS }),
    gpusPerNode: Type.Integer({ minimum: 1, maximum: 4096 }),
    memoryPerGpuBytes: Type.Integer({ minimum: 1, maximum: MAXIMUM_BYTES }),
    hostMemoryBytes: Type.Optional(
      Type.Integer({ minimum: 1, maximum: MAXIMUM_BYTES, description: HOST_MEMORY_WORDS }),
    ),
    launcher: Type.Enum(LAUNCHERS),
    device: Type.Optional(
      Type.Enum(DEVICES, { description: "what ranks compute on; cuda: a GPU each; default cpu" }),
    ),
    profile: Type.Union([Line(500), Type.Null()], {
      description:
        "name of a shipped profile, or id, name or cluster of a stored one; the command line also takes the path of a profile file and sends its content; null: the cluster is measured",
    }),
    minNodes: Type.Optional(
      Type.Integer({ minimum: 1, maximum: MAXIMUM_RANKS, description: aboutFewerNodes() }),
    ),
  },
  { additionalProperties: false },
);
export type Cluster = Static<typeof ClusterSchema>;

/** Whether ranks compute on GPUs. */
export const usesGpus = ({ device }: Pick<Cluster, "device">): boolean => device === "cuda";

/** Names the clusters that share measured profiles: equal keys, equal machines. */
export const clusterKey = (
  cluster: Pick<Cluster, "name" | "nodes" | "gpusPerNode" | "launcher" | "device">,
): string =>
  `${cluster.launcher}:${cluster.name}:${cluster.nodes}x${cluster.gpusPerNode}${usesGpus(cluster) ? ":cuda" : ""}`;

/** Finds the cluster's name in its key, as a regular expression that JavaScript and Postgres read alike. */
export const CLUSTER_NAME_IN_KEY = String.raw`^(?:${LAUNCHERS.join("|")}):(.*):\d+x\d+(?::cuda)?$`;

/**
 * What stands for a cluster where somebody gave a profile: it is nobody's measurement, and grows neither
 * fresh nor stale.
 */
export const givenKey = (profileName: string): string => `given:${profileName}`;
export const isGivenKey = (key: string): boolean => key.startsWith(givenKey(""));

/** How the learning rate goes on behind its warm-up. */
export const LEARNING_RATE_SCHEDULES = ["cosine", "linear", "constant", "wsd"] as const;

export const OptimizerSchema = Type.Object(
  {
    schedule: Type.Optional(
      Type.Enum(LEARNING_RATE_SCHEDULES, {
        description:
          "of the learning rate behind warm-up: cosine (the default) or linear to minLearningRate, constant, or wsd: the peak, then linear over annealingSteps",
      }),
    ),
    annealingSteps: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: MAXIMUM_STEPS,
        description:
          "of wsd: the last of decaySteps, over which the learning rate falls; a tenth of decaySteps where it is left out",
      }),
    ),
    peakLearningRate: Type.Number({ minimum: 1e-11, maximum: 10 }),
    minLearningRate: zeroOr(1e-12, 10, "at most the peak"),
    warmupSteps: Type.Integer({
      minimum: 0,
      maximum: MAXIMUM_STEPS,
      description: "the peak is reached after them: at most decaySteps and the job's steps",
    }),
    decaySteps: Type.Integer({
      minimum: 1,
      maximum: MAXIMUM_STEPS,
      description: "minLearningRate is reached after them",
    }),
    weightDecay: zeroOr(1e-9, 10),
    // The trainer keeps them in 4 bytes, where what is nearer to 1 would be 1.
    beta1: Type.Number({ minimum: 0, maximum: 0.999_999 }),
    beta2: Type.Number({ minimum: 0, maximum: 0.999_999 }),
    epsilon: Type.Number({ minimum: 1e-20, maximum: 1 }),
    clipGlobalNorm: zeroOr(1e-9, 1e6, "0: no clipping"),
  },
  { additionalProperties: false },
);
export type Optimizer = Static<typeof OptimizerSchema>;

/** The validation loss: that of held-out data, which the model is not trained on. */
export const ValidationSchema = Type.Object(
  {
    data: HeldOutDataSchema,
    everySteps: Type.Integer({
      minimum: 1,
      maximum: MAXIMUM_STEPS,
      description: "steps between two evaluations; the first is before training, the last behind it",
    }),
    batches: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      description: "global batches of each evaluation: the first of the held-out data, always the same",
    }),
  },
  { additionalProperties: false },
);
export type Validation = Static<typeof ValidationSchema>;

/** Newest checkpoints that are kept, where a job says nothing. */
export const DEFAULT_KEEP_LAST = 2;

export const CheckpointingSchema = Type.Object(
  {
    everySteps: Type.Integer({
      minimum: 1,
      maximum: MAXIMUM_STEPS,
      description: "steps between two checkpoints; a tenth of the job's steps where a job file leaves it out",
    }),
    keepLast: Type.Integer({
      minimum: 1,
      maximum: 1000,
      description: `newest checkpoints that are kept (default ${DEFAULT_KEEP_LAST}); 1 keeps two all the same, so that there is an older one to fall back to. While the next is written there is one more`,
    }),
  },
  { additionalProperties: false },
);

export type Checkpointing = Static<typeof CheckpointingSchema>;

/**
 * How many checkpoints a run keeps: one more than asked when only one is, so that there is an older one to
 * fall back to.
 */
export const checkpointsToKeep = ({ keepLast }: { readonly keepLast: number }): number =>
  Math.max(2, keepLast);

/**
 * How many checkpoints of a run have to have room: those that it keeps, and the next, which is written before
 * the oldest gives way.
 */
export const checkpointsAtOnce = (checkpointing: { readonly keepLast: number }): number =>
  checkpointsToKeep(checkpointing) + 1;

/** Further runs of each plan that is not told apart from the fastest, where a job says nothing. */
export const DEFAULT_TRIAL_REPEATS = 2;

export const TrialSettingsSchema = Type.Object(
  {
    count: Type.Integer({ minimum: 1, maximum: 100, description: "plans tried for real (the paper: 10)" }),
    warmupSteps: Type.Integer({ minimum: 0, maximum: 1000 }),
    steps: Type.Integer({ minimum: 1, maximum: 10_000, description: "measured steps, after warm-up" }),
    repeats: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: 10,
        description: `further runs of each plan that was disturbed, or that the runs so far do not tell apart from the fastest (default ${DEFAULT_TRIAL_REPEATS})`,
      }),
    ),
    also: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 200 }), {
        maxItems: 10,
        description:
          "plans, or parts of plans such as tp2 or pp2 v2: of each that none of the `count` plans has, " +
          "the best plan with it is tried too",
      }),
    ),
  },
  { additionalProperties: false },
);

/** Steps of a run, and of each trial, whose timeline is recorded: what every rank did on its lanes. */
export const TimelineSchema = Type.Object(
  {
    firstStep: Type.Integer({
      minimum: 1,
      maximum: MAXIMUM_STEPS,
      description: "of an attempt that goes on behind it: its first step",
    }),
    steps: Type.Integer({ minimum: 1, maximum: 1000 }),
  },
  { additionalProperties: false },
);
export type Timeline = Static<typeof TimelineSchema>;

const { leastBeatSeconds, ...watchdogLimits } = watchdogDefaults;
const limit = (description: string, value: number, least?: number) =>
  Type.Optional(
    Type.Number({
      ...(least === undefined ? { exclusiveMinimum: 0 } : { minimum: least }),
      maximum: 1e6,
      default: value,
      description,
    }),
  );

/** When a rank counts as lost; what is left out is the default. */
export const WatchdogSchema = Type.Object(
  {
    beatSeconds: limit("between two signs of life of a rank", watchdogLimits.beatSeconds, leastBeatSeconds),
    silenceSeconds: limit(
      "a rank that gives no sign for so long has died or is frozen; at least three beats",
      watchdogLimits.silenceSeconds,
    ),
    stallSeconds: limit(
      "no operation ends on any rank for so long: the rank that is not waiting for others is stuck",
      watchdogLimits.stallSeconds,
    ),
    stallFactor: limit(
      "and for so many times the longest operation so far, if that is more",
      watchdogLimits.stallFactor,
    ),
    firstStepSeconds: limit("the same until a first step has ended", watchdogLimits.firstStepSeconds),
  },
  { additionalProperties: false },
);
export type Watchdog = Static<typeof WatchdogSchema>;
export const WATCHDOG_DEFAULTS: Required<Watchdog> = watchdogLimits;

/** Of a job file's `replanning`, where it leaves something out. */
export const REPLANNING_DEFAULTS = {
  driftThreshold: 0.1,
  gainThreshold: 0.02,
  compareSteps: 20,
  notInLastSteps: 100,
  lastingSeconds: 60,
  leastPauseSeconds: 1800,
} as const;

/** When a run looks for a better plan by itself. */
export const ReplanningSchema = Type.Object(
  {
    driftThreshold: Type.Number({
      // Less is what any two steps differ by.
      minimum: 0.001,
      maximum: 10,
      default: REPLANNING_DEFAULTS.driftThreshold,
      description:
        "change of the step time since the ranks began, as a fraction, from which on the cluster is measured anew",
    }),
    gainThreshold: Type.Number({
      minimum: 0,
      maximum: 1,
      default: REPLANNING_DEFAULTS.gainThreshold,
      description:
        "gain in step time below which no other plan is tried, by prediction, and none is kept, as measured",
    }),
    compareSteps: Type.Integer({
      minimum: 2,
      maximum: 1000,
      default: REPLANNING_DEFAULTS.compareSteps,
      description: "steps of each median that is compared",
    }),
    notInLastSteps: Type.Integer({
      minimum: 0,
      maximum: MAXIMUM_STEPS,
      default: REPLANNING_DEFAULTS.notInLastSteps,
      description: "nothing is changed when fewer steps are left",
    }),
    lastingSeconds: Type.Number({
      minimum: 0,
      maximum: 86_400,
      default: REPLANNING_DEFAULTS.lastingSeconds,
      description: "how long steps have to take longer, or less, until it counts",
    }),
    leastPauseSeconds: Type.Number({
      minimum: 0,
      maximum: 31_536_000,
      default: REPLANNING_DEFAULTS.leastPauseSeconds,
      description: "least time between two looks; twice as long after each one in a row that gained nothing",
    }),
  },
  { additionalProperties: false },
);
export type Replanning = Static<typeof ReplanningSchema>;

/** A job with every default filled in and every name resolved: what the services and the planner work on. */
export const JobSpecSchema = Type.Object(
  {
    name: Line(100),
    model: ModelSchema,
    sequenceLengthTokens: Type.Integer({ minimum: 1, maximum: MAXIMUM_SEQUENCE_TOKENS }),
    globalBatchTokens: Type.Integer({ minimum: 1, maximum: MAXIMUM_BATCH_TOKENS }),
    precision: PrecisionSchema,
    optimizer: OptimizerSchema,
    data: Type.Union([DataSchema, Type.Null()], { description: "null: the job can be planned, not run" }),
    documents: Type.Optional(
      Type.Unsafe<Static<typeof PackedDocumentsSchema>>({
        ...PackedDocumentsSchema,
        description:
          "what packed documents leave of attention, counted in the data; absent: as of one document",
      }),
    ),
    steps: Type.Integer({ minimum: 1, maximum: MAXIMUM_STEPS }),
    seed: Type.Integer({ minimum: 0, maximum: 2 ** 31 - 1 }),
    cluster: ClusterSchema,
    validation: Type.Optional(ValidationSchema),
    checkpointing: Type.Union([CheckpointingSchema, Type.Null()]),
    trials: TrialSettingsSchema,
    initialWeights: Type.Optional(
      Line(4096, {
        description:
          "Hugging Face folder (LLaMA, Mistral, Qwen2, Qwen3, InternLM2), or one checkpoint: the weights that training begins with; without it they are drawn by the seed",
      }),
    ),
    timeline: Type.Optional(TimelineSchema),
    watchdog: Type.Optional(
      Type.Union([WatchdogSchema, Type.Literal(false)], {
        description: "when a rank counts as lost; false: the launcher alone watches the ranks",
      }),
    ),
    headroom: Type.Optional(Line(40, { description: HEADROOM_WORDS })),
    memoryModel: MemoryModelNameSchema,
    timeModel: Type.Optional(TimeModelNameSchema),
    measureAgain: Type.Optional(
      Type.Boolean({ description: "true: the cluster is measured, though a fresh profile is there" }),
    ),
    until: Type.Optional(
      Type.Enum(["profiling"], {
        description: "profiling: the job ends when its cluster is measured; default: it trains",
      }),
    ),
    plan: Type.Optional(Type.Unsafe<PlanConstraints>(PlanConstraintsSchema)),
    project: Type.Optional(
      Type.String({
        ...ProjectNameSchema,
        description: `the project that it belongs to, whose quotas it counts for; left out: the project of the token that submits it, ${DEFAULT_PROJECT} for tokens of the whole installation`,
      }),
    ),
    priority: Type.Optional(PrioritySchema),
    preemptible: Type.Optional(PreemptibleSchema),
    tracking: Type.Optional(
      Type.Boolean({
        default: true,
        description: "false: the job's metrics are not sent to the installation's trackers",
      }),
    ),
    replanning: Type.Optional(
      Type.Unsafe<Replanning>({
        ...ReplanningSchema,
        description:
          "the run measures its cluster anew when its steps take longer or less, and goes on under a better plan; absent: never by itself",
      }),
    ),
    labels: Type.Optional(LabelsSchema),
  },
  { additionalProperties: false },
);
export type JobSpec = Static<typeof JobSpecSchema>;

/**
 * The states of a job, in the order of its way; the last three are terminal. A held job waits for somebody to
 * let it go on: its ranks were lost from outside, too often in a row without progress.
 */
export const JOB_STATES = [
  "profiling",
  "planning",
  "trialling",
  "running",
  "held",
  "cancelling",
  "succeeded",
  "failed",
  "cancelled",
] as const;
export type JobState = (typeof JOB_STATES)[number];
export const TERMINAL_JOB_STATES: readonly JobState[] = ["succeeded", "failed", "cancelled"];

/** The states from which somebody can let a job go on, in the stage in which it stopped. */
export const RESUMABLE_JOB_STATES = ["held", "failed", "cancelled"] as const satisfies readonly JobState[];
export type ResumableJobState = (typeof RESUMABLE_JOB_STATES)[number];

const NEXT: Readonly<Record<JobState, readonly JobState[]>> = {
  profiling: ["planning", "succeeded", "held", "cancelling", "cancelled", "failed"],
  planning: ["trialling", "held", "cancelling", "cancelled", "failed"],
  trialling: ["running", "held", "cancelling", "cancelled", "failed"],
  running: ["succeeded", "held", "cancelling", "cancelled", "failed"],
  held: ["profiling", "planning", "trialling", "running", "cancelled"],
  cancelling: ["cancelled"],
  succeeded: [],
  failed: ["profiling", "planning", "trialling", "running"],
  cancelled: ["profiling", "planning", "trialling", "running"],
};

/** Whether a job may go from one state to another. What succeeded stays so. */
export const canTransition = (from: JobState, to: JobState): boolean => NEXT[from].includes(to);
export const isTerminal = (state: JobState): boolean => TERMINAL_JOB_STATES.includes(state);

/** Whether nobody works on a job, or will before somebody lets it go on: it has ended, or is held. */
export const isAtRest = (state: JobState): boolean => state === "held" || isTerminal(state);

/** Whether somebody can let a job go on. */
export const isResumable = (state: JobState): state is ResumableJobState =>
  RESUMABLE_JOB_STATES.some((each) => each === state);
