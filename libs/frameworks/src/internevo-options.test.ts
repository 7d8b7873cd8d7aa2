import { describe, expect, it } from "vitest";
import { planLabel } from "@internevo/domain";
import { faultsOf, read } from "../test/reading.ts";
import { MLP, python } from "../test/small-files.ts";
import { HARMLESS_OPTIONS, OPTIONS } from "./internevo-options.ts";
import type { FrameworkFile } from "./index.ts";

/*
 * Every variable and every key of an InternEvo configuration is read, listed, or an error.
 */

/** A whole configuration, laid out as the project's own are. */
const whole = ({
  type = "LLAMA2",
  model = "num_kv_attention_heads=NUM_KV_ATTENTION_HEAD, no_bias=True, use_flash_attn=True",
  parallel = 'zero1=dict(size=-1), tensor=dict(size=1, mode="mtp"), pipeline=dict(size=1, interleaved_overlap=True), weight=dict(size=1, overlap=True, memory_pool=True)',
  loss = "loss = dict(label_smoothing=0)",
  more = "",
} = {}): FrameworkFile => ({
  name: "7B.py",
  text: `# torchrun --nnodes 2 --nproc-per-node 8
JOB_NAME = "7b_train"
model_type = "${type}"
DO_ALERT = False

VOCAB_SIZE = 32000
SEQ_LEN = 2048
HIDDEN_SIZE = 4096
NUM_ATTENTION_HEAD = 32
NUM_KV_ATTENTION_HEAD = 8
MLP_RATIO = 3.5
NUM_LAYER = 32

MODEL_ONLY_FOLDER = "local:llm_ckpts/xxxx"
SAVE_CKPT_FOLDER = "local:llm_ckpts"
LOAD_CKPT_FOLDER = "local:llm_ckpts/49"
# import os
CHECKPOINT_EVERY = 50
ckpt = dict(
    enable_save_ckpt=False,  # whether
    save_ckpt_folder=SAVE_CKPT_FOLDER,
    load_ckpt_folder="local:llm_ckpts/",
    load_ckpt_info=dict(path=MODEL_ONLY_FOLDER, content=("model",), ckpt_type="internevo"),
    auto_resume=True,
    checkpoint_every=CHECKPOINT_EVERY,
    async_upload=True,
    async_upload_tmp_folder="/dev/shm/internlm_tmp_ckpt/",
    oss_snapshot_freq=int(CHECKPOINT_EVERY / 2),
)

TRAIN_FOLDER = None
VALID_FOLDER = None
data = dict(
    seq_len=SEQ_LEN, micro_num=4, micro_bsz=2, valid_micro_num=4, valid_every=50, pack_sample_into_one=False,
    total_steps=50000, skip_batches="", rampup_batch_size="", min_length=50, train_folder=TRAIN_FOLDER,
    valid_folder=VALID_FOLDER, empty_cache_and_diag_interval=200, diag_outlier_ratio=1.1,
)

grad_scaler = dict(
    fp16=dict(initial_scale=2**16, min_scale=1, growth_interval=1000),
    growth_factor=2, backoff_factor=0.5, max_scale=2**24, hysteresis=2,
)

hybrid_zero_optimizer = dict(
    overlap_sync_grad=True, overlap_sync_param=False, reduce_bucket_size=512 * 1024 * 1024, clip_grad_norm=1.0,
)

${loss}

adam = dict(lr=1e-4, adam_beta1=0.9, adam_beta2=0.95, adam_beta2_c=0, adam_eps=1e-8, weight_decay=0.01)

lr_scheduler = dict(total_steps=data["total_steps"], init_steps=0, warmup_ratio=0.01, eta_min=1e-5, last_epoch=-1)

beta2_scheduler = dict(init_beta2=adam["adam_beta2"], c=adam["adam_beta2_c"], cur_iter=-1)

use_fp32_norm = False
model = dict(
    checkpoint=False, num_chunks=1, num_attention_heads=NUM_ATTENTION_HEAD, embed_split_hidden=True, vocab_size=VOCAB_SIZE,
    embed_grad_scale=1, parallel_output=True, hidden_size=HIDDEN_SIZE, num_layers=NUM_LAYER, mlp_ratio=MLP_RATIO,
    apply_post_layer_norm=False, dtype="torch.bfloat16", norm_type="rmsnorm", layer_norm_epsilon=1e-5, ${model},
)
"""
zero1 parallel (dict): what is said of it here is only a text.
"""
parallel = dict(${parallel})

cudnn_deterministic = False
cudnn_benchmark = False

monitor = dict(
    alert=dict(
        enable_feishu_alert=DO_ALERT, feishu_alert_address=None, light_monitor_address=None,
        alert_file_path=f"llm_alter/{JOB_NAME}_alert.log",
    ),
    tensorboard=dict(queue_max_length=10),
)
${more}
`,
});

