import decoder from "../../../native/src/layer_program/decoder.json" with { type: "json" };

/*
 * What a layer is made of, as data that the trainer reads too (native/src/layer_program/README.md says what the members
 * mean). Everything about a layer that the planner must know follows from it.
 */

export type Pass = "forward" | "backward";
export type ProgramFlag = (typeof FLAGS)[number];
export type Cut = (typeof CUTS)[number];
export type RowsOf = (typeof ROWS)[number];
export type ModuleKindOfLayer = (typeof KINDS)[number];

/** Flags of the model: they hold, or not, for every plan of it. */
const MODEL_FLAGS = ["tiedEmbeddings", "queryKeyNorm", "queryKeyValueBias", "ownHeadSize"] as const;
/** Flags of the plan. */
const PLAN_FLAGS = ["tensorParallel", "ulysses", "contextParallel", "gateUpAgain", "gateUpHost"] as const;
const FLAGS = [...MODEL_FLAGS, ...PLAN_FLAGS] as const;
const CUTS = ["whole", "equal", "shared", "roundedUp"] as const;
const ROWS = ["tokens", "block", "attention", "once"] as const;
const KINDS = [
  "rmsnorm",
  "linear",
  "bias",
  "rope",
  "headnorm",
  "attention",
  "swiglu",
  "residual-add",
] as const;
const TENSOR_KINDS = ["matrix", "gain", "bias"] as const;
const INITIALS = ["normal", "normalByDepth", "ones", "zeros"] as const;
/** Of a program; a plan may also keep a value in the host's memory. */
const FATES = ["stream", "kept", "again", "workspace"] as const;
const COLLECTIVES = ["all-gather", "reduce-scatter", "all-to-all"] as const;
/** Members of a model that dimensions are made of. */
const SIZES = ["hiddenSize", "heads", "kvHeads", "headSize", "ffnHiddenSize", "vocabularySize"] as const;

/** What a program is evaluated for. */
export interface ProgramModel extends Readonly<Record<Exclude<(typeof SIZES)[number], "headSize">, number>> {
  /** Undefined: the heads have the hidden size among them. */
  readonly headSize?: number;
  readonly tiedEmbeddings: boolean;
  readonly queryKeyNorm?: boolean;
  readonly queryKeyValueBias?: boolean;
}

export type ProgramFlags = Readonly<Partial<Record<ProgramFlag, boolean>>>;

/** A width of the model: `of` · `times` elements, of which ranks have a part each as `cut` says. */
export interface ProgramDimension {
  readonly name: string;
  /** Undefined: one element. */
  readonly of?: (typeof SIZES)[number];
  readonly times?: (typeof SIZES)[number];
  readonly cut: Cut;
}

interface Conditional {
  readonly when?: ProgramFlag;
  readonly unless?: ProgramFlag;
}

export interface ProgramUnit extends Conditional {
  readonly name: string;
  /** Units of one block are next to one another: attention, MLP. */
  readonly block?: string;
}

export interface ProgramTensor extends Conditional {
  readonly name: string;
  readonly unit: string;
  readonly kind: (typeof TENSOR_KINDS)[number];
  /** A dimension; undefined for a vector. */
  readonly rows?: string;
  readonly columns: string;
  readonly initial: (typeof INITIALS)[number];
  readonly huggingFace: string;
}

export interface ProgramValue extends Conditional {
  readonly name: string;
  readonly fate: (typeof FATES)[number];
  /** A flag of the plan: where it holds, what would be kept is made again in the backward pass. */
  readonly againWhen?: (typeof PLAN_FLAGS)[number];
  /** A flag of the plan: where it holds, what would be kept waits in the host's memory. */
  readonly hostWhen?: (typeof PLAN_FLAGS)[number];
  readonly rows: RowsOf;
  /** Dimensions next to one another. */
  readonly width: readonly string[];
  /** That of activations where it is left out. */
  readonly type?: "float32";
  /** The value that it is where its condition does not hold. */
  readonly otherwise?: string;
  /** The block that alone uses it; workspaces of different blocks share their memory. */
  readonly block?: string;
  readonly passes?: readonly Pass[];
}

export interface ProgramCollective extends Conditional {
  readonly collective: (typeof COLLECTIVES)[number];
  /** One message for each of these dimensions; one of the whole value where it is left out. */
  readonly of?: readonly string[];
}

