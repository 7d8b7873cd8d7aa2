import { isNestedDeeper, type Model, type Plan, type Precision } from "@internevo/domain";
import { visit } from "jsonc-parser";
import { optionNames, readOptions, type OptionTable, type Options } from "./command-line.ts";
import {
  DECODER_IGNORED,
  DECODER_JUDGES,
  DECODER_OPTIONS,
  DECODER_REFUSED,
  decoderWarnings,
  readClip,
  readDecoder,
  readTraining,
} from "./decoder-arguments.ts";
import { PRETRAIN_PROGRAM } from "./companion.ts";
import { readData } from "./decoder-data.ts";
import { DEEPSPEED_DIALECT, type ZeroSharding } from "./deepspeed.ts";
import { FLASH_OPTIONS, hasFlash, readAttention } from "./deepspeed-attention.ts";
import { DEEPSPEED_JUDGES, DEEPSPEED_OPTIONS, DEEPSPEED_REFUSED } from "./deepspeed-options.ts";
import { MOST_DEPTH, TOO_DEEP } from "./depth.ts";
import { Fields } from "./fields.ts";
import {
  FRAMEWORK_VERSIONS,
  normalPlan,
  type FrameworkFile,
  type FrameworkWarning,
  type ImportedConfiguration,
  type Launch,
  type TakenAs,
} from "./framework.ts";
import { checkWholeHeads, headSplitFault, wholeHeadsFault } from "./heads.ts";
import {
  BUCKETS,
  ifEnabled,
  judgesOf,
  KERNELS,
  PLANNED_OPTIMIZER,
  refused,
  taken,
  type Judges,
} from "./judgements.ts";
import { RANKS_FIELD, ranksOf } from "./launch.ts";
import { LeftOut } from "./left-out.ts";
import { EQUAL_PARTS, sharesKeyValueHeads } from "./model-fields.ts";
import { quotient } from "./problems.ts";
import { recomputeOfOptions } from "./recompute-options.ts";
import { oneWay, splitsByTensor, type Layout } from "./sequence-layouts.ts";

const TABLE: OptionTable = {
  read: {
    ...optionNames(DECODER_OPTIONS),
    ...optionNames({
      flag:
        "--deepspeed --no-pipeline-parallel --checkpoint-activations --recompute-activations " +
        `--deepspeed-activation-checkpointing --use-rotary-position-embeddings ${FLASH_OPTIONS}`,
      one:
        "--deepspeed_config --zero-stage --ds-sequence-parallel-size --num-key-value-heads " +
        "--train-tokens --lr-decay-tokens --lr-warmup-tokens --layernorm-epsilon --rotary-position-embeddings-theta --checkpoint-num-layers",
    }),
  },
  ignored: { ...optionNames(DECODER_IGNORED), ...optionNames(DEEPSPEED_OPTIONS) },
  judges: { ...DECODER_JUDGES, ...DEEPSPEED_JUDGES },
  refused: { ...DECODER_REFUSED, ...DEEPSPEED_REFUSED },
};

const JSON_READ =
  "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps " +
  "gradient_clipping zero_optimization activation_checkpointing optimizer bf16 fp16 data_types sequence_parallel_size";
const JSON_IGNORED = `steps_per_print wall_clock_breakdown prescale_gradients zero_allow_untested_optimizer dump_state tensorboard wandb csv_monitor
  flops_profiler comms_logger communication_data_type scheduler checkpoint data_efficiency seq_parallel_communication_data_type`;
