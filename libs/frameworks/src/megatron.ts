import { chunksOf, contextOf, headRanks, ProblemError, replicaRanks, type Plan } from "@internevo/domain";
import { pipelineStages } from "@internevo/cost-model";
import { divisors, type PlanOfJob } from "@internevo/plan";
import { commandText, type Argument, type Options } from "./command-line.ts";
import {
  decoderArguments,
  DECODER_FIELDS,
  trainingArguments,
  type DecoderDialect,
} from "./decoder-arguments.ts";
import { checkpointArguments, dataArguments } from "./decoder-data.ts";
import { isPacked, otherFormat, weightsIn, type FieldDecisions, type Unsaid } from "./job-fields.ts";
import { assertSaid, MEGATRON_UNSAID, readFields } from "./model-fields.ts";
import { withoutFields, type ExportedJob, type Expression, type FrameworkFile } from "./framework.ts";

export const MEGATRON_DIALECT: DecoderDialect = {
  normEpsilon: "--norm-epsilon",
  rotaryBase: "--rotary-base",
  normalization: "RMSNorm",
  rotary: ["--position-embedding-type", "rope"],
  keyValueHeads: (kvHeads) => [["--group-query-attention"], ["--num-query-groups", kvHeads]],
  readKeyValueHeads(options: Options) {
    const groups = options.integer("--num-query-groups");
    if (groups !== undefined && !options.has("--group-query-attention"))
      options.faults.add(
        "--num-query-groups",
        groups,
        "has no effect without --group-query-attention",
        "add --group-query-attention, or leave it out",
      );
    return options.has("--group-query-attention") ? (groups ?? 1) : undefined;
  },
  readFields,
  addedTokens: 0,
};

/** It has no word for these. */
export const MEGATRON_NEVER = {
  gateUp:
    "--recompute-modules mlp makes the whole MLP again, and --cpu-offloading moves all that a layer keeps, neither gate and up alone",
} as const;

/** Packed documents whose last tokens learn from the next document. */
const lossAcross: Unsaid = (job) =>
  !isPacked(job) || job.data?.endOfDocumentToken !== undefined
    ? null
    : {
        field: "data.packing",
        value: "documents",
        nearest: "documents",
        reason:
          "attention and positions stay inside a document (--dataloader-inter-document-masking), but its last " +
          "token learns the next document's first: only data.endOfDocumentToken is left out of the loss",
      };

/** The token that ends documents, which are told apart without it. */
const ownBorders: Unsaid = (job) =>
  !isPacked(job) || job.data?.endOfDocumentToken === undefined
    ? null
    : {
        field: "data.endOfDocumentToken",
        value: job.data.endOfDocumentToken,
        nearest: job.data.endOfDocumentToken,
        reason:
          "it ends the loss of a document (--eod-mask-loss), but attention and positions follow the data's own borders",
      };

/** What it says of a job. */
export const MEGATRON_FIELDS: FieldDecisions = {
  ...DECODER_FIELDS,
  "optimizer.schedule": "said",
  "optimizer.annealingSteps": "said",
  "data.format": otherFormat(
    "megatron",
    "--mock-data",
    "data must be in the format of Megatron-LM's tools/preprocess_data.py",
  ),
  "data.packing": lossAcross,
  "data.endOfDocumentToken": ownBorders,
  initialWeights: weightsIn(
    "the folder must hold them as a checkpoint of its own (tools/checkpoint/convert.py): without one it ends at its start",
  ),
};

/** Packed documents: the data's own borders part attention and positions. */
function packingArguments(job: ExportedJob): Argument[] {
  if (!isPacked(job)) return [];
  const token = job.data?.endOfDocumentToken;
  return [
    ["--dataloader-inter-document-masking"],
    ...(token === undefined
      ? []
      : [["--null-tokenizer-eod-id", token] as const, ["--eod-mask-loss"] as const]),
  ];
}

