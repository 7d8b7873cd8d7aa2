import { kvWidth, type Model } from "@internevo/domain";

/** FLOPs of one token of a step, forward and backward, in the three conventions. */
export interface TokenFlops {
  /** What the model needs: matrix products, and attention over the causal half. */
  readonly causal: number;
  /** Attention counted over the full square, as the paper and Megatron's formula do. */
  readonly fullAttention: number;
  /**
   * What the kernels execute: causal, the scores that blockwise attention computes again, and recomputed
   * layers.
   */
  readonly executed: number;
}

/** @param recomputed share of the layers, from 0 to 1, whose forward pass runs twice. */
export function tokenFlops(model: Model, sequenceLengthTokens: number, recomputed: number): TokenFlops {
  const { hiddenSize: h, ffnHiddenSize: f, layers, vocabularySize } = model;
  const layerProducts = 2 * (2 * h * h + 2 * h * kvWidth(model) + 3 * h * f);
  const head = 2 * h * vocabularySize;
  // Scores and weighted values: 2 products of S × headSize a query and head; half of them are masked.
  const fullScores = 4 * sequenceLengthTokens * h;
  const causalScores = fullScores / 2;
  const products = 3 * (layers * layerProducts + head);
  return {
    causal: products + 3 * layers * causalScores,
    fullAttention: products + 3 * layers * fullScores,
    executed: products + 3.5 * layers * causalScores + recomputed * layers * (layerProducts + causalScores),
  };
}
