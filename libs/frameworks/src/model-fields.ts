import {
  HEAD_SIZES,
  plainRopeScaling,
  ProblemError,
  type Model,
  type ProblemDetail,
  type RopeScaling,
} from "@internevo/domain";
import type { Argument, Options } from "./command-line.ts";
import type { Faults } from "./problems.ts";

/** What a model may have beyond LLaMA, or otherwise, and why a program has no word for it; undefined where it has. */
export type Unsaid = Readonly<
  Record<(typeof FIELDS)[number], string | undefined | ((model: Model) => string | undefined)>
>;
const FIELDS = [
  "kvHeads",
  "headSize",
  "queryKeyNorm",
  "queryKeyValueBias",
  "slidingWindowTokens",
  "ropeScaling",
] as const;

/** Which model can be exported instead, where it is not one without the field. */
const REMEDIES: Readonly<Partial<Record<(typeof FIELDS)[number], (model: Model) => string>>> = {
  kvHeads: ({ heads }) => `whose kvHeads is its heads, ${heads}`,
};

/**
 * Refuses to write a model that a program has no words for: it would train another one.
 * @throws ProblemError `plan-invalid`, with one detail for each field.
 */
export function assertSaid(program: string, model: Model, unsaid: Unsaid): void {
  const details = FIELDS.flatMap((field): ProblemDetail[] => {
    if (model[field] === undefined) return [];
    const reason = unsaid[field];
    const why = typeof reason === "function" ? reason(model) : reason;
    if (why === undefined) return [];
    return [
      {
        field: `model.${field}`,
        value: model[field],
        message: `${program} cannot say ${field}: ${why}`,
        remedy: `export to another framework, or export a model ${REMEDIES[field]?.(model) ?? "without it"}`,
      },
    ];
  });
  if (details.length > 0)
    throw new ProblemError(
      "plan-invalid",
      `${program} cannot express the model: ${details[0]?.message}`,
      details,
    );
}

/** Of Llama 3.1's scaling, what Megatron-LM and torchtitan take as given, or as their default. */
export const LLAMA3_SCALING = {
  kind: "llama3",
  originalPositions: 8192,
  lowFrequencyFactor: 1,
  highFrequencyFactor: 4,
} as const;

const isLlama3 = (scaling: RopeScaling): boolean =>
  scaling.kind === "llama3" &&
  Object.entries(LLAMA3_SCALING).every(
    ([name, value]) => scaling[name as keyof typeof LLAMA3_SCALING] === value,
  );

/** What Megatron-LM has no words for. */
export const MEGATRON_UNSAID: Unsaid = {
  kvHeads: undefined,
  headSize: undefined,
  queryKeyNorm: undefined,
  queryKeyValueBias: undefined,
  slidingWindowTokens: undefined,
  ropeScaling({ ropeScaling: scaling }) {
    if (scaling === undefined || isLlama3(scaling)) return undefined;
    if (scaling.kind === "linear")
      return Number.isInteger(scaling.factor)
        ? undefined
        : `--rotary-seq-len-interpolation-factor is a whole number, not ${scaling.factor}`;
    return scaling.kind === "llama3"
      ? "--use-rope-scaling has originalPositions 8192, lowFrequencyFactor 1 and highFrequencyFactor 4"
      : "no option scales positions as yarn does";
  },
};

/** Whether several heads of queries have the same keys and values. */
export const sharesKeyValueHeads = ({ heads, kvHeads }: Pick<Model, "heads" | "kvHeads">): boolean =>
  kvHeads !== heads;

/** Why Megatron-DeepSpeed fails with such heads, though it has an option for them. */
export const EQUAL_PARTS = "its attention cuts queries, keys and values into three equal parts";

/** What Megatron-DeepSpeed has no words for. */
export const DEEPSPEED_UNSAID: Unsaid = {
  kvHeads: (model) => (sharesKeyValueHeads(model) ? EQUAL_PARTS : undefined),
  headSize: undefined,
  queryKeyNorm: "it has no norms of heads",
  queryKeyValueBias: "its biases are of all products, or of none",
  slidingWindowTokens: "its attention sees all keys",
  ropeScaling: "it scales no positions",
};

