import { formatCounted, formatInteger } from "./figures.ts";
import type { AttemptState, FailureCode, TrialState } from "./execution.ts";
import type { JobState } from "./job.ts";
import type { Model } from "./model.ts";
import { PLAN_ROWS, type PlanField } from "./plan-fields.ts";
import type { Plan } from "./plan.ts";
import type { PlanningResult, Prediction, RejectionReason, TimeBreakdown } from "./planning.ts";

/*
 * The words that the command line, the console, pictures and messages use for what the program calls otherwise: one thing has one name
 * everywhere. Each is written as it begins a heading; `lowered` has it as it stands in a sentence.
 */

/** "Optimizer states" as in a sentence: "optimizer states"; abbreviations (RoPE, MFU, BF16) stay. */
export const lowered = (words: string): string =>
  words.replace(/^[A-Z](?=[a-z-]*(?![A-Za-z]))/, (letter) => letter.toLowerCase());

/** The remedy of a job that has ended before its end, and has what it did so far. */
export const LET_IT_GO_ON = "let the job go on: internevo resume, or its page in the console";

/** What a model has beyond a LLaMA of its sizes, each in a few words; nothing of most models. */
export function modelExtras({
  headSize,
  queryKeyNorm,
  queryKeyValueBias,
  slidingWindowTokens,
  ropeScaling,
}: Model): string[] {
  return [
    ...(headSize === undefined ? [] : [`heads of ${formatInteger(headSize)}`]),
    ...(queryKeyNorm === true ? ["norms of q and k"] : []),
    ...(queryKeyValueBias === true ? ["biases of q, k and v"] : []),
    ...(slidingWindowTokens === undefined
      ? []
      : [`a window of ${formatCounted(slidingWindowTokens, "token")}`]),
    ...(ropeScaling === undefined
      ? []
      : [`positions scaled ${ropeScaling.factor} times (${ropeScaling.kind})`]),
  ];
}

/** A model's name, with what it has beyond its sizes. */
export function modelWords(model: Model): string {
  const extras = modelExtras(model);
  return extras.length === 0 ? model.name : `${model.name} with ${extras.join(", ")}`;
}

/** Where a plan stands by prediction: ranks count families of plans, one more than are ahead of it. */
export function rankWords(rank: number): string {
  if (rank === 1) return "rank 1: no other family of plans is ahead of it";
  const ahead =
    rank === 2 ? "the best plan of 1 family is" : `the best plans of ${formatInteger(rank - 1)} families are`;
  return `rank ${formatInteger(rank)}: ${ahead} ahead of it`;
}

export const JOB_STATE_WORDS: Readonly<Record<JobState, string>> = {
  profiling: "Profiling",
  planning: "Planning",
  trialling: "Trialling",
  running: "Training",
  held: "Held",
  cancelling: "Cancelling",
  succeeded: "Succeeded",
  failed: "Failed",
  cancelled: "Cancelled",
};

/** What a job that waits for its turn on a cluster is called, whatever its stage. */
export const QUEUED_WORD = "Queued";

export const TRIAL_STATE_WORDS: Readonly<Record<TrialState, string>> = {
  pending: "Waiting",
  running: "Running",
  succeeded: "Measured",
  failed: "Failed",
  cancelled: "Cancelled",
};

export const ATTEMPT_STATE_WORDS: Readonly<Record<AttemptState, string>> = {
  running: "Running",
  succeeded: "Succeeded",
  failed: "Failed",
  lost: "Lost",
  stopped: "Stopped",
};

/** What a stage does, for somebody who sees it for the first time. */
export const STAGES = [
  {
    state: "profiling",
    name: JOB_STATE_WORDS.profiling,
    about: "Measures collectives and modules of this cluster, or takes a profile that is fresh enough.",
  },
  {
    state: "planning",
    name: JOB_STATE_WORDS.planning,
    about: "Predicts memory and time of every plan, and ranks those that fit.",
  },
  {
    state: "trialling",
    name: JOB_STATE_WORDS.trialling,
    about: "Runs the best plans for a few steps each, and measures them.",
  },
  {
    state: "running",
    name: JOB_STATE_WORDS.running,
    about: "Trains with the plan that was fastest by measurement, or the leanest of those that tie.",
  },
] as const satisfies readonly { state: JobState; name: string; about: string }[];