/** @throws ProblemError `plan-invalid` for a model that it has no words for. */
export const assertMegatron = (job: ExportedJob): void =>
  assertSaid("Megatron-LM", job.model, MEGATRON_UNSAID);

/** Sharding that Megatron can express, at least as thin as what is asked for. */
function sharding(
  plan: Plan,
  reasons: Partial<Record<keyof Plan, string>>,
): Pick<Plan, "parameterSharding" | "gradientSharding" | "optimizerStateSharding"> {
  const { parameterSharding: ps, gradientSharding: gs, optimizerStateSharding: oss } = plan;
  if (ps === 1) return { parameterSharding: 1, gradientSharding: gs, optimizerStateSharding: oss };
  if (gs > 1) {
    reasons.gradientSharding =
      reasons.parameterSharding =
      reasons.optimizerStateSharding =
        "gradients are sharded over the ranks that parameters and optimizer states " +
        "are sharded over (--data-parallel-sharding-strategy optim_grads_params)";
    return { parameterSharding: ps * oss, gradientSharding: 1, optimizerStateSharding: 1 };
  }
  const replicas = replicaRanks(plan) / ps;
  if (oss > 1 && oss < replicas)
    reasons.optimizerStateSharding =
      "beyond the parameters' shards, optimizer states are sharded over " +
      "all replicas (--outer-dp-sharding-strategy optim), or not at all";
  return { parameterSharding: ps, gradientSharding: 1, optimizerStateSharding: oss === 1 ? 1 : replicas };
}

/**
 * Ranks that may share heads by all-to-all: they divide the heads of keys and values, which Transformer
 * Engine does not replicate.
 */
export const sharesHeads = (ranks: number, kvHeads: number): boolean => kvHeads % ranks === 0;

/**
 * The ring of the nearest plan whose other ranks share heads. @throws ProblemError `plan-invalid` when the
 * sequence has too few equal parts.
 */
function ringOf(plan: PlanOfJob, { model, sequenceLengthTokens }: ExportedJob): number {
  const { sequenceParallel: sp } = plan;
  const heads = headRanks(plan);
  if (plan.tensorParallel > 1 || sp === 1) return contextOf(plan);
  // Megatron-LM deals two chunks to each context rank before anything else, also to ranks that then share
  // heads.
  if (sequenceLengthTokens % (2 * sp) !== 0) {
    throw new ProblemError("plan-invalid", "Megatron-LM cannot express the plan", [
      {
        field: "plan.sequenceParallel",
        value: sp,
        message:
          `Megatron-LM deals a sequence to its context ranks in 2 x ${sp} chunks, ` +
          `which do not divide sequenceLengthTokens ${sequenceLengthTokens}`,
        remedy:
          "export to deepspeed, choose a plan with other sequence ranks, or make the sequence a multiple of the chunks",
      },
    ]);
  }
  if (sharesHeads(heads, model.kvHeads)) return contextOf(plan);
  return sp / (divisors(heads).findLast((ranks) => ranks < heads && sharesHeads(ranks, model.kvHeads)) ?? 1);
}

/**
 * What the plan becomes in Megatron-LM. @throws ProblemError `plan-invalid` when nothing near can be said.
 */
