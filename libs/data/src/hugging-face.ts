import {
  beginningOf,
  plainRopeScaling,
  type JobSpec,
  type Model,
  type ProblemDetail,
  type RopeScaling,
} from "@internevo/domain";
import { Type, type Static } from "typebox";

/*
 * The config.json of Hugging Face folders: which models are known, and what their members say. Values are compared with the
 * job's model by whoever asks, so they are taken as they stand.
 */

/** Characters that a message tells of a file's own words. */
const MOST_TOLD = 100;

/**
 * Other members are nobody's business here. Types only: whether a size is the job's is said by name and
 * value.
 */
const Scalar = Type.Optional(Type.Union([Type.Number(), Type.Boolean(), Type.Null()]));
const Word = Type.Optional(Type.Union([Type.String(), Type.Null()]));
const Rope = Type.Optional(
  Type.Union([
    Type.Object({
      rope_type: Word,
      type: Word,
      rope_theta: Scalar,
      factor: Scalar,
      original_max_position_embeddings: Scalar,
      low_freq_factor: Scalar,
      high_freq_factor: Scalar,
      beta_fast: Scalar,
      beta_slow: Scalar,
      truncate: Scalar,
      attention_factor: Scalar,
      mscale: Scalar,
      mscale_all_dim: Scalar,
    }),
    Type.Null(),
  ]),
);
export const ConfigSchema = Type.Object({
  model_type: Type.Optional(Type.String()),
  hidden_act: Word,
  hidden_size: Scalar,
  num_hidden_layers: Scalar,
  num_attention_heads: Scalar,
  num_key_value_heads: Scalar,
  head_dim: Scalar,
  intermediate_size: Scalar,
  vocab_size: Scalar,
  max_position_embeddings: Scalar,
  tie_word_embeddings: Scalar,
  rms_norm_eps: Scalar,
  attention_bias: Scalar,
  mlp_bias: Scalar,
  bias: Scalar,
  use_sliding_window: Scalar,
  sliding_window: Scalar,
  max_window_layers: Scalar,
  layer_types: Type.Optional(Type.Union([Type.Array(Type.String()), Type.Null()])),
  rope_theta: Scalar,
  rope_parameters: Rope,
  rope_scaling: Rope,
});
export type Config = Static<typeof ConfigSchema>;

/** A member that no model of the job can have. */
export interface MemberFault {
  readonly message: string;
  readonly remedy: string;
}

/** A member of a configuration, what it says, and the field of a model that says the same. */
export interface Member {
  readonly there: string;
  readonly found: unknown;
  readonly here: keyof Model;
}

/** What the models of an architecture have, whatever their configuration says. */
interface Architecture {
  readonly queryKeyNorm?: true;
  readonly queryKeyValueBias?: true;
  /** Of a configuration that says none; undefined: hidden_size / num_attention_heads. */
  readonly headSize?: number;
  /** Its folders keep the three projections in one matrix, and have names of their own. */
  readonly isFused?: true;
  /** A configuration without num_key_value_heads has as many as heads. */
  readonly kvHeadsMayLack?: true;
  /** Members that must say false, with what they say where they are missing. */
  readonly without: Readonly<Partial<Record<"attention_bias" | "mlp_bias" | "bias", boolean>>>;
}

const ARCHITECTURES: Readonly<Record<string, Architecture>> = {
  llama: { kvHeadsMayLack: true, without: { attention_bias: false, mlp_bias: false } },
  mistral: { without: {} },
  qwen2: { queryKeyValueBias: true, without: {} },
  qwen3: { queryKeyNorm: true, headSize: 128, without: { attention_bias: false } },
  internlm2: { isFused: true, kvHeadsMayLack: true, without: { bias: true } },
};
export const SUPPORTED_MODELS = "LLaMA, Mistral, Qwen2, Qwen3 or InternLM2";
const OTHER_FOLDER = `give the folder of a ${SUPPORTED_MODELS} model`;

const told = (value: unknown): string =>
  value === undefined ? "missing" : beginningOf(JSON.stringify(value), MOST_TOLD);
const present = <Value>(value: Value | null | undefined): Value | undefined => value ?? undefined;
const isFault = (value: unknown): value is MemberFault =>
  typeof value === "object" && value !== null && "message" in value;

/** Newer folders keep the base and the scaling of positions in rope_parameters; rope_scaling is the older name. */
const ropeOf = (config: Config) => config.rope_parameters ?? config.rope_scaling ?? {};