export const FAILURE_WORDS: Readonly<Record<FailureCode, string>> = {
  "out-of-memory": "Out of memory",
  "plan-unsupported": "Plan not supported by the executor",
  "data-invalid": "Training data not valid",
  "checkpoint-invalid": "Checkpoint not valid",
  communication: "Communication failed",
  "rank-lost": "A rank was lost",
  "not-finite": "Loss or gradient not finite",
  timeout: "Took too long",
  cancelled: "Cancelled",
  "no-feasible-plan": "No plan fits",
  "profile-missing": "No profile of the cluster",
  "too-many-restarts": "Too many restarts",
  "not-started": "Never started",
  internal: "Internal error",
};

export const REJECTION_WORDS: Readonly<
  Record<RejectionReason, { readonly name: string; readonly about: string }>
> = {
  "batch-not-divisible": {
    name: "Batch not divisible",
    about: "micro-batch × micro-batches × data parallel doesn't give the asked tokens a step",
  },
  "sequence-not-divisible": {
    name: "Sequence not divisible",
    about: "the sequence doesn't split evenly over the sequence-parallel ranks",
  },
  "heads-not-divisible": {
    name: "Heads not divisible",
    about: "the attention heads don't split evenly over the ranks that share a sequence",
  },
  "more-stages-than-layers": {
    name: "More stages than layers",
    about: "a pipeline stage would hold no layer",
  },
  "ranks-not-divisible": {
    name: "Ranks not divisible",
    about: "the dimensions don't multiply up to the ranks of the cluster",
  },
  "sharding-not-divisible": {
    name: "Sharding not divisible",
    about: "the sharding factors don't divide the ranks that hold the same slice of the model",
  },
  "gradient-sharding-not-allowed": {
    name: "Gradient sharding not allowed",
    about: "gradients are sharded like the optimizer state, or not at all",
  },
  "tensor-not-divisible": {
    name: "Tensor ranks can't split the model",
    about:
      "tensor parallel divides the inner width of the MLP, and leaves every rank a part of the vocabulary",
  },
  "context-not-possible": {
    name: "Ring doesn't fit",
    about:
      "context parallelism needs no tensor ranks, a divisor of the sequence ranks, and two chunks of the sequence for each rank of the ring",
  },
  "chunks-not-possible": {
    name: "Chunks don't fit",
    about:
      "interleaving needs several stages, a layer for each chunk, and micro-batches in multiples of the stages",
  },
  "recompute-layers-not-possible": {
    name: "Recomputed layers don't fit",
    about: "at most the layers of a stage are recomputed, and all of them without a number",
  },
  "gate-up-not-possible": {
    name: "Gate and up made again twice",
    about: "where all layers are recomputed, gate and up are among what is made again",
  },
  "tensor-sequence-mismatch": {
    name: "Tensor and sequence parallel don't match",
    about: "tensor parallel is 1 (Ulysses), or equals sequence parallel (Megatron)",
  },
  "memory-exceeded": {
    name: "Does not fit in memory",
    about: "the predicted peak of the fullest rank is above the limit",
  },
};

/**
 * How many plans were rejected for which reason, the most frequent first: "does not fit in memory 5,748,
 * chunks don't fit 96".
 */
export const rejectionCounts = (rejected: Readonly<Partial<Record<RejectionReason, number>>>): string =>
  (Object.entries(rejected) as [RejectionReason, number][])
    .filter(([, count]) => count > 0)
    .sort(([, a], [, b]) => b - a)
    .map(([reason, count]) => `${lowered(REJECTION_WORDS[reason].name)} ${formatInteger(count)}`)
    .join(", ");

