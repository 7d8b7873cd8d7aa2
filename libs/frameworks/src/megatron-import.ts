import type { Model, Plan, Precision } from "@internevo/domain";
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
import { plainNumber, readData } from "./decoder-data.ts";
import { isWhole, optionNames, readOptions, type OptionTable, type Options } from "./command-line.ts";
import {
  FRAMEWORK_VERSIONS,
  normalPlan,
  type FrameworkFile,
  type FrameworkWarning,
  type ImportedConfiguration,
  type Launch,
  type TakenAs,
} from "./framework.ts";
import { BLOCKWISE, BUCKETS, judgesOf, KERNELS, taken } from "./judgements.ts";
import { headSplitFault } from "./heads.ts";
import { quotient, sharedEvenly, nearestThatWork } from "./problems.ts";
import { RANKS_FIELD, ranksOf } from "./launch.ts";
import { LeftOut } from "./left-out.ts";
import { MEGATRON_DIALECT, sharesHeads } from "./megatron.ts";
import { MORE_JUDGES, MORE_OPTIONS, MORE_REFUSED, OWN_PIPELINE } from "./megatron-options.ts";
import { FIELD_OPTIONS } from "./model-fields.ts";
import { moduleWarnings, recomputeOfOptions } from "./recompute-options.ts";
import { oneWay, splitsByTensor, type Layout } from "./sequence-layouts.ts";

const ONE_RATE = "embedding and output layer learn at the rate of the rest";

const TABLE: OptionTable = {
  read: {
    ...optionNames(DECODER_OPTIONS),
    ...optionNames(FIELD_OPTIONS),
    ...optionNames({
      flag: `--group-query-attention --use-distributed-optimizer --use-megatron-fsdp --overlap-grad-reduce --overlap-param-gather --grad-reduce-in-bf16
        --no-overlap-p2p-communication --no-align-param-gather --no-gradient-accumulation-fusion
        --recompute-activations --accumulate-allreduce-grads-in-fp32 --tp-comm-overlap --use-tp-pp-dp-mapping
        --no-pad-vocab-size --disable-pad-vocab-size`,
      one: `--padded-vocab-size --num-query-groups --norm-epsilon --position-embedding-type --rotary-base --context-parallel-size --num-virtual-stages-per-pipeline-rank
        --num-layers-per-virtual-pipeline-stage --pipeline-model-parallel-layout --data-parallel-sharding-strategy
        --num-distributed-optimizer-instances --outer-dp-sharding-strategy
        --lr-wsd-decay-style --lr-wsd-decay-iters --lr-wsd-decay-samples`,
      some: "--cp-comm-type --hierarchical-context-parallel-sizes --recompute-modules",
    }),
  },
  ignored: {
    ...optionNames(DECODER_IGNORED),
    ...optionNames(MORE_OPTIONS),
    ...optionNames({
      flag: `--use-mcore-models --mock-data --cross-entropy-loss-fusion --calculate-per-token-loss --manual-gc --no-bias-swiglu-fusion --no-rope-fusion
        --no-create-attention-mask-in-dataloader --no-mmap-bin-files --log-throughput --use-dist-ckpt --auto-detect-ckpt-format --async-save
        --use-pytorch-profiler --log-progress --use-tokenizer-model-from-checkpoint-args --no-check-for-nan-in-loss-and-grad --check-for-large-grads
        --ckpt-fully-parallel-save --ddp-average-in-collective --ddp-pad-buckets-for-high-nccl-busbw
        --fsdp-double-buffer --deterministic-mode`,
      one: `--attention-backend --transformer-impl --ckpt-format --manual-gc-interval --empty-unused-memory-level --decoupled-lr --decoupled-min-lr
        --tiktoken-pattern --ddp-num-buckets --ddp-bucket-size --cross-entropy-fusion-impl --megatron-fsdp-version
        --suggested-communication-unit-size`,
    }),
  },
  judges: {
    ...DECODER_JUDGES,
    ...MORE_JUDGES,
    ...judgesOf(
      `--cross-entropy-loss-fusion --cross-entropy-fusion-impl --no-bias-swiglu-fusion --no-rope-fusion --deterministic-mode
        --no-check-for-nan-in-loss-and-grad --check-for-large-grads`,
      taken(KERNELS),
    ),
    ...judgesOf(
      `--ddp-pad-buckets-for-high-nccl-busbw --fsdp-double-buffer --ddp-num-buckets --ddp-bucket-size
        --suggested-communication-unit-size`,
      taken(BUCKETS),
    ),
    "--decoupled-lr": taken(`--lr: ${ONE_RATE}`),
    "--decoupled-min-lr": taken(`--min-lr: ${ONE_RATE}`),
    "--transformer-impl": taken(KERNELS, "transformer_engine"),
    "--attention-backend": taken(BLOCKWISE, "auto", "flash", "fused"),
    "--empty-unused-memory-level": taken("0: memory that is free is kept", 0),
  },
  refused: {
    ...DECODER_REFUSED,
    ...MORE_REFUSED,
    "--fp8-format": "computes in 8 bits, for which no profile is kept",
    "--fp8-param-gather": "computes in 8 bits, for which no profile is kept",
    "--use-torch-fsdp2": "is another sharding; --use-megatron-fsdp is read, and torchtitan configurations",
    "--optimizer-cpu-offload": "moves optimizer states to the host, which is not planned for",
    "--cpu-offloading": "moves activations to the host, which is not planned for",
    "--multi-latent-attention":
      "is another attention; multi-head and grouped-query attention are planned for",
    "--window-attn-skip-freq": "gives some layers no window; windows of all layers are planned for",
    "--decoder-first-pipeline-num-layers": "deals layers unevenly over stages; they are planned evenly",
    "--decoder-last-pipeline-num-layers": "deals layers unevenly over stages; they are planned evenly",
    "--enable-full-sharding-in-hsdp": "is a sharding that no plan stands for",
    "--hybrid-layer-pattern": "makes a hybrid model; decoders of attention and MLP are planned for",
    "--use-precision-aware-optimizer": "keeps optimizer states in other precisions than are planned for",
  },
};