/** How positions are scaled; undefined where they are not. Numbers that are missing are left out. */
function scalingOf(config: Config): RopeScaling | MemberFault | undefined {
  const rope = ropeOf(config);
  const kind = rope.rope_type ?? rope.type ?? "default";
  if (kind === "default") return undefined;
  if (kind !== "linear" && kind !== "llama3" && kind !== "yarn")
    return {
      message: `has rope_scaling of type ${told(kind)}, which is not supported`,
      remedy: "give a model whose positions are scaled as linear, llama3 or yarn, or not at all",
    };
  const originalPositions =
    rope.original_max_position_embeddings ?? config.max_position_embeddings ?? undefined;
  const members: Readonly<Record<typeof kind, Readonly<Record<string, unknown>>>> = {
    linear: {},
    llama3: {
      originalPositions,
      lowFrequencyFactor: rope.low_freq_factor,
      highFrequencyFactor: rope.high_freq_factor,
    },
    yarn: {
      originalPositions,
      betaFast: rope.beta_fast,
      betaSlow: rope.beta_slow,
      truncate: rope.truncate,
      attentionFactor: rope.attention_factor,
      mscale: rope.mscale,
      mscaleAllDimensions: rope.mscale_all_dim,
    },
  };
  const said = Object.entries({ factor: rope.factor, ...members[kind] }).filter(
    // Of yarn's factors 0 is as good as none.
    ([name, value]) =>
      value !== undefined && value !== null && (value !== 0 || !/^(?:attention|mscale)/.test(name)),
  );
  return plainRopeScaling({ kind, ...Object.fromEntries(said) } as RopeScaling);
}

/** Layers without a window that Qwen's configurations begin with, where they say nothing. */
const QWEN_WHOLE_LAYERS = 28;
/** Keys of a window, where a configuration says nothing of them. */
const DEFAULT_WINDOW = 4096;

/** Keys that a query sees at most in every layer; undefined: all. */
function windowOf(type: string, config: Config): unknown {
  if (type === "mistral")
    return config.sliding_window === undefined ? DEFAULT_WINDOW : present(config.sliding_window);
  if ((type !== "qwen2" && type !== "qwen3") || config.use_sliding_window !== true) return undefined;
  const kinds = new Set(config.layer_types ?? []);
  if (kinds.size > 1)
    return {
      message: "has layer_types of several kinds, so that some layers have a window and others none",
      remedy: "give a model whose layers are all of one kind",
    } satisfies MemberFault;
  // A list of kinds counts; the number of layers only makes one where there is none.
  if (kinds.size === 1)
    return kinds.has("sliding_attention") ? (config.sliding_window ?? DEFAULT_WINDOW) : undefined;
  const whole = config.max_window_layers ?? QWEN_WHOLE_LAYERS;
  if (typeof whole === "number" && typeof config.num_hidden_layers === "number") {
    if (whole >= config.num_hidden_layers) return undefined;
    if (whole === 0) return config.sliding_window ?? DEFAULT_WINDOW;
  }
  return {
    message:
      `has use_sliding_window true and max_window_layers ${told(whole)}, ` +
      `which leaves some of its ${told(config.num_hidden_layers)} layers without a window`,
    remedy:
      "give a model with a window in all layers (max_window_layers 0), or in none (use_sliding_window false)",
  } satisfies MemberFault;
}

/** What a model would have to be that no model here is. */
function* unsupported(type: string, architecture: Architecture, config: Config): Generator<MemberFault> {
  if (config.hidden_act !== undefined && config.hidden_act !== "silu")
    yield {
      message: `has hidden_act ${told(config.hidden_act)}, which is not "silu"`,
      remedy: "give a model whose MLP is gated by silu",
    };
  for (const [there, missing] of Object.entries(architecture.without)) {
    const found = config[there as keyof typeof architecture.without] ?? missing;
    if (found !== false)
      yield {
        message: `has ${there} ${told(config[there as keyof Config])}, and of model_type "${type}" only models without it are supported`,
        remedy: `give a model that says ${there} false`,
      };
  }
}

/** The size of heads as a model says it: not where the heads share the hidden size out. */
function headSizeOf({ headSize }: Architecture, config: Config): unknown {
  const own = config.head_dim ?? headSize;
  const { hidden_size: width, num_attention_heads: heads } = config;
  if (typeof own === "number" && typeof heads === "number" && own * heads === width) return undefined;
  return own;
}

