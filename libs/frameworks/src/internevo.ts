import { chunksOf, contextOf, headRanks, replicaRanks, type Plan } from "@internevo/domain";
import type { PlanOfJob } from "@internevo/plan";
import {
  scheduleNotSaid,
  stageLayers,
  withoutFields,
  type ExportedJob,
  type Expression,
  type FrameworkFile,
  type Inexpressible,
} from "./framework.ts";
import { assertSaid, unsaidDeviation, type Unsaid } from "./model-fields.ts";

/** What InternEvo's LLAMA2 has no words for. */
const INTERNEVO_UNSAID: Unsaid = {
  headSize: "its heads are hidden_size / num_attention_heads elements each",
  queryKeyNorm: "it has no norms of heads",
  queryKeyValueBias: "no_bias is of all products",
  slidingWindowTokens: "its attention sees all keys",
  ropeScaling: "it has rope_base, and no scaling of it",
};

/** It has no word for these. */
export const INTERNEVO_NEVER = {
  gateUp: "model.checkpoint recomputes whole layers, and nothing waits in the host's memory",
} as const;

/** @throws ProblemError `plan-invalid` for a model that it has no words for. */
export const assertInternEvo = (job: ExportedJob): void =>
  assertSaid("InternEvo's LLAMA2", job.model, INTERNEVO_UNSAID);

/** What the plan becomes in InternEvo. */
export function expressInternEvo(plan: PlanOfJob, job: ExportedJob): Expression {
  const reasons: Partial<Record<keyof Plan, string>> = { ...INTERNEVO_NEVER };
  const beyond: Inexpressible[] = [];
  const tensor = plan.tensorParallel > 1;
  const { parameterSharding: ps, gradientSharding: gs, optimizerStateSharding: oss } = plan;
  reasons.gradientSharding = "gradients stay whole on the ranks of parallel.zero1";
  if (tensor) {
    reasons.parameterSharding =
      "parameters are sharded (parallel.weight) only without tensor parallelism (mode isp)";
    reasons.optimizerStateSharding = "takes the place of the sharding of parameters";
    reasons.gradientSharding =
      "gradients stay whole on the ranks of parallel.zero1, and parallel.weight, " +
      "which shards them, is only without tensor parallelism (mode isp)";
  } else if (gs > 1) {
    reasons.gradientSharding =
      reasons.parameterSharding =
      reasons.optimizerStateSharding =
        "gradients are sharded as parameters are (parallel.weight), and stay whole on the ranks of parallel.zero1";
  }
  const granularity = plan.forwardOverlap === "intra-layer" ? "intra-layer" : "inter-layer";
  const overlapped = plan.forwardOverlap !== "none" || plan.backwardOverlap !== "none";
  reasons.forwardOverlap =
    "parallel.weight.overlap is on (the next layer, or module, is gathered during this one) or off";
  reasons.backwardOverlap =
    "parallel.weight.overlap is on (the next module is gathered during this one) or off";
  const layers = stageLayers(job.model, plan);
  const k = plan.recomputeLayers ?? 0;
  const fractional = k > 0 && chunksOf(plan) === 1 && job.model.layers % plan.pipelineParallel === 0;
  if (k > 0 && !fractional)
    reasons.recompute = reasons.recomputeLayers =
      "model.checkpoint is a share of the layers of each chunk, the same for stages of different lengths";
  const { recomputeLayers: _layers, ...rest } = withoutFields(plan, INTERNEVO_NEVER);
  const expressed: Plan = {
    ...rest,
    parameterSharding: tensor ? 1 : ps * gs,
    gradientSharding: 1,
    optimizerStateSharding: tensor ? Math.min(ps * oss, replicaRanks(plan)) : oss / gs,
    forwardOverlap: overlapped ? granularity : "none",
    backwardOverlap: overlapped ? "intra-layer" : "none",
    recompute: plan.recompute || (k > 0 && !fractional),
    ...(fractional && k < layers ? { recomputeLayers: k } : {}),
  };
  if (job.precision === "bf16")
    beyond.push({
      field: "precision",
      value: job.precision,
      nearest: "bf16-grad16",
      reason: "gradients are kept in the precision of the parameters",
    });
  beyond.push(...unsaidDeviation(job.model));
  if (job.model.tiedEmbeddings)
    beyond.push({
      field: "model.tiedEmbeddings",
      value: true,
      nearest: false,
      reason: "LLAMA2 has a head of its own",
    });
  // A constant one is a cosine from the peak to the peak.
  const { schedule } = job.optimizer;
  if (schedule === "linear" || schedule === "wsd") beyond.push(scheduleNotSaid(job.optimizer));
  if (job.data !== null && job.data.format !== "internevo")
    beyond.push({
      field: "data",
      value: job.data.format,
      nearest: "random data (train_folder None)",
      reason: "data must be tokenized by InternEvo's tools/tokenizer.py",
    });
  return { plan: expressed, reasons, beyond };
}

/**
 * mlp_ratio and multiple_of that make the inner width: InternEvo rounds hidden_size * mlp_ratio up to the
 * multiple.
 */
export function mlpRatio(hiddenSize: number, ffnHiddenSize: number): { ratio: string; multiple: number } {
  let multiple = 256;
  while (ffnHiddenSize % multiple !== 0) multiple /= 2;
  return {
    ratio: multiple === 1 ? `${ffnHiddenSize}.5 / ${hiddenSize}` : `${ffnHiddenSize} / ${hiddenSize}`,
    multiple,
  };
}

