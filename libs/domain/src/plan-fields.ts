import { MAXIMUM_LAYERS } from "./bounds.ts";

/*
 * The fields of a plan: the one place that lists them. Schemas, constraints, labels, defaults, orders and words all follow from this table. To add
 * a field, add a row; then teach the cost model, the search and the trainer what it does.
 */

/**
 * What a field's values are counted against: it divides the ranks of the cluster or the sequences of a step,
 * or is no more than the layers.
 */
export type PlanBound = "ranks" | "sequences" | "layers";

interface Row {
  /**
   * Symbol in the paper (section "Search Space Analysis"); absent for what the executor can vary beyond it.
   */
  readonly paper?: string;
  /** What labels write before the value; the two overlaps share one part of a label. */
  readonly symbol?: string;
  /** As it begins a heading. */
  readonly name: string;
  /** For somebody who sees the field for the first time. */
  readonly meaning: string;
  readonly value:
    { readonly least: number; readonly most: number } | { readonly choices: readonly string[] } | "flag";
  /** What a label means that leaves the field out; without one, every label must have it. */
  readonly default?: number | boolean | string;
  /**
   * The plan itself leaves the field out where it has its default, and so do documents that are older than
   * the field.
   */
  readonly optional?: true;
  readonly bounds?: readonly PlanBound[];
  /** Place in a list of what differs between two plans. */
  readonly reading: number;
  /**
   * Place among what decides between plans of equal time and memory; absent where other fields determine it.
   */
  readonly deciding?: number;
}

/** Numbers of a plan are 32-bit for the trainer. */
export const MOST_OF_A_FACTOR = 2 ** 31 - 1;
const FACTOR = { least: 1, most: MOST_OF_A_FACTOR } as const;

/** In the order of labels: the paper's ten dimensions, overlap, and what lies beyond the paper. */
export const PLAN_FIELDS = {
  microBatchSize: {
    paper: "b",
    symbol: "b",
    name: "Micro-batch size",
    meaning: "sequences that a rank works on at once",
    value: FACTOR,
    bounds: ["sequences"],
    reading: 9,
    deciding: 4,
  },
  microBatches: {
    paper: "n",
    symbol: "n",
    name: "Micro-batches",
    meaning: "micro-batches whose gradients are summed in one step",
    value: FACTOR,
    bounds: ["sequences"],
    reading: 10,
  },
  recompute: {
    paper: "a",
    symbol: "a",
    name: "Activation recomputation",
    meaning: "1: activations inside a layer are computed again in the backward pass; 0: they are kept",
    value: "flag",
    default: false,
    reading: 11,
    deciding: 5,
  },
  pipelineParallel: {
    paper: "s_pp",
    symbol: "pp",
    name: "Pipeline parallel",
    meaning: "stages that the layers are split into",
    value: FACTOR,
    bounds: ["ranks", "layers"],
    reading: 1,
    deciding: 1,
  },
  dataParallel: {
    paper: "s_dp",
    symbol: "dp",
    name: "Data parallel",
    meaning: "groups of ranks that work on different sequences",
    value: FACTOR,
    bounds: ["ranks", "sequences"],
    reading: 2,
  },
  tensorParallel: {
    paper: "s_tp",
    symbol: "tp",
    name: "Tensor parallel",
    meaning: "ranks that share every matrix (Megatron, config 1: equals sp); 1 with Ulysses (config 2)",
    value: FACTOR,
    default: 1,
    bounds: ["ranks"],
    reading: 3,
    deciding: 3,
  },
  sequenceParallel: {
    paper: "s_sp",
    symbol: "sp",
    name: "Sequence parallel",
    meaning: "ranks that share every sequence",
    value: FACTOR,
    bounds: ["ranks"],
    reading: 4,
    deciding: 2,
  },
  parameterSharding: {
    paper: "s_ps",
    symbol: "ps",
    name: "Parameter sharding",
    meaning: "ranks that the parameters are spread over; gathered when needed",
    value: FACTOR,
    bounds: ["ranks"],
    reading: 6,
    deciding: 6,
  },
  gradientSharding: {
    paper: "s_gs",
    symbol: "gs",
    name: "Gradient sharding",
    meaning: "further ranks that the gradients are spread over: over ps × gs in all; 1 or equal to oss",
    value: FACTOR,
    default: 1,
    bounds: ["ranks"],
    reading: 7,
    deciding: 8,
  },
  optimizerStateSharding: {
    paper: "s_oss",
    symbol: "oss",
    name: "Optimizer-state sharding",
    meaning: "further ranks that the optimizer state is spread over: over ps × oss in all",
    value: FACTOR,
    default: 1,
    bounds: ["ranks"],
    reading: 8,
    deciding: 7,
  },
  forwardOverlap: {
    name: "Forward overlap",
    meaning: "what the forward pass hides of the parameter all-gathers",
    value: { choices: ["none", "block", "inter-layer", "intra-layer"] },
    default: "none",
    reading: 15,
    deciding: 12,
  },
  backwardOverlap: {
    name: "Backward overlap",
    meaning: "what the backward pass hides of all-gathers and reduce-scatters",
    value: { choices: ["none", "block", "intra-layer"] },
    default: "none",
    reading: 16,
    deciding: 13,
  },
  contextParallel: {
    symbol: "cp",
    name: "Context parallel",
    meaning:
      "of the ranks that share a sequence, so many pass its keys and values around a ring; the others share the heads",
    value: { least: 1, most: 2 ** 20 },
    default: 1,
    optional: true,
    bounds: ["ranks"],
    reading: 5,
    deciding: 9,
  },
  pipelineChunks: {
    symbol: "v",
    name: "Pipeline chunks",
    meaning:
      "parts of the model that a stage holds, between which micro-batches take turns (interleaved 1F1B)",
    value: { least: 1, most: 1024 },
    default: 1,
    optional: true,
    bounds: ["layers"],
    reading: 14,
    deciding: 10,
  },
  recomputeLayers: {
    symbol: "k",
    name: "Recomputed layers",
    meaning:
      "layers of each stage whose activations are computed again in the backward pass; the others are kept",
    value: { least: 0, most: MAXIMUM_LAYERS },
    default: 0,
    optional: true,
    bounds: ["layers"],
    reading: 12,
    deciding: 11,
  },
  gateUp: {
    symbol: "gu",
    name: "Gate and up",
    meaning:
      "the products of gate and up in the layers that are not recomputed: kept for the backward pass, made again there, or kept in the host's memory",
    value: { choices: ["kept", "again", "host"] },
    default: "kept",
    optional: true,
    reading: 13,
    deciding: 14,
  },
} as const satisfies Readonly<Record<string, Row>>;