export interface ProgramOperator extends Conditional {
  readonly name: string;
  readonly kind: ModuleKindOfLayer;
  /** What a timeline calls it. */
  readonly label?: string;
  /** The operator in whose time a timeline has it. */
  readonly within?: string;
  /** The unit in whose time it runs, which has its parameters. */
  readonly unit: string;
  /** The same in the backward pass, where it is another. */
  readonly backwardUnit?: string;
  readonly rows: RowsOf;
  readonly parameters?: readonly string[];
  /** Dimensions that it works on, one after another, where no parameter says it. */
  readonly on?: readonly string[];
  readonly reads: readonly string[];
  readonly writes: readonly string[];
  readonly before?: ProgramCollective;
  readonly behind?: ProgramCollective;
  /** It runs once for each rank of this dimension of the plan. */
  readonly turns?: "contextParallel";
  /** False: its backward pass is part of others'. */
  readonly backward?: boolean;
}

export interface LayerProgram {
  readonly name: string;
  readonly dimensions: readonly ProgramDimension[];
  readonly units: readonly ProgramUnit[];
  readonly tensors: readonly ProgramTensor[];
  readonly values: readonly ProgramValue[];
  readonly operators: readonly ProgramOperator[];
  /** What stands before and behind the layers. */
  readonly ends: { readonly units: readonly ProgramUnit[]; readonly tensors: readonly ProgramTensor[] };
}

const fail = ({ name }: LayerProgram, what: string): never => {
  throw new Error(`layer program ${name}: ${what}`);
};

const namesOf = (list: readonly { readonly name: string }[]): string[] => list.map(({ name }) => name);

/** Checks of members of one program. */
interface ProgramChecks {
  readonly oneOf: (where: string, member: string, value: unknown, known: readonly string[]) => void;
  readonly allOf: (
    where: string,
    member: string,
    list: readonly string[] | undefined,
    known: readonly string[],
  ) => void;
  readonly conditions: (where: string, part: Conditional, flags?: readonly string[]) => void;
}

function checksOf(program: LayerProgram): ProgramChecks {
  const oneOf: ProgramChecks["oneOf"] = (where, member, value, known) => {
    if (value !== undefined && !known.includes(value as string))
      fail(program, `${where} has ${member} ${JSON.stringify(value)}; use one of ${known.join(", ")}`);
  };
  return {
    oneOf,
    allOf: (where, member, list = [], known) => list.forEach((value) => oneOf(where, member, value, known)),
    conditions(where, { when, unless }, flags = FLAGS) {
      oneOf(where, "when", when, flags);
      oneOf(where, "unless", unless, flags);
    },
  };
}

/** Whether an operator is there depends on the model alone; its collectives may depend on the plan too. */
function checkOperators(program: LayerProgram, { oneOf, allOf, conditions }: ProgramChecks): void {
  const [units, values, dimensions] = [program.units, program.values, program.dimensions].map(namesOf) as [
    string[],
    string[],
    string[],
  ];
  for (const operator of program.operators) {
    const where = `operator ${operator.name}`;
    oneOf(where, "kind", operator.kind, KINDS);
    oneOf(where, "unit", operator.unit, units);
    oneOf(where, "backwardUnit", operator.backwardUnit, units);
    oneOf(where, "rows", operator.rows, ROWS);
    oneOf(where, "within", operator.within, namesOf(program.operators));
    allOf(where, "parameters", operator.parameters, namesOf(program.tensors));
    allOf(where, "on", operator.on, dimensions);
    allOf(where, "reads", operator.reads, values);
    allOf(where, "writes", operator.writes, values);
    conditions(where, operator, MODEL_FLAGS);
    for (const collective of [operator.before, operator.behind]) {
      if (collective === undefined) continue;
      oneOf(where, "collective", collective.collective, COLLECTIVES);
      allOf(where, "of", collective.of, dimensions);
      conditions(where, collective);
    }
  }
}

/**
 * Checks that a program names only what it has.
 * @throws Error that names the member.
 */