/** s_sp and the ring within it. */
function contextOfOptions(options: Options, takenAs: TakenAs[]): { size: number; ring: number } {
  const { faults } = options;
  const size = options.integer("--context-parallel-size") ?? 1;
  const types = [...new Set(options.all("--cp-comm-type") ?? ["p2p"])];
  const [type = "p2p"] = types;
  if (types.length > 1)
    faults.add("--cp-comm-type", types.join(" "), "differs between layers", "give one for all layers");
  const levels = (options.all("--hierarchical-context-parallel-sizes") ?? []).map((level) =>
    isWhole(level) ? Number(level) : Number.NaN,
  );
  if (
    levels.length > 0 &&
    (levels.some((level) => !(level >= 1)) || levels.reduce((product, level) => product * level, 1) !== size)
  ) {
    faults.add(
      "--hierarchical-context-parallel-sizes",
      levels.join(" "),
      `does not multiply to --context-parallel-size ${size}`,
      "give levels whose product it is",
    );
  }
  if (size === 1) return { size: 1, ring: 1 };
  if (type === "a2a") return { size, ring: 1 };
  if (type === "allgather") takenAs.push({ option: "--cp-comm-type", value: type, as: "a ring" });
  if (type === "p2p" || type === "allgather") return { size, ring: size };
  if (type !== "a2a+p2p")
    faults.add("--cp-comm-type", type, "is none of its choices", "use p2p, a2a, allgather or a2a+p2p");
  else if (levels.length !== 2)
    faults.add(
      "--hierarchical-context-parallel-sizes",
      levels.join(" "),
      "is not two levels, which a2a+p2p needs",
      "give the ranks that share heads and the ranks of the ring",
    );
  return { size, ring: levels[1] ?? 1 };
}

