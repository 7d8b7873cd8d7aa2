import { MODEL_DEFAULTS, plainModel, type Model, type RopeScaling } from "@internevo/domain";
import { Fields } from "./fields.ts";
import type { FrameworkFile, TakenAs } from "./framework.ts";
import { BLOCKWISE, taken, type Judges } from "./judgements.ts";
import { checkedHeadSize, LLAMA3_SCALING, type Unsaid } from "./model-fields.ts";
import { pythonModule, type PythonValue } from "./python.ts";

/*
 * Models of torchtitan: its llama3, and its qwen3, whose heads may have a size of their own and norms. Sizes are no options
 * there: a module beside the TOML has them.
 */

type ModelName = "llama3" | "qwen3";

/** The one of torchtitan's models that a model is written as. */
export const modelName = ({ headSize, queryKeyNorm }: Model): ModelName =>
  headSize === undefined && queryKeyNorm !== true ? "llama3" : "qwen3";

/** Why a model has no pipeline stages: its specification has no function that makes them; null where it has. */
export const pipelineFault = (name: string): string | null =>
  name === "qwen3" ? "torchtitan's qwen3 has no pipeline stages, and ends at its start with them" : null;

/** What torchtitan has no words for. */
export const TORCHTITAN_UNSAID: Unsaid = {
  kvHeads: undefined,
  headSize: undefined,
  queryKeyNorm: undefined,
  queryKeyValueBias: "its projections have no biases",
  slidingWindowTokens: "its attention sees all keys",
  ropeScaling(model) {
    if (modelName(model) === "qwen3") return "its qwen3, which has such heads, scales no positions";
    return model.ropeScaling?.kind === "llama3" ? undefined : "its llama3 scales positions as Llama 3.1 only";
  },
};

/**
 * multiple_of and ffn_dim_multiplier that make the inner width: torchtitan rounds int(8/3 of the width, times
 * the multiplier) up.
 */
function ffnArguments({ hiddenSize, ffnHiddenSize }: Pick<Model, "hiddenSize" | "ffnHiddenSize">): string {
  const base = Math.floor((2 * 4 * hiddenSize) / 3);
  if (Math.ceil(base / 256) * 256 === ffnHiddenSize) return "multiple_of=256";
  if (ffnHiddenSize >= base) return `multiple_of=${ffnHiddenSize}`;
  return `multiple_of=${ffnHiddenSize}, ffn_dim_multiplier=${ffnHiddenSize} / ${2 * base}`;
}

const torchtitanWidth = (hiddenSize: number, multiple: number, multiplier: number | undefined): number => {
  const base = Math.floor((2 * 4 * hiddenSize) / 3);
  return multiple * Math.ceil((multiplier === undefined ? base : Math.floor(multiplier * base)) / multiple);
};

type Llama3Scaling = RopeScaling & { readonly kind: "llama3" };

/** Its llama3 scales positions by this factor unless it is told otherwise; a factor of 1 scales nothing. */
const OWN_FACTOR = 8;
const UNSCALED: Llama3Scaling = { ...LLAMA3_SCALING, factor: 1 };

const scalingText = (scaling: Llama3Scaling): string =>
  `    rope_scaling_args=RoPEScalingArgs(
        scaling_factor=${scaling.factor},
        low_freq_factor=${scaling.lowFrequencyFactor},
        high_freq_factor=${scaling.highFrequencyFactor},
        original_max_position_embeddings=${scaling.originalPositions},
    ),
`;

function llama3Module(model: Model): string {
  const { ropeScaling } = model;
  const scaling = ropeScaling?.kind === "llama3" ? ropeScaling : UNSCALED;
  return `# Adds the model to torchtitan's llama3; found when it lies where torchtitan is started, or on PYTHONPATH.
from torchtitan.models.llama3 import TransformerModelArgs, llama3_args
from torchtitan.models.llama3.model.args import RoPEScalingArgs

args = TransformerModelArgs(
    dim=${model.hiddenSize},
    n_layers=${model.layers},
    n_heads=${model.heads},
    n_kv_heads=${model.kvHeads},
    vocab_size=${model.vocabularySize},
    ${ffnArguments(model)},
    norm_eps=${model.normEpsilon},
    rope_theta=${model.ropeTheta},
${scalingText(scaling)})
llama3_args["internevo"] = args
`;
}

const flag = (value: boolean): string => (value ? "True" : "False");

function qwen3Module(model: Model): string {
  return `# Adds the model to torchtitan's qwen3; found when it lies where torchtitan is started, or on PYTHONPATH.
from torchtitan.models.qwen3 import Qwen3ModelArgs, qwen3_args

args = Qwen3ModelArgs(
    dim=${model.hiddenSize},
    n_layers=${model.layers},
    n_heads=${model.heads},
    n_kv_heads=${model.kvHeads},
    vocab_size=${model.vocabularySize},
    head_dim=${model.headSize ?? model.hiddenSize / model.heads},
    hidden_dim=${model.ffnHiddenSize},
    norm_eps=${model.normEpsilon},
    rope_theta=${model.ropeTheta},
    qk_norm=${flag(model.queryKeyNorm === true)},
    enable_weight_tying=${flag(model.tiedEmbeddings)},
)
qwen3_args["internevo"] = args
`;
}

