import {
  formatCounted,
  MAXIMUM_STEPS,
  ProblemError,
  type Model,
  type Optimizer,
  type Plan,
  type Precision,
} from "@internevo/domain";
import { parse } from "smol-toml";
import { isTooDeep, TOO_DEEP } from "./depth.ts";
import { Fields } from "./fields.ts";
import {
  FRAMEWORK_VERSIONS,
  normalPlan,
  stageLayers,
  type FrameworkFile,
  type ImportedConfiguration,
  type Launch,
  type TakenAs,
} from "./framework.ts";
import {
  erring,
  ifEnabled,
  judgesOf,
  KERNELS,
  PLANNED_OPTIMIZER,
  refused,
  taken,
  type Judges,
} from "./judgements.ts";
import { checkWholeHeads, wholeHeadsFault } from "./heads.ts";
import { RANKS_FIELD, ranksInText } from "./launch.ts";
import { LeftOut } from "./left-out.ts";
import { Faults, quotient, sharedEvenly, nearestThatWork } from "./problems.ts";
import { oneWay, splitsByTensor, type Layout } from "./sequence-layouts.ts";
import { overlapOf } from "./torchtitan.ts";
import { readModel } from "./torchtitan-model.ts";
import { torchtitanWarnings } from "./torchtitan-warnings.ts";

const READ =
  "model training parallelism optimizer lr_scheduler activation_checkpoint debug experimental quantize";
const IGNORED = "job profiling metrics checkpoint comm memory_estimation validation compile";
const OFF = "off: what measures a step is not predicted";
const JUDGES: Judges = {
  compile: ifEnabled("enable", taken(`not compiled: ${KERNELS}`)),
  profiling: (value) =>
    ifEnabled("enable_profiling", taken(OFF))(value) ??
    ifEnabled("enable_memory_snapshot", taken(OFF))(value),
  memory_estimation: ifEnabled("enable", refused("trains nothing", "leave it out")),
  comm: (value) => COMMUNICATION((value as Record<string, unknown> | null)?.["mode"]),
};
const COMMUNICATION = refused("trains without communication", 'use mode "default"', "default");
const TRAINING_JUDGES: Judges = { gc_debug: taken("false", false) };
const PARALLELISM_JUDGES: Judges = {
  ...judgesOf(
    "expert_parallel_degree expert_tensor_parallel_degree",
    refused("shares out experts; dense decoders are planned for", "give 1", 1),
  ),
  disable_loss_parallel: taken("false: the loss is shared by tensor ranks", false),
  enable_async_tensor_parallel: taken("false: tensor ranks communicate between products", false),
  context_parallel_load_balancer: taken("headtail", "headtail"),
  pipeline_parallel_schedule_csv: refused(
    "is a schedule that is not planned for",
    "use pipeline_parallel_schedule 1F1B or Interleaved1F1B",
    "",
  ),
};
const CHECKPOINT_JUDGES: Judges = {
  ...judgesOf("early_stop debug", taken("false", false)),
  preserve_rng_state: taken("true", true),
};
const DEBUG_JUDGES: Judges = { deterministic: taken(KERNELS, false) };
const OPTIMIZER_JUDGES: Judges = {
  name: (value) =>
    value === "Adam" ? { as: "AdamW" } : refused(PLANNED_OPTIMIZER, "use AdamW", "AdamW")(value),
  implementation: taken(KERNELS, "fused"),
};
const TRAINING_READ =
  "local_batch_size global_batch_size seq_len max_norm steps dtype " +
  "mixed_precision_param mixed_precision_reduce enable_cpu_offload";
const TRAINING_IGNORED = "dataset dataset_path gc_freq gc_debug dataloader";
const PARALLELISM_READ = `data_parallel_replicate_degree data_parallel_shard_degree fsdp_reshard_after_forward tensor_parallel_degree context_parallel_degree
  context_parallel_rotate_method pipeline_parallel_degree pipeline_parallel_schedule pipeline_parallel_microbatch_size pipeline_parallel_layers_per_stage
  pipeline_parallel_first_stage_less_layers pipeline_parallel_last_stage_less_layers`;
const PARALLELISM_IGNORED = `disable_loss_parallel enable_async_tensor_parallel context_parallel_load_balancer expert_parallel_comm_backend
  pipeline_parallel_expert_parallel_overlap pipeline_parallel_schedule_csv expert_parallel_degree expert_tensor_parallel_degree`;
