import { listed } from "@internevo/domain";
import type { Plan } from "@internevo/domain";
import type { Options } from "./command-line.ts";
import type { FrameworkWarning, TakenAs } from "./framework.ts";
import { erring } from "./judgements.ts";

/*
 * Recomputation, as both programs have it that know --recompute-granularity; modules only Megatron-LM's.
 */

type Recomputation = Pick<Plan, "recompute" | "recomputeLayers" | "gateUp">;

/** Where what is read of a script is told. */
interface Told {
  readonly takenAs: TakenAs[];
  readonly ignored: string[];
}

/** Modules that Megatron-LM recomputes where a model has them. Dense decoders have the first three. */
const ATTENTION = "core_attn";
const OF_DECODERS = [ATTENTION, "mlp", "layernorm"];
/** Those of other models that it refuses without them. */
const REFUSED_WITHOUT = ["moe_act", "mla_up_proj", "gdn_norm_out", "mhc"];
const MODULES = [
  ...OF_DECODERS,
  ..."moe moe_act shared_experts mla_up_proj gdn_norm_out gdp_in_proj gdp_qkv mhc".split(" "),
];

const modulesOf = (options: Options): readonly string[] => [
  ...new Set(options.all("--recompute-modules") ?? [ATTENTION]),
];

/** Whether modules are what is recomputed: --recompute-activations says so, whatever the granularity is. */
const isSelective = (options: Options): boolean =>
  options.has("--recompute-activations") || options.text("--recompute-granularity") === "selective";

/** What Megatron-LM refuses of the modules that are to be recomputed. */
export function moduleWarnings(options: Options): FrameworkWarning[] {
  const modules = modulesOf(options);
  const refused = modules.filter((module) => REFUSED_WITHOUT.includes(module));
  if (!isSelective(options) || refused.length === 0) return [];
  return [
    {
      field: "--recompute-modules",
      value: modules.join(" "),
      message: `names ${listed(refused, "and")}, which Megatron-LM refuses with a model that has no such module`,
      remedy: "leave it out",
    },
  ];
}

/** What the modules are taken as; attention keeps nothing that could be made again. */
function readModules(options: Options, takenAs: TakenAs[]): Recomputation {
  const modules = modulesOf(options);
  if (modules.includes(ATTENTION))
    takenAs.push({
      ...(options.has("--recompute-activations")
        ? { option: "--recompute-activations", value: true }
        : { option: "--recompute-granularity", value: "selective" }),
      as: "none: blockwise attention keeps no scores that could be recomputed",
    });
  const hasMlp = modules.includes("mlp");
  const others = modules.filter((module) => !OF_DECODERS.includes(module));
  const as = [
    ...(hasMlp ? ["gate and up made again, though Megatron-LM makes the whole MLP again"] : []),
    ...(modules.includes("layernorm") ? ["norms made again, as the executor always does"] : []),
    ...(others.length > 0
      ? [`${listed(others, "and")} made again: nothing, since the model has no such modules`]
      : []),
  ].join("; ");
  if (as !== "")
    takenAs.push({
      option: "--recompute-modules",
      value: modules.join(" "),
      ...(hasMlp ? erring(as, { time: "too short" }) : { as }),
    });
  return { recompute: false, ...(hasMlp ? { gateUp: "again" } : {}) };
}

/** Whole layers, all or some. */
function readLayers(options: Options, chunks: number, takenAs: TakenAs[]): Recomputation {
  const method = options.choice("--recompute-method", ["uniform", "block"] as const);
  const layers = options.integer("--recompute-num-layers");
  if (method === undefined && !options.has("--recompute-method"))
    options.faults.add(
      "--recompute-method",
      null,
      "is missing, with --recompute-granularity full",
      "add --recompute-method uniform",
    );
  if (method === "block")
    return {
      recompute: false,
      recomputeLayers: (layers ?? options.needed("--recompute-num-layers")) * chunks,
    };
  if (layers !== undefined && layers > 1)
    takenAs.push({
      option: "--recompute-num-layers",
      value: layers,
      as: "1: what a layer begins with is kept for each",
    });
  return { recompute: true };
}

/** Recomputation of a script. */
export function recomputeOfOptions(
  options: Options,
  chunks: number,
  { takenAs, ignored }: Told,
): Recomputation {
  const { faults } = options;
  const unknown = modulesOf(options).filter((module) => !MODULES.includes(module));
  if (unknown.length > 0)
    faults.add(
      "--recompute-modules",
      unknown.join(" "),
      "is no module that Megatron-LM recomputes",
      `use ${listed(MODULES, "or")}`,
    );
  const granularity = options.choice("--recompute-granularity", ["full", "selective"] as const);
  const selective = isSelective(options);
  if (!selective && options.has("--recompute-modules")) ignored.push("--recompute-modules");
  if (granularity === "full" && !selective) return readLayers(options, chunks, takenAs);
  if (options.has("--recompute-method"))
    faults.add(
      "--recompute-method",
      options.text("--recompute-method"),
      "has no effect without --recompute-granularity full",
      "add it, or leave the method out",
    );
  if (options.has("--recompute-num-layers")) ignored.push("--recompute-num-layers");
  return selective ? readModules(options, takenAs) : { recompute: false };
}
