import {
  commonProgram,
  dimensionSize,
  operatorsAgainWhen,
  seenKeysShare,
  tensorElements,
  type Model,
  type ProgramTensor,
} from "@internevo/domain";

/** FLOPs of one token of a step, forward and backward, in the three conventions. */
export interface TokenFlops {
  /** What the model needs: matrix products, and attention over the keys of the causal half that it sees. */
  readonly causal: number;
  /** Attention counted over the full square, as the paper and Megatron's formula do. */
  readonly fullAttention: number;
  /**
   * What the kernels execute: causal, the scores that blockwise attention computes again, and recomputed
   * layers.
   */
  readonly executed: number;
}

/** Shares of the layers, from 0 to 1. */
export interface AgainShares {
  /** Whose forward pass runs twice. */
  readonly recomputed: number;
  /** Of the others, those whose gate and up alone are made twice. */
  readonly gateUpAgain: number;
}

/** @param keysShare keys that a query sees, of those of one document: less where documents are packed */
export function tokenFlops(
  model: Model,
  sequenceLengthTokens: number,
  { recomputed, gateUpAgain }: AgainShares,
  keysShare = 1,
): TokenFlops {
  const { layers } = model;
  const program = commonProgram(model);
  const products = (tensors: readonly ProgramTensor[]): number =>
    tensors.reduce(
      (sum, tensor) => sum + (tensor.kind === "matrix" ? 2 * tensorElements(program, model, tensor) : 0),
      0,
    );
  const layerProducts = products(program.tensors);
  const again = operatorsAgainWhen(program, "gateUpAgain").flatMap(({ parameters = [] }) => parameters);
  const gateUpProducts = products(program.tensors.filter(({ name }) => again.includes(name)));
  const head = 2 * dimensionSize(program, model, "vocabulary") * dimensionSize(program, model, "hidden");
  // Scores and weighted values: 2 products of S × headSize a query and head; half of them are masked, and all beyond a
  // window.
  const fullScores = 4 * sequenceLengthTokens * dimensionSize(program, model, "query");
  const causalScores = (fullScores / 2) * seenKeysShare(model, sequenceLengthTokens) * keysShare;
  const allProducts = 3 * (layers * layerProducts + head);
  return {
    causal: allProducts + 3 * layers * causalScores,
    fullAttention: allProducts + 3 * layers * fullScores,
    executed:
      allProducts +
      3.5 * layers * causalScores +
      recomputed * layers * (layerProducts + causalScores) +
      gateUpAgain * layers * gateUpProducts,
  };
}