/** What to change where no plan divides a job, whatever memory there is. */
export const NONE_DIVIDES_REMEDY =
  "change globalBatchTokens, sequenceLengthTokens or model.heads so that " +
  "they divide over the cluster's ranks, or use a different number of ranks";

/**
 * Why no plan divides a job, whatever memory there is, and what to change; undefined where some do.
 */
export function undividedWords({
  counts,
  closest,
  unmet,
}: Pick<PlanningResult, "counts" | "closest" | "unmet">):
  { readonly message: string; readonly remedy?: string } | undefined {
  if (closest !== null || counts.feasible > 0) return undefined;
  if (unmet !== undefined) return { message: unmet };
  return counts.rejected["memory-exceeded"] > 0
    ? undefined
    : {
        message: "no plan divides the job over the cluster, for the reasons above",
        remedy: NONE_DIVIDES_REMEDY,
      };
}

/**
 * Figures of a prediction that are shares. MFU counts attention over the causal half, or over the full
 * square.
 */
export const UTILISATION_WORDS = {
  mfu: "MFU, causal",
  mfuFullAttention: "MFU, full attention",
  hfu: "HFU",
  speedOfLight: "Share of peak speed",
} as const satisfies Partial<Record<keyof Prediction, string>>;

/** What the time of a step is spent on. */
export const TIME_WORDS: Readonly<Record<keyof TimeBreakdown, string>> = {
  computeSeconds: "Compute",
  recomputeSeconds: "Recompute",
  sequenceCommunicationSeconds: "Sequence communication",
  parameterCommunicationSeconds: "Parameter communication",
  gradientCommunicationSeconds: "Gradient reduction",
  pipelineBubbleSeconds: "Pipeline bubble",
  pipelineCommunicationSeconds: "Pipeline communication",
  hostCopySeconds: "Host copies",
  updateSeconds: "Optimizer update",
};

