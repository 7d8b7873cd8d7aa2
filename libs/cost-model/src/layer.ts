import {
  contextOf,
  headRanks,
  headSize,
  kvWidth,
  type Model,
  type ModuleShape,
  type Precision,
} from "@internevo/domain";

/** Precision in which the kernels of a policy compute. */
export const computePrecision = (precision: Precision): "fp32" | "bf16" =>
  precision === "fp32" ? "fp32" : "bf16";

/**
 * What decides the shapes of a layer on one rank: b, S, s_sp, s_tp, and how many of the sequence ranks are a
 * ring.
 */
export interface LayerSlice {
  readonly microBatchSize: number;
  readonly sequenceLengthTokens: number;
  readonly sequenceParallel: number;
  readonly tensorParallel: number;
  /** Beyond the paper; 1 where it is left out. */
  readonly contextParallel?: number;
}

/** Rows of the residual stream on one rank: b · S / s_sp tokens. */
export const sliceRows = (slice: LayerSlice): number =>
  (slice.microBatchSize * slice.sequenceLengthTokens) / slice.sequenceParallel;

/**
 * Key/value heads on one rank during attention. With fewer key/value heads than ranks that share heads, each
 * head is sent to every rank whose query heads read it, so a rank always has at least one.
 */
export const localKvHeads = (kvHeads: number, ranks: number): number => Math.max(1, kvHeads / ranks);

/**
 * Elements of the keys and values that one rank of a ring holds: of its part of the sequence, the heads that
 * it attends with.
 */
export const ringElements = (model: Model, slice: LayerSlice): number =>
  ((slice.microBatchSize * slice.sequenceLengthTokens) / contextOf(slice)) *
  2 *
  localKvHeads(model.kvHeads, headRanks(slice)) *
  headSize(model);

/** A module and how often it runs. */
export interface CountedModule {
  readonly shape: ModuleShape;
  readonly count: number;
}

/** The modules of one layer on one rank. */
export interface LayerModules {
  readonly forward: readonly CountedModule[];
  readonly backward: readonly CountedModule[];
  /** What recomputation runs again before the backward pass: everything up to the products that are kept. */
  readonly recompute: readonly CountedModule[];
}

/**
 * Attention of one turn. On a ring every rank attends, in as many turns as it has ranks, to two of four pairs
 * of chunks: in the zigzag layout each turn is the work of causal attention over the rank's part of the
 * sequence, and the first one is just that. The gradients of a block of keys and values are added to those
 * that arrive with it.
 */
export function attentionTurn(
  model: Model,
  slice: LayerSlice,
  precision: Precision,
): { readonly attention: ModuleShape; readonly summed: ModuleShape } {
  const compute = computePrecision(precision);
  const shared = headRanks(slice);
  const { microBatchSize: batch, sequenceLengthTokens } = slice;
  return {
    attention: {
      module: "attention",
      pass: "forward",
      precision: compute,
      batch,
      sequence: sequenceLengthTokens / contextOf(slice),
      heads: model.heads / shared,
      kvHeads: localKvHeads(model.kvHeads, shared),
      headSize: headSize(model),
    },
    summed: {
      module: "accumulate",
      pass: "update",
      precision: compute,
      elements: ringElements(model, slice),
    },
  };
}

/**
 * What the executor runs of one layer (native/src/trainer/model.cpp). One residual sum is part of a norm's
 * kernel, and both are in the backward pass; norm outputs and the product of gate and up are not kept, so the
 * backward pass makes them again.
 */