export function checkedProgram(program: LayerProgram): LayerProgram {
  const checks = checksOf(program);
  const { oneOf, allOf, conditions } = checks;
  const distinct = (where: string, list: readonly string[]): void => {
    const twice = list.find((name, at) => list.indexOf(name) < at);
    if (twice !== undefined) fail(program, `${where} ${twice} stands there twice; rename one`);
  };
  const dimensions = namesOf(program.dimensions);
  const values = namesOf(program.values);
  const blocks = program.units.flatMap(({ block }) => block ?? []);
  distinct("dimension", dimensions);
  distinct("unit", namesOf(program.units));
  distinct("tensor", namesOf(program.tensors));
  distinct("value", values);
  distinct("operator", namesOf(program.operators));
  for (const { name, of, times, cut } of program.dimensions) {
    oneOf(`dimension ${name}`, "of", of, SIZES);
    oneOf(`dimension ${name}`, "times", times, SIZES);
    oneOf(`dimension ${name}`, "cut", cut, CUTS);
  }
  const tensors = (list: readonly ProgramTensor[], owners: readonly ProgramUnit[]): void => {
    for (const tensor of list) {
      const where = `tensor ${tensor.name}`;
      oneOf(where, "unit", tensor.unit, namesOf(owners));
      oneOf(where, "kind", tensor.kind, TENSOR_KINDS);
      oneOf(where, "rows", tensor.rows, dimensions);
      oneOf(where, "columns", tensor.columns, dimensions);
      oneOf(where, "initial", tensor.initial, INITIALS);
      conditions(where, tensor, MODEL_FLAGS);
    }
  };
  tensors(program.tensors, program.units);
  tensors(program.ends.tensors, program.ends.units);
  for (const value of program.values) {
    const where = `value ${value.name}`;
    oneOf(where, "fate", value.fate, FATES);
    oneOf(where, "againWhen", value.againWhen, PLAN_FLAGS);
    oneOf(where, "hostWhen", value.hostWhen, PLAN_FLAGS);
    oneOf(where, "rows", value.rows, ROWS);
    allOf(where, "width", value.width, dimensions);
    oneOf(where, "otherwise", value.otherwise, values);
    oneOf(where, "block", value.block, blocks);
    oneOf(where, "type", value.type, ["float32"]);
    allOf(where, "passes", value.passes, ["forward", "backward"]);
    conditions(where, value);
  }
  checkOperators(program, checks);
  return program;
}

const DECODER = checkedProgram(decoder as LayerProgram);

/** Whether what has a condition is there. */
export const holds = ({ when, unless }: Conditional, flags: ProgramFlags): boolean =>
  (when === undefined || flags[when] === true) && (unless === undefined || flags[unless] !== true);

/** What becomes of a value under a plan. */
export function fateOf(
  { fate, againWhen, hostWhen }: ProgramValue,
  flags: ProgramFlags,
): ProgramValue["fate"] | "host" {
  if (againWhen !== undefined && flags[againWhen] === true) return "again";
  return hostWhen !== undefined && flags[hostWhen] === true ? "host" : fate;
}

/** Elements of one head. */
export const headSize = ({
  hiddenSize,
  heads,
  headSize: own,
}: Pick<ProgramModel, "hiddenSize" | "heads" | "headSize">): number => own ?? hiddenSize / heads;

/** Elements of all query heads, which is the hidden size unless heads have a size of their own. */
export const queryWidth = (model: Pick<ProgramModel, "hiddenSize" | "heads" | "headSize">): number =>
  model.headSize === undefined ? model.hiddenSize : model.heads * model.headSize;

/** Which flags of the model hold. */
export function modelFlags(model: ProgramModel): Readonly<Record<(typeof MODEL_FLAGS)[number], boolean>> {
  return {
    tiedEmbeddings: model.tiedEmbeddings,
    queryKeyNorm: model.queryKeyNorm === true,
    queryKeyValueBias: model.queryKeyValueBias === true,
    ownHeadSize: queryWidth(model) !== model.hiddenSize,
  };
}

const isOfModel = (flag: ProgramFlag | undefined): boolean =>
  (MODEL_FLAGS as readonly (ProgramFlag | undefined)[]).includes(flag);

/** What is left of a condition when the flags of the model are known; undefined where it does not hold. */
function withoutModelFlags<Part extends Conditional>(part: Part, flags: ProgramFlags): Part | undefined {
  const { when, unless, ...rest } = part;
  const ofModel = {
    ...(isOfModel(when) ? { when } : {}),
    ...(isOfModel(unless) ? { unless } : {}),
  } as Conditional;
  if (!holds(ofModel, flags)) return undefined;
  return {
    ...rest,
    ...(when === undefined || isOfModel(when) ? {} : { when }),
    ...(unless === undefined || isOfModel(unless) ? {} : { unless }),
  } as Part;
}

