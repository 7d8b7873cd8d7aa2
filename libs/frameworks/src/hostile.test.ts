import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ProblemError } from "@internevo/domain";
import { afterAll, describe, expect, it } from "vitest";
import { FRAMEWORKS, importConfiguration, type Framework, type FrameworkFile } from "./index.ts";

const folder = mkdtempSync(join(tmpdir(), "internevo-hostile-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** What an import that must be refused says; every part of it, in bounds. */
function refusal(framework: Framework, ...files: [FrameworkFile, ...FrameworkFile[]]): string {
  const from = process.cpuUsage();
  try {
    importConfiguration(framework, files, { nodes: 2, gpusPerNode: 8 });
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    expect(error.details.length).toBeGreaterThan(0);
    expect(error.details.length).toBeLessThanOrEqual(20);
    for (const { field, message, remedy } of error.details) {
      expect([typeof field, typeof message, typeof remedy]).toEqual(["string", "string", "string"]);
      expect(field.length).toBeLessThan(300);
      expect(message.length).toBeLessThan(1000);
    }
    // It is refused by a bound, not by patience: of the processor's time, for a clock says more of who else
    // uses the machine.
    const { user, system } = process.cpuUsage(from);
    expect((user + system) / 1e6).toBeLessThan(20);
    return error.details.map(({ field, message, remedy }) => `${field}: ${message} → ${remedy}`).join("\n");
  }
  throw new Error("it was taken");
}

const python = (text: string): FrameworkFile => ({ name: "c.py", text });
const shell = (text: string): FrameworkFile => ({ name: "run.sh", text });
const command = (more: string): FrameworkFile =>
  shell(
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads " +
      `8 --swiglu --vocab-size 1000 --seq-length 4096 --micro-batch-size 1 --bf16 ${more}\n`,
  );

describe("what configurations must not do", () => {
  it("runs nothing", () => {
    const mark = join(folder, "ran");
    const touch = `touch ${mark}`;
    for (const text of [
      `A=$(${touch})\n`,
      `A=\`${touch}\`\n`,
      `eval "${touch}"\n`,
      `: \${A:=$(${touch})}\n`,
      `source <(${touch})\n`,
      `A=$((a[$(${touch})]))\n`,
    ]) {
      try {
        importConfiguration("megatron", [shell(`${text}${command("").text}`)], { nodes: 2, gpusPerNode: 8 });
      } catch (error) {
        expect(error).toBeInstanceOf(ProblemError);
      }
    }
    for (const text of [
      `__import__("os").system("${touch}")`,
      `import os; os.system("${touch}")`,
      `X = [os.system("${touch}") for _ in "a"]`,
      `class model:\n    __del__ = os.system("${touch}")`,
    ])
      refusal("internevo", python(`${text}\n`));
    refusal(
      "torchtitan",
      { name: "t.toml", text: '[model]\nflavor = "internevo"\n[experimental]\ncustom_import = "m"\n' },
      python(`import os\nargs = os.system("${touch}")\n`),
    );
    expect(existsSync(mark)).toBe(false);
  });

  it("refuses values that are nested deeper than any configuration's, in every format", () => {
    for (const levels of [200, 3000, 20_000]) {
      const names = Array<string>(levels).fill("a").join(".");
      const lists = `${"[".repeat(levels)}${"]".repeat(levels)}`;
      for (const toml of [`[model]\n${names} = 1\n`, `[model.${names}]\nb = 1\n`, `[${names}]\nb = 1\n`])
        expect(refusal("torchtitan", { name: "t.toml", text: toml })).toMatch(
          /t\.toml: is nested more than 100 levels deep → /,
        );
      const { text } = command("--deepspeed --deepspeed_config ds.json");
      for (const json of [`{"foo":${lists}}`, `{"bf16":{"enabled":${lists}}}`])
        expect(refusal("deepspeed", shell(text), { name: "ds.json", text: json })).toMatch(
          /ds\.json: is nested more than 100 levels deep → /,
        );
      refusal("torchtitan", { name: "t.toml", text: `[training]\nseq_len = ${lists}\n` });
      refusal("internevo", python(`model = dict(a=${lists})\ndata = dict()\nparallel = dict()\n`));
    }
  });

  it("refuses what stands behind the end of a script or a module", () => {
    expect(refusal("megatron", shell(`true\nexit 0\n${command("").text}`))).toMatch(
      /^line 2: ends the script before a training program starts → leave out exit/,
    );
    const sections = "model = dict()\ndata = dict()\nparallel = dict()\n";
    for (const end of [
      "exit()",
      "x = [quit()]",
      "import sys\nsys.exit(0)",
      "from sys import exit as stop\nstop()",
      "import os\nos._exit(0)",
      "raise SystemExit",
      "if True:\n    raise ValueError('x')",
      "return",
    ])
      expect(refusal("internevo", python(`${end}\n${sections}`)), end).toMatch(
        /^line \d: ends the module, and nothing behind it is run → leave it out/,
      );
    for (const end of ["if unknown():\n    raise X", "def f():\n    exit()", "def exit(): pass\nexit()"])
      expect(refusal("internevo", python(`${end}\n${sections}`)), end).not.toMatch(/ends the module/);
  });

  it("changes nothing outside its own values", () => {
    for (const key of ["__proto__", "constructor"]) {
      refusal(
        "internevo",
        python(
          `a = dict(x=1)\nb = a["${key}"]\nb["polluted"] = ` +
            `1\na["${key}"]["polluted"] = 1\nc = dict(${key}=dict(polluted=1))\n`,
        ),
      );
      expect(({} as Record<string, unknown>)["polluted"]).toBeUndefined();
      expect((Object as unknown as Record<string, unknown>)["polluted"]).toBeUndefined();
      expect(refusal("torchtitan", { name: "t.toml", text: `[model]\nflavor = "${key}"\n` })).toMatch(
        /model\.flavor/,
      );
      expect(
        refusal("torchtitan", { name: "t.toml", text: `[model]\nflavor = "8B"\n[training]\n"${key}" = 1\n` }),
      ).toMatch(/training\.\S+: is not known/);
      expect(refusal("megatron", command(`${key} 1`))).toMatch(/is no option/);
    }
  });

  it("does not grow without bound", () => {
    const doubled = (line: string): string => `${`${line}\n`.repeat(60)}`;
    expect(
      refusal(
        "internevo",
        python(`a = "xxxxxxxx"\n${doubled("a = a + a")}model = a\ndata = dict()\nparallel = dict()\n`),
      ),
    ).toMatch(/^model: /);
    expect(
      refusal(
        "internevo",
        python(`a = [1, 2]\n${doubled("a = [a, a]")}model = a\ndata = dict()\nparallel = dict()\n`),
      ),
    ).toMatch(/^model: /);
    expect(
      refusal(
        "internevo",
        python(
          `a = dict(x=1)\n${doubled("a = dict(x=a, y=a)")}model = a\ndata = dict()\nparallel = dict()\n`,
        ),
      ),
    ).toMatch(/^model: /);
    expect(refusal("megatron", shell(`A=xxxxxxxx\n${doubled('A="$A$A"')}${command("$A").text}`))).toMatch(
      /^line \d+: /,
    );
    expect(
      refusal("megatron", shell(`A=(a b)\n${doubled("A=(${A[@]} ${A[@]})")}${command("${A[@]}").text}`)),
    ).toMatch(/^line \d+: /);
  });

  it("is refused where the parser's tree of braces that nothing closes lacks types", () => {
    // As the fuzzer found it: the number of braces and what stands around them decide.
    const before = [
      "# torchrun --nnodes 2 --nproc-per-node 8 train.py --config <this file> --launcher torch",
      'JOB_NAME = "seven"',
      'model_type = "LLAMA2"',
      "DO_ALERT = False",
      "",
      "*ckpt = dict(enable_save_ckpt=False, auto_resume=False, load_ckpt_info=None)",
      "",
      "data =",
    ].join("\n");
    const after = [
      " dict(",
      "    seq_len=4096,",
      "    micro_bsz=8,",
      "    micro_num=4,",
      "    total_steps=100,",
      "    pack_sample_into_one=False,",
      '    skip_batches="",',
      '    rampup_batch_size="",',
      "    train_folder=None,",
      "    valid_folder=None,",
      "    valid_every=0,",
      ")",
      "",
      "model = dict(",
      "    checkpoint=False,",
      "    num_chunks=1,",
      "    num_attention_heads=32,",
      "    num_kv_atteparallel",
      "1j Nonedata",
      "match x:0x\t if  }-+= := ",
      "//}#)2**64 model **@",
      "1e308try:}",
      "{zero1size=@None__class__parallel10**400 -",
      "['num_layers']model",
      "ntion_heads=32,",
      "    hidden_size=4096,",
      "    num_layers=32,",
      "    vocab_size=100000,",
      "    mlp_ratio=11008 / 4096,",
      "    multiple_of=256,",
      "    no_bias=True,",
      '    norm_type="rms\\orm",',
      "    layer_norm_epsilon=0.00001,",
      "    rope_base=10000,",
      "    embed_split_hidden=True,",
      "    embed_grad_scale=1,",
      "    parallel_output=True,",
      "    apply_post_layer_norm=False,",
      "    use_flash_attn=True,",
      '    dtype="torch.bfloat16",',
      ")",
      "",
      "parallel = dict(",
      '    tensor=dict(size=2, mode="isp"),',
      '    weight=dict(size=8, overlap=True, forward_overlap_per="layer"),',
      "    zero1=dict(size=2),",
      "    pipeline=dict(size=1, interleaved_overlap=True),",
      ")",
      "",
      "hybrid_zero_optimizer = dict(",
      "    overlap_sync_grad=True,",
      "    overlap_sync_param=False,",
      "    reduce_bucket_size=512 * 1e308 * 1024,",
      "    clip_grad_norm=1.0,",
      ")",
      "",
      "adam = dict(lr=0.0003, adam_beta1=0.9, adam_beta2=0.95, adam_beta2_c=0, adam_eps=1e-8, weight_decay=0.1)",
      "lr_scheduler = dict(total_steps=100, init_steps=0, warmup_ratio=5 / 3, eta_min=0.00003, last_epoch=-1)",
      'beta1_scheduler = dict(init_beta2=adam["adam_beta2"], c=adam["adam_beta2_c"], cur_iter=-1)',
      "grad_scaler = dict(",
      "    fp16=dict(initial_scale=2**16, ",
      "in_scale=1, growth_in1000),",
      "    growth_factor=2,",
      "    backoff_fa\ufffdtor=0.5,",
      "    max_scale=2**24,",
      "    hysteresis=2,",
      ")",
      "loss = dict(label_smoothing=0)",
      "use_fp32_norm = False",
      "seed = 0",
      "cudnn_deterministic = False",
      "cudnn_benchmark = False",
      "",
    ].join("\n");
    expect(refusal("internevo", python(`${before}${"{".repeat(2582)}${after}`))).toMatch(/is not Python/);
  });

  it("is not nested deeper than it can be read", () => {
    const deep = (open: string, close: string, count = 20_000): string =>
      `${open.repeat(count)}1${close.repeat(count)}`;
    for (const value of [
      deep("(", ")"),
      deep("[", "]"),
      `${"-".repeat(20_000)}1`,
      deep("dict(a=", ")"),
      `1${" + 1".repeat(20_000)}`,
    ]) {
      expect(refusal("internevo", python(`model = ${value}\ndata = dict()\nparallel = dict()\n`))).toMatch(
        /^model: |^line 1: is not Python/,
      );
    }
    expect(
      refusal("megatron", shell(`A=$((${"(".repeat(20_000)}1${")".repeat(20_000)}))\n${command("").text}`)),
    ).toMatch(/^line 1: /);
    expect(
      refusal("torchtitan", { name: "t.toml", text: `a = ${"[".repeat(20_000)}${"]".repeat(20_000)}\n` }),
    ).toMatch(/t\.toml|^a: /);
    expect(
      refusal(
        "deepspeed",
        shell(
          "deepspeed --num_gpus 8 pretrain_gpt.py --deepspeed_config " +
            `ds.json ${command("").text.replace(/^.*?\.py /, "")}`,
        ),
        { name: "ds.json", text: `{"zero_optimization": ${"[".repeat(50_000)}${"]".repeat(50_000)}}` },
      ),
    ).not.toBe("");
  });

  it("takes no longer for each level that is nested deeper", () => {
    for (const word of ["not ", "-"]) {
      const from = process.cpuUsage();
      refusal("internevo", python(`a = dict(x=${word.repeat(2400)}1)\nmodel = dict()\n`));
      const { user, system } = process.cpuUsage(from);
      expect((user + system) / 1e6, word).toBeLessThan(0.5);
    }
  });

  it("takes no longer for each line that looks at all lines above it", () => {
    const lines = (count: number, line: (at: number) => string, between = "\n"): string =>
      Array.from({ length: count }, (_, at) => line(at)).join(between);
    const rest = "\nmodel = dict()\ndata = dict()\nparallel = dict()\n";
    const run = `\n${command("--no-such-option").text}`;
    for (const [framework, file, fault] of [
      [
        "internevo",
        python(`d=dict()\n${lines(5000, (i) => `d=dict(d,a${i}=1)`)}${rest}`),
        /copies more than/,
      ],
      [
        "internevo",
        python(`d0=dict()\n${lines(30_000, (i) => `d${i + 1}=dict(d${i},a${i}=1)`)}${rest}`),
        /copies more than/,
      ],
      [
        "internevo",
        python(`d=dict(${lines(8000, (i) => `a${i}=1`, ",")})\n${lines(8000, () => "e=not d")}${rest}`),
        /copies more than/,
      ],
      ["internevo", python(`${lines(100_000, () => "a b )", " ")}${rest}`), /is not Python/],
      ["megatron", shell(`${lines(8000, (i) => `a${i}=`)}\n${lines(8000, () => ".")}${run}`), /is not known/],
      ["megatron", shell(lines(60_000, () => "a=", " ") + run), /is not known/],
      ["megatron", shell(`A=()\n${lines(100_000, () => "A+=(x)")}${run}`), /longer than 4 MiB/],
      ["megatron", shell(`${"! ".repeat(300_000)}true${run}`), /is not known/],
      ["megatron", shell(`${"a[".repeat(300_000)}${run}`), /is not known/],
    ] as const) {
      const from = process.cpuUsage();
      expect(refusal(framework, file)).toMatch(fault);
      const { user, system } = process.cpuUsage(from);
      expect((user + system) / 1e6, file.text.slice(0, 40)).toBeLessThan(2);
    }
  });

  it("does not take forever to be told what was meant", () => {
    expect(refusal("megatron", command(`--${"a".repeat(900_000)} 1`))).toMatch(/is not known/);
    expect(
      refusal("megatron", command(Array.from({ length: 60_000 }, (_, i) => `--num-layerz${i}`).join(" "))),
    ).toMatch(/did you mean --num-layers/);
    expect(
      refusal("torchtitan", {
        name: "t.toml",
        text: `[training]\n${Array.from({ length: 30_000 }, (_, i) => `seq_lan${i} = 1`).join("\n")}\n`,
      }),
    ).toMatch(/training\.seq_lan0: is not known/);
  });

  it.each(FRAMEWORKS)("%s: refuses what is nothing of the kind", (framework) => {
    for (const text of [
      "",
      "\n\n\n",
      "\u0000\u0000\u0000",
      "\u001b[2J\u001b]0;title\u0007",
      "%PDF-1.7\n%âãÏÓ",
      "}{",
      "a".repeat(1_000_000),
      '"',
      "'",
      "\\",
      "$(",
      "$((",
      "${",
      "A=(",
      "<<EOF",
      "\u{10FFFF}",
    ])
      refusal(framework, { name: "x", text });
  });

  it("takes no numbers that no job has, and does not work long for them", () => {
    for (const value of [
      "0",
      "-1",
      "1e308",
      "1e999",
      "nan",
      "inf",
      "1152921504606846976",
      "4,096",
      "0x10",
      "1_000",
      "''",
      "$UNSET",
      "$(echo 4)",
      "९",
    ]) {
      for (const option of ["--num-layers", "--micro-batch-size", "--hidden-size", "--seq-length"]) {
        const text = command("").text.replace(new RegExp(`${option} \\S+`), `${option} ${value}`);
        try {
          const { model, plan, sequenceLengthTokens } = importConfiguration("megatron", [shell(text)], {
            nodes: 2,
            gpusPerNode: 8,
          });
          // What is a whole number is left to the job's own bounds.
          expect(
            [model.layers, model.hiddenSize, plan.microBatchSize, sequenceLengthTokens].every(
              (each) => Number.isSafeInteger(each) && each >= 1,
            ),
            `${option} ${value}`,
          ).toBe(true);
        } catch (error) {
          if (!(error instanceof ProblemError)) throw new Error(`${option} ${value}`, { cause: error });
        }
      }
    }
  });
});
