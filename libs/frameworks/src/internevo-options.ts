import { MODEL_DEFAULTS } from "@internevo/domain";
import type { Fields } from "./fields.ts";
import type { TakenAs } from "./framework.ts";
import {
  BLOCKWISE,
  BUCKETS,
  erring,
  ifEnabled,
  judgesOf,
  KERNELS,
  refused,
  taken,
  takenErring,
  type Judge,
  type Judges,
} from "./judgements.ts";

/*
 * Options of InternEvo's configurations, by the sections that have them: those that are read, those that change neither
 * time nor memory or are judged by their values, and those that no plan stands for. What is in none of them is not known.
 */

interface Section {
  readonly read?: string;
  readonly ignored?: string;
  readonly refused?: Readonly<Record<string, string>>;
  readonly judges?: Judges;
}

const EXPERTS = "makes a mixture of experts; dense decoders are planned for";
const HOST = "moves activations to the host, which is not planned for";
const STANDARD_DEVIATIONS =
  "embedding_init_std attn_wqkv_init_std attn_other_init_std ffn_uplayer_init_std ffn_other_init_std out_head_init_std";

const MODEL: Section = {
  read:
    "checkpoint num_chunks num_attention_heads num_kv_attention_heads hidden_size num_layers " +
    "vocab_size mlp_ratio multiple_of no_bias norm_type layer_norm_epsilon rope_base dtype",
  ignored: `embed_split_hidden embed_grad_scale parallel_output apply_post_layer_norm use_flash_attn qk_interleaved residual_in_fp32 use_swiglu mlp_layer_fusion
    dropout_selective_checkpoint use_scaled_init init_type ${STANDARD_DEVIATIONS} adapt_hf norm_head is_reward num_experts
    attn_drop_rate drop_rate max_position_embeddings rotary_emb_fraction tp_mode sequence_parallel enable_qkv_fusion use_dynamic_ntk_rope`,
  refused: { moe_type: EXPERTS, moe_use_residual: EXPERTS },
  judges: {
    ...judgesOf("attn_drop_rate drop_rate", taken("0", 0)),
    ...judgesOf("mlp_layer_fusion enable_qkv_fusion", taken(KERNELS, false)),
    ...judgesOf(
      STANDARD_DEVIATIONS,
      taken(`${MODEL_DEFAULTS.initStandardDeviation}`, MODEL_DEFAULTS.initStandardDeviation),
    ),
    init_type: taken("normal", "normal"),
    embed_grad_scale: taken("1: the embedding's gradient is not scaled", 1),
    qk_interleaved: taken("False: halves of a head turn together", false),
    use_flash_attn: taken(BLOCKWISE, true),
    parallel_output: taken("True: logits stay split over tensor ranks", true),
    residual_in_fp32: taken("False: residuals in the precision of the model", false),
    dropout_selective_checkpoint: taken("True: norms are computed again", true),
    use_dynamic_ntk_rope: taken("False: positions are not scaled", false),
    norm_head: taken("False: the output layer's rows are not normalised", false),
    is_reward: refused("trains a reward model, which is not planned for", "set it to False", false),
    num_experts: refused(EXPERTS, "leave it out to ask for the rest", 0, 1),
    use_swiglu: refused("makes an MLP without gate, which is not planned for", "set it to True", true),
    apply_post_layer_norm: refused(
      "puts norms behind the layers' parts, which is not planned for",
      "set it to False",
      false,
    ),
    rotary_emb_fraction: refused(
      "leaves a part of each head without positions, which is not planned for",
      "give 1",
      1,
    ),
  },
};

const DATA: Section = {
  read: "seq_len micro_bsz micro_num total_steps",
  ignored: `valid_micro_num valid_every pack_sample_into_one skip_batches min_length min_length_dict train_folder valid_folder empty_cache_and_diag_interval
    diag_outlier_ratio use_packed_dataset type fixed_random_dataset_seqlen num_worker packed_length gradient_accumulation batch_size tokenizer_path
    dataset_type_ids_map rampup_batch_size seed use_shm shm_path is_multimodal`,
  judges: {
    ...judgesOf("train_folder valid_folder", taken("nothing: a job names one file, so that it is left out")),
    rampup_batch_size: refused("changes the batch as training goes on", 'set it to ""', "", false),
    is_multimodal: refused("trains on pictures too, which is not planned for", "set it to False", false),
  },
};

