import {
  checkpointsToKeep,
  chunksOf,
  contextOf,
  ProblemError,
  replicaRanks,
  type Plan,
} from "@internevo/domain";
import type { PlanOfJob } from "@internevo/plan";
import { stringify } from "smol-toml";
import {
  stageLayers,
  withoutFields,
  type ExportedJob,
  type Expression,
  type FrameworkFile,
} from "./framework.ts";
import { wholeHeadsFault } from "./heads.ts";
import {
  decayStepsWithJob,
  decayWithJob,
  headOfItsOwn,
  isPacked,
  notEvaluated,
  otherFormat,
  otherPrecision,
  ownDeviation,
  weightsIn,
  type FieldDecisions,
  type Unsaid,
} from "./job-fields.ts";
import { assertSaid } from "./model-fields.ts";
import { flavorModule, modelName, pipelineFault, TORCHTITAN_UNSAID } from "./torchtitan-model.ts";

/**
 * Every so many layers that `k` of the layers of a stage are recomputed; null when no interval gives as many.
 */
function recomputeInterval(k: number, layers: number): number | null {
  const every = Math.floor(layers / k);
  return every >= 2 && Math.floor(layers / every) === k ? every : null;
}

/** It has no word for these. */
export const TORCHTITAN_NEVER = {
  gateUp: "layers are recomputed whole (selective_ac_option), or keep everything on the GPU",
} as const;

/** What its learning rate does behind its schedule: it does not stay at the least. */
export const TORCHTITAN_BEHIND_DECAY = "a line goes on below 0 behind its decay, and a cosine rises again";

const OWN_TOKENIZER = "torchtitan reads text through its own tokenizer";

const notApart: Unsaid = (job) =>
  isPacked(job)
    ? {
        field: "data.packing",
        value: "documents",
        nearest: "none",
        reason: "documents are told apart by its own tokenizer's end of text, and with flex attention alone",
      }
    : null;

/** What it says of a job. */
export const TORCHTITAN_FIELDS: FieldDecisions = {
  "model.hiddenSize": "said",
  "model.layers": "said",
  "model.heads": "said",
  "model.kvHeads": "said",
  "model.ffnHiddenSize": "said",
  "model.vocabularySize": "said",
  "model.tiedEmbeddings": headOfItsOwn(
    ({ model }) => modelName(model) === "llama3",
    "llama3 has a head of its own",
  ),
  "model.ropeTheta": "said",
  "model.normEpsilon": "said",
  "model.initStandardDeviation": ownDeviation,
  "model.headSize": "said",
  "model.queryKeyNorm": "said",
  "model.queryKeyValueBias": "said",
  "model.slidingWindowTokens": "said",
  "model.ropeScaling": "said",
  sequenceLengthTokens: "said",
  globalBatchTokens: "said",
  precision: otherPrecision(
    "bf16-grad16",
    "bf16",
    "gradients are reduced and kept in 4 bytes (mixed_precision_reduce)",
  ),
  "optimizer.schedule": "said",
  "optimizer.annealingSteps": "said",
  "optimizer.peakLearningRate": "said",
  "optimizer.minLearningRate": "said",
  "optimizer.warmupSteps": "said",
  "optimizer.decaySteps": decayWithJob(TORCHTITAN_BEHIND_DECAY),
  "optimizer.weightDecay": "said",
  "optimizer.beta1": "said",
  "optimizer.beta2": "said",
  "optimizer.epsilon": "said",
  "optimizer.clipGlobalNorm": "said",
  "data.format": otherFormat(null, "c4_test", OWN_TOKENIZER),
  "data.path": "with data.format",
  "data.paths": "with data.format",
  "data.sources": "with data.format",
  "data.packing": notApart,
  "data.endOfDocumentToken": "with data.packing",
  steps: "said",
  seed: "said",
  "cluster.nodes": "said",
  "cluster.gpusPerNode": "said",
  "validation.data": notEvaluated(() => false, OWN_TOKENIZER),
  "validation.everySteps": "with validation.data",
  "validation.batches": "with validation.data",
  "checkpointing.everySteps": "said",
  "checkpointing.keepLast": "said",
  initialWeights: weightsIn("the folder must hold them in the form of Hugging Face, as safetensors"),
};