/** A module that adds the model to one of torchtitan's. */
export const flavorModule = (model: Model): string =>
  modelName(model) === "llama3" ? llama3Module(model) : qwen3Module(model);

const llama3 = { n_kv_heads: 8, rope_theta: 500_000 };
/** Flavors of llama3. */
const FLAVORS: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  debugmodel: { dim: 256, n_layers: 6, n_heads: 16, vocab_size: 2048, rope_theta: 500_000 },
  "8B": { ...llama3, dim: 4096, n_layers: 32, n_heads: 32, ffn_dim_multiplier: 1.3, multiple_of: 1024 },
  "70B": { ...llama3, dim: 8192, n_layers: 80, n_heads: 64, ffn_dim_multiplier: 1.3, multiple_of: 4096 },
  "405B": { ...llama3, dim: 16_384, n_layers: 126, n_heads: 128, ffn_dim_multiplier: 1.2, multiple_of: 4096 },
};
const ARGS_READ =
  "dim n_layers n_heads n_kv_heads vocab_size multiple_of ffn_dim_multiplier norm_eps rope_theta";

/** Flavors of qwen3: dense ones. */
const qwen3 = { n_kv_heads: 8, head_dim: 128, vocab_size: 151_936, rope_theta: 1_000_000 };
const QWEN3_FLAVORS: Readonly<Record<string, Readonly<Record<string, number | boolean>>>> = {
  "0.6B": { ...qwen3, dim: 1024, n_layers: 28, n_heads: 16, hidden_dim: 3072, enable_weight_tying: true },
  "1.7B": { ...qwen3, dim: 2048, n_layers: 28, n_heads: 16, hidden_dim: 6144, enable_weight_tying: true },
  "4B": { ...qwen3, dim: 2560, n_layers: 36, n_heads: 32, hidden_dim: 9728, enable_weight_tying: true },
  "8B": { ...qwen3, dim: 4096, n_layers: 36, n_heads: 32, hidden_dim: 12_288 },
  "14B": { ...qwen3, dim: 5120, n_layers: 40, n_heads: 40, hidden_dim: 17_408 },
  "32B": { ...qwen3, dim: 5120, n_layers: 64, n_heads: 64, hidden_dim: 25_600 },
};
const QWEN3_READ =
  "dim n_layers n_heads n_kv_heads vocab_size head_dim hidden_dim norm_eps rope_theta qk_norm enable_weight_tying";
const QWEN3_REFUSED = { moe_enabled: "makes a mixture of experts; dense decoders are planned for" };

/** What modules of sizes say of attention. */
const ATTENTION_JUDGES: Judges = {
  attn_type: taken(BLOCKWISE, "sdpa", "flex", "varlen"),
  attn_mask_type: taken("causal: over the whole sequence", "causal"),
};

function readQwen3(args: Fields, takenAs: TakenAs[], ignored: string[]): Model {
  ignored.push(
    ...args.rest(
      QWEN3_READ,
      "max_seq_len depth_init use_flex_attn attn_type attn_mask_type eos_id moe_inter_dim moe_args",
      QWEN3_REFUSED,
      ATTENTION_JUDGES,
      takenAs,
    ),
  );
  const headSize = checkedHeadSize(args.integer("head_dim") ?? 128, args.path("head_dim"), args.faults);
  return plainModel({
    name: "imported",
    hiddenSize: args.integer("dim") ?? 1024,
    layers: args.integer("n_layers") ?? 28,
    heads: args.integer("n_heads") ?? 16,
    kvHeads: args.integer("n_kv_heads") ?? 8,
    ffnHiddenSize: args.integer("hidden_dim") ?? 3072,
    vocabularySize: args.integer("vocab_size", 2) ?? 151_936,
    tiedEmbeddings: args.boolean("enable_weight_tying") ?? false,
    ropeTheta: args.number("rope_theta", 1) ?? 1_000_000,
    normEpsilon: args.number("norm_eps") ?? 1e-6,
    initStandardDeviation: MODEL_DEFAULTS.initStandardDeviation,
    ...(headSize === undefined ? {} : { headSize }),
    queryKeyNorm: args.boolean("qk_norm") ?? true,
  });
}

