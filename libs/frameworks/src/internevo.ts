import { chunksOf, contextOf, headRanks, replicaRanks, type Plan } from "@internevo/domain";
import type { PlanOfJob } from "@internevo/plan";
import {
  stageLayers,
  withoutFields,
  type ExportedJob,
  type Expression,
  type FrameworkFile,
} from "./framework.ts";
import {
  CHECKPOINT_FOLDER,
  decayStepsWithJob,
  decayWithJob,
  headOfItsOwn,
  isPacked,
  keepsAll,
  notEvaluated,
  otherBatches,
  otherFormat,
  otherPrecision,
  ownDeviation,
  schedulesLacking,
  weightsIn,
  type FieldDecisions,
  type Unsaid,
} from "./job-fields.ts";
import { assertSaid, type Unsaid as UnsaidModel } from "./model-fields.ts";

/** What InternEvo's LLAMA2 has no words for. */
const INTERNEVO_UNSAID: UnsaidModel = {
  kvHeads: undefined,
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

/** What its learning rate does behind its schedule: it does not stay at the least. */
export const INTERNEVO_BEHIND_DECAY = "its cosine rises again behind its decay";

/** Data and held-out data that it reads itself. */
const isEvaluated = ({ validation }: ExportedJob): boolean => validation?.data.format === "internevo";

const RANDOM_DATA = "random data (train_folder None)";

const otherData: Unsaid = (job, plan) =>
  job.data?.format === "mixture"
    ? {
        field: "data",
        value: "mixture",
        nearest: RANDOM_DATA,
        reason: "it reads one folder, and has no weights for several",
      }
    : otherFormat(
        "internevo",
        RANDOM_DATA,
        "data must be tokenized by InternEvo's tools/tokenizer.py",
      )(job, plan);

/** Names of a path, without detours. */
function namesOf(path: string): string[] {
  const names: string[] = [];
  for (const name of path.split("/"))
    if (name === "..") names.pop();
    else if (name !== "" && name !== ".") names.push(name);
  return names;
}

/**
 * The folder above a file's own: InternEvo takes the entries of train_folder as kinds of data, and looks for
 * the name of one among the folders of each file. Null where there is none, or where it is the root.
 */
function trainFolder(path: string): string | null {
  const above = namesOf(path).slice(0, -2);
  return above.length === 0 ? null : `${path.startsWith("/") ? "/" : ""}${above.join("/")}`;
}

/** What else is read than the file, or why nothing is. */
const folderOfKinds: Unsaid = ({ data, validation }) => {
  if (data?.format !== "internevo") return null;
  const said = { field: "data.path", value: data.path };
  const folder = trainFolder(data.path);
  const name = namesOf(data.path).at(-1) ?? "";
  if (folder === null)
    return {
      ...said,
      nearest: RANDOM_DATA,
      reason:
        "it takes the folders in train_folder as kinds of data, so that a file needs two folders above it: " +
        `lay it as /data/${name.replace(/\.bin$/, "")}/${name}`,
    };
  const held = validation?.data.format === "internevo" ? namesOf(validation.data.path).join("/") : "";
  const also = held.startsWith(`${namesOf(folder).join("/")}/`) ? ", also the held-out data" : "";
  return {
    ...said,
    nearest: data.path,
    reason:
      `it reads every .bin below train_folder ${folder}${also}; ` +
      "the folders in it are kinds of data, and each file lies in one of them",
  };
};

/** Documents that share attention: each ends the loss all the same. */
const lossEnds: Unsaid = (job) =>
  isPacked(job) || job.data?.format !== "internevo"
    ? null
    : {
        field: "data.packing",
        value: "none",
        nearest: "none",
        reason: "the last token of each document is left out of the loss",
      };

const documentsAreLines: Unsaid = (job) =>
  !isPacked(job) || job.data?.endOfDocumentToken === undefined
    ? null
    : {
        field: "data.endOfDocumentToken",
        value: job.data.endOfDocumentToken,
        nearest: null,
        reason: "documents are the lines of the data",
      };

/** What it says of a job. */
export const INTERNEVO_FIELDS: FieldDecisions = {
  "model.hiddenSize": "said",
  "model.layers": "said",
  "model.heads": "said",
  "model.kvHeads": "said",
  "model.ffnHiddenSize": "said",
  "model.vocabularySize": "said",
  "model.tiedEmbeddings": headOfItsOwn(() => true, "LLAMA2 has a head of its own"),
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
  precision: otherPrecision("bf16", "bf16-grad16", "gradients are kept in the precision of the parameters"),
  // A constant one is a cosine from the peak to the peak.
  "optimizer.schedule": schedulesLacking("linear", "wsd"),
  "optimizer.annealingSteps": "with optimizer.schedule",
  "optimizer.peakLearningRate": "said",
  "optimizer.minLearningRate": "said",
  "optimizer.warmupSteps": "said",
  "optimizer.decaySteps": decayWithJob(INTERNEVO_BEHIND_DECAY),
  "optimizer.weightDecay": "said",
  "optimizer.beta1": "said",
  "optimizer.beta2": "said",
  "optimizer.epsilon": "said",
  "optimizer.clipGlobalNorm": "said",
  "data.format": otherData,
  "data.path": folderOfKinds,
  "data.paths": "with data.format",
  "data.sources": "with data.format",
  "data.packing": lossEnds,
  "data.endOfDocumentToken": documentsAreLines,
  steps: "said",
  seed: "said",
  "cluster.nodes": "said",
  "cluster.gpusPerNode": "said",
  "validation.data": notEvaluated(
    isEvaluated,
    "held-out data must be tokenized by InternEvo's tools/tokenizer.py",
  ),
  "validation.everySteps": "with validation.data",
  "validation.batches": otherBatches(
    isEvaluated,
    "all",
    "each evaluation takes all of the held-out data, and none is before training or behind it",
  ),
  "checkpointing.everySteps": "said",
  "checkpointing.keepLast": keepsAll,
  initialWeights: weightsIn(
    "the folder must hold them as a checkpoint of its own (ckpt_type internevo), and a run that is started again " +
      "begins anew; to go on from the newest checkpoint, set auto_resume=True",
  ),
};

/** @throws ProblemError `plan-invalid` for a model that it has no words for. */
export const assertInternEvo = (job: ExportedJob): void =>
  assertSaid("InternEvo's LLAMA2", job.model, INTERNEVO_UNSAID);

/** What the plan becomes in InternEvo. */
export function expressInternEvo(plan: PlanOfJob, job: ExportedJob): Expression {
  const reasons: Partial<Record<keyof Plan, string>> = { ...INTERNEVO_NEVER };
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
  return { plan: expressed, reasons };
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

/** The folder of a file, which the program reads whole. */
const folderOf = (path: string): string => JSON.stringify(path.replace(/\/[^/]*$/, ""));

/** The folder that training reads: each of its entries is a kind of data; null where it is not given. */
const trainFolderText = ({ data }: ExportedJob): string | null => {
  const folder = data?.format === "internevo" ? trainFolder(data.path) : null;
  return folder === null ? null : JSON.stringify(folder);
};

/** Where training begins and what it keeps. It goes on from its newest checkpoint, unless weights are given. */
function checkpointText({ checkpointing, initialWeights }: ExportedJob): string {
  const save =
    checkpointing === null
      ? "enable_save_ckpt=False"
      : `enable_save_ckpt=True, save_ckpt_folder="local:${CHECKPOINT_FOLDER}", checkpoint_every=${checkpointing.everySteps}`;
  const load =
    initialWeights === undefined
      ? "None"
      : `dict(path=${JSON.stringify(`local:${initialWeights}`)}, content=("model",), ckpt_type="internevo")`;
  const resumes = checkpointing !== null && initialWeights === undefined;
  return `ckpt = dict(${save}, auto_resume=${flag(resumes)}, load_ckpt_info=${load})`;
}

function dataText(job: ExportedJob, plan: PlanOfJob): string {
  const { validation } = job;
  const held = validation?.data.format === "internevo" ? folderOf(validation.data.path) : null;
  return `# torchrun --nnodes ${job.cluster.nodes} --nproc-per-node ${job.cluster.gpusPerNode} train.py --config <this file> --launcher torch
JOB_NAME = ${JSON.stringify(job.name)}
model_type = "LLAMA2"
DO_ALERT = False

${checkpointText(job)}

data = dict(
    seq_len=${job.sequenceLengthTokens},
    micro_bsz=${plan.microBatchSize},
    micro_num=${plan.microBatches},
    total_steps=${job.steps},
    pack_sample_into_one=${flag(!isPacked(job))},
    skip_batches="",
    rampup_batch_size="",
    train_folder=${trainFolderText(job) ?? "None"},
    valid_folder=${held ?? "None"},
    valid_every=${held === null ? 0 : validation?.everySteps},
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

function trainingText(job: ExportedJob, plan: PlanOfJob): string {
  const { optimizer: o, seed } = job;
  const decaySteps = decayStepsWithJob(job);
  return `hybrid_zero_optimizer = dict(
    overlap_sync_grad=${flag(plan.forwardOverlap !== "none")},
    overlap_sync_param=False,
    reduce_bucket_size=512 * 1024 * 1024,
    clip_grad_norm=${float(o.clipGlobalNorm)},
)

adam = dict(lr=${o.peakLearningRate}, adam_beta1=${o.beta1}, adam_beta2=${o.beta2}, adam_beta2_c=0, adam_eps=${o.epsilon}, weight_decay=${o.weightDecay})
lr_scheduler = dict(total_steps=${decaySteps}, init_steps=0, warmup_ratio=${warmupRatio(o.warmupSteps, decaySteps)}, eta_min=${o.minLearningRate}, last_epoch=-1)
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
