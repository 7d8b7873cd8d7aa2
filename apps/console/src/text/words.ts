import type { AttemptState, FailureCode, JobState, MemoryLines, Plan, RejectionReason, TimeBreakdown, TrialState } from "./types.ts";

export const JOB_STATE_WORDS: Readonly<Record<JobState, string>> = {
  profiling: "Profiling",
  planning: "Planning",
  trialling: "Trialling",
  running: "Running",
  cancelling: "Cancelling",
  succeeded: "Succeeded",
  failed: "Failed",
  cancelled: "Cancelled",
};

export const TRIAL_STATE_WORDS: Readonly<Record<TrialState, string>> = { pending: "Waiting", running: "Running", succeeded: "Measured", failed: "Failed" };

export const ATTEMPT_STATE_WORDS: Readonly<Record<AttemptState, string>> = { running: "Running", succeeded: "Succeeded", failed: "Failed", lost: "Lost", stopped: "Stopped" };

/** What a stage does, for somebody who sees it for the first time. */
export const STAGES = [
  { state: "profiling", name: "Profiling", about: "Measures collectives and modules of this cluster, or takes a profile that is fresh enough." },
  { state: "planning", name: "Planning", about: "Predicts memory and time of every plan, and ranks those that fit." },
  { state: "trialling", name: "Trialling", about: "Runs the best plans for a few steps each, and measures them." },
  { state: "running", name: "Training", about: "Trains with the plan that was fastest by measurement." },
] as const satisfies readonly { state: JobState; name: string; about: string }[];

export const FAILURE_WORDS: Readonly<Record<FailureCode, string>> = {
  "out-of-memory": "Out of memory",
  "plan-unsupported": "Plan not supported by the executor",
  "data-invalid": "Training data not valid",
  "checkpoint-invalid": "Checkpoint not valid",
  communication: "Communication failed",
  "rank-lost": "A rank was lost",
  timeout: "Took too long",
  cancelled: "Cancelled",
  "no-feasible-plan": "No plan fits",
  "profile-missing": "No profile of the cluster",
  "too-many-restarts": "Too many restarts",
  "not-started": "Never started",
  internal: "Internal error",
};

export const REJECTION_WORDS: Readonly<Record<RejectionReason, { name: string; about: string }>> = {
  "batch-not-divisible": { name: "Batch not divisible", about: "micro-batch × micro-batches × data parallel doesn't give the asked tokens a step" },
  "sequence-not-divisible": { name: "Sequence not divisible", about: "the sequence doesn't split evenly over the sequence-parallel ranks" },
  "heads-not-divisible": { name: "Heads not divisible", about: "the attention heads don't split evenly over the ranks that share a sequence" },
  "more-stages-than-layers": { name: "More stages than layers", about: "a pipeline stage would hold no layer" },
  "ranks-not-divisible": { name: "Ranks not divisible", about: "the dimensions don't multiply up to the ranks of the cluster" },
  "sharding-not-divisible": { name: "Sharding not divisible", about: "the sharding factors don't divide the ranks that hold the same slice of the model" },
  "gradient-sharding-not-allowed": { name: "Gradient sharding not allowed", about: "gradients are sharded like the optimizer state, or not at all" },
  "tensor-not-divisible": { name: "Tensor ranks can't split the model", about: "tensor parallel divides the inner width of the MLP, and leaves every rank a part of the vocabulary" },
  "context-not-possible": { name: "Ring doesn't fit", about: "context parallelism needs no tensor ranks, a divisor of the sequence ranks, and two chunks of the sequence for each rank of the ring" },
  "chunks-not-possible": { name: "Chunks don't fit", about: "interleaving needs several stages, a layer for each chunk, and micro-batches in multiples of the stages" },
  "recompute-layers-not-possible": { name: "Recomputed layers don't fit", about: "at most the layers of a stage are recomputed, and all of them without a number" },
  "tensor-sequence-mismatch": { name: "Tensor and sequence parallel don't match", about: "tensor parallel is 1 (Ulysses), or equals sequence parallel (Megatron)" },
  "memory-exceeded": { name: "Does not fit in memory", about: "the predicted peak of the fullest rank is above the limit" },
};

export interface Dimension {
  readonly key: keyof Plan;
  readonly symbol: string;
  readonly name: string;
  readonly meaning: string;
}