const flag = (value: boolean): string => (value ? "True" : "False");
const float = (value: number): string => (Number.isInteger(value) ? value.toFixed(1) : String(value));

/** The share of recomputed layers: half a layer more, so that rounding down gives their number. */
const checkpoint = (plan: Plan, layers: number): string =>
  plan.recompute ? "True" : partialCheckpoint(plan, layers);
const partialCheckpoint = ({ recomputeLayers }: Plan, layers: number): string =>
  recomputeLayers === undefined ? "False" : `${recomputeLayers}.5 / ${layers}`;

/** The share of a schedule that its warm-up is: half a step more, as in {@link checkpoint}. */
export const warmupRatio = (warmup: number, decay: number): string => `${warmup}.5 / ${decay}`;

/** InternEvo's configuration, a Python module. */
export function writeInternEvo(job: ExportedJob, plan: PlanOfJob): FrameworkFile[] {
  const text = [dataText(job, plan), modelText(job, plan), parallelText(plan), trainingText(job, plan)].join(
    "\n",
  );
  return [{ name: "config.py", text }];
}

function dataText(job: ExportedJob, plan: PlanOfJob): string {
  const folder =
    job.data?.format === "internevo" ? JSON.stringify(job.data.path.replace(/\/[^/]*$/, "")) : "None";
  return `# torchrun --nnodes ${job.cluster.nodes} --nproc-per-node ${job.cluster.gpusPerNode} train.py --config <this file> --launcher torch
JOB_NAME = ${JSON.stringify(job.name)}
model_type = "LLAMA2"
DO_ALERT = False

ckpt = dict(enable_save_ckpt=False, auto_resume=False, load_ckpt_info=None)

data = dict(
    seq_len=${job.sequenceLengthTokens},
    micro_bsz=${plan.microBatchSize},
    micro_num=${plan.microBatches},
    total_steps=${job.steps},
    pack_sample_into_one=False,
    skip_batches="",
    rampup_batch_size="",
    train_folder=${folder},
    valid_folder=None,
    valid_every=0,
)
`;
}

function modelText({ model, precision }: ExportedJob, plan: PlanOfJob): string {
  const { ratio, multiple } = mlpRatio(model.hiddenSize, model.ffnHiddenSize);
  return `model = dict(
    checkpoint=${checkpoint(plan, stageLayers(model, plan))},
    num_chunks=${chunksOf(plan)},
    num_attention_heads=${model.heads},
    num_kv_attention_heads=${model.kvHeads},
    hidden_size=${model.hiddenSize},
    num_layers=${model.layers},
    vocab_size=${model.vocabularySize},
    mlp_ratio=${ratio},
    multiple_of=${multiple},
    no_bias=True,
    norm_type="rmsnorm",
    layer_norm_epsilon=${model.normEpsilon},
    rope_base=${model.ropeTheta},
    embed_split_hidden=True,
    embed_grad_scale=1,
    parallel_output=True,
    apply_post_layer_norm=False,
    use_flash_attn=True,
    dtype="${precision === "fp32" ? "torch.float32" : "torch.bfloat16"}",
)
`;
}

function parallelText(plan: PlanOfJob): string {
  const tensor = plan.tensorParallel > 1;
  const overlap = flag(plan.forwardOverlap !== "none");
  const ring = contextOf(plan);
  return `parallel = dict(
    tensor=dict(size=${plan.sequenceParallel}, mode="${tensor ? "msp" : "isp"}"),
    weight=dict(size=${plan.parameterSharding}, overlap=${overlap}, forward_overlap_per="${plan.forwardOverlap === "intra-layer" ? "module" : "layer"}"),
    zero1=dict(size=${plan.optimizerStateSharding}),
    pipeline=dict(size=${plan.pipelineParallel}, interleaved_overlap=True),
${ring > 1 ? `    sequence_2D=dict(enable=True, head_size=${headRanks(plan)}, context_size=${ring}, window_size=1, device_placement_strategy=dict(head_first=True, interleaved=False)),\n` : ""})
`;
}

function trainingText({ optimizer: o, seed }: ExportedJob, plan: PlanOfJob): string {
  return `hybrid_zero_optimizer = dict(
    overlap_sync_grad=${flag(plan.forwardOverlap !== "none")},
    overlap_sync_param=False,
    reduce_bucket_size=512 * 1024 * 1024,
    clip_grad_norm=${float(o.clipGlobalNorm)},
)

adam = dict(lr=${o.peakLearningRate}, adam_beta1=${o.beta1}, adam_beta2=${o.beta2}, adam_beta2_c=0, adam_eps=${o.epsilon}, weight_decay=${o.weightDecay})
lr_scheduler = dict(total_steps=${o.decaySteps}, init_steps=0, warmup_ratio=${warmupRatio(o.warmupSteps, o.decaySteps)}, eta_min=${o.minLearningRate}, last_epoch=-1)
beta2_scheduler = dict(init_beta2=adam["adam_beta2"], c=adam["adam_beta2_c"], cur_iter=-1)
grad_scaler = dict(
    fp16=dict(initial_scale=2**16, min_scale=1, growth_interval=1000),
    growth_factor=2,
    backoff_factor=0.5,
    max_scale=2**24,
    hysteresis=2,
)
loss = dict(label_smoothing=0)
use_fp32_norm = False
seed = ${seed}
cudnn_deterministic = False
cudnn_benchmark = False
`;
}
