import { contextOf, replicaRanks, ProblemError, type Plan } from "@internevo/domain";
import type { PlanOfJob } from "@internevo/plan";
import { commandText, type Argument } from "./command-line.ts";
import {
  decoderArguments,
  DECODER_FIELDS,
  trainingArguments,
  type DecoderDialect,
} from "./decoder-arguments.ts";
import { checkpointArguments, dataArguments, TRAINED_WHOLE } from "./decoder-data.ts";
import {
  assertAttention,
  attentionArguments,
  packedAttention,
  precisionOfAttention,
} from "./deepspeed-attention.ts";
import {
  withoutFields,
  type ExportedJob,
  type Expression,
  type FrameworkFile,
  type Inexpressible,
} from "./framework.ts";
import { headSplitFault } from "./heads.ts";
import {
  CHECKPOINT_FOLDER,
  otherFormat,
  schedulesLacking,
  weightsIn,
  type FieldDecisions,
} from "./job-fields.ts";
import { assertSaid, DEEPSPEED_UNSAID } from "./model-fields.ts";

export const DEEPSPEED_DIALECT: DecoderDialect = {
  normEpsilon: "--layernorm-epsilon",
  rotaryBase: "--rotary-position-embeddings-theta",
  normalization: "rmsnorm",
  rotary: ["--use-rotary-position-embeddings"],
  keyValueHeads: (kvHeads) => [["--num-key-value-heads", kvHeads]],
  readKeyValueHeads: (options) => options.integer("--num-key-value-heads"),
  readFields: () => ({}),
  addedTokens: 1,
};

export type ZeroSharding = Pick<Plan, "parameterSharding" | "gradientSharding" | "optimizerStateSharding">;

/** It has no word for these. */
export const DEEPSPEED_NEVER = {
  contextParallel:
    "DeepSpeed has no ring of ranks: all of them share the heads (--ds-sequence-parallel-size)",
  pipelineChunks: "DeepSpeed's pipeline has one chunk a stage",
  gateUp:
    "layers are recomputed whole, or keep everything; cpu_checkpointing moves what recomputed layers begin with",
} as const;

/** What it says of a job. */
export const DEEPSPEED_FIELDS: FieldDecisions = {
  ...DECODER_FIELDS,
  precision: precisionOfAttention,
  "optimizer.schedule": schedulesLacking("wsd"),
  "optimizer.annealingSteps": "with optimizer.schedule",
  "data.format": otherFormat(
    "megatron",
    "--data-path data",
    "data must be in the format of Megatron-DeepSpeed's tools/preprocess_data.py",
  ),
  "data.packing": packedAttention,
  "data.endOfDocumentToken": "with data.packing",
  initialWeights: weightsIn(
    "the folder must hold them as a checkpoint of its own (tools/hf2megads_weight_converter.py): without one it " +
      `begins with random weights; to go on from ${CHECKPOINT_FOLDER}, give --load ${CHECKPOINT_FOLDER} without --finetune`,
  ),
};

/** @throws ProblemError `plan-invalid` for a model that it has no words for. */
export const assertDeepSpeed = (job: ExportedJob): void =>
  assertSaid("Megatron-DeepSpeed", job.model, DEEPSPEED_UNSAID);

/** The sharding that ZeRO can express, at least as thin as what is asked for where pipelines allow it. */
function sharding(plan: Plan, reasons: Partial<Record<keyof Plan, string>>, half: boolean): ZeroSharding {
  const { parameterSharding: ps, gradientSharding: gs, optimizerStateSharding: oss } = plan;
  const replicas = replicaRanks(plan);
  if (ps === 1 && oss === 1 && half) {
    reasons.optimizerStateSharding =
      "without ZeRO, DeepSpeed keeps no float32 master copy of bf16 parameters, and " +
      "adds up no gradients of 4 bytes: it is stage 1, which shards over all replicas";
    return { parameterSharding: 1, gradientSharding: 1, optimizerStateSharding: replicas };
  }
  if (ps === 1 && oss === 1) return { parameterSharding: 1, gradientSharding: 1, optimizerStateSharding: 1 };
  if (plan.pipelineParallel > 1) {
    reasons.parameterSharding = "with a pipeline, DeepSpeed has ZeRO stage 1 at most";
    reasons.gradientSharding = reasons.parameterSharding;
    reasons.optimizerStateSharding = "ZeRO stage 1 shards over all replicas";
    return { parameterSharding: 1, gradientSharding: 1, optimizerStateSharding: replicas };
  }
  if (ps === 1) {
    reasons.optimizerStateSharding = "ZeRO stages 1 and 2 shard over all replicas";
    reasons.gradientSharding = reasons.optimizerStateSharding;
    return {
      parameterSharding: 1,
      gradientSharding: gs > 1 ? replicas : 1,
      optimizerStateSharding: replicas,
    };
  }
  if (ps === replicas) return { parameterSharding: ps, gradientSharding: 1, optimizerStateSharding: 1 };
  reasons.optimizerStateSharding =
    "with secondary shards of parameters (zero_hpz_partition_size), optimizer states are sharded over all replicas";
  reasons.gradientSharding =
    "with secondary shards of parameters (zero_hpz_partition_size), gradients are sharded over all replicas";
  return { parameterSharding: ps, gradientSharding: replicas / ps, optimizerStateSharding: replicas / ps };
}

/**
 * What the plan becomes in DeepSpeed with Megatron-DeepSpeed. @throws ProblemError `plan-invalid` when
 * nothing near can be said.
 */