const PARALLELISM_REFUSED = {
  module_fqns_per_model_part: "deals modules over stages by hand; layers are planned evenly",
};
const CHECKPOINT_IGNORED =
  "per_op_sac_force_recompute_mm_shapes_by_fqns early_stop " +
  "preserve_rng_state determinism_check debug visualize_memory_budget_pareto";

interface Degrees {
  readonly dp: number;
  readonly tp: number;
  readonly pp: number;
  readonly ring: number;
  /** Ranks of FSDP. */
  readonly group: number;
}

/** How so many ranks can share a sequence: torchtitan cuts it into two chunks for each of them. */
function layoutsOf(model: Model, sequenceLengthTokens: number, ranks: number): Layout[] {
  const isCut = sequenceLengthTokens % (2 * ranks) === 0;
  const splits = splitsByTensor(model, sequenceLengthTokens, ranks) && wholeHeadsFault(model, ranks) === null;
  return [
    { words: `tensor_parallel_degree ${ranks}`, isPossible: isCut && splits },
    { words: `context_parallel_degree ${ranks}`, isPossible: isCut },
  ];
}

function degrees(
  parallelism: Fields,
  ranks: number,
  { model, sequenceLengthTokens }: Pick<ImportedConfiguration, "model" | "sequenceLengthTokens">,
): Degrees {
  const { faults } = parallelism;
  const tp = parallelism.integer("tensor_parallel_degree") ?? 1;
  const pp = parallelism.integer("pipeline_parallel_degree") ?? 1;
  const ring = parallelism.integer("context_parallel_degree") ?? 1;
  const replicate = parallelism.integer("data_parallel_replicate_degree") ?? 1;
  const given = parallelism.integer("data_parallel_shard_degree", -1) ?? -1;
  if (tp > 1 && ring > 1)
    faults.add(
      "parallelism.context_parallel_degree",
      ring,
      `together with tensor_parallel_degree ${tp} is in no plan: a sequence is split by one of them`,
      oneWay(layoutsOf(model, sequenceLengthTokens, tp * ring)),
    );
  faults.end();
  const dp = quotient(
    faults,
    RANKS_FIELD,
    ranks,
    tp * pp * ring,
    "tensor times pipeline times context degree",
  );
  const shard =
    given > 0
      ? given
      : sharedEvenly(
          faults,
          "parallelism.data_parallel_replicate_degree",
          replicate,
          dp,
          "the data-parallel ranks",
        );
  if (replicate * shard !== dp)
    faults.add(
      "parallelism.data_parallel_shard_degree",
      shard,
      `times data_parallel_replicate_degree ${replicate} is not the ${dp} data-parallel ranks`,
      "give -1, which takes what is left",
    );
  if (shard * ring === 1 && replicate > 1 && tp * pp > 1)
    faults.add(
      "parallelism.data_parallel_replicate_degree",
      replicate,
      "without sharding (DDP) works with no other parallelism",
      "give data_parallel_shard_degree -1 and data_parallel_replicate_degree 1",
    );
  faults.end();
  return { dp, tp, pp, ring, group: shard * ring };
}

function pipelineChunks(parallelism: Fields, layers: number, pp: number, takenAs: TakenAs[]): number {
  const { faults } = parallelism;
  if (pp === 1) return 1;
  const schedule = parallelism.text("pipeline_parallel_schedule") ?? "1F1B";
  const single = schedule.toLowerCase() === "1f1b";
  if (!single && schedule.toLowerCase() !== "interleaved1f1b")
    faults.add(
      "parallelism.pipeline_parallel_schedule",
      schedule,
      "is a schedule that is not planned for",
      "use 1F1B or Interleaved1F1B",
    );
  const less = LESS_LAYERS.map((name) => parallelism.integer(name, 0) ?? 1);
  if (less.some((layersLess) => layersLess > 0))
    takenAs.push({
      option: "parallelism.pipeline_parallel_first_stage_less_layers",
      value: less.join(" and "),
      as: "0: layers are dealt evenly over the stages",
    });
  const each = parallelism.integer("pipeline_parallel_layers_per_stage");
  if (each === undefined) return single ? 1 : 2;
  const parts = Math.ceil((layers + less.reduce((sum, one) => sum + one, 0)) / each);
  checkParts(faults, { each, layers, less, pp, schedule, single });
  return parts / pp;
}
const LESS_LAYERS = ["first", "last"].map((end) => `pipeline_parallel_${end}_stage_less_layers`);