describe("whole configurations of InternEvo", () => {
  const ISP =
    'zero1=dict(size=-1), tensor=dict(size=2, mode="isp"), pipeline=dict(size=1, interleaved_overlap=True), weight=dict(size=4, overlap=True, launch_allgather_before="wo", forward_overlap_per="layer"), sequence_2D=dict(enable=False, head_size=2, context_size=4, window_size=1, device_placement_strategy=dict(head_first=True, interleaved=False))';
  const GENERATION =
    'generation = dict(ckpt_folder="/saved", batch_size=1, eos_id=[2, 0], do_sample=True, top_p=1.0)';

  it.each([
    [
      "llama",
      {},
      "b2 n4 a0 pp1 dp16 tp1 sp1 ps1 gs1 oss16 ovinter-layer/intra-layer",
      ["parallel.weight.memory_pool"],
    ],
    [
      "isp",
      {
        type: "INTERNLM2_PUBLIC",
        parallel: ISP,
        model: "no_bias=True, qk_interleaved=False, num_kv_attention_heads=8",
        more: GENERATION,
      },
      "b2 n4 a0 pp1 dp8 tp1 sp2 ps4 gs1 oss4 ovinter-layer/intra-layer",
      ["model_type"],
    ],
    [
      "with a pipeline, and no section for weights",
      {
        parallel:
          'zero1=dict(size=-1, fsdp=False), tensor=dict(size=4, mode="msp"), pipeline=dict(size=2, interleaved_overlap=True), sequence_parallel=True',
        loss: 'loss = dict(label_smoothing=0, op_type="py_vocab_parallel")',
      },
      "b2 n4 a0 pp2 dp2 tp4 sp4 ps1 gs1 oss2",
      ["hybrid_zero_optimizer.overlap_sync_grad"],
    ],
  ])("are read: %s", (_name, parts, label, taken) => {
    const { plan, takenAs, ignored, warnings } = read("internevo", [whole(parts)]);
    expect(planLabel(plan)).toBe(label);
    const folders = ["data.train_folder", "data.valid_folder"];
    expect(
      takenAs
        .filter(({ value, option }) => value !== "missing" && !folders.includes(option))
        .map(({ option }) => option),
    ).toEqual(taken);
    expect(warnings).toEqual([]);
    expect(ignored).toEqual(
      expect.arrayContaining([
        ..."JOB_NAME ckpt grad_scaler monitor use_fp32_norm cudnn_deterministic cudnn_benchmark".split(" "),
        ..."adam.adam_beta2_c lr_scheduler.last_epoch beta2_scheduler.cur_iter loss.label_smoothing".split(
          " ",
        ),
        "hybrid_zero_optimizer.reduce_bucket_size",
      ]),
    );
  });

  it("knows each option once, and asks for none that it does not know", () => {
    expect(new Set(OPTIONS).size).toBe(OPTIONS.length);
    expect(HARMLESS_OPTIONS.filter((name) => !OPTIONS.includes(name))).toEqual([]);
  });
});

