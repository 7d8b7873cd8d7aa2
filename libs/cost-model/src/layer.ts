import {
  commonProgram,
  contextOf,
  cutOf,
  dimensionCount,
  dimensionSize,
  headRanks,
  headSize,
  holds,
  operatorsAgainWhen,
  recomputedOperators,
  repeatedOperators,
  seenKeysShare,
  unitPlace,
  type LayerProgram,
  type Model,
  type ModuleShape,
  type Pass,
  type Precision,
  type ProgramCollective,
  type ProgramFlag,
  type ProgramOperator,
  type SplitSource,
} from "@internevo/domain";

/** Precision in which the kernels of a policy compute. */
export const computePrecision = (precision: Precision): "fp32" | "bf16" =>
  precision === "fp32" ? "fp32" : "bf16";

/**
 * What decides the shapes of a layer on one rank: b, S, and how ranks share the sequence.
 */
export interface LayerSlice extends SplitSource {
  readonly microBatchSize: number;
  readonly sequenceLengthTokens: number;
}

/** Rows of the residual stream on one rank: b · S / s_sp tokens. */
export const sliceRows = (slice: LayerSlice): number =>
  (slice.microBatchSize * slice.sequenceLengthTokens) / slice.sequenceParallel;

/**
 * Key/value heads on one rank during attention. With fewer key/value heads than ranks that share heads, each
 * head is sent to every rank whose query heads read it, so a rank always has at least one.
 */
export const localKvHeads = (kvHeads: number, ranks: number): number => cutOf(kvHeads, "shared", ranks);

/**
 * Elements of the keys and values that one rank of a ring holds: of its part of the sequence, the heads that
 * it attends with.
 */
export const ringElements = (model: Model, slice: LayerSlice): number =>
  ((slice.microBatchSize * slice.sequenceLengthTokens) / contextOf(slice)) *
  2 *
  localKvHeads(model.kvHeads, headRanks(slice)) *
  headSize(model);

/** A module and how often it runs; attention that skips keys beyond a window runs a part of once. */
export interface CountedModule {
  readonly shape: ModuleShape;
  readonly count: number;
}

/** A module of a layer, and the places of the units in whose time its runs are. */
export interface LayerModule extends CountedModule {
  readonly units: readonly number[];
}

/** The modules of one layer on one rank. */
export interface LayerModules {
  readonly forward: readonly LayerModule[];
  readonly backward: readonly LayerModule[];
  /** What recomputation runs again before the backward pass: everything up to the products that are kept. */
  readonly recompute: readonly LayerModule[];
  /** What a layer that is not recomputed runs again where a plan does not keep gate and up. */
  readonly gateUpAgain: readonly LayerModule[];
}

/**
 * Attention of one turn. On a ring every rank attends, in as many turns as it has ranks, to two of four pairs
 * of chunks: in the zigzag layout each turn is the work of causal attention over the rank's part of the
 * sequence, and the first one is just that. The gradients of a block of keys and values are added to those
 * that arrive with it. With a window all turns together are a share of what they are without it: it is the
 * same for every rank, nearly, as each has an early and a late part of the sequence.
 */
export function attentionTurn(
  model: Model,
  slice: LayerSlice,
  precision: Precision,
): { readonly attention: ModuleShape; readonly share: number; readonly summed: ModuleShape } {
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
    share: seenKeysShare(model, sequenceLengthTokens),
    summed: {
      module: "accumulate",
      pass: "update",
      precision: compute,
      elements: ringElements(model, slice),
    },
  };
}

/** Sizes of an operator on one of several tensor ranks. */
interface OperatorSizes {
  /** Of its parameters' columns, or of the dimension that it works on. */
  readonly width: number;
  /** Of all its parameters' rows. */
  readonly outputs: number;
  /** Of all its parameters' columns. */
  readonly columns: number;
  /** Of each dimension that it works on. */
  readonly heads: readonly number[];
}

const knownSizes = new WeakMap<Model, Map<number, Map<ProgramOperator, OperatorSizes>>>();