/** Stages of a layout such as Et*4|t*4|t*4|t*4L. */
function layoutStages(options: Options, layers: number): number | null {
  const text = options.text("--pipeline-model-parallel-layout");
  if (text === undefined) return null;
  if (!/^E?(?:t(?:\*\d+)?|\||,|L)*$/.test(text))
    return options.faults.fail(
      "--pipeline-model-parallel-layout",
      text,
      "has parts that are not understood",
      "write each stage out, with E, t, t*N and L",
    );
  const parts = text.replace(/[EL,]/g, "").split("|");
  const counts = parts.map((part) =>
    [...part.matchAll(/t(?:\*(\d+))?/g)].reduce((sum, [, times]) => sum + Number(times ?? 1), 0),
  );
  if (counts.reduce((sum, count) => sum + count, 0) !== layers)
    options.faults.add(
      "--pipeline-model-parallel-layout",
      text,
      `does not have the ${layers} layers of --num-layers`,
      "mend one of them",
    );
  const even = counts.every(
    (count, stage) => count === Math.floor(layers / counts.length) + (stage < layers % counts.length ? 1 : 0),
  );
  if (!even)
    options.faults.add(
      "--pipeline-model-parallel-layout",
      text,
      "deals layers otherwise than evenly, the first stages with one more",
      "deal them evenly",
    );
  return counts.length;
}

function chunksOfOptions(options: Options, layers: number, pp: number): number {
  const { faults } = options;
  const given = [
    "--num-virtual-stages-per-pipeline-rank",
    "--num-layers-per-virtual-pipeline-stage",
    "--pipeline-model-parallel-layout",
  ].filter((name) => options.has(name));
  if (given.length > 1)
    faults.add(
      given[1] as string,
      options.text(given[1] as string),
      `contradicts ${given[0]}`,
      "give one of them",
    );
  const stages = layoutStages(options, layers);
  if (stages !== null)
    return quotient(faults, "--pipeline-model-parallel-layout", stages, pp, "--pipeline-model-parallel-size");
  const each = options.integer("--num-layers-per-virtual-pipeline-stage");
  if (pp > 1 && layers % pp !== 0)
    faults.add(
      "--num-layers",
      layers,
      `is no multiple of --pipeline-model-parallel-size ${pp}`,
      "give stages that divide the layers, or --pipeline-model-parallel-layout",
    );
  if (each !== undefined)
    return quotient(faults, "--num-layers-per-virtual-pipeline-stage", layers / pp, each, "it");
  return options.integer("--num-virtual-stages-per-pipeline-rank") ?? 1;
}

type Shards = Pick<Plan, "parameterSharding" | "gradientSharding" | "optimizerStateSharding">;

function shardsOfOptions(options: Options, replicas: number): Shards {
  const { faults } = options;
  const instances = options.integer("--num-distributed-optimizer-instances") ?? 1;
  const size = sharedEvenly(
    faults,
    "--num-distributed-optimizer-instances",
    instances,
    replicas,
    "the data-parallel ranks",
  );
  const outer = options.choice("--outer-dp-sharding-strategy", ["no_shard", "optim"] as const) ?? "no_shard";
  if (!options.has("--use-megatron-fsdp")) {
    if (outer !== "no_shard")
      faults.add(
        "--outer-dp-sharding-strategy",
        outer,
        "has no effect without --use-megatron-fsdp",
        "add --use-megatron-fsdp",
      );
    return {
      parameterSharding: 1,
      gradientSharding: 1,
      optimizerStateSharding: options.has("--use-distributed-optimizer") ? size : 1,
    };
  }
  const strategy =
    options.choice("--data-parallel-sharding-strategy", [
      "no_shard",
      "optim",
      "optim_grads",
      "optim_grads_params",
    ] as const) ?? "optim_grads_params";
  if (outer === "optim" && strategy !== "optim_grads_params")
    faults.add(
      "--outer-dp-sharding-strategy",
      outer,
      `contradicts --data-parallel-sharding-strategy ${strategy}`,
      "use optim_grads_params with it",
    );
  switch (strategy) {
    case "no_shard":
      return { parameterSharding: 1, gradientSharding: 1, optimizerStateSharding: 1 };
    case "optim":
      return { parameterSharding: 1, gradientSharding: 1, optimizerStateSharding: size };
    case "optim_grads":
      return { parameterSharding: 1, gradientSharding: size, optimizerStateSharding: size };
    case "optim_grads_params":
      return {
        parameterSharding: size,
        gradientSharding: 1,
        optimizerStateSharding: outer === "optim" ? replicas / size : 1,
      };
  }
}