describe("what is not known of an InternEvo configuration", () => {
  const faults = (more: string, text = whole({ more }).text) =>
    faultsOf("internevo", { name: "c.py", text }).map((fault) => fault.split(" → ")[0]);
  const within = (section: string, option: string) =>
    faults("", whole().text.replace(new RegExp(`(\\b${section} ?= ?dict\\()`), `$1${option}, `));

  it.each([
    ["ckpt", "no_such_option=1"],
    ["data", "no_such_option=1"],
    ["grad_scaler", "no_such_option=1"],
    ["hybrid_zero_optimizer", "no_such_option=1"],
    ["loss", "no_such_option=1"],
    ["adam", "no_such_option=1"],
    ["lr_scheduler", "no_such_option=1"],
    ["beta2_scheduler", "no_such_option=1"],
    ["model", "no_such_option=1"],
    ["parallel", "no_such_option=1"],
    ["monitor", "no_such_option=1"],
  ])("is a fault in %s", (section, option) => {
    expect(within(section, option)).toEqual([`${section}.no_such_option: is not known`]);
  });

  it("is a fault in sections of sections", () => {
    expect(within("fp16", "no_such_option=1")).toEqual(["grad_scaler.fp16.no_such_option: is not known"]);
    expect(within("alert", "no_such_option=1")).toEqual(["monitor.alert.no_such_option: is not known"]);
    expect(within("zero1", "no_such_option=1")).toEqual(["parallel.zero1.no_such_option: is not known"]);
  });

  it("is a fault as a variable that nothing reads", () => {
    expect(faults("no_such_option = 1")).toEqual(["no_such_option: is not known"]);
    expect(faultsOf("internevo", whole({ more: "adm = dict(lr=1)" }))).toEqual([
      "adm: is not known → did you mean adam? else leave it out, if it changes neither time nor memory",
    ]);
    expect(faults("a, b = 1, 2\nif True:\n    c = 3\nx: int = 4\ny = z = 5\nw = z")).toEqual(
      ["a", "b", "c", "x", "y", "w"].map((name) => `${name}: is not known`),
    );
  });

  it("is nothing where it is the file's own: read, in capitals, or no option at all", () => {
    for (const own of [
      "width = 4\nmodel['multiple_of'] = 64 * width",
      "MORE = 1\n_more = 2",
      "import os\nfrom os import path",
      "def f(a, b=1):\n    c = a\n    return c",
      "e = 1\nE = f'{e}'",
      "g = 1\ndel g",
    ])
      expect([own, faults(own)]).toEqual([own, []]);
  });

  it("is found in a file of many names in time", () => {
    const names = Array.from({ length: 20_000 }, (_, index) => `n${index}`).join(", ");
    const before = performance.now();
    expect(faults(`${names} = SEQ_LEN`).length).toBeGreaterThan(0);
    expect(performance.now() - before).toBeLessThan(10_000);
  });

  it("makes a mixture of experts, which is refused", () => {
    expect(faultsOf("internevo", whole({ more: "moe = dict(top_k=2)" }))).toEqual([
      "moe: makes a mixture of experts; dense decoders are planned for → leave it out to ask for the rest",
    ]);
    expect(faults("", whole({ model: "num_experts=4, no_bias=True" }).text)).toHaveLength(1);
    expect(faults("", whole({ model: "num_experts=1, no_bias=True" }).text)).toEqual([]);
  });
});