export function expressMegatron(plan: PlanOfJob, job: ExportedJob): Expression {
  const reasons: Partial<Record<keyof Plan, string>> = { ...MEGATRON_NEVER };
  const ring = ringOf(plan, job);
  if (ring > 1 && plan.tensorParallel === 1 && job.model.slidingWindowTokens !== undefined)
    throw new ProblemError("plan-invalid", "Megatron-LM cannot express the plan", [
      {
        field: "plan.contextParallel",
        value: ring,
        message: `Megatron-LM takes no window in a ring of ranks, and ${ring} of them would be one`,
        remedy: "choose a plan whose sequence ranks share heads or are tensor ranks, or export another model",
      },
    ]);
  reasons.contextParallel =
    "ranks that share heads by all-to-all divide the heads of " +
    "keys and values (Transformer Engine), the others are a ring";
  const shards = sharding(plan, reasons);
  const { parameterSharding: ps, optimizerStateSharding: oss } = shards;
  const gathers = ps > 1 || oss > 1;
  const forward = plan.forwardOverlap !== "none" && gathers;
  const backward = plan.backwardOverlap !== "none" || forward;
  reasons.forwardOverlap = gathers
    ? "parameters are gathered in buckets beside computation (--overlap-param-gather), or not"
    : "nothing is gathered that could be overlapped";
  reasons.backwardOverlap =
    plan.backwardOverlap === "none"
      ? "--overlap-param-gather needs --overlap-grad-reduce"
      : "gradients are reduced in buckets beside computation (--overlap-grad-reduce), or not";
  const chunks = chunksOf(plan);
  const k = plan.recomputeLayers ?? 0;
  const parts = pipelineStages(job.model, plan.pipelineParallel, chunks).flatMap(
    ({ chunkLayers }) => chunkLayers,
  );
  const perChunk = k % chunks === 0 && k / chunks <= Math.min(...parts);
  if (k > 0 && !perChunk)
    reasons.recompute =
      reasons.recomputeLayers = `--recompute-num-layers is a number of layers of each chunk of a stage; ${k} layers are not the same number of all ${chunks}`;
  const { recomputeLayers: _layers, ...rest } = withoutFields(plan, MEGATRON_NEVER);
  const expressed: Plan = {
    ...rest,
    contextParallel: ring,
    ...shards,
    forwardOverlap: forward ? "inter-layer" : "none",
    backwardOverlap: backward ? "intra-layer" : "none",
    recompute: plan.recompute || (k > 0 && !perChunk),
    ...(k > 0 && perChunk ? { recomputeLayers: k } : {}),
  };
  return { plan: expressed, reasons };
}

/**
 * Stages with unequal layers, as --pipeline-model-parallel-layout writes them: E embedding, t layer, L loss.
 */
export function layoutText(job: ExportedJob, plan: Plan): string {
  const chunks = chunksOf(plan);
  const stages = pipelineStages(job.model, plan.pipelineParallel, chunks);
  const parts = Array.from({ length: chunks }, (_, chunk) =>
    stages.map(({ chunkLayers }) => `t*${chunkLayers[chunk] ?? 0}`),
  ).flat();
  return parts
    .map((part, index) => `${index === 0 ? "E" : ""}${part}${index === parts.length - 1 ? "L" : ""}`)
    .join("|");
}

function pipelineArguments(job: ExportedJob, plan: Plan): Argument[] {
  const { pipelineParallel: pp } = plan;
  const chunks = chunksOf(plan);
  if (pp === 1) return [];
  if (job.model.layers % (pp * chunks) !== 0)
    return [
      ["--pipeline-model-parallel-size", pp],
      ["--pipeline-model-parallel-layout", layoutText(job, plan)],
    ];
  return [
    ["--pipeline-model-parallel-size", pp],
    ...(chunks > 1 ? [["--num-virtual-stages-per-pipeline-rank", chunks] as const] : []),
  ];
}

function sequenceArguments(plan: Plan): Argument[] {
  const { tensorParallel: tp, sequenceParallel: sp } = plan;
  if (tp > 1) return [["--tensor-model-parallel-size", tp], ["--sequence-parallel"]];
  if (sp === 1) return [];
  const ring = contextOf(plan);
  const heads = headRanks(plan);
  if (ring === 1)
    return [
      ["--context-parallel-size", sp],
      ["--cp-comm-type", "a2a"],
    ];
  if (heads === 1)
    return [
      ["--context-parallel-size", sp],
      ["--cp-comm-type", "p2p"],
    ];
  return [
    ["--context-parallel-size", sp],
    ["--hierarchical-context-parallel-sizes", heads, ring],
    ["--cp-comm-type", "a2a+p2p"],
  ];
}