const PARALLEL: Section = {
  read: "zero1 tensor pipeline weight sequence_2D",
  ignored: "sequence_parallel",
  refused: {
    expert: "shares out experts; dense decoders are planned for",
    expert_weight: "shares out experts; dense decoders are planned for",
  },
};

const WEIGHT: Section = {
  read: "size overlap forward_overlap_per",
  ignored: "memory_pool launch_allgather_before",
  judges: {
    memory_pool: taken("the executor's own memory", false),
    launch_allgather_before: taken("the executor's own prefetching", "wo"),
  },
};

export const SEQUENCE_JUDGES: Judges = {
  window_size: taken("1: one ring", 1),
  device_placement_strategy: (value) =>
    typeof value === "object" && value !== null && (value as Record<string, unknown>)["head_first"] === false
      ? { as: "head_first=True: ranks that share heads are neighbours" }
      : null,
};

const LR_SCHEDULER: Section = {
  read: "total_steps init_steps warmup_ratio eta_min",
  ignored: "last_epoch",
  judges: { last_epoch: taken("-1: the schedule begins with the first step", -1) },
};

const BETA2_SCHEDULER: Section = {
  read: "init_beta2 c",
  ignored: "cur_iter",
  judges: { cur_iter: taken("-1: the first step comes first", -1) },
};

const LOSS: Section = {
  ignored: "label_smoothing moe_loss_coeff op_type",
  judges: {
    label_smoothing: taken("0: labels are not smoothed, so that another loss is trained", 0),
    op_type: taken(KERNELS, "py_vocab_parallel"),
  },
};

/** Sections of which nothing changes time, memory or what is trained, with the names in them. */
const WITHOUT_EFFECT: Readonly<Record<string, string>> = {
  ckpt: `enable_save_ckpt save_ckpt_folder load_ckpt_folder load_ckpt_info auto_resume checkpoint_every async_upload async_upload_tmp_folder
    oss_snapshot_freq stop_file_path snapshot_ckpt_folder enable_internevo2hf_ckpt load_model_only_folder`,
  grad_scaler: "fp16 growth_factor backoff_factor max_scale hysteresis",
  "grad_scaler.fp16": "initial_scale min_scale growth_interval",
  monitor: "alert tensorboard",
  "monitor.alert": "enable_feishu_alert feishu_alert_address light_monitor_address alert_file_path",
  "monitor.tensorboard": "queue_max_length",
};

const ROOT_READ =
  "data model parallel model_type adam lr_scheduler hybrid_zero_optimizer loss beta2_scheduler seed";
/** Those that have no effect, whatever their values are. */
const HARMLESS = `JOB_NAME ckpt grad_scaler monitor generation enable_tb tensorboard_folder resume_tb_folder alert_address only_load_lr batch_count
  cudnn_benchmark`;
const JUDGED =
  "use_fp32_norm output_tf32 cudnn_deterministic metric_dtype selective_checkpoint selective_checkpoint_offload cpu_offloading";
const ROOT_REFUSED = { moe: EXPERTS };

const words = (text: string): string[] => text.trim().split(/\s+/);
/** Variables of a configuration that are options. */
export const OPTIONS = [
  ...words(ROOT_READ),
  ...words(HARMLESS),
  ...words(JUDGED),
  ...Object.keys(ROOT_REFUSED),
];
export const HARMLESS_OPTIONS = words(HARMLESS);