/**
 * The program as models with these flags have it: without what they lack, and with the values that stand in
 * for those. Only conditions of plans are left.
 */
function programOfFlags(program: LayerProgram, flags: ProgramFlags): LayerProgram {
  const there = <Part extends Conditional>(list: readonly Part[]): Part[] =>
    list.flatMap((part) => withoutModelFlags(part, flags) ?? []);
  const values = there(program.values);
  const names = new Set(values.map(({ name }) => name));
  const standIn = (name: string): string[] => {
    if (names.has(name)) return [name];
    const otherwise = program.values.find((value) => value.name === name)?.otherwise;
    return otherwise === undefined ? [] : standIn(otherwise);
  };
  const used = (list: readonly string[]): string[] => [...new Set(list.flatMap(standIn))];
  return {
    ...program,
    tensors: there(program.tensors),
    values: values.map(({ otherwise, ...value }) => {
      const [other] = otherwise === undefined ? [] : standIn(otherwise);
      return { ...value, ...(other === undefined ? {} : { otherwise: other }) };
    }),
    operators: there(program.operators).map(({ before, behind, ...operator }) => {
      const [first, last] = [before, behind].map((one) => one && withoutModelFlags(one, flags));
      return {
        ...operator,
        reads: used(operator.reads),
        writes: used(operator.writes),
        ...(first ? { before: first } : {}),
        ...(last ? { behind: last } : {}),
      };
    }),
    ends: { units: program.ends.units, tensors: there(program.ends.tensors) },
  };
}

const knownPrograms = new Map<string, LayerProgram>();
const programOfModel = new WeakMap<ProgramModel, LayerProgram>();

/**
 * The program of a layer of a model, without what its flags exclude. Every layer of the models that there are
 * has the same.
 */
export function layerProgram(model: ProgramModel, _layer: number): LayerProgram {
  const known = programOfModel.get(model);
  if (known) return known;
  const flags = modelFlags(model);
  const key = MODEL_FLAGS.filter((flag) => flags[flag]).join(" ");
  const made = knownPrograms.get(key) ?? programOfFlags(DECODER, flags);
  knownPrograms.set(key, made);
  programOfModel.set(model, made);
  return made;
}

/** The one program that all layers of a model have, for what asks about a layer without saying which. */
export const commonProgram = (model: ProgramModel): LayerProgram => layerProgram(model, 0);

/**
 * The units of a layer by name, where no model is at hand: those that measured slices are divided into. It has
 * what any model can have.
 */
export const DECODER_PROGRAM: LayerProgram = DECODER;

const sizeOf = (model: ProgramModel, size: (typeof SIZES)[number]): number =>
  size === "headSize" ? headSize(model) : model[size];

/**
 * The part of a number that one of `ranks` has. Shared: with fewer key/value heads than ranks, each head is
 * on every rank whose query heads read it, so a rank always has at least one.
 */
export function cutOf(count: number, cut: Cut, ranks: number): number {
  if (ranks === 1) return count;
  switch (cut) {
    case "whole":
      return count;
    case "equal":
      return count / ranks;
    case "shared":
      return Math.max(1, count / ranks);
    case "roundedUp":
      return Math.ceil(count / ranks);
  }
}

const dimensionOf = (program: LayerProgram, name: string): ProgramDimension =>
  program.dimensions.find((one) => one.name === name) as ProgramDimension;

/** How many of `of` (heads, or elements) one of `ranks` has of a dimension. */
export function dimensionCount(
  program: LayerProgram,
  model: ProgramModel,
  name: string,
  ranks: number,
): number {
  const { of, cut } = dimensionOf(program, name);
  return of === undefined ? 1 : cutOf(sizeOf(model, of), cut, ranks);
}

/** Elements of a dimension on one of `ranks`. */
export function dimensionSize(program: LayerProgram, model: ProgramModel, name: string, ranks = 1): number {
  const { times } = dimensionOf(program, name);
  return dimensionCount(program, model, name, ranks) * (times === undefined ? 1 : sizeOf(model, times));
}

/** Elements of dimensions next to one another. */
export const widthOf = (
  program: LayerProgram,
  model: ProgramModel,
  names: readonly string[],
  ranks = 1,
): number => names.reduce((sum, name) => sum + dimensionSize(program, model, name, ranks), 0);