function shardingArguments(plan: Plan): Argument[] {
  const { parameterSharding: ps, gradientSharding: gs, optimizerStateSharding: oss } = plan;
  const replicas = replicaRanks(plan);
  const overlap: Argument[] = [
    ...(plan.backwardOverlap === "none" ? [] : [["--overlap-grad-reduce"] as const]),
    ...(plan.forwardOverlap === "none" ? [] : [["--overlap-param-gather"] as const]),
  ];
  const instances = (size: number): Argument[] =>
    size === replicas ? [] : [["--num-distributed-optimizer-instances", replicas / size]];
  if (ps > 1 || gs > 1) {
    return [
      ["--use-megatron-fsdp"],
      ["--use-distributed-optimizer"],
      ["--data-parallel-sharding-strategy", ps > 1 ? "optim_grads_params" : "optim_grads"],
      ...instances(ps > 1 ? ps : oss),
      ...(ps > 1 && oss > 1 ? [["--outer-dp-sharding-strategy", "optim"] as const] : []),
      ["--ckpt-format", "fsdp_dtensor"],
      ["--no-gradient-accumulation-fusion"],
      ...overlap,
    ];
  }
  return [...(oss > 1 ? [["--use-distributed-optimizer"] as const, ...instances(oss)] : []), ...overlap];
}

/** With chunks, so many of each; all are a multiple of them. */
function recomputeArguments(plan: Plan): Argument[] {
  const k = plan.recomputeLayers ?? 0;
  if (!plan.recompute && k === 0) return [];
  const method: Argument[] = plan.recompute
    ? [
        ["--recompute-method", "uniform"],
        ["--recompute-num-layers", 1],
      ]
    : [
        ["--recompute-method", "block"],
        ["--recompute-num-layers", k / chunksOf(plan)],
      ];
  return [["--recompute-granularity", "full"], ...method];
}

/** The script that starts Megatron-LM's pretrain_gpt.py. */
export function writeMegatron(job: ExportedJob, plan: PlanOfJob): FrameworkFile[] {
  const { nodes, gpusPerNode } = job.cluster;
  const precision: Argument[] =
    job.precision === "fp32"
      ? []
      : [["--bf16"], ...(job.precision === "bf16-grad16" ? [["--grad-reduce-in-bf16"] as const] : [])];
  const fsdp = plan.parameterSharding > 1 || plan.gradientSharding > 1;
  // Tensor and context parallelism order their kernels by one connection, which FSDP does not allow.
  const environment = plan.sequenceParallel > 1 && !fsdp ? "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" : "";
  const launcher = [
    `torchrun --nnodes ${nodes} --nproc-per-node ${gpusPerNode}`,
    ...(nodes > 1
      ? [
          "--node-rank ${NODE_RANK:-0} --master-addr ${MASTER_ADDR:-localhost} --master-port ${MASTER_PORT:-29500}",
        ]
      : []),
    "pretrain_gpt.py",
  ].join(" \\\n  ");
  const text = commandText(launcher, [
    ...decoderArguments(job, MEGATRON_DIALECT).map((argument) => [argument]),
    [
      ["--micro-batch-size", plan.microBatchSize],
      ["--global-batch-size", job.globalBatchTokens / job.sequenceLengthTokens],
    ],
    sequenceArguments(plan),
    pipelineArguments(job, plan),
    shardingArguments(plan),
    recomputeArguments(plan),
    precision,
    ...trainingArguments(job, { knowsWsd: true }).map((argument) => [argument]),
    dataArguments(job, [["--mock-data"]]),
    packingArguments(job),
    checkpointArguments(job),
    job.initialWeights === undefined ? [] : [["--pretrained-checkpoint", job.initialWeights]],
  ]);
  return [{ name: "pretrain.sh", text: `#!/bin/bash\nset -euo pipefail\n${environment}${text}\n` }];
}