type Rows = typeof PLAN_FIELDS;
export type PlanField = keyof Rows;
export type PlanFieldValue<Field extends PlanField = PlanField> = {
  [Name in PlanField]: Rows[Name]["value"] extends { readonly choices: readonly (infer Choice)[] }
    ? Choice
    : Rows[Name]["value"] extends "flag"
      ? boolean
      : number;
}[Field];
/** What a plan may leave out, because the paper's plans have no such choice. */
export type PlanExtension = {
  [Name in PlanField]: Rows[Name] extends { readonly optional: true } ? Name : never;
}[PlanField];

/** The table's rows with their names. */
export const PLAN_ROWS = Object.entries(PLAN_FIELDS) as readonly (readonly [field: PlanField, row: Row])[];

type SomePlan = { readonly [Name in PlanField]?: PlanFieldValue<Name> };

/** A field's value, or its default where the plan leaves it out. */
export const planValue = <Field extends PlanField>(plan: SomePlan, field: Field): PlanFieldValue<Field> =>
  (plan[field] ?? (PLAN_FIELDS[field] as Row).default) as PlanFieldValue<Field>;

/** The same plan without what it may leave out, so that equal plans are equal values. */
export function withoutDefaults<Part extends SomePlan>(plan: Part): Part {
  const kept = PLAN_ROWS.filter(
    ([field, row]) =>
      field in plan && !(row.optional && (plan[field] === undefined || plan[field] === row.default)),
  );
  return Object.fromEntries(kept.map(([field]) => [field, plan[field]])) as Part;
}

/** What a plan has beyond the paper's: the fields that it may leave out and does not. */
export const extensionsOf = (plan: SomePlan): { readonly [Name in PlanExtension]?: PlanFieldValue<Name> } =>
  Object.fromEntries(
    PLAN_ROWS.filter(([field, row]) => row.optional === true && plan[field] !== undefined).map(([field]) => [
      field,
      plan[field],
    ]),
  );

const byPlace = (place: "reading" | "deciding"): readonly PlanField[] =>
  PLAN_ROWS.filter(([, row]) => row[place] !== undefined)
    .sort(([, a], [, b]) => (a[place] as number) - (b[place] as number))
    .map(([field]) => field);

/** The fields in the order in which people compare two plans. */
export const READING_ORDER: readonly PlanField[] = /* @__PURE__ */ byPlace("reading");
const DECIDING_ORDER: readonly PlanField[] = /* @__PURE__ */ byPlace("deciding");

function placeOf(plan: SomePlan, field: PlanField): number {
  const { value } = PLAN_FIELDS[field] as Row;
  const own = planValue(plan, field);
  return typeof value === "object" && "choices" in value ? value.choices.indexOf(own as string) : Number(own);
}

/**
 * The order of the space, which decides between plans of equal time and memory: negative where `a` comes
 * first.
 */
export function comparePlans(a: SomePlan, b: SomePlan): number {
  for (const field of DECIDING_ORDER) {
    const difference = placeOf(a, field) - placeOf(b, field);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** The fields that a bound holds for. */
export const boundedBy = (bound: PlanBound): readonly PlanField[] =>
  PLAN_ROWS.filter(([, { bounds }]) => bounds?.includes(bound) === true).map(([field]) => field);

/** What a label writes for a value of a field: "tp8", "a1", "gu-again". */
export const labelPart = (symbol: string, value: PlanFieldValue): string =>
  typeof value === "string" ? `${symbol}-${value}` : `${symbol}${Number(value)}`;

/** A short name of a plan for tables and logs, in the paper's symbols: equal plans have equal names. */
export function planLabel(
  plan: { readonly [Name in Exclude<PlanField, PlanExtension>]: PlanFieldValue<Name> } & SomePlan,
): string {
  const parts = (optional: boolean): string[] =>
    PLAN_ROWS.flatMap(([field, row]) =>
      row.symbol === undefined ||
      (row.optional ?? false) !== optional ||
      (optional && planValue(plan, field) === row.default)
        ? []
        : [labelPart(row.symbol, planValue(plan, field))],
    );
  const { forwardOverlap, backwardOverlap } = plan;
  const overlap =
    forwardOverlap === "none" && backwardOverlap === "none" ? [] : [`ov${forwardOverlap}/${backwardOverlap}`];
  return [...parts(false), ...overlap, ...parts(true)].join(" ");
}