const JSON_REFUSED = {
  offload_param: "moves parameters to the host, which is not planned for",
  compression_training: "compresses the model, which is not planned for",
  sparse_attention: "is another attention",
  tensor_parallel: "is tensor parallelism for inference and fine-tuning of other models",
};
const HOST = "moves activations to the host, which is not planned for";
const NOT_TIMED = "false: what measures a step is not predicted";
const JSON_JUDGES: Judges = {
  wall_clock_breakdown: taken(NOT_TIMED, false),
  flops_profiler: ifEnabled("enabled", taken(NOT_TIMED)),
  comms_logger: ifEnabled("enabled", taken(NOT_TIMED)),
  communication_data_type: taken("the precision that gradients are kept in"),
  seq_parallel_communication_data_type: taken("the precision of the model"),
  data_efficiency: ifEnabled(
    "enabled",
    refused("changes sequences or layers as training goes on", "disable it to ask for the rest"),
  ),
};
const CHECKPOINTING_IGNORED =
  "partition_activations cpu_checkpointing contiguous_memory_optimization number_checkpoints " +
  "synchronize_checkpoint_boundary profile";
const CHECKPOINTING_JUDGES: Judges = {
  ...judgesOf(
    "partition_activations contiguous_memory_optimization synchronize_checkpoint_boundary",
    taken("false: what is kept is not moved", false),
  ),
  cpu_checkpointing: refused(HOST, "set it to false", false),
  profile: taken(NOT_TIMED, false),
};
const ADAM: ReadonlySet<string> = new Set(["adam", "adamw", "fusedadam"]);
const ZERO_READ = "stage overlap_comm zero_hpz_partition_size mics_shard_size";
const ZERO_IGNORED = `allgather_partitions allgather_bucket_size reduce_scatter reduce_bucket_size contiguous_gradients sub_group_size
  stage3_prefetch_bucket_size stage3_param_persistence_threshold stage3_max_live_parameters stage3_max_reuse_distance round_robin_gradients
  stage3_gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save load_from_fp32_weights ignore_unused_parameters
  mics_hierarchical_params_gather elastic_checkpoint stage3_module_granularity_threshold memory_efficient_linear`;
const OFFLOAD = "moves model states to the host, which is not planned for";
const ZERO_JUDGES: Judges = {
  ...judgesOf(
    `allgather_bucket_size reduce_bucket_size sub_group_size stage3_prefetch_bucket_size stage3_param_persistence_threshold
      stage3_max_live_parameters stage3_max_reuse_distance stage3_module_granularity_threshold`,
    taken(BUCKETS),
  ),
  ...judgesOf("allgather_partitions reduce_scatter contiguous_gradients", taken("true", true)),
  ...judgesOf("round_robin_gradients mics_hierarchical_params_gather", taken("false", false)),
  memory_efficient_linear: taken(KERNELS, true),
};
const ZERO_REFUSED = {
  offload_param: OFFLOAD,
  offload_optimizer: OFFLOAD,
  cpu_offload: OFFLOAD,
  cpu_offload_param: OFFLOAD,
  zero_quantized_weights: "sends parameters in 8 bits, for which no profile is kept",
  zero_quantized_gradients: "sends gradients in 4 bits, for which no profile is kept",
  zenflow: OFFLOAD,
};

function shards(zero: Fields, stage: number, replicas: number, pp: number): ZeroSharding {
  const { faults } = zero;
  if (pp > 1 && stage > 1)
    faults.add(
      zero.path("stage"),
      stage,
      `cannot be used with a pipeline of ${pp} stages: DeepSpeed has stage 1 at most there`,
      "use stage 1, or no pipeline",
    );
  const secondary = zero.integer("zero_hpz_partition_size") ?? 1;
  const mics = zero.integer("mics_shard_size", -1) ?? -1;
  if (secondary > 1 && mics > 0)
    faults.add(zero.path("mics_shard_size"), mics, "contradicts zero_hpz_partition_size", "give one of them");
  for (const [name, value] of [
    ["zero_hpz_partition_size", secondary],
    ["mics_shard_size", mics],
  ] as const) {
    if (value <= 1) continue;
    if (stage !== 3)
      faults.add(zero.path(name), value, `has no effect in stage ${stage}`, "use stage 3, or leave it out");
    if (replicas % value !== 0)
      faults.add(
        zero.path(name),
        value,
        `does not divide the ${replicas} ranks that share the model states`,
        "give a divisor",
      );
  }
  faults.end();
  if (stage === 0) return { parameterSharding: 1, gradientSharding: 1, optimizerStateSharding: 1 };
  if (stage < 3)
    return {
      parameterSharding: 1,
      gradientSharding: stage === 2 ? replicas : 1,
      optimizerStateSharding: replicas,
    };
  if (mics > 0) return { parameterSharding: mics, gradientSharding: 1, optimizerStateSharding: 1 };
  if (secondary > 1)
    return {
      parameterSharding: secondary,
      gradientSharding: replicas / secondary,
      optimizerStateSharding: replicas / secondary,
    };
  return { parameterSharding: replicas, gradientSharding: 1, optimizerStateSharding: 1 };
}