/** Arguments for what a model has beyond LLaMA, in Megatron-LM's words. */
export function fieldArguments(model: Model): Argument[] {
  const { headSize, queryKeyNorm, queryKeyValueBias, slidingWindowTokens: window, ropeScaling } = model;
  const scaling: Argument[] =
    ropeScaling?.kind === "linear"
      ? [["--rotary-seq-len-interpolation-factor", ropeScaling.factor]]
      : [["--use-rope-scaling"], ["--rope-scaling-factor", ropeScaling?.factor ?? 1]];
  return [
    ...(headSize === undefined ? [] : [["--kv-channels", headSize] as const]),
    ...(queryKeyNorm === true ? [["--qk-layernorm"] as const] : []),
    ...(queryKeyValueBias === true ? [["--add-qkv-bias"] as const] : []),
    // So many keys before a query, and none behind it; our window counts the query's own key too.
    ...(window === undefined ? [] : [["--window-size", `${window - 1},0`] as const]),
    ...(ropeScaling === undefined ? [] : scaling),
  ];
}

/** Names of {@link fieldArguments}; heads of their own size apart. */
export const FIELD_OPTIONS = {
  flag: "--qk-layernorm --add-qkv-bias --use-rope-scaling",
  one: "--window-size --rope-scaling-factor --rotary-seq-len-interpolation-factor",
} as const;

/** A size of heads that is given; undefined, with a fault, where no model can have it. */
export function checkedHeadSize(
  size: number | undefined,
  option: string,
  faults: Faults,
): number | undefined {
  const { least, most } = HEAD_SIZES;
  if (size === undefined || (size % 2 === 0 && size >= least && size <= most)) return size;
  faults.add(
    option,
    size,
    "is no size of heads that is planned for",
    `give an even number from ${least} to ${most}`,
  );
  return undefined;
}

/** Keys that a query sees by --window-size, which says how many are before it and behind it. */
function readWindow(options: Options): number | undefined {
  const text = options.text("--window-size");
  if (text === undefined) return undefined;
  const [, before, behind] = /^\(?\s*(-?\d+)\s*,\s*(-?\d+)\s*\)?$/.exec(text) ?? [];
  // Behind a query causal attention sees nothing, whatever is said.
  if (before === undefined || !(Number(before) >= -1) || !(Number(behind) >= -1)) {
    options.faults.add(
      "--window-size",
      text,
      "is not two numbers of keys, before and behind a query",
      "give them as 4095,0, or leave it out for full attention",
    );
    return undefined;
  }
  return Number(before) === -1 ? undefined : Number(before) + 1;
}

function readScaling(options: Options): RopeScaling | undefined {
  const { faults } = options;
  const linear = options.number("--rotary-seq-len-interpolation-factor", 1);
  const factor = options.number("--rope-scaling-factor", 1);
  const scaled = options.has("--use-rope-scaling");
  if (factor !== undefined && !scaled)
    faults.add(
      "--rope-scaling-factor",
      factor,
      "has no effect without --use-rope-scaling",
      "add --use-rope-scaling, or leave it out",
    );
  if (linear !== undefined && linear > 1 && scaled)
    faults.add(
      "--rotary-seq-len-interpolation-factor",
      linear,
      "together with --use-rope-scaling scales positions twice, which is not planned for",
      "use one of them",
    );
  if (scaled) return { ...LLAMA3_SCALING, factor: factor ?? 8 };
  return linear === undefined || linear === 1 ? undefined : { kind: "linear", factor: linear };
}

/** What a model has beyond LLaMA, by Megatron-LM's options; heads of their own size apart. */
export function readFields(options: Options): Partial<Model> {
  const window = readWindow(options);
  const scaling = readScaling(options);
  return {
    ...(options.has("--qk-layernorm") ? { queryKeyNorm: true } : {}),
    ...(options.has("--add-qkv-bias") ? { queryKeyValueBias: true } : {}),
    ...(window === undefined ? {} : { slidingWindowTokens: window }),
    ...(scaling === undefined ? {} : { ropeScaling: plainRopeScaling(scaling) }),
  };
}