/** Chunks of a pipeline's stages that Megatron-LM refuses. */
function chunkWarnings(
  options: Options,
  { layers, pp, chunks }: Readonly<Record<"layers" | "pp" | "chunks", number>>,
): FrameworkWarning[] {
  const field = "--num-virtual-stages-per-pipeline-rank";
  const [each, value] = [layers / pp, options.text(field) ?? null];
  if (chunks === 1) return [];
  const warnings: FrameworkWarning[] = [];
  if (pp === 1 || (pp === 2 && options.has("--no-overlap-p2p-communication")))
    warnings.push({
      field: "--pipeline-model-parallel-size",
      value: pp,
      message: `is too few for ${chunks} chunks of a stage${pp === 1 ? "" : " with --no-overlap-p2p-communication"}: Megatron-LM refuses it`,
      remedy: "give more, or one chunk",
    });
  if (value !== null && each % chunks !== 0) {
    warnings.push({
      field,
      value: chunks,
      message: `does not divide the ${each} layers of a pipeline rank: Megatron-LM refuses it`,
      remedy: `give ${nearestThatWork(chunks, each, (by) => each % by === 0)}, or --pipeline-model-parallel-layout`,
    });
  }
  return warnings;
}

/** What Megatron-LM refuses, or does not do, though a plan stands for it. */
function megatronWarnings(
  options: Options,
  sizes: Readonly<Record<"tp" | "pp" | "ring" | "sequenceLengthTokens" | "layers" | "chunks", number>>,
): FrameworkWarning[] {
  const { ring, sequenceLengthTokens } = sizes;
  const warnings = [
    ...decoderWarnings(options, "Megatron-LM", sizes),
    ...moduleWarnings(options),
    ...chunkWarnings(options, sizes),
  ];
  if (ring > 1 && sequenceLengthTokens % (2 * ring) !== 0)
    warnings.push({
      field: "--seq-length",
      value: sequenceLengthTokens,
      message: `is no multiple of twice --context-parallel-size, which is ${2 * ring}: Megatron-LM refuses it`,
      remedy: `give a multiple of ${2 * ring}`,
    });
  const types = options.all("--cp-comm-type") ?? ["p2p"];
  if (ring > 1 && options.has("--window-size") && types.some((type) => type.includes("p2p")))
    warnings.push({
      field: "--window-size",
      value: options.text("--window-size") ?? null,
      message: "is not taken with a ring of context ranks: Transformer Engine refuses it",
      remedy: "use --cp-comm-type a2a",
    });
  return warnings;
}

/** How so many ranks can share a sequence. A ring takes no window; ranks that share heads do. */
function layoutsOf(model: Model, sequenceLengthTokens: number, ranks: number): Layout[] {
  const hasWindow = model.slidingWindowTokens !== undefined;
  const isDealt = sequenceLengthTokens % (2 * ranks) === 0;
  return [
    {
      words: `--tensor-model-parallel-size ${ranks} --sequence-parallel`,
      isPossible: splitsByTensor(model, sequenceLengthTokens, ranks),
    },
    {
      words: `--context-parallel-size ${ranks} --cp-comm-type ${hasWindow ? "a2a" : "p2p"}`,
      isPossible: isDealt && (!hasWindow || (model.heads % ranks === 0 && sharesHeads(ranks, model.kvHeads))),
    },
  ];
}