/** The dimensions of a plan in the paper's order and symbols. */
export const DIMENSIONS: readonly Dimension[] = [
  { key: "microBatchSize", symbol: "b", name: "Micro-batch size", meaning: "sequences that a rank works on at once" },
  { key: "microBatches", symbol: "n", name: "Micro-batches", meaning: "micro-batches whose gradients are summed in one step" },
  { key: "recompute", symbol: "a", name: "Activation recomputation", meaning: "1: activations inside a layer are computed again in the backward pass; 0: they are kept" },
  { key: "pipelineParallel", symbol: "pp", name: "Pipeline parallel", meaning: "stages that the layers are split into" },
  { key: "dataParallel", symbol: "dp", name: "Data parallel", meaning: "groups of ranks that work on different sequences" },
  { key: "tensorParallel", symbol: "tp", name: "Tensor parallel", meaning: "ranks that share every matrix (Megatron); 1 with Ulysses" },
  { key: "sequenceParallel", symbol: "sp", name: "Sequence parallel", meaning: "ranks that share every sequence" },
  { key: "parameterSharding", symbol: "ps", name: "Parameter sharding", meaning: "ranks that the parameters are spread over; gathered when needed" },
  { key: "gradientSharding", symbol: "gs", name: "Gradient sharding", meaning: "further ranks that the gradients are spread over, beyond ps" },
  { key: "optimizerStateSharding", symbol: "oss", name: "Optimizer-state sharding", meaning: "further ranks that the optimizer state is spread over, beyond ps" },
];

/** Choices that the paper's plans do not have. */
export const BEYOND_PAPER: readonly Dimension[] = [
  { key: "contextParallel", symbol: "cp", name: "Context parallel", meaning: "of the ranks that share a sequence, so many pass its keys and values around a ring; the others share the heads" },
  { key: "pipelineChunks", symbol: "v", name: "Pipeline chunks", meaning: "parts of the model that a stage holds, between which micro-batches take turns (interleaved 1F1B)" },
  { key: "recomputeLayers", symbol: "k", name: "Recomputed layers", meaning: "layers of each stage whose activations are computed again in the backward pass; the others are kept" },
];

const chunksOf = (plan: Plan): number => plan.pipelineChunks ?? 1;
const contextOf = (plan: Plan): number => plan.contextParallel ?? 1;
/** What the paper's plans have of a choice that they do not name. */
const NEUTRAL: Readonly<Partial<Record<keyof Plan, number>>> = { contextParallel: 1, pipelineChunks: 1 };
const isChosen = (plan: Plan, key: keyof Plan): boolean => dimensionValue(plan, key) !== String(NEUTRAL[key] ?? 0);

/** The dimensions of the paper, and those beyond it that a plan makes use of. */
export const dimensionsOf = (plans: readonly Plan[]): readonly Dimension[] => [...DIMENSIONS, ...BEYOND_PAPER.filter(({ key }) => plans.some((plan) => isChosen(plan, key)))];

export const dimensionValue = (plan: Plan, key: keyof Plan): string => {
  const value = plan[key] ?? NEUTRAL[key] ?? 0;
  return typeof value === "boolean" ? (value ? "1" : "0") : String(value);
};

/** A field of a plan by its name and symbol. */
export function fieldName(field: string): string {
  const dimension = [...DIMENSIONS, ...BEYOND_PAPER].find(({ key }) => field === key);
  return dimension ? `${dimension.name} (${dimension.symbol})` : lineName(field);
}

/** At what grain communication is hidden behind compute. */
export const OVERLAP_WORDS: Readonly<Record<Plan["forwardOverlap"] | Plan["backwardOverlap"], string>> = { none: "none", block: "by block", "inter-layer": "between layers", "intra-layer": "within a layer" };

/** What both passes hide of the communication. */
export const overlapWords = ({ forwardOverlap, backwardOverlap }: Pick<Plan, "forwardOverlap" | "backwardOverlap">): string =>
  forwardOverlap === backwardOverlap ? OVERLAP_WORDS[forwardOverlap] : `forward ${OVERLAP_WORDS[forwardOverlap]}, backward ${OVERLAP_WORDS[backwardOverlap]}`;

/** What is at work while something else is computed. */
const GRAINS: Readonly<Record<Exclude<Plan["forwardOverlap"], "none">, string>> = { block: "block (attention or MLP)", "inter-layer": "layer", "intra-layer": "module of the layer" };

function overlapSentences({ forwardOverlap, backwardOverlap }: Plan): string[] {
  return [
    ...(forwardOverlap === "none" ? [] : [`In the forward pass the parameters of the next ${GRAINS[forwardOverlap]} are gathered while one is computed.`]),
    ...(backwardOverlap === "none" ? [] : [`In the backward pass parameters are gathered, and gradients reduced, of one ${GRAINS[backwardOverlap]} while another is computed.`]),
  ];
}