interface Dealt {
  /** Layers of a part of a stage. */
  readonly each: number;
  readonly layers: number;
  /** What is counted as layers of the first and of the last stage beside its own. */
  readonly less: readonly number[];
  readonly pp: number;
  readonly schedule: string;
  readonly single: boolean;
}

/** Refuses layers of a part that make no whole parts of each stage, or not as many as the schedule has. */
function checkParts(faults: Faults, { each, layers, less, pp, schedule, single }: Dealt): void {
  const total = layers + less.reduce((sum, one) => sum + one, 0);
  const isShared = (of: number, by: number): boolean =>
    Math.ceil(of / by) % pp === 0 && Math.ceil(of / by) <= layers;
  const works = (of: number, by: number): boolean =>
    isShared(of, by) && (Math.ceil(of / by) === pp) === single;
  if (works(total, each)) return;
  const given = nearestThatWork(each, total, (by) => works(total, by));
  const values = given === "" ? "give fewer stages" : `give ${given}`;
  const parts = Math.ceil(total / each);
  const field = "parallelism.pipeline_parallel_layers_per_stage";
  if (isShared(total, each)) {
    const other = single ? "Interleaved1F1B" : "1F1B";
    const words = `makes ${formatCounted(parts / pp, "part")} of a stage, which ${schedule} does not have`;
    faults.fail(field, each, words, `${values}, or use ${other}`);
  }
  const counted = LESS_LAYERS.map((name, end) => `${name} ${less[end]}`).join(" and ");
  const why = total === layers ? "" : `: ${counted} count as layers`;
  const without = total > layers && works(layers, each);
  faults.fail(
    field,
    each,
    `makes ${formatCounted(parts, "part")} of ${total} layers, which ${pp} stages cannot share evenly${why}`,
    `${values}${without ? `, or give 0 for both of them, where ${each} makes ${Math.ceil(layers / each)} parts` : ""}`,
  );
}

function sharding(
  { pp, group }: Degrees,
  parallelism: Fields,
): Pick<Plan, "parameterSharding" | "gradientSharding" | "optimizerStateSharding"> {
  const policy =
    parallelism.choice("fsdp_reshard_after_forward", ["default", "always", "never"] as const) ?? "default";
  // By default a pipeline keeps gathered parameters for the backward pass.
  const reshard = policy === "default" ? pp === 1 : policy === "always";
  return reshard
    ? { parameterSharding: group, gradientSharding: 1, optimizerStateSharding: 1 }
    : { parameterSharding: 1, gradientSharding: group, optimizerStateSharding: group };
}

function recomputation(
  section: Fields,
  layers: number,
  takenAs: TakenAs[],
  ignored: string[],
): Pick<Plan, "recompute" | "recomputeLayers"> {
  ignored.push(
    ...section.rest(
      "mode selective_ac_option memory_budget",
      CHECKPOINT_IGNORED,
      {},
      CHECKPOINT_JUDGES,
      takenAs,
    ),
  );
  const mode = section.choice("mode", ["selective", "full", "memory_budget", "none"] as const) ?? "selective";
  if (mode === "full") return { recompute: true };
  if (mode === "none") return { recompute: false };
  if (mode === "memory_budget")
    return section.faults.fail(
      "activation_checkpoint.mode",
      mode,
      "leaves to the compiler what is recomputed, which is not planned for",
      "use full, none, or selective",
    );
  const option = section.text("selective_ac_option") ?? "2";
  if (option === "op") {
    takenAs.push({
      option: "activation_checkpoint.selective_ac_option",
      value: option,
      ...erring(
        "none, though torchtitan makes every second matrix product again, and all that is no matrix product, attention or sum over ranks",
        { time: "too short", memory: "too large" },
      ),
    });
    return { recompute: false };
  }
  const every = Number(option);
  if (!Number.isSafeInteger(every) || every < 1)
    return section.faults.fail(
      "activation_checkpoint.selective_ac_option",
      option,
      "is neither op nor a number of layers",
      "give op, or such as 2 for every second layer",
    );
  return { recompute: every === 1, ...(every === 1 ? {} : { recomputeLayers: Math.floor(layers / every) }) };
}

