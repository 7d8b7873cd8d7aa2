import { headSize, type JobSpec, type MemoryLines } from "@internevo/domain";
import { sumLines } from "./memory.ts";
import {
  ELEMENT_BYTES,
  layerWeights,
  publishedParameters,
  schemesOf,
  type PublishedPlan,
  type PublishedScheme,
} from "./published-plan.ts";

/** Optimizer states of a parameter: a master copy and two moments in float32 (`cal_cost`: `fp32_ratio`). */
const OPTIMIZER_STATE_BYTES = 12;

/**
 * What a layer keeps, over bSH: 2-byte elements at what its docstring counts (`get_isp_memory_threshold`).
 */
const KEPT_LAYER = 118 / 3;
/** The part that tensor ranks keep whole: the gathered inputs (`get_msp_memory_threshold`). */
const KEPT_WHOLE = 12 / 3;

/** Over bSH of the whole sequence, so that the sequence ranks divide what they share. */
function keptLayer(scheme: PublishedScheme, sequenceParallel: number): number {
  if (scheme === "msp") return KEPT_WHOLE + (KEPT_LAYER - KEPT_WHOLE) / sequenceParallel;
  return KEPT_LAYER / sequenceParallel;
}

type PublishedJob = Pick<JobSpec, "model" | "sequenceLengthTokens">;

/** Lines of a scheme. Published are floats; here each line is whole bytes, rounded up. */
function linesOf(
  { model, sequenceLengthTokens }: PublishedJob,
  plan: PublishedPlan,
  scheme: PublishedScheme,
) {
  const { sequenceParallel: sp, pipelineParallel: pp, microBatchSize } = plan;
  const { layers, ends } = publishedParameters(model, plan);
  const { hiddenSize, vocabularySize } = model;
  const stageLayers = Math.floor(model.layers / pp);
  const stream = microBatchSize * sequenceLengthTokens * hiddenSize;
  const states =
    scheme === "isp"
      ? // Embedding and head are not sharded by s_oss: two ranks share theirs, as soon as there are two.
        layers / plan.optimizerStateSharding + ends / (plan.dataParallel > 1 ? 2 : 1)
      : (layers + ends) / plan.optimizerStateSharding;
  const pool = scheme === "isp" ? 2 * ELEMENT_BYTES * layerWeights(model) : 0;
  return {
    parameters: ELEMENT_BYTES * (layers + ends),
    gradients: ELEMENT_BYTES * (layers + ends),
    optimizerStates: OPTIMIZER_STATE_BYTES * states,
    // Two layers gathered, and two on their way to be reduced (`get_memory_pool_mm`).
    gatherPool: pool,
    reduceStaging: pool,
    // Stage 0 has s_pp micro-batches of L / s_pp layers; with recomputation it keeps their inputs alone.
    activations: plan.recompute
      ? stageLayers * pp * Math.floor((ELEMENT_BYTES * stream) / sp)
      : model.layers * stream * keptLayer(scheme, sp),
    logits: (ELEMENT_BYTES * microBatchSize * sequenceLengthTokens * vocabularySize) / sp,
    // The norm's output is counted in float32 (`get_norm_output_mm`).
    normOutput: (4 * stream) / sp,
    // `get_head_input_mm` leaves it out where gathered inputs are kept.
    headInput: scheme === "msp" ? 0 : (ELEMENT_BYTES * stream) / sp,
    // `get_backward_mem_peak`: the head's input gradient whole twice and once in parts, and its weight's
    // gradient.
    headGradients:
      2 * ELEMENT_BYTES * stream * (1 + 1 / sp) + (ELEMENT_BYTES * hiddenSize * vocabularySize) / sp,
    ropeTables: ELEMENT_BYTES * stageLayers * sequenceLengthTokens * headSize(model),
    pipelineBuffers:
      pp > 1 ? ELEMENT_BYTES * Math.floor(sequenceLengthTokens / sp) * microBatchSize * hiddenSize : 0,
  };
}

/**
 * Memory of a rank by the published planner: one number for all stages (`cal_cost` of noz3_simulator.py,
 * mem.py). AdamW needs two thirds of the optimizer states once more while it updates; where parameters,
 * gradients and that are more than a pass takes, `optimizerStep` is the rest.
 */
export function publishedSchemeMemory(
  job: PublishedJob,
  plan: PublishedPlan,
  scheme: PublishedScheme,
): MemoryLines {
  const exact = linesOf(job, plan, scheme);
  const lines = Object.fromEntries(Object.entries(exact).map(([name, bytes]) => [name, Math.ceil(bytes)]));
  const update = exact.parameters + exact.gradients + (5 / 3) * exact.optimizerStates;
  return { ...lines, optimizerStep: Math.max(0, Math.ceil(update) - sumLines(lines)) };
}

/** Tensor ranks keep gathered inputs where that fits, because it is faster; else they gather them again. */
export function publishedScheme(
  job: PublishedJob & Pick<JobSpec, "cluster">,
  plan: PublishedPlan,
): PublishedScheme {
  const schemes = schemesOf(plan);
  const [first, second] = schemes as [PublishedScheme, PublishedScheme | undefined];
  if (second === undefined) return first;
  const fits = sumLines(publishedSchemeMemory(job, plan, first)) <= job.cluster.memoryPerGpuBytes;
  return fits ? first : second;
}

/** Memory of a plan by the published planner, of the scheme that {@link publishedScheme} says. */
export const publishedMemory = (
  job: PublishedJob & Pick<JobSpec, "cluster">,
  plan: PublishedPlan,
): MemoryLines => publishedSchemeMemory(job, plan, publishedScheme(job, plan));
