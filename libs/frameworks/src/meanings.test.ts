import { spawnSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { parsePlanLabel, ProblemError } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { jobOf } from "../test/random-plans.ts";
import { read } from "../test/reading.ts";
import { DEEPSPEED, MLP, python, script, SIZES, toml } from "../test/small-files.ts";
import { exportConfiguration, FRAMEWORKS, type Framework, type FrameworkFile } from "./index.ts";
import { warmupRatio } from "./internevo.ts";

/*
 * What an option means in its framework is what is read and written here.
 */

const PLAN = "b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss128 ovnone/intra-layer";

const exported = (framework: Framework, written: Record<string, unknown>) => {
  const job = jobOf({ precision: framework === "internevo" ? "bf16-grad16" : "bf16", ...written });
  return exportConfiguration(framework, job, planOfJob(parsePlanLabel(PLAN), job));
};

/** The faults of a refused import, as `field value: message → remedy`; none where it is read. */
function faultsOf(framework: Framework, ...files: FrameworkFile[]): string[] {
  try {
    read(framework, files);
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    return error.details.map(
      ({ field, value, message, remedy }) => `${field} ${JSON.stringify(value)}: ${message} → ${remedy}`,
    );
  }
  return [];
}

describe("no clipping of gradients", () => {
  it.each(FRAMEWORKS)(
    "is written for %s as what leaves gradients as they are, and read back",
    (framework) => {
      const { files, inexpressible } = exported(framework, { optimizer: { clipGlobalNorm: 0 } });
      expect(inexpressible.filter(({ field }) => field.startsWith("optimizer."))).toEqual([]);
      const text = files.map((file) => file.text).join("\n");
      expect(text).toMatch(
        {
          internevo: /clip_grad_norm=0\.0/,
          megatron: /--clip-grad 0 /,
          deepspeed: /--clip-grad 0 [^]*"gradient_clipping": 0,/,
          torchtitan: /^max_norm = inf$/m,
        }[framework],
      );
      expect(read(framework, files).optimizer.clipGlobalNorm).toBe(0);
    },
  );

  it("is no norm of 0 in torchtitan, which makes every gradient 0", () => {
    expect(faultsOf("torchtitan", toml("[training]\nmax_norm = 0"))).toEqual([
      "training.max_norm 0: makes every gradient 0 → give inf, which clips none",
    ]);
  });
});

describe("a schedule of the learning rate", () => {
  const written = (framework: Framework, optimizer: Record<string, unknown>) => {
    const { files, inexpressible } = exported(framework, { steps: 100, optimizer });
    return {
      text: files.map(({ text }) => text).join("\n"),
      named: inexpressible.filter(({ field }) => field === "optimizer.schedule"),
    };
  };
  const WSD = { schedule: "wsd", annealingSteps: 25 };

  it("is written for frameworks that have it", () => {
    for (const framework of ["megatron", "deepspeed"] as const)
      for (const schedule of ["cosine", "linear", "constant"]) {
        const { text, named } = written(framework, { schedule });
        expect(text).toContain(`--lr-decay-style ${schedule}`);
        expect(named).toEqual([]);
      }
    const { text, named } = written("megatron", WSD);
    expect(text).toMatch(/--lr-decay-style WSD[^-]*--lr-wsd-decay-style linear[^-]*--lr-wsd-decay-iters 25/);
    expect(named).toEqual([]);
    const titan = (optimizer: Record<string, unknown>) => {
      const { text: toml, named: lost } = written("torchtitan", optimizer);
      expect(lost).toEqual([]);
      return toml.match(/^(?:decay_type|decay_ratio|min_lr_factor) = .*$/gm);
    };
    expect(titan({ schedule: "linear" })).toEqual(['decay_type = "linear"', "min_lr_factor = 0.1"]);
    expect(titan({ schedule: "constant" })).toContain("min_lr_factor = 1");
    expect(titan(WSD)).toEqual(['decay_type = "linear"', "decay_ratio = 0.25", "min_lr_factor = 0.1"]);
    expect(written("internevo", { schedule: "constant" }).text).toContain("eta_min=0.0003");
  });

  it("is named where they lack it, and a cosine is written", () => {
    for (const [framework, optimizer] of [
      ["deepspeed", WSD],
      ["internevo", WSD],
      ["internevo", { schedule: "linear" }],
    ] as const)
      expect(written(framework, optimizer).named).toMatchObject([
        { value: optimizer.schedule, nearest: "cosine" },
      ]);
    expect(written("deepspeed", WSD).text).toContain("--lr-decay-style cosine");
  });
});

describe("a warm-up as long as the decay", () => {
  const warmup = (framework: Framework, written: Record<string, unknown>) => {
    const { files, inexpressible } = exported(framework, written);
    return {
      named: inexpressible.filter(({ field }) => field.startsWith("optimizer.")),
      text: files[0]?.text.match(/--lr-(?:decay|warmup)-iters \d+/g),
      read: read(framework, files).optimizer,
    };
  };

  it.each(["megatron", "deepspeed"] as const)("is written for %s as one that it starts with", (framework) => {
    for (const [written, value] of [
      [{ steps: 1 }, 1],
      [{ steps: 100, optimizer: { warmupSteps: 50, decaySteps: 50 } }, 50],
    ] as const) {
      const { named, text, read: back } = warmup(framework, written);
      expect(named).toMatchObject([{ field: "optimizer.warmupSteps", value, nearest: value - 1 }]);
      expect(named[0]?.reason).toMatch(/ends at its start/);
      expect(text).toEqual([`--lr-decay-iters ${value}`, `--lr-warmup-iters ${value - 1}`]);
      expect(back).toMatchObject({ warmupSteps: value - 1, decaySteps: value });
    }
    const { named } = warmup(framework, { steps: 100, optimizer: { warmupSteps: 49, decaySteps: 50 } });
    expect(named).toEqual([]);
  });

  it("is warned of where it is read, and said where it is cut to what a job has", () => {
    const { warnings } = read("megatron", script("--train-iters 10 --lr-warmup-iters 10"));
    expect(warnings.map(({ field, value, message }) => `${field} ${String(value)} ${message}`)).toEqual([
      "--lr-warmup-iters 10 is not less than the 10 iterations of the decay, which Megatron-LM refuses",
    ]);
    const schedule = (more: string) => {
      const { takenAs: all, ...rest } = read("megatron", script(more));
      return { ...rest, takenAs: all.filter(({ value }) => value !== "missing") };
    };
    const { takenAs, optimizer } = schedule("--train-iters 10 --lr-decay-iters 500 --lr-warmup-iters 40");
    expect(takenAs).toEqual([
      { option: "--lr-warmup-iters", value: 40, as: "10 steps: a job's warm-up ends with its 10 steps" },
    ]);
    expect(optimizer.warmupSteps).toBe(10);
    expect(schedule("--lr-decay-iters 500 --lr-warmup-iters 200").takenAs).toEqual([
      { option: "--lr-warmup-iters", value: 200, as: "100 steps: a job's warm-up ends with its 100 steps" },
    ]);
    expect(schedule("--train-iters 500 --lr-decay-iters 500 --lr-warmup-iters 40").takenAs).toEqual([]);
    const titan = toml("[training]\nsteps = 10\n[lr_scheduler]\nwarmup_steps = 200");
    expect(read("torchtitan", [titan]).takenAs).toContainEqual({
      option: "lr_scheduler.warmup_steps",
      value: 200,
      as: "10 steps: a job's warm-up ends with its 10 steps",
    });
  });
});

/** An InternEvo configuration of one model. */

describe("InternEvo's warm-up, a share of the schedule", () => {
  it("is written so that its rounding down gives the steps", () => {
    const most = 400;
    const ratios: string[] = [];
    for (let decay = 1; decay <= most; decay += 1)
      for (let warmup = 0; warmup <= decay; warmup += 1) ratios.push(warmupRatio(warmup, decay));
    const { stdout, stderr } = spawnSync(
      "python3",
      [
        "-I",
        "-c",
        "import sys\nr = iter(sys.stdin.read().split('\\n'))\n" +
          `print(sum(int(d * eval(next(r))) != w for d in range(1, ${most + 1}) for w in range(d + 1)))`,
      ],
      { input: ratios.join("\n"), encoding: "utf8" },
    );
    expect([stdout.trim(), stderr]).toEqual(["0", ""]);
  }, 60_000);

  it("is read as InternEvo computes it", () => {
    const steps = (ratio: string) =>
      read("internevo", [
        python(MLP, {
          data: "total_steps=200",
          more: `lr_scheduler = dict(total_steps=100, warmup_ratio=${ratio})`,
        }),
      ]).optimizer.warmupSteps;
    expect([steps("29 / 100"), steps("0.29"), steps("0.015"), steps(warmupRatio(29, 100))]).toEqual([
      28, 28, 1, 29,
    ]);
  });
});

describe("InternEvo's pipeline", () => {
  it("of another schedule than 1F1B is refused", () => {
    const faults = (pipeline: string) =>
      faultsOf("internevo", python(MLP, { parallel: `pipeline=dict(${pipeline})` }));
    expect(faults('size=4, mode="ZBV", zero_bubble=True')).toEqual([
      'parallel.pipeline.mode "ZBV": is a schedule that is not planned for → use mode="1F1B"',
      "parallel.pipeline.zero_bubble true: is a schedule that is not planned for → set it to False",
    ]);
    expect(faults('size=4, mode="ZBH1"')).toHaveLength(1);
    expect(faults("size=4, zero_bubble=True")).toHaveLength(1);
    expect(faults('size=4, mode="1F1B", zero_bubble=False')).toEqual([]);
    expect(faults('size=1, mode="ZBH1"')).toEqual([]);
  });
});

describe("what an InternEvo model leaves out", () => {
  const model = (text: string, type = "LLAMA2") => read("internevo", [python(text, { type })]);

  it("is as wide as InternEvo's defaults make it", () => {
    const width = (text: string) => model(text).model.ffnHiddenSize;
    expect(width("no_bias=True")).toBe(4096);
    expect(width("no_bias=True, multiple_of=300")).toBe(4200);
    expect(width("no_bias=True, mlp_ratio=8 / 3")).toBe(2816);
    expect(width("no_bias=True, mlp_ratio=8 / 3, multiple_of=1")).toBe(2730);
  });

  it("has biases unless it says none, which is said", () => {
    const biases = (text: string, type?: string) =>
      model(text, type).takenAs.filter(({ as }) => as.includes("biases"));
    expect(biases("mlp_ratio=4")).toEqual([
      { option: "model.no_bias", value: "missing", as: "True: without biases" },
    ]);
    expect(biases("mlp_ratio=4, no_bias=False")).toEqual([
      { option: "model.no_bias", value: false, as: "True: without biases" },
    ]);
    expect(biases("mlp_ratio=4, no_bias=True", "INTERNLM2")).toEqual([]);
    // InternLM's attention has biases whatever is said.
    expect(biases("mlp_ratio=4, no_bias=True", "INTERNLM")).toEqual([
      { option: "model_type", value: "INTERNLM", as: "a LLaMA decoder of the same sizes, without biases" },
    ]);
  });

  it("has as many heads of keys in InternLM as of queries", () => {
    expect(faultsOf("internevo", python(`${MLP}, num_kv_attention_heads=2`, { type: "INTERNLM" }))).toEqual([
      "model.num_kv_attention_heads 2: has no effect with model_type INTERNLM: it has 8 → " +
        "leave it out, or use model_type INTERNLM2 or LLAMA2",
    ]);
  });
});

describe("torchtitan's module of sizes", () => {
  const module = (name: string, layers: number, flavor = "own"): FrameworkFile => ({
    name,
    text: `args = TransformerModelArgs(dim=1024, n_layers=${layers}, n_heads=8)\nllama3_args["${flavor}"] = args\n`,
  });
  const job = (flavor: string, custom = ""): FrameworkFile => ({
    name: "t.toml",
    text: `# torchrun --nnodes 2 --nproc-per-node 8\n[model]\nflavor = "${flavor}"\n[experimental]\n${custom}\n`,
  });
  const layers = (...files: FrameworkFile[]) => read("torchtitan", files).model.layers;

  it("is the one that custom_import names, whichever comes first", () => {
    const named = 'custom_import = "mine.sizes"';
    expect(layers(job("own", named), module("other.py", 3), module("sizes.py", 5))).toBe(5);
    expect(layers(job("own", named), module("sizes.py", 3), module("mine/sizes.py", 5))).toBe(5);
    expect(layers(job("own", named), module("/home/me/mine/sizes.py", 5))).toBe(5);
    expect(faultsOf("torchtitan", job("own", named), module("other.py", 3))).toEqual([
      'model.flavor "own": is not known: its sizes are in the module mine.sizes, which is not there → ' +
        "put mine/sizes.py beside the TOML, with args = TransformerModelArgs(dim=…, …)",
    ]);
  });

  it("replaces no flavor that it does not add, and none where nothing imports it", () => {
    expect(layers(job("8B"), module("sizes.py", 5))).toBe(32);
    expect(layers(job("8B", 'custom_import = "sizes"'), module("sizes.py", 5))).toBe(32);
    expect(layers(job("8B", 'custom_import = "sizes"'), module("sizes.py", 5, "8B"))).toBe(5);
    expect(layers(job("8B", 'custom_import = "elsewhere"'), module("sizes.py", 5, "8B"))).toBe(32);
    expect(faultsOf("torchtitan", job("own"), module("sizes.py", 5))[0]).toMatch(
      /^model\.flavor "own": is not known: .* → use .*custom_import/,
    );
  });
});

describe("a script that starts the program twice", () => {
  const launch = (layers: number, more = "") =>
    `torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py ${SIZES.replace("--num-layers 4", `--num-layers ${layers}`)} ${more}`;
  const run = (...lines: string[]): FrameworkFile => ({ name: "run.sh", text: `${lines.join("\n")}\n` });

  it("is refused where it is started in two ways", () => {
    expect(faultsOf("megatron", run(launch(4), "sleep 1", launch(8)))).toEqual([
      expect.stringMatching(
        /^pretrain_gpt\.py 2: is started in 2 different ways → leave in the script the one that is meant$/,
      ),
    ]);
    expect(faultsOf("deepspeed", run(launch(4, DEEPSPEED), launch(8)), script("")[1])).toHaveLength(1);
  });

  it("is read where they are the same, or where one is only printed", () => {
    for (const lines of [
      [launch(4), launch(4)],
      [`echo ${launch(8)}`, launch(4)],
      [`printf '%s ' ${launch(8)}`, launch(4)],
    ])
      expect(read("megatron", [run(...lines)]).model.layers).toBe(4);
  });
});

describe("values that a program's own parser reads otherwise", () => {
  it("are no whole numbers, which argparse refuses", () => {
    const fault = (value: string, option = "--num-layers") =>
      faultsOf(
        "megatron",
        script("", {}, SIZES.replace("--num-layers 4", `--num-layers 4 ${option} ${value}`))[0],
      );
    for (const value of ["1e1", "0x18", "24.0", "0b11", "Infinity"])
      for (const option of ["--context-parallel-size", "--lr-decay-iters", "--train-iters"])
        expect(fault(value, option), `${option} ${value}`).toHaveLength(1);
    for (const value of ["24", "+24", "1_000"]) expect(fault(value, "--lr-decay-iters"), value).toEqual([]);
    expect(fault("0x18", "--lr")).toHaveLength(1);
    expect(fault("1e-4", "--lr")).toEqual([]);
    expect(fault("1e0 8", "--hierarchical-context-parallel-sizes")).toHaveLength(1);
  });

  it("are told of a switch that is given a value", () => {
    expect(faultsOf("megatron", script("--bf16=1")[0])).toEqual([
      '--bf16 "1": takes no value → write --bf16 alone',
    ]);
  });

  it("move nothing to the host where the device is none", () => {
    const faults = (zero: object) =>
      faultsOf("deepspeed", ...script(DEEPSPEED, { zero_optimization: { stage: 3, ...zero } }));
    expect(faults({ offload_optimizer: { device: "none" }, offload_param: { device: "none" } })).toEqual([]);
    expect(faults({ offload_optimizer: { device: "cpu" } })).toHaveLength(1);
    expect(faults({ offload_param: { device: "nvme" } })).toHaveLength(1);
  });

  it("leave clipping to the script where the JSON says auto", () => {
    const clipped = (json: object) => {
      const files = script(`${DEEPSPEED} --clip-grad 2`, { zero_optimization: { stage: 1 }, ...json });
      const { optimizer, takenAs } = read("deepspeed", files);
      return [optimizer.clipGlobalNorm, takenAs.filter(({ option }) => /clip/.test(option)).length];
    };
    expect(clipped({ gradient_clipping: "auto" })).toEqual([2, 0]);
    // DeepSpeed itself clips, by its JSON alone.
    expect(clipped({ gradient_clipping: 2 })).toEqual([2, 0]);
    expect(clipped({ gradient_clipping: 3 })).toEqual([3, 1]);
    expect(clipped({})).toEqual([1, 2]);
  });

  it("include the smallest vocabulary that is written", () => {
    const written = exported("deepspeed", {
      model: { hiddenSize: 1024, layers: 2, heads: 8, kvHeads: 8, ffnHiddenSize: 2816, vocabularySize: 2 },
    });
    expect(written.files[0]?.text).toMatch(/--vocab-size 1 /);
    expect(read("deepspeed", written.files).model.vocabularySize).toBe(2);
    expect(
      faultsOf("megatron", script("", {}, SIZES.replace("--vocab-size 1024", "--vocab-size 1"))[0]),
    ).toHaveLength(1);
  });
});

describe("torchtitan's precision of sums of gradients", () => {
  const of = (text: string) => {
    const { precision, takenAs, warnings } = read("torchtitan", [toml(`[training]\n${text}`)]);
    const said = [...takenAs, ...warnings.map(({ field: option }) => ({ option }))];
    return [precision, said.filter(({ option }) => option === "training.mixed_precision_reduce").length];
  };

  it("is read: what it is without it, 2 bytes, or no choice", () => {
    expect(of("")).toEqual(["bf16", 0]);
    expect(of('mixed_precision_reduce = "float32"')).toEqual(["bf16", 0]);
    expect(of('mixed_precision_param = "float32"')).toEqual(["fp32", 0]);
    // Said, and that torchtitan itself does not take it.
    expect(of('mixed_precision_reduce = "bfloat16"')).toEqual(["bf16-grad16", 2]);
    const faults = (text: string) => faultsOf("torchtitan", toml(`[training]\n${text}`));
    expect(faults('mixed_precision_reduce = "banana"')).toEqual([
      'training.mixed_precision_reduce "banana": is none of its choices → use one of bfloat16, float32',
    ]);
    expect(faults('mixed_precision_reduce = "bfloat16"\nmixed_precision_param = "float32"')).toEqual([
      'training.mixed_precision_reduce "bfloat16": sums gradients in 2 bytes that were computed in 4, ' +
        "which is not planned for → give float32",
    ]);
  });
});

describe("options that change time or memory", () => {
  /** What is said of an option where a file has it. */
  const said = (framework: Framework, option: RegExp, ...files: FrameworkFile[]): string => {
    const faults = faultsOf(framework, ...files);
    if (faults.length > 0) return faults.some((fault) => option.test(fault)) ? "refused" : faults.join();
    const { takenAs, warnings, ignored } = read(framework, files);
    if (takenAs.some((each) => option.test(each.option))) return "taken";
    if (warnings.some(({ field }) => option.test(field))) return "warned";
    return ignored.some((name) => option.test(name)) ? "ignored" : "nothing";
  };

  it.each([
    ["--optimizer sgd", "refused"],
    ["--optimizer muon", "refused"],
    ["--optimizer adam", "ignored"],
    ["--use-checkpoint-args", "refused"],
    ["--rotary-percent 0.5", "refused"],
    ["--rotary-percent 1.0", "ignored"],
    ["--attention-backend unfused", "taken"],
    ["--attention-backend flash", "ignored"],
    ["--no-rope-fusion", "taken"],
    ["--ddp-bucket-size 1000", "taken"],
    ["--no-overlap-p2p-communication", "ignored"],
    ["--no-gradient-accumulation-fusion", "taken"],
    ["--use-megatron-fsdp --no-gradient-accumulation-fusion", "ignored"],
    ["--timing-log-level 2", "taken"],
    ["--save x", "ignored"],
    ["--tp-comm-overlap", "ignored"],
    ["--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap", "taken"],
    ["--use-tp-pp-dp-mapping", "ignored"],
    ["--pipeline-model-parallel-size 2 --use-tp-pp-dp-mapping", "taken"],
    ["--hysteresis 2", "ignored"],
    ["--initial-loss-scale 65536", "ignored"],
    ["--reset-position-ids", "taken"],
    ["--reset-attention-mask", "taken"],
    ["--te-rng-tracker", "ignored"],
    ["--defer-embedding-wgrad-compute", "taken"],
    ["--delay-wgrad-compute", "taken"],
    ["--trust-remote-code", "ignored"],
    ["--legacy-tokenizer", "ignored"],
    ["--nccl-communicator-config-path a.yaml", "taken"],
    ["--dist-ckpt-strictness log_all", "ignored"],
    ["--enable-cuda-graph", "taken"],
    ["--cuda-graph-impl local", "taken"],
    ["--cuda-graph-impl none", "ignored"],
    ["--no-barrier-with-level-1-timing", "ignored"],
    ["--moe-router-topk 2", "ignored"],
    ["--mtp-num-layers 0", "ignored"],
    ["--mtp-num-layers 1", "refused"],
    ["--fine-grained-activation-offloading", "refused"],
    ["--squared-relu", "refused"],
    ["--account-for-loss-in-pipeline-split", "refused"],
    ["--yaml-cfg a.yaml", "refused"],
    ["--softmax-type learnable", "taken"],
    ["--inference-rng-tracker", "ignored"],
    ["--disable-gloo-process-groups", "ignored"],
  ])("of Megatron-LM: %s is %s", (option, what) => {
    const name = new RegExp(`^${option.split(" ").findLast((word) => word.startsWith("--"))}( |$)`);
    expect(said("megatron", name, script(option)[0])).toBe(what);
    const chunks = `${SIZES} --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2`;
    if (option === "--no-overlap-p2p-communication")
      expect(said("megatron", name, script(option, {}, chunks)[0])).toBe("taken");
  });

  it("of Megatron-LM: a dropout is taken as none, also the one that it has by itself", () => {
    const without = SIZES.replace(/--attention-dropout.*/, "--hidden-dropout 0.2");
    const { takenAs } = read("megatron", script("", {}, without));
    expect(takenAs.filter(({ option }) => option.endsWith("dropout"))).toEqual([
      { option: "--hidden-dropout", value: "0.2", as: "0" },
      { option: "--attention-dropout", value: "missing", as: "0, where the program's default is 0.1" },
    ]);
  });

  it("of Megatron-LM: the vocabulary is the padded one", () => {
    const vocabulary = (more: string) => {
      const { model, takenAs } = read("megatron", script("", {}, SIZES.replace("--vocab-size 1024", more)));
      const said = takenAs.filter(({ option }) => option === "--vocab-size");
      return [model.vocabularySize, said.map(({ as }) => as.replace(/:.*/, ""))];
    };
    expect(vocabulary("--vocab-size 1000")).toEqual([1024, ["1024"]]);
    expect(vocabulary("--vocab-size 1000 --make-vocab-size-divisible-by 300")).toEqual([1200, ["1200"]]);
    expect(vocabulary("--vocab-size 1000 --make-vocab-size-divisible-by 1")).toEqual([1000, []]);
    const two = "--tensor-model-parallel-size 2 --sequence-parallel";
    expect(vocabulary(`${two} --vocab-size 1001 --make-vocab-size-divisible-by 1`)).toEqual([1001, []]);
    expect(vocabulary(`${two} --vocab-size 1025`)).toEqual([1280, ["1280"]]);
    expect(vocabulary("--vocab-size 1000 --no-pad-vocab-size")).toEqual([1000, []]);
    expect(vocabulary("--padded-vocab-size 1100")).toEqual([1100, []]);
    expect(vocabulary("--vocab-size 1000 --padded-vocab-size 1100")).toEqual([1100, []]);
  });

  it("of Megatron-LM: samples and shares are steps", () => {
    const steps = (more: string) => {
      const { steps: run, optimizer, takenAs } = read("megatron", script(more));
      const said = takenAs.filter(({ value }) => value !== "missing");
      return [run, optimizer.decaySteps, optimizer.warmupSteps, said.length];
    };
    expect(steps("--train-samples 1610 --lr-decay-samples 800 --lr-warmup-samples 160")).toEqual([
      100, 50, 10, 3,
    ]);
    expect(steps("--train-iters 100 --lr-warmup-fraction 0.05")).toEqual([100, undefined, 5, 1]);
    expect(steps("--train-iters 100 --lr-decay-iters 90")).toEqual([100, 90, 0, 0]);
    for (const more of [
      "--train-samples 160 --train-iters 10",
      "--lr-decay-samples 160",
      "--train-samples 3",
      "--train-iters 9 --lr-warmup-fraction 0.1 --lr-warmup-iters 3",
    ])
      expect(faultsOf("megatron", script(more)[0]), more).toHaveLength(1);
    const tokens = `${DEEPSPEED} --train-iters 100 --train-tokens ${50 * 16 * 4096} --lr-warmup-tokens 65536`;
    const deepspeed = read("deepspeed", script(tokens, { zero_optimization: { stage: 1 } }));
    expect([deepspeed.steps, deepspeed.optimizer.warmupSteps]).toEqual([50, 1]);
  });

  it.each([
    [{ optimizer: { type: "SGD" } }, "refused"],
    [{ optimizer: { type: "OneBitAdam" } }, "refused"],
    [{ optimizer: { type: "AdamW", params: { lr: 1 } } }, "ignored"],
    [{ activation_checkpointing: { cpu_checkpointing: true } }, "refused"],
    [{ activation_checkpointing: { cpu_checkpointing: false } }, "ignored"],
    [{ activation_checkpointing: { partition_activations: true } }, "taken"],
    [{ zero_optimization: { stage: 1, reduce_bucket_size: 5e8 } }, "taken"],
    [{ zero_optimization: { stage: 1, reduce_scatter: false } }, "taken"],
    [{ zero_optimization: { stage: 1, reduce_scatter: true } }, "ignored"],
    [{ communication_data_type: "fp32" }, "taken"],
    [{ data_efficiency: { enabled: true } }, "refused"],
    [{ data_efficiency: { enabled: false } }, "ignored"],
    [{ wall_clock_breakdown: true }, "taken"],
    [{ steps_per_print: 1 }, "ignored"],
  ])("of DeepSpeed: %j is %s", (json, what) => {
    const [[name, value]] = Object.entries(json) as [[string, Record<string, unknown>]];
    const last = typeof value === "object" ? Object.keys(value).at(-1) : name;
    const option = new RegExp(`^${name}\\b(?!.*stage)|\\.${last}\\b`);
    expect(
      said("deepspeed", option, ...script(DEEPSPEED, { zero_optimization: { stage: 1 }, ...json })),
    ).toBe(what);
  });

  it.each([
    ['[optimizer]\nname = "SGD"', "optimizer.name", "refused"],
    ['[optimizer]\nname = "Adam"', "optimizer.name", "taken"],
    ['[optimizer]\nname = "AdamW"', "optimizer.name", "ignored"],
    ['[optimizer]\nimplementation = "foreach"', "optimizer.implementation", "taken"],
    ["[compile]\nenable = true", "compile", "taken"],
    ["[compile]\nenable = false", "compile", "ignored"],
    ["[quantize.linear.float8]\nrecipe_name = 'rowwise'", "quantize.linear", "warned"],
    ["[memory_estimation]\nenable = true", "memory_estimation", "refused"],
    ['[comm]\nmode = "fake_backend"', "comm", "refused"],
    ["[comm]\ninit_timeout_seconds = 3", "comm", "ignored"],
    ["[parallelism]\ndisable_loss_parallel = true", "parallelism.disable_loss_parallel", "taken"],
    [
      '[parallelism]\npipeline_parallel_schedule_csv = "a.csv"',
      "parallelism.pipeline_parallel_schedule_csv",
      "refused",
    ],
    ["[parallelism]\nexpert_parallel_degree = 1", "parallelism.expert_parallel_degree", "ignored"],
    ["[parallelism]\nexpert_parallel_degree = 2", "parallelism.expert_parallel_degree", "refused"],
    [
      "[parallelism]\nexpert_tensor_parallel_degree = 1",
      "parallelism.expert_tensor_parallel_degree",
      "ignored",
    ],
    [
      "[parallelism]\nexpert_tensor_parallel_degree = 2",
      "parallelism.expert_tensor_parallel_degree",
      "refused",
    ],
    ["[debug]\ndeterministic = true", "debug.deterministic", "taken"],
    ['[lr_scheduler]\ndecay_type = "sqrt"', "lr_scheduler.decay_type", "taken"],
    ["[activation_checkpoint]\nearly_stop = true", "activation_checkpoint.early_stop", "taken"],
  ])("of torchtitan: %s: %s is %s", (text, option, what) => {
    expect(said("torchtitan", new RegExp(`^${option}\\b`), toml(text))).toBe(what);
  });

  it.each([
    ["use_swiglu=False", "refused"],
    ["use_swiglu=True", "ignored"],
    ["rotary_emb_fraction=0.5", "refused"],
    ["rotary_emb_fraction=1.0", "ignored"],
    ["apply_post_layer_norm=True", "refused"],
    ["use_flash_attn=False", "taken"],
    ["residual_in_fp32=True", "taken"],
    ["drop_rate=0.1", "taken"],
    ["init_type='normal'", "ignored"],
  ])("of InternEvo: %s is %s", (text, what) => {
    const [name] = text.split("=");
    expect(said("internevo", new RegExp(`^model\\.${name}\\b`), python(`${MLP}, ${text}`))).toBe(what);
  });

  it("of InternEvo: a batch that grows is refused", () => {
    const data = (text: string) =>
      said("internevo", /rampup/, python(MLP, { data: `rampup_batch_size=${text}` }));
    expect([data('"6 2 8"'), data('""'), data("None")]).toEqual(["refused", "ignored", "ignored"]);
    const parallel = "weight=dict(size=1, memory_pool=True)";
    expect(said("internevo", /memory_pool/, python(MLP, { parallel }))).toBe("taken");
  });
});