/** Elements of a tensor on one of `ranks` that share the model by tensor parallelism. */
export const tensorElements = (
  program: LayerProgram,
  model: ProgramModel,
  { rows, columns }: ProgramTensor,
  ranks = 1,
): number =>
  (rows === undefined ? 1 : dimensionSize(program, model, rows, ranks)) *
  dimensionSize(program, model, columns, ranks);

/** How tensor ranks cut a tensor: as the one of its dimensions that they don't have as a whole. */
export function tensorCut(program: LayerProgram, { rows, columns }: ProgramTensor): Cut {
  const cuts = [rows, columns].flatMap((name) => (name === undefined ? [] : dimensionOf(program, name).cut));
  return cuts.find((cut) => cut !== "whole") ?? "whole";
}

/** A number for each unit of a layer, in the order of its program. */
export type ByUnit = readonly number[];

/** Elements of the units of a layer, and of the units before and behind the layers, without padding. */
export interface ProgramElements {
  readonly units: ByUnit;
  readonly ends: Readonly<Record<string, number>>;
}

/** Elements of all units on one of `ranks` that share the model by tensor parallelism. */
export function programElements(program: LayerProgram, model: ProgramModel, ranks = 1): ProgramElements {
  const flags = modelFlags(model);
  const of = (units: readonly ProgramUnit[], tensors: readonly ProgramTensor[]): number[] =>
    units.map(({ name }) =>
      tensors
        .filter((tensor) => tensor.unit === name && holds(tensor, flags))
        .reduce((sum, tensor) => sum + tensorElements(program, model, tensor, ranks), 0),
    );
  const { ends } = program;
  const elements = of(ends.units, ends.tensors);
  return {
    units: of(program.units, program.tensors),
    ends: Object.fromEntries(ends.units.map(({ name }, at) => [name, elements[at] as number])),
  };
}

/** Places of a layer's units, block by block. */
export function unitBlocks(program: LayerProgram): readonly (readonly number[])[] {
  const blocks: number[][] = [];
  program.units.forEach(({ block }, at) => {
    const before = program.units[at - 1];
    if (before !== undefined && before.block === block) (blocks.at(-1) as number[]).push(at);
    else blocks.push([at]);
  });
  return blocks;
}

/** The place of the unit in whose time an operator runs. */
export function unitPlace(program: LayerProgram, operator: ProgramOperator, pass: Pass): number {
  const name = (pass === "backward" ? operator.backwardUnit : undefined) ?? operator.unit;
  return program.units.findIndex((unit) => unit.name === name);
}

/** What a timeline calls the operators of a layer in a pass, in the order of the pass. */
export function operatorLabels(
  program: LayerProgram,
  pass: Pass,
): { readonly name: string; readonly label: string }[] {
  const list = program.operators.flatMap(({ name, label }) =>
    label === undefined ? [] : [{ name, label: label.replace("{pass}", pass) }],
  );
  return pass === "forward" ? list : list.reverse();
}

/** The products of a layer's units: the operators that timelines name, attention apart. */
export const unitProducts = (program: LayerProgram): readonly ProgramOperator[] =>
  program.units.map(
    ({ name }) =>
      program.operators.find(({ kind, label, unit }) => kind === "linear" && label && unit === name) ??
      fail(program, `unit ${name} has no product that a timeline names; give one a label`),
  );

const isWrittenWith = (
  { values }: LayerProgram,
  { writes }: ProgramOperator,
  fate: ProgramValue["fate"],
): boolean => writes.some((name) => values.find((value) => value.name === name)?.fate === fate);

/** What recomputation runs again: every operator up to the last one that writes what is kept. */
export function recomputedOperators(program: LayerProgram): readonly ProgramOperator[] {
  const last = program.operators.findLastIndex((operator) => isWrittenWith(program, operator, "kept"));
  return program.operators.slice(0, last + 1);
}

/** What a backward pass runs again under plans with a flag, beside what every backward pass does. */
export const operatorsAgainWhen = (
  program: LayerProgram,
  flag: (typeof PLAN_FLAGS)[number],
): readonly ProgramOperator[] =>
  program.operators.filter(({ writes }) =>
    writes.some((name) => program.values.find((value) => value.name === name)?.againWhen === flag),
  );

/** What every backward pass runs again, because its result is not kept. */
export const repeatedOperators = (program: LayerProgram): readonly ProgramOperator[] =>
  program.operators.filter((operator) => isWrittenWith(program, operator, "again"));