/** @throws ProblemError `bad-request` when the JSON that the options name is not there, or is none. */
function readJson(options: Options, files: readonly FrameworkFile[], takenAs: TakenAs[]): Fields {
  const { faults } = options;
  if (!options.has("--deepspeed"))
    faults.fail(
      "--deepspeed",
      null,
      "is missing: without it this is a Megatron-LM configuration of another version",
      "add --deepspeed and --deepspeed_config",
    );
  const named = options.text("--deepspeed_config");
  if (named === undefined)
    return faults.fail("--deepspeed_config", null, "is missing", "give DeepSpeed's JSON");
  const base = named.split("/").at(-1);
  const [, ...beside] = files;
  const called = beside.find(({ name }) => name === named || name.split("/").at(-1) === base);
  const file = called ?? (beside.length === 1 ? beside[0] : undefined);
  if (file === undefined)
    return faults.fail(
      "--deepspeed_config",
      named,
      "is a file that is not there",
      "put it beside the script",
    );
  if (called === undefined)
    takenAs.push({ option: "--deepspeed_config", value: named, as: `the file beside it, ${file.name}` });
  if (isNestedDeeper(file.text, MOST_DEPTH)) return faults.fail(file.name, null, ...TOO_DEEP);
  try {
    const value: unknown = JSON.parse(file.text);
    // DeepSpeed refuses a field that is given twice; JSON's own parser takes the last.
    const twice = repeatedField(file.text);
    if (twice !== undefined) faults.add(twice, file.name, "is given twice", "give it once");
    return new Fields(value, faults);
  } catch (error) {
    return faults.fail(file.name, named, `is not JSON: ${(error as Error).message}`, "mend the file");
  }
}

/** A field that one object of a JSON text has twice. */
function repeatedField(text: string): string | undefined {
  const names: Set<string>[] = [];
  let found: string | undefined;
  visit(text, {
    onObjectBegin: () => void names.push(new Set()),
    onObjectEnd: () => void names.pop(),
    onObjectProperty: (name) => {
      if (names.at(-1)?.has(name) === true) found ??= name;
      names.at(-1)?.add(name);
    },
  });
  return found;
}