function precisionOf(training: Fields, takenAs: TakenAs[]): Precision {
  const { faults } = training;
  const type = training.choice("dtype", ["bfloat16", "float32"] as const) ?? "float32";
  if (type === "bfloat16")
    faults.add(
      "training.dtype",
      type,
      "keeps optimizer states in 2 bytes, which is not planned for",
      "use float32, with mixed_precision_param bfloat16",
    );
  if (training.boolean("enable_cpu_offload") === true)
    faults.add(
      "training.enable_cpu_offload",
      true,
      "moves model states to the host, which is not planned for",
      "set it to false",
    );
  const computed = training.choice("mixed_precision_param", PRECISIONS_OF_TORCH) ?? "bfloat16";
  const reduced = training.choice("mixed_precision_reduce", PRECISIONS_OF_TORCH) ?? "float32";
  if (reduced === "float32") return computed === "bfloat16" ? "bf16" : "fp32";
  if (computed === "float32")
    faults.add(
      "training.mixed_precision_reduce",
      reduced,
      "sums gradients in 2 bytes that were computed in 4, which is not planned for",
      "give float32",
    );
  takenAs.push({
    option: "training.mixed_precision_reduce",
    value: reduced,
    as: "bf16-grad16: gradients are sent and kept in 2 bytes",
  });
  return "bf16-grad16";
}
const PRECISIONS_OF_TORCH = ["bfloat16", "float32"] as const;

/** The norm that gradients are clipped to; 0, where none is too long. */
function clipOf(training: Fields, leftOut: LeftOut): number {
  if (training.value("max_norm") === Infinity) return 0;
  const norm = training.number("max_norm", 0);
  if (norm === 0)
    training.faults.add(
      training.path("max_norm"),
      norm,
      "makes every gradient 0",
      "give inf, which clips none",
    );
  return leftOut.own(norm, training.path("max_norm"), 1);
}

/** Steps of a share, as Python rounds them: a half to the even number. */
function shareOf(steps: number, share: number): number {
  const exact = steps * share;
  const rounded = Math.round(exact);
  return exact % 1 === 0.5 && rounded % 2 === 1 ? rounded - 1 : rounded;
}

/** How the learning rate goes on behind its warm-up. */
function readSchedule(
  section: Fields,
  {
    peak,
    least,
    warmupSteps,
    decaySteps,
  }: Readonly<Record<"peak" | "least" | "warmupSteps" | "decaySteps", number>>,
  leftOut: LeftOut,
  takenAs: TakenAs[],
): Pick<Optimizer, "schedule" | "annealingSteps"> {
  const type = leftOut.own(
    section.choice("decay_type", ["linear", "sqrt", "cosine"] as const),
    section.path("decay_type"),
    "linear",
  );
  const ratio = section.number("decay_ratio", 0);
  if (ratio !== undefined && ratio > 1)
    section.faults.add(
      section.path("decay_ratio"),
      ratio,
      "is more than 1, and a share of the steps",
      "give the share of the steps over which the learning rate falls",
    );
  if (least === peak) return { schedule: "constant" };
  // Warm-up and decay are no more than all steps: torchtitan cuts the decay.
  const annealingSteps =
    ratio === undefined
      ? undefined
      : Math.min(shareOf(decaySteps, ratio), Math.max(0, decaySteps - warmupSteps));
  if (annealingSteps === 0) return { schedule: "constant" };
  if (type === "sqrt" || (type === "cosine" && annealingSteps !== undefined))
    takenAs.push({
      option: section.path("decay_type"),
      value: type,
      as: `linear: a job has no ${type === "sqrt" ? "decay with the root of the steps" : "cosine behind a plateau"}`,
    });
  if (annealingSteps !== undefined) return { schedule: "wsd", annealingSteps };
  return type === "cosine" ? {} : { schedule: "linear" };
}