/** How pipeline, tensor and context ranks share a sequence; `sp` ranks hold one. */
function sequenceOfOptions(options: Options, model: Model, sequenceLengthTokens: number, takenAs: TakenAs[]) {
  const { faults } = options;
  const tp = options.integer("--tensor-model-parallel-size") ?? 1;
  const pp = options.integer("--pipeline-model-parallel-size") ?? 1;
  const context = contextOfOptions(options, takenAs);
  if (tp > 1 && context.size > 1)
    faults.add(
      "--context-parallel-size",
      context.size,
      `together with --tensor-model-parallel-size ${tp} is in no plan: a sequence is split by one of them`,
      oneWay(layoutsOf(model, sequenceLengthTokens, tp * context.size)),
    );
  if (tp > 1 && !options.has("--sequence-parallel"))
    faults.add(
      "--sequence-parallel",
      null,
      `is missing with --tensor-model-parallel-size ${tp}: tensor ranks are planned for only with it`,
      "add --sequence-parallel",
    );
  const { heads, kvHeads } = model;
  // More tensor ranks than such heads repeat them.
  const split =
    Number.isInteger(heads) && Number.isInteger(kvHeads) && tp > 1 ? headSplitFault(model, tp) : null;
  if (split !== null)
    faults.add(
      "--tensor-model-parallel-size",
      tp,
      `splits no such model: ${split}`,
      "give a number that divides the heads, and divides those of keys and values or is a multiple of them",
    );
  const sp = tp > 1 ? tp : context.size;
  if (tp === 1 && !sharesHeads(sp / context.ring, kvHeads))
    faults.add(
      "--context-parallel-size",
      sp,
      `shares ${kvHeads} heads of keys and values by all-to-all over ` +
        `${sp / context.ring} ranks, which Transformer Engine refuses`,
      "use --cp-comm-type p2p, or ranks that divide them",
    );
  return { tp, pp, sp, context };
}

/** Which collectives are hidden behind computation. */
function overlapOfOptions(options: Options): { readonly gather: boolean; readonly reduce: boolean } {
  const { faults } = options;
  const gather = options.has("--overlap-param-gather");
  const reduce = options.has("--overlap-grad-reduce");
  if (gather && !reduce)
    faults.add("--overlap-param-gather", true, "needs --overlap-grad-reduce", "add --overlap-grad-reduce");
  if (gather && !options.has("--use-distributed-optimizer") && !options.has("--use-megatron-fsdp"))
    faults.add(
      "--overlap-param-gather",
      true,
      "needs --use-distributed-optimizer or --use-megatron-fsdp",
      "add one of them, or leave it out",
    );
  return { gather, reduce };
}

/** Options whose effect depends on the plan. */
function judgeByPlan(
  options: Options,
  { chunks, tp, pp, dp }: Readonly<Record<"chunks" | "tp" | "pp" | "dp", number>>,
  ignored: string[],
  takenAs: TakenAs[],
): void {
  for (const [option, hasEffect, as] of [
    // Without chunks, and with FSDP, Megatron-LM has no other choice.
    ["--no-overlap-p2p-communication", chunks > 1, OWN_PIPELINE],
    ["--no-align-param-gather", chunks > 1, OWN_PIPELINE],
    ["--no-gradient-accumulation-fusion", !options.has("--use-megatron-fsdp"), KERNELS],
    ["--tp-comm-overlap", tp > 1, "tensor ranks communicate between products"],
    ["--use-tp-pp-dp-mapping", pp > 1 && dp > 1, "stages of the pipeline are furthest apart"],
  ] as const) {
    if (!options.has(option)) continue;
    if (hasEffect) takenAs.push({ option, value: true, as });
    else ignored.push(option);
  }
}