/** The scaling of llama3's positions: its own where none is given; a factor of 1 scales nothing. */
function readScaling(args: Fields): RopeScaling | undefined {
  if (!args.has("rope_scaling_args")) return { ...LLAMA3_SCALING, factor: OWN_FACTOR };
  const given = args.section("rope_scaling_args");
  given.rest("scaling_factor low_freq_factor high_freq_factor original_max_position_embeddings", "");
  const factor = given.number("scaling_factor", 1) ?? OWN_FACTOR;
  const scaling: RopeScaling = {
    kind: "llama3",
    factor,
    originalPositions: given.integer("original_max_position_embeddings") ?? LLAMA3_SCALING.originalPositions,
    lowFrequencyFactor: given.number("low_freq_factor", 0) ?? LLAMA3_SCALING.lowFrequencyFactor,
    highFrequencyFactor: given.number("high_freq_factor", 0) ?? LLAMA3_SCALING.highFrequencyFactor,
  };
  return factor === 1 ? undefined : scaling;
}

/** The file of a module, by its whole path or else by its name alone; none where nothing is imported. */
function moduleOf(imported: string, files: readonly FrameworkFile[]): FrameworkFile | undefined {
  if (imported === "") return undefined;
  const path = `${imported.replaceAll(".", "/")}.py`;
  const ends = (end: string) => files.find(({ name }) => name === end || name.endsWith(`/${end}`));
  return ends(path) ?? ends(path.split("/").at(-1) ?? path);
}

/** The model of a flavor, or of the module that adds one. */
export function readModel(
  root: Fields,
  files: readonly FrameworkFile[],
  takenAs: TakenAs[],
  ignored: string[],
): Model {
  const { faults } = root;
  const model = root.section("model");
  ignored.push(
    ...model.rest("name flavor", "hf_assets_path tokenizer_path print_after_conversion", {
      converters: "changes how modules compute, for which no profile is kept",
    }),
  );
  const name = model.text("name") ?? "llama3";
  if (name !== "llama3" && name !== "qwen3")
    faults.add("model.name", name, "is no model that is planned for", "use llama3 or qwen3");
  const flavors = name === "qwen3" ? QWEN3_FLAVORS : FLAVORS;
  const flavor = (model.text("flavor") ?? "debugmodel").replace(/_(?:flex|varlen)(?:_attn)?$/, "");
  const imported = root.section("experimental").text("custom_import") ?? "";
  const own = Object.hasOwn(flavors, flavor) ? flavors[flavor] : undefined;
  const custom = moduleOf(imported, files.slice(1));
  // A module adds flavors: another one than it names stays what it is.
  const adds =
    custom !== undefined && (own === undefined || new RegExp(`["']${flavor}["']`).test(custom.text));
  const sizes: PythonValue | undefined = adds
    ? pythonModule(custom.text, ["args"], /^[A-Z]\w*$/)["args"]
    : undefined;
  const known = sizes ?? own;
  const written = `with args = ${name === "qwen3" ? "Qwen3ModelArgs" : "TransformerModelArgs"}(dim=…, …)`;
  if (known === undefined && imported !== "" && custom === undefined)
    return faults.fail(
      "model.flavor",
      flavor,
      `is not known: its sizes are in the module ${imported}, which is not there`,
      `put ${imported.replaceAll(".", "/")}.py beside the TOML, ${written}`,
    );
  if (known === undefined)
    return faults.fail(
      "model.flavor",
      flavor,
      `is not known: its sizes are in a module, not in the TOML`,
      `use ${Object.keys(flavors).join(", ")}, or put beside the TOML the module ` +
        `of experimental.custom_import, ${written}`,
    );
  const args = new Fields(known, faults, custom?.name ?? `model.flavor ${flavor}`);
  return name === "qwen3" ? readQwen3(args, takenAs, ignored) : readLlama3(args, takenAs, ignored);
}

function readLlama3(args: Fields, takenAs: TakenAs[], ignored: string[]): Model {
  const other = "max_seq_len depth_init attn_type attn_mask_type eos_id";
  ignored.push(...args.rest(`${ARGS_READ} rope_scaling_args`, other, {}, ATTENTION_JUDGES, takenAs));
  const scaling = readScaling(args);
  const hiddenSize = args.integer("dim") ?? 4096;
  const heads = args.integer("n_heads") ?? 32;
  return {
    name: "imported",
    hiddenSize,
    layers: args.integer("n_layers") ?? 32,
    heads,
    kvHeads: args.integer("n_kv_heads") ?? heads,
    ffnHiddenSize: torchtitanWidth(
      hiddenSize,
      args.integer("multiple_of") ?? 256,
      args.number("ffn_dim_multiplier", 0),
    ),
    vocabularySize: args.integer("vocab_size", 2) ?? 128_256,
    tiedEmbeddings: false,
    ropeTheta: args.number("rope_theta", 1) ?? MODEL_DEFAULTS.ropeTheta,
    normEpsilon: args.number("norm_eps") ?? MODEL_DEFAULTS.normEpsilon,
    initStandardDeviation: MODEL_DEFAULTS.initStandardDeviation,
    ...(scaling === undefined ? {} : { ropeScaling: scaling }),
  };
}