export function expressDeepSpeed(plan: PlanOfJob, job: ExportedJob): Expression {
  const reasons: Partial<Record<keyof Plan, string>> = { ...DEEPSPEED_NEVER };
  const beyond: Inexpressible[] = [];
  if (contextOf(plan) > 1) {
    const split = headSplitFault(job.model, plan.sequenceParallel);
    if (split !== null) {
      throw new ProblemError("plan-invalid", "DeepSpeed cannot express the plan", [
        {
          field: "plan.contextParallel",
          value: contextOf(plan),
          message: `DeepSpeed has no ring of ranks, and ${split}`,
          remedy: "export to megatron or internevo, or choose a plan without ring",
        },
      ]);
    }
  }
  assertAttention(plan, job);
  const shards = sharding(plan, reasons, job.precision !== "fp32");
  const three = shards.parameterSharding > 1;
  const sharded = three || shards.optimizerStateSharding > 1;
  const overlapped =
    sharded && (plan.backwardOverlap !== "none" || (three && plan.forwardOverlap !== "none"));
  reasons.forwardOverlap = three
    ? "ZeRO stage 3 prefetches in both passes (overlap_comm), or in none"
    : "nothing is gathered in the forward pass below ZeRO stage 3";
  reasons.backwardOverlap = sharded ? "overlap_comm is on or off" : "without ZeRO nothing is overlapped";
  reasons.recompute = reasons.recomputeLayers =
    "all layers are recomputed (--checkpoint-activations), or none";
  if (job.model.layers % plan.pipelineParallel !== 0)
    beyond.push({
      field: "plan.pipelineParallel",
      value: plan.pipelineParallel,
      nearest: plan.pipelineParallel,
      reason: "where layers do not divide, DeepSpeed's own rule says which stages have one more",
    });
  const { recomputeLayers, ...rest } = withoutFields(plan, DEEPSPEED_NEVER);
  const expressed: Plan = {
    ...rest,
    ...shards,
    recompute: plan.recompute || (recomputeLayers ?? 0) > 0,
    forwardOverlap: overlapped && three ? "inter-layer" : "none",
    backwardOverlap: overlapped ? "intra-layer" : "none",
  };
  return { plan: expressed, reasons, beyond };
}

/** The stage of ZeRO that shards parameters, or gradients, or only states. */
function zeroStage(parameters: number, gradients: number, keepsStates: boolean): number {
  if (parameters > 1) return 3;
  if (gradients > 1) return 2;
  return keepsStates ? 1 : 0;
}

/** DeepSpeed's JSON. */
export function zeroConfiguration(job: ExportedJob, plan: Plan): Record<string, unknown> {
  const { parameterSharding: ps, gradientSharding: gs, optimizerStateSharding: oss } = plan;
  const stage = zeroStage(ps, gs, oss > 1 || job.precision !== "fp32");
  return {
    train_batch_size: job.globalBatchTokens / job.sequenceLengthTokens,
    train_micro_batch_size_per_gpu: plan.microBatchSize,
    gradient_accumulation_steps: plan.microBatches,
    steps_per_print: 1,
    gradient_clipping: job.optimizer.clipGlobalNorm,
    zero_optimization: {
      stage,
      ...(stage > 0
        ? { overlap_comm: plan.backwardOverlap !== "none", contiguous_gradients: true, reduce_scatter: true }
        : {}),
      ...(ps > 1 && oss > 1 ? { zero_hpz_partition_size: ps } : {}),
    },
    bf16: { enabled: job.precision !== "fp32" },
    ...(job.precision === "fp32"
      ? {}
      : { data_types: { grad_accum_dtype: job.precision === "bf16" ? "fp32" : "bf16" } }),
  };
}

/** The script that starts Megatron-DeepSpeed's pretrain_gpt.py, and DeepSpeed's JSON. */
export function writeDeepSpeed(job: ExportedJob, plan: PlanOfJob): FrameworkFile[] {
  const { nodes, gpusPerNode } = job.cluster;
  const { tensorParallel: tp, sequenceParallel: sp, pipelineParallel: pp } = plan;
  const json = zeroConfiguration(job, plan);
  const { stage } = json["zero_optimization"] as { stage: number };
  const ulysses: Argument[] = sp > 1 ? [["--ds-sequence-parallel-size", sp]] : [];
  const sequence: Argument[] =
    tp > 1 ? [["--tensor-model-parallel-size", tp], ["--sequence-parallel"]] : ulysses;
  const text = commandText(`deepspeed --num_nodes ${nodes} --num_gpus ${gpusPerNode} pretrain_gpt.py`, [
    ...decoderArguments(job, DEEPSPEED_DIALECT).map((argument) => [argument]),
    [
      ["--micro-batch-size", plan.microBatchSize],
      ["--global-batch-size", json["train_batch_size"] as number],
    ],
    sequence,
    attentionArguments(job, plan),
    pp > 1 ? [["--pipeline-model-parallel-size", pp]] : [["--no-pipeline-parallel"]],
    plan.recompute ? [["--checkpoint-activations"], ["--deepspeed-activation-checkpointing"]] : [],
    job.precision === "fp32" ? [] : [["--bf16"]],
    ...trainingArguments(job, { knowsWsd: false }).map((argument) => [argument]),
    dataArguments(job, [["--data-path", "data"], TRAINED_WHOLE]),
    job.initialWeights === undefined
      ? checkpointArguments(job)
      : [...checkpointArguments(job, []), ["--load", job.initialWeights], ["--finetune"]],
    [["--deepspeed"], ["--deepspeed_config", "ds_config.json"], ["--zero-stage", stage]],
  ]);
  return [
    {
      name: "pretrain.sh",
      text: `#!/bin/bash\nset -euo pipefail\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n${text}\n`,
    },
    { name: "ds_config.json", text: `${JSON.stringify(json, null, 2)}\n` },
  ];
}