function precisionOfOptions(options: Options, takenAs: TakenAs[]): Precision {
  const { faults } = options;
  if (options.has("--fp16")) takenAs.push({ option: "--fp16", value: true, as: "bf16" });
  if (options.has("--fp16") && options.has("--bf16"))
    faults.add("--fp16", true, "contradicts --bf16", "give one of them");
  const half = options.has("--bf16") || options.has("--fp16");
  if (!half) return "fp32";
  return options.has("--grad-reduce-in-bf16") ? "bf16-grad16" : "bf16";
}

/** Its documents end where the data's own do; only the loss may end by a token. */
const packingOf = (options: Options, { vocabularySize }: Model) => ({
  by: "--dataloader-inter-document-masking",
  token: options.has("--eod-mask-loss")
    ? plainNumber(options, "--null-tokenizer-eod-id", vocabularySize - 1, 0)
    : undefined,
});

/** Reads arguments of Megatron-LM's pretrain_gpt.py. @throws ProblemError `bad-request`. */
export function importMegatron(files: readonly FrameworkFile[], asked: Launch | null): ImportedConfiguration {
  const [file] = files as readonly [FrameworkFile];
  const { options, nodes, gpusPerNode, ignored, takenAs } = readOptions(
    file.text,
    PRETRAIN_PROGRAM,
    TABLE,
    `the Megatron-LM arguments ${file.name}`,
  );
  const { faults } = options;
  const { launch, launchOrigin } = ranksOf(asked, nodes, gpusPerNode, faults);
  const ranks = launch.nodes * launch.gpusPerNode;
  const model = readDecoder(options, MEGATRON_DIALECT, takenAs);
  const sequenceLengthTokens = options.needed("--seq-length");
  const { tp, pp, sp, context } = sequenceOfOptions(options, model, sequenceLengthTokens, takenAs);
  faults.end();
  const dp = quotient(faults, RANKS_FIELD, ranks, pp * sp, "pipeline times tensor times context ranks");
  const replicas = (dp * sp) / tp;
  const chunks = chunksOfOptions(options, model.layers, pp);
  const shards = shardsOfOptions(options, replicas);
  const b = options.needed("--micro-batch-size");
  const sequences = options.integer("--global-batch-size") ?? b * dp;
  faults.end();
  const n = quotient(
    faults,
    "--global-batch-size",
    sequences,
    b * dp,
    "--micro-batch-size times the data-parallel ranks",
  );
  const { gather, reduce } = overlapOfOptions(options);
  const precision = precisionOfOptions(options, takenAs);
  const recompute = recomputeOfOptions(options, chunks, { takenAs, ignored });
  const leftOut = new LeftOut("the program", takenAs);
  const { optimizer, ...training } = readTraining(
    options,
    { sequences, sequenceLengthTokens },
    { knowsWsd: true },
    { leftOut, takenAs, ignored },
  );
  const clipGlobalNorm = readClip(options, leftOut);
  judgeByPlan(options, { chunks, tp, pp, dp }, ignored, takenAs);
  faults.end();
  const plan: Plan = {
    microBatchSize: b,
    microBatches: n,
    ...recompute,
    pipelineParallel: pp,
    dataParallel: dp,
    tensorParallel: tp,
    sequenceParallel: sp,
    contextParallel: context.ring,
    ...shards,
    pipelineChunks: chunks,
    forwardOverlap:
      gather && shards.parameterSharding * shards.optimizerStateSharding > 1 ? "inter-layer" : "none",
    backwardOverlap: reduce ? "intra-layer" : "none",
  };
  return {
    framework: "megatron",
    version: FRAMEWORK_VERSIONS.megatron,
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
    warnings: megatronWarnings(options, {
      ...{ tp, pp, chunks, sequenceLengthTokens },
      ring: context.size,
      layers: model.layers,
    }),
    ignored,
  };
}