function readOptimizer(
  root: Fields,
  steps: number,
  takenAs: TakenAs[],
  ignored: string[],
): Partial<Optimizer> {
  const leftOut = new LeftOut("torchtitan", takenAs);
  const adam = root.section("optimizer");
  const section = root.section("lr_scheduler");
  const early = {
    early_step_in_backward: "updates parameters in the backward pass, which is not planned for",
  };
  ignored.push(
    ...adam.rest("lr beta1 beta2 eps weight_decay", "name implementation", early, OPTIMIZER_JUDGES, takenAs),
    ...section.rest("warmup_steps total_steps min_lr_factor decay_ratio decay_type", ""),
  );
  const own = (of: Fields, name: string, value: number): number =>
    leftOut.own(of.number(name, 0), of.path(name), value);
  const peak = own(adam, "lr", 8e-4);
  const least = Number((peak * own(section, "min_lr_factor", 0)).toPrecision(12));
  const warmupSteps = leftOut.own(section.integer("warmup_steps", 0), section.path("warmup_steps"), 200);
  const decaySteps = section.integer("total_steps") ?? steps;
  const schedule = readSchedule(section, { peak, least, warmupSteps, decaySteps }, leftOut, takenAs);
  return {
    ...schedule,
    peakLearningRate: peak,
    // Where the rate never falls, a job has no decay that ends elsewhere than its steps.
    ...(schedule.schedule === "constant"
      ? { minLearningRate: peak, decaySteps: steps }
      : { minLearningRate: least, decaySteps }),
    warmupSteps,
    weightDecay: own(adam, "weight_decay", 0.1),
    beta1: own(adam, "beta1", 0.9),
    beta2: own(adam, "beta2", 0.95),
    epsilon: own(adam, "eps", 1e-8),
    clipGlobalNorm: clipOf(root.section("training"), leftOut),
  };
}

function parseToml(file: FrameworkFile, faults: Faults): unknown {
  try {
    const value = parse(file.text);
    // A name of a thousand dots is a thousand tables.
    if (isTooDeep(value)) faults.fail(file.name, null, ...TOO_DEEP);
    return value;
  } catch (error) {
    if (error instanceof ProblemError) throw error;
    throw new ProblemError(
      "bad-request",
      `${file.name} is not TOML`,
      [
        {
          field: file.name,
          value: null,
          message: (error as Error).message.split("\n")[0] ?? "",
          remedy: "mend the file",
        },
      ],
      { cause: error },
    );
  }
}

/** Sequences of a step, and how ranks take them. */
function batchesOf(
  training: Fields,
  parallelism: Fields,
  { dp, pp }: ReturnType<typeof degrees>,
  takenAs: TakenAs[],
) {
  const { faults } = training;
  const local = training.integer("local_batch_size") ?? 8;
  const given = training.integer("global_batch_size", -1) ?? -1;
  const sequences = given > 0 ? given : local * dp;
  const accumulated = quotient(
    faults,
    "training.global_batch_size",
    sequences,
    local * dp,
    "local_batch_size times the data-parallel ranks",
  );
  const b = pp > 1 ? (parallelism.integer("pipeline_parallel_microbatch_size") ?? 1) : local;
  const within =
    pp > 1
      ? quotient(
          faults,
          "training.local_batch_size",
          local,
          b,
          "parallelism.pipeline_parallel_microbatch_size",
        )
      : 1;
  if (pp > 1 && accumulated > 1)
    takenAs.push({
      option: "training.global_batch_size",
      value: sequences,
      as: `${accumulated * within} micro-batches in one pass of the pipeline, not in ${accumulated} passes`,
    });
  return { sequences, microBatchSize: b, microBatches: accumulated * within };
}

/** What changes neither time nor memory. */
const withoutEffect = (
  {
    root,
    training,
    parallelism,
    debug,
  }: Readonly<Record<"root" | "training" | "parallelism" | "debug", Fields>>,
  takenAs: TakenAs[],
): string[] => [
  ...root.rest(
    READ,
    IGNORED,
    { fault_tolerance: "replicates by TorchFT, which is not planned for" },
    JUDGES,
    takenAs,
  ),
  ...training.rest(TRAINING_READ, TRAINING_IGNORED, {}, TRAINING_JUDGES, takenAs),
  ...parallelism.rest(
    PARALLELISM_READ,
    PARALLELISM_IGNORED,
    PARALLELISM_REFUSED,
    PARALLELISM_JUDGES,
    takenAs,
  ),
  ...debug.rest(
    "seed",
    "deterministic deterministic_warn_only moe_force_load_balance",
    {},
    DEBUG_JUDGES,
    takenAs,
  ),
];