function precisionOf(json: Fields, options: Options, takenAs: TakenAs[]): Precision {
  const { faults } = json;
  const [inBf16, inFp16] = [json.section("bf16"), json.section("fp16")];
  const bf16 = inBf16.boolean("enabled") ?? false;
  const fp16 = inFp16.boolean("enabled") ?? false;
  if (bf16 && fp16) faults.add("fp16.enabled", true, "contradicts bf16.enabled", "enable one of them");
  for (const [option, enabled, section] of [
    ["--bf16", bf16, inBf16],
    ["--fp16", fp16, inFp16],
  ] as const)
    // A switch that is neither on nor off is a fault of its own, and contradicts nothing.
    if (options.has(option) !== enabled && (!section.has("enabled") || section.value("enabled") === enabled))
      faults.add(
        option,
        options.has(option),
        `contradicts ${option.slice(2)}.enabled ${enabled} of the JSON`,
        "say the same in both",
      );
  if (fp16) takenAs.push({ option: "fp16.enabled", value: true, as: "bf16" });
  if (!bf16 && !fp16) return "fp32";
  const stage = json.section("zero_optimization").integer("stage", 0) ?? 0;
  const accumulated = json
    .section("data_types")
    .choice("grad_accum_dtype", ["fp32", "bf16", "fp16"] as const);
  if (stage === 0 && accumulated === "fp32")
    faults.add(
      "data_types.grad_accum_dtype",
      accumulated,
      "needs ZeRO: without it DeepSpeed refuses gradients of another precision than the model's",
      "use stage 1, or leave it out",
    );
  if (stage === 0)
    takenAs.push({
      option: "zero_optimization.stage",
      value: 0,
      as: "with a float32 master copy of the parameters, which DeepSpeed keeps only with ZeRO",
    });
  if (accumulated === undefined)
    takenAs.push({
      option: "data_types.grad_accum_dtype",
      value: null,
      as: "the precision of the model: 2 bytes",
    });
  return accumulated === "fp32" ? "bf16" : "bf16-grad16";
}

function batches(json: Fields, options: Options, dp: number): { b: number; n: number; sequences: number } {
  const { faults } = json;
  const b = options.needed("--micro-batch-size");
  const sequences =
    options.integer("--global-batch-size") ??
    json.integer("train_batch_size") ??
    b * dp * (json.integer("gradient_accumulation_steps") ?? 1);
  faults.end();
  const n = quotient(
    faults,
    "--global-batch-size",
    sequences,
    b * dp,
    "--micro-batch-size times the data-parallel ranks",
  );
  const expected = {
    train_batch_size: sequences,
    train_micro_batch_size_per_gpu: b,
    gradient_accumulation_steps: n,
  };
  for (const [name, value] of Object.entries(expected)) {
    const given = json.value(name) === "auto" ? undefined : json.integer(name);
    if (given !== undefined && given !== value)
      faults.add(
        name,
        given,
        `contradicts the script's options, by which it is ${value}`,
        `give ${value}, or leave it out`,
      );
  }
  return { b, n, sequences };
}

/** How so many ranks can share a sequence. */
const layoutsOf = (model: Model, sequenceLengthTokens: number, ranks: number): Layout[] => [
  {
    words: `--tensor-model-parallel-size ${ranks} --sequence-parallel`,
    isPossible: splitsByTensor(model, sequenceLengthTokens, ranks) && wholeHeadsFault(model, ranks) === null,
  },
  {
    words: `--ds-sequence-parallel-size ${ranks}`,
    isPossible: sequenceLengthTokens % ranks === 0 && headSplitFault(model, ranks) === null,
  },
];

/** How pipeline, tensor and Ulysses ranks share a sequence; `sp` ranks hold one. */
function sequenceOfOptions(options: Options, json: Fields, model: Model, sequenceLengthTokens: number) {
  const { faults } = options;
  const tp = options.integer("--tensor-model-parallel-size") ?? 1;
  const pp = options.integer("--pipeline-model-parallel-size") ?? 1;
  const ulysses =
    options.integer("--ds-sequence-parallel-size") ?? json.integer("sequence_parallel_size") ?? 1;
  if (pp > 1 && options.has("--no-pipeline-parallel"))
    faults.add(
      "--no-pipeline-parallel",
      true,
      `contradicts --pipeline-model-parallel-size ${pp}`,
      "give one of them",
    );
  if (tp > 1 && ulysses > 1)
    faults.add(
      "--ds-sequence-parallel-size",
      ulysses,
      `together with --tensor-model-parallel-size ${tp} is in no plan: a sequence is split by one of them`,
      oneWay(layoutsOf(model, sequenceLengthTokens, tp * ulysses)),
    );
  if (tp > 1 && !options.has("--sequence-parallel"))
    faults.add(
      "--sequence-parallel",
      null,
      `is missing with --tensor-model-parallel-size ${tp}: tensor ranks are planned for only with it`,
      "add --sequence-parallel",
    );
  return { tp, pp, sp: tp > 1 ? tp : ulysses };
}