export function layerModules(model: Model, slice: LayerSlice, precision: Precision): LayerModules {
  const { hiddenSize: h, ffnHiddenSize: f } = model;
  const tp = slice.tensorParallel;
  const rows = sliceRows(slice);
  // Config 1 gathers the sequence before each split block: linears see all rows and 1/tp of the width.
  const linearRows = rows * tp;
  const compute = computePrecision(precision);
  const forward = { pass: "forward", precision: compute } as const;
  const size = headSize(model);
  const kv = kvWidth(model);
  // Rotary positions act on the sequence slice with all heads (config 2) or on all rows with 1/tp of the
  // heads.
  const ropeHeads = model.heads / tp;
  const ropeKvHeads = tp === 1 ? model.kvHeads : localKvHeads(model.kvHeads, tp);
  const kvOutputs = tp === 1 ? kv : localKvHeads(model.kvHeads, tp) * size;
  const norms: CountedModule = { shape: { module: "rmsnorm", ...forward, rows, width: h }, count: 2 };
  const qkv: CountedModule = {
    shape: { module: "linear", ...forward, rows: linearRows, inputs: h, outputs: h / tp + 2 * kvOutputs },
    count: 1,
  };
  const ropes: CountedModule[] = [ropeHeads, ropeKvHeads].map((heads) => ({
    shape: { module: "rope", ...forward, rows: linearRows, heads, headSize: size },
    count: 1,
  }));
  const ring = contextOf(slice);
  const turn = attentionTurn(model, slice, precision);
  const attention: CountedModule = { shape: turn.attention, count: ring };
  const summed: CountedModule[] = ring === 1 ? [] : [{ shape: turn.summed, count: ring - 1 }];
  const output: CountedModule = {
    shape: { module: "linear", ...forward, rows: linearRows, inputs: h / tp, outputs: h },
    count: 1,
  };
  const inner = Math.ceil(f / tp);
  const gateUp: CountedModule = {
    shape: { module: "linear", ...forward, rows: linearRows, inputs: h, outputs: 2 * inner },
    count: 1,
  };
  const swiglu: CountedModule = {
    shape: { module: "swiglu", ...forward, rows: linearRows, width: inner },
    count: 1,
  };
  const down: CountedModule = {
    shape: { module: "linear", ...forward, rows: linearRows, inputs: inner, outputs: h },
    count: 1,
  };
  const residual: CountedModule = { shape: { module: "residual-add", ...forward, rows, width: h }, count: 1 };
  const recompute = [norms, qkv, ...ropes, attention, output, gateUp];
  const differentiated = [...recompute, swiglu, down].map(({ shape, count }) => ({
    shape: backwardOf(shape),
    count,
  }));
  return {
    forward: [...recompute, swiglu, down, residual],
    backward: [...differentiated, norms, swiglu, ...summed],
    recompute,
  };
}

/** The same module in the backward pass. */
export function backwardOf(shape: ModuleShape): ModuleShape {
  return "pass" in shape && shape.pass === "forward" ? { ...shape, pass: "backward" } : shape;
}

/**
 * Modules outside the layers on one rank: tensor ranks have a part of the vocabulary each, and see all rows
 * of it.
 */
export function sliceOuterModules(
  model: Model,
  slice: LayerSlice,
  precision: Precision,
): ReturnType<typeof outerModules> {
  const whole = outerModules(model, sliceRows(slice), precision);
  const tp = slice.tensorParallel;
  if (tp === 1) return whole;
  const part = { rows: sliceRows(slice) * tp, vocabulary: Math.ceil(model.vocabularySize / tp) };
  return { ...whole, embedding: { ...whole.embedding, ...part }, headLoss: { ...whole.headLoss, ...part } };
}

/** Modules outside the layers: embedding, final norm, head with loss. */
export function outerModules(
  model: Model,
  rows: number,
  precision: Precision,
): { embedding: ModuleShape; finalNorm: ModuleShape; headLoss: ModuleShape } {
  const compute = computePrecision(precision);
  const sizes = { precision: compute, rows, width: model.hiddenSize, vocabulary: model.vocabularySize };
  return {
    embedding: { module: "embedding", pass: "forward", ...sizes },
    finalNorm: { module: "rmsnorm", pass: "forward", precision: compute, rows, width: model.hiddenSize },
    headLoss: { module: "head-loss", pass: "forward-backward", ...sizes },
  };
}