const OWN_STEPS = 10_000;
const OWN_INTERVAL = 500;
const OWN_KEPT = 10;
/** Checkpoints that a job keeps at most. */
const MOST_KEPT = 1000;

const countOf = (value: unknown, most: number): number | null =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 1 && value <= most ? value : null;

/** Checkpoints and first weights, where a job can say them; what else there is has no effect. */
function readCheckpoints(root: Fields): Pick<ImportedConfiguration, "checkpointing" | "initialWeights"> {
  const value = root.value("checkpoint");
  const section = typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  if (section["enable"] !== true) return {};
  const everySteps = countOf(section["interval"] ?? OWN_INTERVAL, MAXIMUM_STEPS);
  const keepLast = countOf(section["keep_latest_k"] ?? OWN_KEPT, MOST_KEPT);
  const isRead = section["load_only"] !== true && everySteps !== null && keepLast !== null;
  const path = section["initial_load_path"];
  const isFolder =
    section["initial_load_in_hf"] === true && typeof path === "string" && /^[^\p{Cc}]{1,4096}$/u.test(path);
  return {
    ...(isRead ? { checkpointing: { everySteps, keepLast } } : {}),
    ...(isFolder ? { initialWeights: path } : {}),
  };
}

/** Reads torchtitan's TOML, with the module of sizes that it names. @throws ProblemError `bad-request`. */
export function importTorchtitan(
  files: readonly FrameworkFile[],
  asked: Launch | null,
): ImportedConfiguration {
  const [file] = files as readonly [FrameworkFile];
  const faults = new Faults(`the torchtitan configuration ${file.name}`);
  const root = new Fields(parseToml(file, faults), faults);
  const takenAs: TakenAs[] = [];
  const training = root.section("training");
  const parallelism = root.section("parallelism");
  const debug = root.section("debug");
  const ignored = withoutEffect({ root, training, parallelism, debug }, takenAs);
  const model = readModel(root, files, takenAs, ignored);
  const { launch, launchOrigin } = ranksInText(file.text, asked, faults);
  const sequenceLengthTokens = training.integer("seq_len") ?? 2048;
  const degree = degrees(parallelism, launch.nodes * launch.gpusPerNode, { model, sequenceLengthTokens });
  const { dp, tp, pp, ring } = degree;
  checkWholeHeads(faults, parallelism.path("tensor_parallel_degree"), tp, model);
  const { sequences, microBatchSize, microBatches } = batchesOf(training, parallelism, degree, takenAs);
  if (parallelism.text("context_parallel_rotate_method") !== "alltoall" && ring > 1)
    takenAs.push({
      option: "parallelism.context_parallel_rotate_method",
      value: parallelism.text("context_parallel_rotate_method") ?? "allgather",
      as: "a ring",
    });
  const chunks = pipelineChunks(parallelism, model.layers, pp, takenAs);
  const leftOut = new LeftOut("torchtitan", takenAs);
  const steps = leftOut.own(training.integer("steps"), training.path("steps"), OWN_STEPS);
  const seed = leftOut.none(debug.integer("seed", 0), debug.path("seed"));
  const precision = precisionOf(training, takenAs);
  const optimizer = readOptimizer(root, steps, takenAs, ignored);
  const states = {
    microBatchSize,
    microBatches,
    ...recomputation(
      root.section("activation_checkpoint"),
      stageLayers(model, { pipelineParallel: pp }),
      takenAs,
      ignored,
    ),
    pipelineParallel: pp,
    dataParallel: dp,
    tensorParallel: tp,
    sequenceParallel: Math.max(tp, ring),
    contextParallel: ring,
    ...sharding(degree, parallelism),
    pipelineChunks: chunks,
  };
  faults.end();
  const plan: Plan = {
    ...states,
    ...overlapOf({ ...states, forwardOverlap: "none", backwardOverlap: "none" }),
  };
  return {
    framework: "torchtitan",
    version: FRAMEWORK_VERSIONS.torchtitan,
    launch,
    launchOrigin,
    model,
    sequenceLengthTokens,
    globalBatchTokens: sequences * sequenceLengthTokens,
    precision,
    optimizer,
    steps,
    ...(seed === undefined ? {} : { seed }),
    ...readCheckpoints(root),
    plan: normalPlan(plan, model),
    takenAs,
    warnings: torchtitanWarnings(root, sequenceLengthTokens, degree),
    ignored,
  };
}