/** The JSON's optimizer, where it says one: anything but Adam is a fault. @returns it, as without effect. */
function optimizerOf(json: Fields): string[] {
  if (!json.has("optimizer")) return [];
  const optimizer = json.section("optimizer");
  const type = optimizer.text("type");
  if (type !== undefined && !ADAM.has(type.toLowerCase()))
    json.faults.add(optimizer.path("type"), type, PLANNED_OPTIMIZER, "use Adam or AdamW");
  return [json.path("optimizer")];
}

/** What of the JSON changes neither time nor memory. */
const withoutEffect = (json: Fields, zero: Fields, takenAs: TakenAs[]): string[] => [
  ...json.rest(JSON_READ, JSON_IGNORED, JSON_REFUSED, JSON_JUDGES, takenAs),
  ...zero.rest(ZERO_READ, ZERO_IGNORED, ZERO_REFUSED, ZERO_JUDGES, takenAs),
  ...json
    .section("activation_checkpointing")
    .rest("", CHECKPOINTING_IGNORED, {}, CHECKPOINTING_JUDGES, takenAs),
  ...optimizerOf(json),
];

/** The stage of ZeRO, which options and JSON must agree on. */
function stageOfZero(options: Options, zero: Fields): number {
  const { faults } = options;
  const stage = zero.integer("stage", 0) ?? 0;
  const said = options.integer("--zero-stage", 0);
  if (stage > 3) faults.add(zero.path("stage"), stage, "is no stage of ZeRO", "use 0 to 3");
  if (said !== undefined && said !== stage)
    faults.add("--zero-stage", said, `contradicts zero_optimization.stage ${stage}`, "say the same in both");
  return stage;
}

/** DeepSpeed's own since 0.19.3. */
const OWN_CLIP = 1;

/** The norm that gradients are clipped to: DeepSpeed does it, and by its JSON, whatever the script says. */
function clipOf(json: Fields, options: Options, leftOut: LeftOut, takenAs: TakenAs[]): number {
  if (json.value("gradient_clipping") === "auto") return readClip(options, leftOut);
  const clip = leftOut.own(json.number("gradient_clipping", 0), "gradient_clipping", OWN_CLIP);
  const said = options.number("--clip-grad", 0);
  if (said !== undefined && said !== clip)
    takenAs.push({
      option: "--clip-grad",
      value: said,
      as: `${clip}: DeepSpeed clips by gradient_clipping of its JSON`,
    });
  return clip;
}

/** Recomputation by the program's own option, or as Megatron-LM has it. */
function recomputeOf(
  options: Options,
  { takenAs, ignored }: { readonly takenAs: TakenAs[]; readonly ignored: string[] },
): Pick<Plan, "recompute" | "recomputeLayers" | "gateUp"> {
  if (options.has("--checkpoint-activations") && (options.integer("--checkpoint-num-layers") ?? 1) > 1)
    takenAs.push({
      option: "--checkpoint-num-layers",
      value: options.text("--checkpoint-num-layers"),
      as: "1: what a layer begins with is kept for each",
    });
  return options.has("--checkpoint-activations")
    ? { recompute: true }
    : recomputeOfOptions(options, 1, { takenAs, ignored });
}

/**
 * Documents end with the last token of the tokenizer that has no files; those of others are not known. Flash attention
 * parts none.
 */
const packingOf = (options: Options, { vocabularySize }: Model) =>
  options.text("--tokenizer-type") === "NullTokenizer" && !hasFlash(options)
    ? { by: "--reset-attention-mask", token: vocabularySize - 1 }
    : null;