/** @param ranks those that share the width of its rows. */
function operatorSizes(
  program: LayerProgram,
  operator: ProgramOperator,
  model: Model,
  ranks: number,
): OperatorSizes {
  const ofModel = knownSizes.get(model) ?? new Map<number, Map<ProgramOperator, OperatorSizes>>();
  knownSizes.set(model, ofModel);
  const ofRanks = ofModel.get(ranks) ?? new Map<ProgramOperator, OperatorSizes>();
  ofModel.set(ranks, ofRanks);
  const known = ofRanks.get(operator);
  if (known) return known;
  const { parameters = [], on = [] } = operator;
  const size = (dimension: string): number => dimensionSize(program, model, dimension, ranks);
  const tensors = program.tensors.filter(({ name }) => parameters.includes(name));
  const made = {
    width: size(tensors[0]?.columns ?? on[0] ?? "one"),
    outputs: tensors.reduce((sum, tensor) => sum + size(tensor.rows ?? "one"), 0),
    columns: tensors.reduce((sum, tensor) => sum + size(tensor.columns), 0),
    heads: on.map((dimension) => dimensionCount(program, model, dimension, ranks)),
  };
  ofRanks.set(operator, made);
  return made;
}

/** The modules that an operator of a layer runs in the forward pass, once each. */
function operatorShapes(
  program: LayerProgram,
  operator: ProgramOperator,
  model: Model,
  slice: LayerSlice,
  precision: Precision,
): ModuleShape[] {
  const { tensorParallel: tp } = slice;
  // Tensor ranks gather the sequence before each split block: its operators see all rows and 1/tp of the
  // width. Ranks that share heads see all rows of their ring's part in attention.
  const ranks = operator.rows === "attention" ? headRanks(slice) : tp;
  const rows = operator.rows === "tokens" ? sliceRows(slice) : sliceRows(slice) * ranks;
  const common = { pass: "forward", precision: computePrecision(precision) } as const;
  const { width, outputs, columns, heads } = operatorSizes(program, operator, model, ranks);
  switch (operator.kind) {
    case "linear":
      return [{ module: "linear", ...common, rows, inputs: width, outputs }];
    case "rope":
      return heads.map((own) => ({ module: "rope", ...common, rows, heads: own, headSize: headSize(model) }));
    case "headnorm": {
      const normalised = rows * heads.reduce((sum, own) => sum + own, 0);
      return [{ module: "rmsnorm", ...common, rows: normalised, width: headSize(model) }];
    }
    case "bias":
      return [{ module: "residual-add", ...common, rows, width: columns }];
    case "attention":
      return [attentionTurn(model, slice, precision).attention];
    case "rmsnorm":
    case "swiglu":
    case "residual-add":
      return [{ module: operator.kind, ...common, rows, width }];
  }
}

/** Operators that work on the same dimensions, so that they are one module, and the units of each. */
interface OperatorGroup {
  readonly operator: ProgramOperator;
  readonly units: number[];
}

function groupsOf(program: LayerProgram, operators: readonly ProgramOperator[], pass: Pass): OperatorGroup[] {
  const groups = new Map<string, OperatorGroup>();
  for (const operator of operators) {
    const { kind, rows, on, parameters } = operator;
    const sizes = program.tensors
      .filter(({ name }) => parameters?.includes(name) === true)
      .map((tensor) => [tensor.rows, tensor.columns]);
    const key = JSON.stringify([kind, rows, on, sizes]);
    const group = groups.get(key) ?? { operator, units: [] };
    groups.set(key, group);
    group.units.push(unitPlace(program, operator, pass));
  }
  return [...groups.values()];
}

type ProgramGroups = Readonly<
  Record<
    "forward" | "differentiated" | "added" | "repeated" | "recomputed" | "gateUpAgain" | "summed",
    OperatorGroup[]
  >
>;
const knownGroups = new Map<LayerProgram, ProgramGroups>();

function programGroups(program: LayerProgram): ProgramGroups {
  const known = knownGroups.get(program);
  if (known) return known;
  const { operators } = program;
  const made: ProgramGroups = {
    forward: groupsOf(program, operators, "forward"),
    differentiated: groupsOf(
      program,
      operators.filter(({ backward, kind }) => backward !== false && kind !== "bias"),
      "backward",
    ),
    added: groupsOf(
      program,
      operators.filter(({ kind }) => kind === "bias"),
      "backward",
    ),
    repeated: groupsOf(program, repeatedOperators(program), "backward"),
    recomputed: groupsOf(program, recomputedOperators(program), "forward"),
    gateUpAgain: groupsOf(program, operatorsAgainWhen(program, "gateUpAgain"), "forward"),
    summed: groupsOf(
      program,
      operators.filter(({ turns }) => turns !== undefined),
      "backward",
    ),
  };
  knownGroups.set(program, made);
  return made;
}