/** What depends on whether layers are recomputed, and in which precision. */
function rootJudges(root: Fields, model: Fields): Judges {
  const isRecomputed =
    model.isKnown("checkpoint") && ![undefined, null, false, 0].includes(model.value("checkpoint") as null);
  const isSelective =
    isRecomputed && root.isKnown("selective_checkpoint") && root.value("selective_checkpoint") === true;
  const isFloat32 = /float32|tf32/.test(String(model.isKnown("dtype") ? model.value("dtype") : ""));
  const kept = takenErring(
    "False: attention is computed again too, where layers are recomputed",
    { time: "too long", memory: "too small" },
    false,
  );
  const none: Judge = () => null;
  return {
    use_fp32_norm: taken("False: norms in the precision of the model", false),
    output_tf32: isFloat32
      ? takenErring("False: fp32 without TF32", { time: "too long" }, false)
      : takenErring(
          "False: the output layer in the precision of the model",
          { time: "too short", memory: "too small" },
          false,
        ),
    cudnn_deterministic: taken(KERNELS, false),
    metric_dtype: (value) => (value === "fp32" ? { as: "not given: metrics are not computed" } : null),
    selective_checkpoint: isRecomputed ? kept : none,
    selective_checkpoint_offload: isSelective ? refused(HOST, "set it to False", false) : none,
    cpu_offloading: ifEnabled("enable", refused(HOST, "leave it out")),
  };
}

/** Gradients are summed behind the backward pass, or during it, as one option of a plan says for all that is sent. */
function zeroSection(isOverlapped: boolean): Section {
  const gradients: Judge = (value) => {
    if (typeof value !== "boolean" || value === isOverlapped) return null;
    return isOverlapped
      ? erring("True: gradients are summed during the backward pass, as parallel.weight.overlap says", {
          time: "too short",
        })
      : erring("False: gradients are summed behind the backward pass, as parallel.weight.overlap says", {
          time: "too long",
        });
  };
  return {
    read: "clip_grad_norm",
    ignored:
      "overlap_sync_grad zero_overlap_communication overlap_sync_param reduce_bucket_size use_split_tensor_optim all_gather_size",
    judges: {
      ...judgesOf("overlap_sync_grad zero_overlap_communication", gradients),
      overlap_sync_param: takenErring(
        "False: parameters are sent before the next step begins",
        { time: "too long" },
        false,
      ),
      reduce_bucket_size: taken(BUCKETS, 512 * 1024 * 1024),
      use_split_tensor_optim: taken(BUCKETS, false),
    },
  };
}

/** Faults for what is not known in sections that have no effect. */
function checkHarmless(root: Fields): void {
  for (const [path, names] of Object.entries(WITHOUT_EFFECT)) {
    const [name = "", inner] = path.split(".");
    if (!root.isKnown(name) || !root.has(name)) continue;
    const section = root.section(name);
    if (inner === undefined) section.rest("", names);
    else if (section.isKnown(inner) && section.has(inner)) section.section(inner).rest("", names);
  }
}

/** What of a configuration changes neither time nor memory, or is taken as something else. */
export function withoutEffect(
  {
    root,
    model,
    data,
    parallel,
    weight,
  }: Readonly<Record<"root" | "model" | "data" | "parallel" | "weight", Fields>>,
  takenAs: TakenAs[],
): string[] {
  const rest = (
    fields: Fields,
    { read = "", ignored = "", refused: no = {}, judges = {} }: Section,
  ): string[] => fields.rest(read, ignored, no, judges, takenAs);
  checkHarmless(root);
  return [
    ...rest(root, {
      read: ROOT_READ,
      ignored: `${HARMLESS} ${JUDGED}`,
      refused: ROOT_REFUSED,
      judges: rootJudges(root, model),
    }),
    ...rest(model, MODEL),
    ...rest(data, DATA),
    ...rest(parallel, PARALLEL),
    ...rest(weight, WEIGHT),
    ...rest(root.section("adam"), {
      read: "lr adam_beta1 adam_beta2 adam_eps weight_decay",
      ignored: "adam_beta2_c",
    }),
    ...rest(root.section("lr_scheduler"), LR_SCHEDULER),
    ...rest(root.section("beta2_scheduler"), BETA2_SCHEDULER),
    ...rest(root.section("loss"), LOSS),
    ...rest(
      root.section("hybrid_zero_optimizer"),
      zeroSection(weight.isKnown("overlap") && weight.value("overlap") === true),
    ),
  ];
}