/** Ranks over which FSDP shards: data-parallel ranks, and all that share a sequence as a ring. */
function sharding(
  plan: Plan,
  reasons: Partial<Record<keyof Plan, string>>,
): Pick<Plan, "parameterSharding" | "gradientSharding" | "optimizerStateSharding"> {
  const {
    parameterSharding: ps,
    optimizerStateSharding: oss,
    pipelineParallel: pp,
    tensorParallel: tp,
  } = plan;
  const replicas = replicaRanks(plan);
  const ring = contextOf(plan);
  // The least number of ranks that is a multiple of the ring, divides the replicas and shards no less.
  const group = (least: number): number => {
    for (let size = Math.max(least, ring); size < replicas; size += 1)
      if (size % ring === 0 && replicas % size === 0) return size;
    return replicas;
  };
  reasons.parameterSharding = "FSDP shards over data-parallel ranks together with all ranks of the ring";
  reasons.optimizerStateSharding =
    "FSDP shards parameters, gradients and optimizer states over the same ranks";
  reasons.gradientSharding = reasons.optimizerStateSharding;
  const whole = ring === 1 && (replicas === 1 || (pp === 1 && tp === 1));
  if (ps === 1 && oss === 1 && whole)
    return { parameterSharding: 1, gradientSharding: 1, optimizerStateSharding: 1 };
  if (ps === 1 && oss === 1)
    reasons.optimizerStateSharding = reasons.gradientSharding =
      "replicas without FSDP (DDP) work only where there is no other parallelism, and a ring always shards";
  if (ps === 1) {
    const size = group(oss === 1 ? 2 : oss);
    return { parameterSharding: 1, gradientSharding: size, optimizerStateSharding: size };
  }
  return { parameterSharding: group(ps * oss), gradientSharding: 1, optimizerStateSharding: 1 };
}