/** Heads that the program has an option for, with which it fails. */
const headWarnings = (model: Model): FrameworkWarning[] =>
  sharesKeyValueHeads(model)
    ? [
        {
          field: "--num-key-value-heads",
          value: model.kvHeads,
          message: `is less than --num-attention-heads ${model.heads}, with which this version fails: ${EQUAL_PARTS}`,
          remedy: `give ${model.heads}, or start an earlier version`,
        },
      ]
    : [];

/**
 * Reads arguments of Megatron-DeepSpeed's pretrain_gpt.py with the JSON that they name. @throws ProblemError
 * `bad-request`.
 */
export function importDeepSpeed(
  files: readonly FrameworkFile[],
  asked: Launch | null,
): ImportedConfiguration {
  const [file] = files as readonly [FrameworkFile];
  const { options, nodes, gpusPerNode, ignored, takenAs } = readOptions(
    file.text,
    PRETRAIN_PROGRAM,
    TABLE,
    `the DeepSpeed configuration ${file.name}`,
  );
  const { faults } = options;
  const json = readJson(options, files, takenAs);
  const zero = json.section("zero_optimization");
  const more = withoutEffect(json, zero, takenAs);
  const { launch, launchOrigin } = ranksOf(asked, nodes, gpusPerNode, faults);
  const model = readDecoder(options, DEEPSPEED_DIALECT, takenAs);
  const sequenceLengthTokens = options.needed("--seq-length");
  const { tp, pp, sp } = sequenceOfOptions(options, json, model, sequenceLengthTokens);
  checkWholeHeads(faults, "--tensor-model-parallel-size", tp, model);
  const stage = stageOfZero(options, zero);
  faults.end();
  const dp = quotient(
    faults,
    RANKS_FIELD,
    launch.nodes * launch.gpusPerNode,
    pp * sp,
    "pipeline times tensor times sequence ranks",
  );
  const sharding = shards(zero, stage, (dp * sp) / tp, pp);
  const { b, n, sequences } = batches(json, options, dp);
  const precision = precisionOf(json, options, takenAs);
  const overlap = zero.boolean("overlap_comm") ?? stage === 3;
  const sharded = sharding.parameterSharding > 1 || sharding.optimizerStateSharding > 1;
  const recompute = recomputeOf(options, { takenAs, ignored });
  const warnings = [
    ...decoderWarnings(options, "Megatron-DeepSpeed", { tp, sequenceLengthTokens }),
    ...readAttention(options, tp === 1 ? sp : 1, takenAs),
    ...headWarnings(model),
  ];
  const leftOut = new LeftOut("the program", takenAs);
  const { optimizer, ...training } = readTraining(
    options,
    { sequences, sequenceLengthTokens },
    { knowsWsd: false },
    { leftOut, takenAs, ignored },
  );
  const clipGlobalNorm = clipOf(json, options, leftOut, takenAs);
  faults.end();
  const plan: Plan = {
    microBatchSize: b,
    microBatches: n,
    ...recompute,
    pipelineParallel: pp,
    dataParallel: dp,
    tensorParallel: tp,
    sequenceParallel: sp,
    ...sharding,
    forwardOverlap: overlap && sharding.parameterSharding > 1 ? "inter-layer" : "none",
    backwardOverlap: overlap && sharded ? "intra-layer" : "none",
  };
  return {
    framework: "deepspeed",
    version: FRAMEWORK_VERSIONS.deepspeed,
    launch,
    launchOrigin,
    model,
    sequenceLengthTokens,
    globalBatchTokens: sequences * sequenceLengthTokens,
    precision,
    optimizer: { ...optimizer, clipGlobalNorm },
    ...training,
    ...readData(options, packingOf(options, model), { takenAs, ignored }),
    plan: normalPlan(plan, model),
    takenAs,
    warnings,
    ignored: [...ignored, ...more],
  };
}