/**
 * What the executor runs of one layer (native/src/trainer/model_layer.cpp), from its program. One residual
 * sum is part of a norm's kernel, and both are in the backward pass; what is not kept, the backward pass
 * makes again.
 */
export function layerModules(model: Model, slice: LayerSlice, precision: Precision): LayerModules {
  const program = commonProgram(model);
  const ring = contextOf(slice);
  const groups = programGroups(program);
  const { summed, share } = attentionTurn(model, slice, precision);
  const modulesOf = (list: readonly OperatorGroup[]): LayerModule[] =>
    list.flatMap(({ operator, units }) =>
      operatorShapes(program, operator, model, slice, precision).map((shape) => ({
        shape,
        count:
          units.length *
          (operator.turns === undefined ? 1 : ring) *
          (operator.kind === "attention" ? share : 1),
        units,
      })),
    );
  return {
    forward: modulesOf(groups.forward),
    backward: [
      ...modulesOf(groups.differentiated).map((one) => ({ ...one, shape: backwardOf(one.shape) })),
      // Gradients of biases are sums of the rows, one pass over them as in the forward pass.
      ...modulesOf(groups.added),
      ...modulesOf(groups.repeated),
      ...(ring > 1 ? groups.summed : []).map(({ units }) => ({ shape: summed, count: ring - 1, units })),
    ],
    recompute: modulesOf(groups.recomputed),
    gateUpAgain: modulesOf(groups.gateUpAgain),
  };
}

/** Collectives around the operators of a layer in a pass. */
export interface LayerTraffic {
  /** All-gathers and reduce-scatters of the residual stream. */
  readonly gathers: number;
  readonly scatters: number;
  /** All-to-alls, by the dimension that each moves. */
  readonly exchanged: ReadonlyMap<string, number>;
}

type TrafficOfPasses = Readonly<Record<"forward" | "recompute" | "gateUpAgain" | "backward", LayerTraffic>>;
const knownTraffic = new Map<LayerProgram, Map<ProgramFlag, TrafficOfPasses>>();

/**
 * Collectives of a layer under one way to share a sequence. In the backward pass every gather is a scatter of
 * the gradient and the other way round; what was gathered before a product is gathered again, and not kept.
 */
export function layerTraffic(program: LayerProgram, sharing: ProgramFlag): TrafficOfPasses {
  const ofProgram = knownTraffic.get(program) ?? new Map<ProgramFlag, TrafficOfPasses>();
  knownTraffic.set(program, ofProgram);
  const known = ofProgram.get(sharing);
  if (known) return known;
  const trafficOf = (operators: readonly ProgramOperator[], pass: Pass): LayerTraffic => {
    const around = operators
      .flatMap(({ before, behind }) => [before, behind])
      .filter((one) => one !== undefined && holds(one, { [sharing]: true })) as ProgramCollective[];
    const count = (collective: ProgramCollective["collective"]): number =>
      around.filter((one) => one.collective === collective).length;
    const exchanged = new Map<string, number>();
    for (const { collective, of = [] } of around)
      if (collective === "all-to-all")
        for (const dimension of of) exchanged.set(dimension, (exchanged.get(dimension) ?? 0) + 1);
    const [gathers, scatters] = [count("all-gather"), count("reduce-scatter")];
    return pass === "forward"
      ? { gathers, scatters, exchanged }
      : { gathers: gathers + scatters, scatters: gathers, exchanged };
  };
  const made = {
    forward: trafficOf(program.operators, "forward"),
    recompute: trafficOf(recomputedOperators(program), "forward"),
    gateUpAgain: trafficOf(operatorsAgainWhen(program, "gateUpAgain"), "forward"),
    backward: trafficOf(program.operators, "backward"),
  };
  ofProgram.set(sharing, made);
  return made;
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