const architectureOf = ({ model_type: type }: Config): Architecture | undefined =>
  type !== undefined && Object.hasOwn(ARCHITECTURES, type) ? ARCHITECTURES[type] : undefined;

/** Whether the tensors of a folder have InternLM2's names and projections. */
export const hasFusedProjections = (config: Config): boolean => architectureOf(config)?.isFused === true;

/**
 * What the members of a configuration say of a model, in the order in which they are compared; or a member
 * that no model can have.
 */
export function huggingFaceMembers(config: Config): readonly Member[] | MemberFault {
  const type = config.model_type;
  const architecture = architectureOf(config);
  if (type === undefined || architecture === undefined)
    return { message: `has model_type ${told(type)}, which is not supported`, remedy: OTHER_FOLDER };
  const [fault] = unsupported(type, architecture, config);
  if (fault) return fault;
  const window = windowOf(type, config);
  const scaling = scalingOf(config);
  if (isFault(window)) return window;
  if (isFault(scaling)) return scaling;
  const kvHeads = architecture.kvHeadsMayLack ? config.num_attention_heads : undefined;
  return [
    { there: "hidden_size", found: config.hidden_size, here: "hiddenSize" },
    { there: "num_hidden_layers", found: config.num_hidden_layers, here: "layers" },
    { there: "num_attention_heads", found: config.num_attention_heads, here: "heads" },
    { there: "num_key_value_heads", found: config.num_key_value_heads ?? kvHeads, here: "kvHeads" },
    { there: "head_dim", found: headSizeOf(architecture, config), here: "headSize" },
    { there: "intermediate_size", found: config.intermediate_size, here: "ffnHiddenSize" },
    { there: "vocab_size", found: config.vocab_size, here: "vocabularySize" },
    { there: "tie_word_embeddings", found: config.tie_word_embeddings ?? false, here: "tiedEmbeddings" },
    { there: "rms_norm_eps", found: config.rms_norm_eps ?? 1e-6, here: "normEpsilon" },
    {
      there: "rope_theta",
      found: ropeOf(config).rope_theta ?? config.rope_theta ?? 10_000,
      here: "ropeTheta",
    },
    { there: "model_type", found: architecture.queryKeyNorm, here: "queryKeyNorm" },
    { there: "model_type", found: architecture.queryKeyValueBias, here: "queryKeyValueBias" },
    { there: "sliding_window", found: window, here: "slidingWindowTokens" },
    { there: "rope_scaling", found: scaling, here: "ropeScaling" },
  ];
}

/** Values as a message shows them. */
const shown = (value: unknown): string => {
  if (value === undefined || value === null) return "missing";
  return typeof value === "object" ? JSON.stringify(ordered(value)) : JSON.stringify(value);
};
const ordered = (value: object): unknown =>
  Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));

/** How a member differs from the job's model, in words; undefined where it does not. */
export function memberFault({ there, found, here }: Member, model: Model): string | undefined {
  const wanted = model[here];
  const [a, b] = [shown(found), shown(wanted)];
  if (a === b) return undefined;
  // What an architecture has is no member of its own.
  const said =
    there === "model_type"
      ? `has ${found === true ? "" : "no "}${here} by its model_type`
      : `has ${there} ${a}`;
  return `${said}; the job's model has ${wanted === undefined ? `no ${here}` : `${here} ${b}`}`;
}

/**
 * Whether weights can be written as a Hugging Face folder: some architecture has what the model has. The export chooses
 * it in the same way (native/src/checkpoint/hugging_face_config.cpp).
 */
export const isWrittenAsFolder = (model: Model): boolean =>
  Object.values(ARCHITECTURES).some(
    ({ isFused, queryKeyNorm, queryKeyValueBias }) =>
      isFused === undefined &&
      queryKeyNorm === model.queryKeyNorm &&
      queryKeyValueBias === model.queryKeyValueBias,
  );

/** What to say before a job is trained whose weights no Hugging Face folder can hold. */
export const weightsWarnings = ({
  model,
  checkpointing,
}: Pick<JobSpec, "model" | "checkpointing">): ProblemDetail[] =>
  checkpointing === null || isWrittenAsFolder(model)
    ? []
    : [
        {
          field: "model.queryKeyValueBias",
          value: true,
          message:
            "and queryKeyNorm are of no Hugging Face architecture together: the weights stay a checkpoint",
          remedy:
            "leave one of the two out if `internevo checkpoint export` is to write a Hugging Face folder",
        },
      ];