/** A field of the program as words: `gatherPool`, `gather_pool` and `gather-pool` are all "Gather pool". */
export function fieldWords(field: string): string {
  const words = field
    .replace(/Bytes$/, "")
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .replace(/[_-]+/g, " ")
    .trim()
    .toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Buffers of the trainer whose names say too little as words. */
const BUFFER_WORDS: Readonly<Record<string, string>> = {
  inverseRms: "inverse RMS",
  mlp: "MLP",
  mlpGradient: "MLP gradient",
  qkv: "QKV",
  qkvGradient: "QKV gradient",
  unitGradient: "gradients of one unit",
  reduceWorkspace: "gradient reduction workspace",
  laneReduceWorkspace: "gradient reduction workspace beside compute",
};

/**
 * What the trainer's memory plan calls a place, in words: "layers.0, in flight 1.reduceWorkspace" is "layer
 * 0, in flight 1, gradient reduction workspace".
 */
export const memoryPlaceName = (name: string): string =>
  name
    .split(/\.(?!\d)|, /)
    .map((part) => BUFFER_WORDS[part] ?? lowered(fieldWords(part.replace(/^layers\.(?=\d)/, "layer "))))
    .join(", ");

/** A field of a plan that has a symbol, in words. */
export interface Dimension {
  readonly key: PlanField;
  readonly symbol: string;
  readonly name: string;
  readonly meaning: string;
}

const dimensions = (beyondPaper: boolean): readonly Dimension[] =>
  PLAN_ROWS.flatMap(([key, { paper, symbol, name, meaning }]) =>
    symbol === undefined || (paper === undefined) !== beyondPaper ? [] : [{ key, symbol, name, meaning }],
  );

/** The dimensions of a plan in the paper's order and symbols. */
export const DIMENSIONS = dimensions(false);

/** Choices that the paper's plans do not have. */
export const BEYOND_PAPER = dimensions(true);

/** A field of a plan by its name and symbol. */
export function planFieldName(field: string): string {
  const [, row] = PLAN_ROWS.find(([key]) => field === key) ?? [];
  if (row === undefined) return fieldWords(field);
  return row.symbol === undefined ? row.name : `${row.name} (${row.symbol})`;
}

/** At what grain communication is hidden behind compute. */
export const OVERLAP_WORDS: Readonly<Record<Plan["forwardOverlap"] | Plan["backwardOverlap"], string>> = {
  none: "none",
  block: "by block",
  "inter-layer": "between layers",
  "intra-layer": "within a layer",
};

/** The value of a plan's field in words. */
export function planFieldValue(field: string, value: unknown): string {
  if (field === "recompute") return value === true || value === 1 ? "yes" : "no";
  return (field === "forwardOverlap" || field === "backwardOverlap") &&
    typeof value === "string" &&
    value in OVERLAP_WORDS
    ? OVERLAP_WORDS[value as Plan["forwardOverlap"]]
    : String(value);
}

/**
 * Fields in which two plans differ, in a sentence: "micro-batches (n) 4 → 2, recomputed layers (k) none → 3".
 */
export const planChanges = (
  changes: readonly { readonly field: string; readonly from: unknown; readonly to: unknown }[],
): string =>
  changes
    .map(
      ({ field, from, to }) =>
        `${lowered(planFieldName(field))} ${planFieldValue(field, from ?? "none")} → ${planFieldValue(field, to ?? "none")}`,
    )
    .join(", ");

/**
 * How many of the plans shown cannot be told apart from the first by what was measured; undefined: none.
 * @param count with the first
 */
export function tieWords(count: number, of: number): string | undefined {
  if (count < 2) return undefined;
  const all = of === 2 ? "Both plans" : `All ${formatCounted(of, "plan")}`;
  const who = count === of ? all : `${formatInteger(count)} of these ${formatCounted(of, "plan")}`;
  return `${who} may be the fastest: their ranges overlap, and only trials tell them apart.`;
}

/** Ranks that a configuration is launched on. */
interface LaunchWords {
  readonly nodes: number;
  readonly gpusPerNode: number;
}

/** How predicted figures err, where a configuration was taken as something near it. */
export interface FigureErrors {
  readonly time?: "too short" | "too long";
  readonly memory?: "too small" | "too large";
}

/** "the predicted time is too short, and the memory too large". */
export const errorWords = ({ time, memory }: FigureErrors): string =>
  [
    ...(time === undefined ? [] : [`the predicted time is ${time}`]),
    ...(memory === undefined
      ? []
      : [`the ${time === undefined ? "predicted memory is" : "memory"} ${memory}`]),
  ].join(", and ");

/**
 * What a verdict about a configuration does not know, where options of it were taken as something near; null where
 * its figures err for none.
 */
export function verdictDoubt(
  takenAs: readonly { readonly option: string; readonly errs?: FigureErrors }[],
  isFeasible: boolean,
): string | null {
  const erring = takenAs.flatMap(({ option, errs }) => (errs === undefined ? [] : [{ option, errs }]));
  if (erring.length === 0) return null;
  const wrong = erring.map(({ option, errs }) => `${errorWords(errs)}, for ${option}`);
  const isOther = erring.some(({ errs }) => errs.memory === (isFeasible ? "too small" : "too large"));
  const other = isFeasible ? "it may not fit" : "it may fit all the same";
  return `not exact: ${[...wrong, ...(isOther ? [other] : [])].join("; ")}`;
}

/** On which GPUs a configuration was read, and who said so: "with 64 GPUs (8 × 8) as you gave". */
export function launchWords(
  launch: LaunchWords,
  { isAsked, said }: { readonly isAsked: boolean; readonly said: LaunchWords | null },
): string {
  const shape = ({ nodes, gpusPerNode }: LaunchWords): string => `${nodes} × ${gpusPerNode}`;
  const read = `with ${formatCounted(launch.nodes * launch.gpusPerNode, "GPU")} (${shape(launch)})`;
  if (!isAsked) return `${read} as the file says`;
  if (said === null) return `${read} as you gave: the file says none`;
  return shape(said) === shape(launch)
    ? `${read} as you gave, and the file says`
    : `${read} as you gave, where the file says ${formatCounted(said.nodes * said.gpusPerNode, "GPU")} (${shape(said)})`;
}