describe("what an InternEvo configuration trains or computes otherwise", () => {
  const said = (more: string, model = MLP, parts = {}) => {
    const { takenAs, ignored } = read("internevo", [python(model, { more, ...parts })]);
    return { takenAs, ignored };
  };
  const taken = (option: string, more: string, model?: string, parts = {}) =>
    said(more, model, parts).takenAs.find((each) => each.option === option);

  it("is said of the loss, of norms and of the output layer", () => {
    expect(taken("loss.label_smoothing", "loss = dict(label_smoothing=0.1)")).toEqual({
      option: "loss.label_smoothing",
      value: 0.1,
      as: "0: labels are not smoothed, so that another loss is trained",
    });
    expect(taken("use_fp32_norm", "use_fp32_norm = True")?.as).toBe(
      "False: norms in the precision of the model",
    );
    expect(taken("output_tf32", "output_tf32 = True")?.errs).toEqual({
      time: "too short",
      memory: "too small",
    });
    const float32 = `${MLP}`;
    const text = python(float32, { more: "output_tf32 = True" }).text.replace("bfloat16", "float32");
    expect(
      read("internevo", [{ name: "c.py", text }]).takenAs.find(({ option }) => option === "output_tf32")
        ?.errs,
    ).toEqual({ time: "too long" });
    expect(taken("metric_dtype", 'metric_dtype = "fp32"')?.as).toBe("not given: metrics are not computed");
    expect(taken("model.embed_grad_scale", "", `${MLP}, embed_grad_scale=0.1`)?.as).toBe(
      "1: the embedding's gradient is not scaled",
    );
  });

  const ADAM =
    "adam = dict(lr=1e-4, adam_beta1=0.9, adam_beta2=0.95, adam_beta2_c=0.8, adam_eps=1e-8, weight_decay=0.1)\n";

  it("is said of β2, which a schedule may change", () => {
    const more = `${ADAM}beta2_scheduler = dict(init_beta2=0.9, c=0.8, cur_iter=-1)`;
    expect(read("internevo", [python(MLP, { more })]).optimizer.beta2).toBe(0.9);
    expect(taken("adam.adam_beta2", more)).toEqual({
      option: "adam.adam_beta2",
      value: 0.95,
      as: "0.9, beta2_scheduler.init_beta2, with which InternEvo goes on after the first step",
    });
    expect(taken("beta2_scheduler.c", more)).toEqual({
      option: "beta2_scheduler.c",
      value: 0.8,
      as: "0: β2 stays 0.9, where InternEvo lets it rise with the steps",
    });
    const still = `${ADAM}beta2_scheduler = dict(init_beta2=0.95, c=0)`;
    expect(taken("adam.adam_beta2", still)).toBeUndefined();
    expect(taken("beta2_scheduler.c", still)).toBeUndefined();
    // What is left out is InternEvo's own.
    expect(taken("beta2_scheduler.c", `${ADAM}beta2_scheduler = dict(init_beta2=0.95)`)?.value).toBe(
      "missing",
    );
  });

  it("is said of attention that recomputed layers keep", () => {
    const selective = "selective_checkpoint = True";
    expect(taken("selective_checkpoint", selective, `${MLP}, checkpoint=True`)).toMatchObject({
      as:
        "False: attention is computed again too, where layers are recomputed; the predicted time is too long, and the " +
        "memory too small",
      errs: { time: "too long", memory: "too small" },
    });
    expect(said(selective, `${MLP}, checkpoint=False`).ignored).toContain("selective_checkpoint");
    const offload = python(`${MLP}, checkpoint=True`, {
      more: `${selective}\nselective_checkpoint_offload = True`,
    });
    expect(faultsOf("internevo", offload)).toEqual([
      "selective_checkpoint_offload: moves activations to the host, which is not planned for → set it to False",
    ]);
    const more = "cpu_offloading = dict(enable=True, num_layers=3)";
    expect(faultsOf("internevo", python(MLP, { more }))).toHaveLength(1);
  });

  it("is said of gradients that are summed at another time than the plan says", () => {
    const zero = (value: string) =>
      `hybrid_zero_optimizer = dict(overlap_sync_grad=${value}, clip_grad_norm=1.0)`;
    const option = "hybrid_zero_optimizer.overlap_sync_grad";
    const overlapped = { parallel: "weight=dict(size=1, overlap=True)" };
    expect(taken(option, zero("True"))?.errs).toEqual({ time: "too long" });
    expect(taken(option, zero("False"), MLP, overlapped)?.errs).toEqual({ time: "too short" });
    expect(taken(option, zero("True"), MLP, overlapped)).toBeUndefined();
    expect(said(zero("False")).ignored).toContain(option);
  });

  it("is warned of where InternEvo refuses it: another number of micro-batches in gradient_accumulation", () => {
    const warned = (data: string, parallel = "") =>
      read("internevo", [python(MLP, { data, parallel })]).warnings;
    expect(warned("gradient_accumulation=8")).toEqual([
      {
        field: "data.gradient_accumulation",
        value: 8,
        message: "is not micro_num 4, which counts: InternEvo refuses it without a pipeline",
        remedy: "give 4, or leave it out",
      },
    ]);
    expect(warned("gradient_accumulation=4")).toEqual([]);
    expect(warned("gradient_accumulation=8", "pipeline=dict(size=2)")).toEqual([]);
  });
});
