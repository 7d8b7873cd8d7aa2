import { kvWidth, type Model, type Plan } from "@internevo/domain";

/*
 * The planner that the paper's authors published: github.com/ChenQiaoling00/Simulator at cf4b20a. Its
 * arithmetic is not that of the paper's text. It is kept here as it is, with its quirks, so that it can say
 * which plan it would choose. The same files came later to InternEvo's branch feat/new_split_pg (at bf8b40e)
 * with other constants.
 */

/** What its formulas read of a plan: all but s_gs, which it does not have. */
export type PublishedPlan = Omit<Plan, "gradientSharding" | "forwardOverlap" | "backwardOverlap">;

/**
 * How the ranks of a sequence share it (`AlgoType` of utils/common.py).
 * - `isp`: all-to-alls around attention, s_tp = 1; parameters may be sharded (s_ps).
 * - `msp`: tensor parallelism with sequence-parallel norms that keeps gathered inputs.
 * - `fsp`: the same, gathering inputs again in the backward pass.
 */
export type PublishedScheme = "isp" | "msp" | "fsp";

/** The schemes that a plan may stand for, the faster first. Our plans do not tell the last two apart. */
export const schemesOf = ({ tensorParallel }: Pick<Plan, "tensorParallel">): readonly PublishedScheme[] =>
  tensorParallel === 1 ? ["isp"] : ["msp", "fsp"];

/** Its precision, whatever the job's: 2 bytes an element (`dtype_size`). */
export const ELEMENT_BYTES = 2;

/** Weights of the products of a layer (`cal_block_p_elem` of utils/common.py, norms apart). */
export function productWeights(model: Model): {
  readonly queryKeyValue: number;
  readonly attentionOutput: number;
  /** Of each of the three products of the MLP. */
  readonly feedForward: number;
} {
  const { hiddenSize, ffnHiddenSize } = model;
  return {
    // The first version has as many heads of keys and values as of queries; grouped ones are as in the later
    // version.
    queryKeyValue: hiddenSize * (hiddenSize + 2 * kvWidth(model)),
    attentionOutput: hiddenSize * hiddenSize,
    feedForward: hiddenSize * ffnHiddenSize,
  };
}

/** Ψ without the two norms: what is gathered and multiplied. */
export function layerWeights(model: Model): number {
  const { queryKeyValue, attentionOutput, feedForward } = productWeights(model);
  return queryKeyValue + attentionOutput + 3 * feedForward;
}

/** Parameters that a rank holds before optimizer states are sharded (`cal_cost` of noz3_simulator.py). */
export function publishedParameters(
  model: Model,
  { pipelineParallel, tensorParallel, sequenceParallel, parameterSharding }: PublishedPlan,
): { readonly layers: number; readonly ends: number } {
  // Stage 0 counts, which its partition gives no more layers than any other, and one of embedding and head.
  const blocks = Math.floor(model.layers / pipelineParallel) * (layerWeights(model) + 2 * model.hiddenSize);
  const ends = (pipelineParallel > 1 ? 1 : 2) * model.vocabularySize * model.hiddenSize;
  return {
    layers: blocks / (tensorParallel === 1 ? parameterSharding : sequenceParallel),
    // Embedding and head are shared by the ranks of a sequence whatever s_ps is.
    ends: ends / sequenceParallel,
  };
}

/** Powers of two, as `PPIter` has stages. */
const isPowerOfTwo = (value: number): boolean => Number.isInteger(Math.log2(value));

/** `SPIter`: 1, 2, 4, 6 and multiples of 8; within one node of 8 also 1 and even numbers. */
const isSearched = (value: number, ranks: number): boolean =>
  value === 1 || (value % 2 === 0 && (value < 8 || ranks <= 8 || value % 8 === 0));

/**
 * Whether the published planner looks at a plan (`PPIter`, `SPIter`, `get_bsz_strict` and `run_loop` of
 * noz3_simulator.py). On 128 ranks s_sp, s_ps and s_oss are powers of two. Micro-batches are no fewer than
 * stages, all layers are recomputed or none, and there are neither rings nor chunks.
 */
export function isPublishedPlan(plan: Plan, ranks: number): boolean {
  const { contextParallel = 1, pipelineChunks = 1, recomputeLayers = 0 } = plan;
  return (
    contextParallel === 1 &&
    pipelineChunks === 1 &&
    recomputeLayers === 0 &&
    plan.gradientSharding === 1 &&
    isPowerOfTwo(plan.pipelineParallel) &&
    isSearched(plan.sequenceParallel, ranks) &&
    isSearched(plan.parameterSharding, ranks) &&
    (plan.tensorParallel === 1 || plan.parameterSharding === 1) &&
    plan.microBatches >= plan.pipelineParallel
  );
}