/** The value of a plan's field in words. */
export function fieldValue(field: string, value: unknown): string {
  if (field === "recompute") return value === true || value === 1 ? "yes" : "no";
  return (field === "forwardOverlap" || field === "backwardOverlap") && typeof value === "string" && value in OVERLAP_WORDS ? OVERLAP_WORDS[value as Plan["forwardOverlap"]] : String(value);
}

export const TIME_WORDS: Readonly<Record<keyof TimeBreakdown, string>> = {
  computeSeconds: "Compute",
  recomputeSeconds: "Recompute",
  sequenceCommunicationSeconds: "Sequence communication",
  parameterCommunicationSeconds: "Parameter communication",
  gradientCommunicationSeconds: "Gradient reduction",
  pipelineBubbleSeconds: "Pipeline bubble",
  pipelineCommunicationSeconds: "Pipeline communication",
  updateSeconds: "Optimizer update",
};

/** A line of a memory plan as words: `gatherPool`, `gather_pool` and `gather-pool` are all "Gather pool". */
export function lineName(line: string): string {
  const words = line.replace(/Bytes$/, "").replace(/([a-z0-9])([A-Z])/g, "$1 $2").replace(/[_-]+/g, " ").trim().toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Names of the lines of several memory plans, the largest first. */
export function linesBySize(plans: readonly MemoryLines[]): string[] {
  const largest = new Map<string, number>();
  for (const plan of plans) for (const [line, bytes] of Object.entries(plan)) largest.set(line, Math.max(bytes, largest.get(line) ?? 0));
  return [...largest].filter(([, bytes]) => bytes > 0).sort((a, b) => b[1] - a[1]).map(([line]) => line);
}

const ranks = (count: number): string => (count === 1 ? "1 rank" : `${count} ranks`);

function shardingSentence(what: string, factor: number): string {
  return factor === 1 ? `${what} are held whole` : `${what} are spread over ${ranks(factor)}`;
}

/** How ranks that share a sequence, but no matrix, attend to all of it. */
function sharingOf(plan: Plan): string {
  const ring = contextOf(plan);
  if (ring === 1) return "Ulysses";
  const heads = plan.sequenceParallel / ring;
  return heads === 1 ? "a ring" : `Ulysses over ${heads}, ${ring} such groups in a ring`;
}

/** A plan in sentences. */
export function explainPlan(plan: Plan): string[] {
  const { pipelineParallel: pp, dataParallel: dp, sequenceParallel: sp, tensorParallel: tp } = plan;
  const world = pp * dp * sp;
  const sentences: string[] = [];
  const split: string[] = [];
  if (dp > 1) split.push(`${dp} groups work on different sequences`);
  if (sp > 1) split.push(tp > 1 ? `${sp} ranks share every sequence and every matrix (Megatron)` : `${sp} ranks share every sequence (${sharingOf(plan)})`);
  if (pp > 1) split.push(`the layers are split into ${pp} pipeline stages${chunksOf(plan) > 1 ? `, each with ${chunksOf(plan)} parts of the model in turns` : ""}`);
  sentences.push(split.length === 0 ? `${ranks(world)}, which ${world === 1 ? "does" : "do"} all the work.` : `${ranks(world)}: ${split.join("; ")}.`);
  sentences.push(
    `A step is ${plan.microBatches === 1 ? "one micro-batch" : `${plan.microBatches} micro-batches`} of ${plan.microBatchSize === 1 ? "one sequence" : `${plan.microBatchSize} sequences`} ${dp > 1 ? "a group" : ""}`.trimEnd() +
      `; activations inside a layer are ${plan.recompute ? "computed again in the backward pass" : "kept for the backward pass"}${plan.recomputeLayers ? `, but for ${plan.recomputeLayers === 1 ? "one layer" : `${plan.recomputeLayers} layers`} of each stage, where they are computed again` : ""}.`,
  );
  const whole = plan.parameterSharding === 1 && plan.gradientSharding === 1 && plan.optimizerStateSharding === 1;
  sentences.push(
    whole
      ? "Parameters, gradients and optimizer state are held whole by every rank."
      : `${shardingSentence("Parameters", plan.parameterSharding)}, ${shardingSentence("gradients", plan.parameterSharding * plan.gradientSharding)}, ${shardingSentence("optimizer states", plan.parameterSharding * plan.optimizerStateSharding)}.`,
  );
  sentences.push(...overlapSentences(plan));
  return sentences;
}