/** Overlap that follows from how parameters are sharded: FSDP prefetches by itself. */
export function overlapOf(plan: Plan): Pick<Plan, "forwardOverlap" | "backwardOverlap"> {
  if (plan.parameterSharding > 1 || plan.optimizerStateSharding > 1)
    return { forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" };
  return { forwardOverlap: "none", backwardOverlap: replicaRanks(plan) > 1 ? "intra-layer" : "none" };
}

/** Layers of a virtual stage; undefined where that cannot make as many virtual stages. */
export function layersPerStage(layers: number, stages: number): number | undefined {
  const each = Math.ceil(layers / stages);
  return Math.ceil(layers / each) === stages ? each : undefined;
}

/** @throws ProblemError `plan-invalid` for a model or a sequence that it has no words for. */
export function assertTorchtitan({ model, sequenceLengthTokens }: ExportedJob): void {
  assertSaid("torchtitan", model, TORCHTITAN_UNSAID);
  // It asks for two chunks of a sequence also where no ranks share it.
  if (sequenceLengthTokens % 2 === 0) return;
  throw new ProblemError("plan-invalid", "torchtitan cannot express the sequence", [
    {
      field: "sequenceLengthTokens",
      value: sequenceLengthTokens,
      message: "torchtitan takes sequences of an even number of tokens only",
      remedy: "export to another framework, or make the sequence even",
    },
  ]);
}

/** @throws ProblemError `plan-invalid` for stages, a sequence or heads of which nothing near can be said. */
function assertPlan(
  { tensorParallel: tp, sequenceParallel: sp, pipelineParallel: pp }: PlanOfJob,
  { model, sequenceLengthTokens }: ExportedJob,
): void {
  const refuse = (field: keyof Plan, value: number, message: string, remedy: string): never => {
    throw new ProblemError("plan-invalid", "torchtitan cannot express the plan", [
      { field: `plan.${field}`, value, message, remedy },
    ]);
  };
  const stages = pp > 1 ? pipelineFault(modelName(model)) : null;
  if (stages !== null)
    refuse(
      "pipelineParallel",
      pp,
      `${stages} (a model with headSize or queryKeyNorm is written as qwen3)`,
      "export to megatron, or choose a plan without a pipeline",
    );
  // Whatever shares a sequence, torchtitan asks for two chunks a rank of it.
  if (sequenceLengthTokens % (2 * sp) !== 0)
    refuse(
      "sequenceParallel",
      sp,
      `torchtitan cuts a sequence into 2 x ${sp} chunks, which do ` +
        `not divide sequenceLengthTokens ${sequenceLengthTokens}`,
      "export to another framework, choose a plan with other " +
        "sequence ranks, or make the sequence a multiple of the chunks",
    );
  const shared = wholeHeadsFault(model, tp);
  if (shared !== null)
    refuse(
      "tensorParallel",
      tp,
      `in torchtitan, ${shared}`,
      "export to megatron, or choose a plan whose tensor ranks divide the heads of keys and values",
    );
}

/** What the plan becomes in torchtitan. @throws ProblemError `plan-invalid` when nothing near can be said. */
export function expressTorchtitan(plan: PlanOfJob, job: ExportedJob): Expression {
  const reasons: Partial<Record<keyof Plan, string>> = { ...TORCHTITAN_NEVER };
  const { tensorParallel: tp, sequenceParallel: sp, pipelineParallel: pp } = plan;
  assertPlan(plan, job);
  reasons.contextParallel =
    "torchtitan shares a sequence as a ring (context_parallel_degree), or by tensor parallelism";
  const ring = tp === 1 ? sp : 1;
  const {
    contextParallel: _ring,
    pipelineChunks: _chunks,
    recomputeLayers,
    ...rest
  } = withoutFields(plan, TORCHTITAN_NEVER);
  const placed: Plan = { ...rest, ...(ring > 1 ? { contextParallel: ring } : {}) };
  const shards = sharding(placed, reasons);
  const chunks = chunksOf(plan);
  const chunked = chunks > 1 && (chunks === 2 || layersPerStage(job.model.layers, pp * chunks) !== undefined);
  reasons.pipelineChunks = `layers cannot be dealt so that a stage has ${chunks} parts (pipeline_parallel_layers_per_stage)`;
  const layers = stageLayers(job.model, plan);
  const k = recomputeLayers ?? 0;
  const every = k > 0 && chunks === 1 && job.model.layers % pp === 0 ? recomputeInterval(k, layers) : null;
  reasons.recompute = reasons.recomputeLayers =
    "every so many layers are recomputed (selective_ac_option), and no interval gives as many";
  const expressed: Plan = {
    ...placed,
    ...shards,
    ...(chunked ? { pipelineChunks: chunks } : {}),
    recompute: plan.recompute || (k > 0 && every === null),
    ...(every === null ? {} : { recomputeLayers: k }),
  };
  reasons.forwardOverlap = reasons.backwardOverlap = "FSDP prefetches by itself, by layers";
  return { plan: { ...expressed, ...overlapOf(expressed) }, reasons };
}

/** Which layers keep their activations; `recomputed` layers of a stage do not. */
function activationCheckpoint(plan: Plan, recomputed: number, layersOfStage: number) {
  if (plan.recompute) return { mode: "full" };
  if (recomputed === 0) return { mode: "none" };
  const option = String(recomputeInterval(recomputed, layersOfStage) ?? 1);
  return { mode: "selective", selective_ac_option: option };
}

/** Checkpoints, and the weights that training begins with; no section where there are neither. */
function checkpointSection({ checkpointing, initialWeights }: ExportedJob) {
  if (checkpointing === null && initialWeights === undefined) return {};
  const saves =
    checkpointing === null
      ? { load_only: true }
      : {
          interval: checkpointing.everySteps,
          keep_latest_k: checkpointsToKeep(checkpointing),
          last_save_model_only: false,
        };
  const loads =
    initialWeights === undefined ? {} : { initial_load_path: initialWeights, initial_load_in_hf: true };
  return { checkpoint: { enable: true, ...saves, ...loads } };
}

/** How the learning rate changes. */
function schedulerSection(job: ExportedJob) {
  const { warmupSteps, schedule, annealingSteps = 0, minLearningRate, peakLearningRate } = job.optimizer;
  const decaySteps = decayStepsWithJob(job);
  return {
    warmup_steps: warmupSteps,
    total_steps: decaySteps,
    // A constant one is any from the peak to the peak.
    decay_type: schedule === "linear" || schedule === "wsd" ? "linear" : "cosine",
    ...(schedule === "wsd" ? { decay_ratio: annealingSteps / decaySteps } : {}),
    min_lr_factor: minLearningRate / peakLearningRate,
  };
}

/** torchtitan's TOML, and the module with the model's sizes. */
export function writeTorchtitan(job: ExportedJob, plan: PlanOfJob): FrameworkFile[] {
  const { optimizer: o, cluster } = job;
  const {
    pipelineParallel: pp,
    dataParallel: dp,
    tensorParallel: tp,
    microBatchSize: b,
    microBatches: n,
    parameterSharding: ps,
    optimizerStateSharding: oss,
  } = plan;
  const ring = contextOf(plan);
  const group = Math.max(ps, oss);
  const replicate = group > 1 ? replicaRanks(plan) / group : dp;
  const chunks = chunksOf(plan);
  const each = layersPerStage(job.model.layers, pp * chunks);
  const k = plan.recomputeLayers ?? 0;
  const kept = oss > 1 ? "never" : "default";
  const document = {
    job: { description: job.name },
    model: { name: modelName(job.model), flavor: "internevo" },
    experimental: { custom_import: "internevo_flavor" },
    optimizer: {
      name: "AdamW",
      lr: o.peakLearningRate,
      beta1: o.beta1,
      beta2: o.beta2,
      eps: o.epsilon,
      weight_decay: o.weightDecay,
    },
    lr_scheduler: schedulerSection(job),
    training: {
      local_batch_size: pp > 1 ? b * n : b,
      global_batch_size: b * n * dp,
      seq_len: job.sequenceLengthTokens,
      // A norm of 0 would make every gradient 0.
      max_norm: o.clipGlobalNorm === 0 ? Infinity : o.clipGlobalNorm,
      steps: job.steps,
      dataset: "c4_test",
      dtype: "float32",
      mixed_precision_param: job.precision === "fp32" ? "float32" : "bfloat16",
      mixed_precision_reduce: "float32",
    },
    parallelism: {
      data_parallel_replicate_degree: replicate,
      data_parallel_shard_degree: group > 1 ? group / ring : 1,
      fsdp_reshard_after_forward: ps > 1 ? "always" : kept,
      tensor_parallel_degree: tp,
      context_parallel_degree: ring,
      ...(ring > 1 ? { context_parallel_rotate_method: "alltoall" } : {}),
      pipeline_parallel_degree: pp,
      ...(pp > 1
        ? {
            pipeline_parallel_schedule: chunks > 1 ? "Interleaved1F1B" : "1F1B",
            pipeline_parallel_microbatch_size: b,
            pipeline_parallel_first_stage_less_layers: 0,
            pipeline_parallel_last_stage_less_layers: 0,
            ...(chunks > 1 && each !== undefined ? { pipeline_parallel_layers_per_stage: each } : {}),
          }
        : {}),
    },
    activation_checkpoint: activationCheckpoint(plan, k, stageLayers(job.model, plan)),
    debug: { seed: job.seed },
    ...checkpointSection(job),
  };
  const start =
    `# CONFIG_FILE=<this file> torchrun --nnodes ${cluster.nodes} --nproc-per-node ` +
    `${cluster.gpusPerNode} -m torchtitan.train --job.config_file <this file>\n`;
  return [
    { name: "train.toml", text: `${start}${stringify(document)}\n` },
    { name: "internevo_flavor.py", text: flavorModule(job.model) },
  ];
}
