import { describe, expect, it } from "vitest";
import { parsePlanLabel, ProblemError, resolveJob, type Optimizer } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { jobOf } from "../test/random-plans.ts";
import {
  exportConfiguration,
  importConfiguration,
  importedJob,
  type Framework,
  type FrameworkFile,
} from "./index.ts";

/*
 * How long is trained, and with what: optimizer, schedule of the learning rate and seed.
 */

const DECODER =
  "--num-layers 4 --hidden-size 1024 --ffn-hidden-size 2816 --num-attention-heads 8 --swiglu --bf16 " +
  "--disable-bias-linear --vocab-size 1024 --seq-length 4096 --micro-batch-size 1 --global-batch-size 16 " +
  "--attention-dropout 0 --hidden-dropout 0";
const MEGATRON = "--normalization RMSNorm --position-embedding-type rope";
const DEEPSPEED =
  "--normalization rmsnorm --use-rotary-position-embeddings --use-flash-attn-v2 --deepspeed --deepspeed_config d.json";

/** A configuration of each framework that says nothing of its training but what is given. */
const files: Readonly<Record<Framework, (more: string) => [FrameworkFile, ...FrameworkFile[]]>> = {
  megatron: (more) => [
    {
      name: "run.sh",
      text: `torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py ${DECODER} ${MEGATRON} ${more}\n`,
    },
  ],
  deepspeed: (more) => [
    {
      name: "run.sh",
      text: `deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py ${DECODER} ${DEEPSPEED} ${more}\n`,
    },
    {
      name: "d.json",
      text: JSON.stringify({
        bf16: { enabled: true },
        zero_optimization: { stage: 1 },
        data_types: { grad_accum_dtype: "fp32" },
      }),
    },
  ],
  torchtitan: (more) => [
    {
      name: "t.toml",
      text: `# torchrun --nnodes 2 --nproc-per-node 8\n[model]\nname = "llama3"\nflavor = "8B"\n${more}`,
    },
  ],
  internevo: (more) => [
    {
      name: "c.py",
      text: `# torchrun --nnodes 2 --nproc-per-node 8
model_type = "LLAMA2"
model = dict(num_layers=4, hidden_size=1024, num_attention_heads=8, vocab_size=1024, dtype="torch.bfloat16", no_bias=True)
data = dict(seq_len=4096, micro_bsz=1, micro_num=4)
parallel = dict(zero1=dict(size=-1))
${more}
`,
    },
  ],
};

function read(framework: Framework, more: string) {
  const { optimizer, steps, seed, takenAs, ignored } = importConfiguration(framework, files[framework](more));
  return {
    optimizer,
    steps,
    seed,
    ignored,
    said: takenAs.map(({ option, value, as }) => `${option} ${String(value)}: ${as}`),
  };
}

function faultsOf(framework: Framework, more: string): string[] {
  try {
    read(framework, more);
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    return error.details.map(({ field, message, remedy }) => `${field}: ${message} → ${remedy}`);
  }
  return [];
}

describe("what a file leaves to its program", () => {
  it("of Megatron-LM and of Megatron-DeepSpeed is what the program has, which is said", () => {
    for (const framework of ["megatron", "deepspeed"] as const) {
      const { optimizer, steps, seed, said } = read(framework, "--lr 2e-4 --train-iters 50");
      expect([steps, seed]).toEqual([50, 1234]);
      expect(optimizer).toEqual({
        schedule: "linear",
        peakLearningRate: 2e-4,
        minLearningRate: 0,
        warmupSteps: 0,
        weightDecay: 0.01,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        clipGlobalNorm: 1,
      });
      expect(said).toEqual([
        "--lr-warmup-iters missing: 0, the program's default",
        "--lr-decay-style missing: linear, the program's default",
        "--min-lr missing: 0, the program's default",
        "--adam-beta1 missing: 0.9, the program's default",
        "--adam-beta2 missing: 0.999, the program's default",
        "--adam-eps missing: 1e-8, the program's default",
        "--weight-decay missing: 0.01, the program's default",
        "--seed missing: 1234, the program's default",
        `${framework === "megatron" ? "--clip-grad" : "gradient_clipping"} missing: 1, the program's default`,
      ]);
    }
    // It starts with neither of these missing.
    expect(read("megatron", "").said.filter((text) => /own/.test(text))).toEqual([
      "--lr missing: a job's own: the program has no default",
      "--train-iters missing: a job's own: the program has no default",
    ]);
    expect(read("megatron", "--train-samples 160").said).toContain(
      "--lr-warmup-samples missing: 0, the program's default",
    );
  });

  it("of torchtitan is what torchtitan has, which is said", () => {
    const { optimizer, steps, seed, said } = read("torchtitan", "");
    expect([steps, seed]).toEqual([10_000, undefined]);
    expect(optimizer).toEqual({
      schedule: "linear",
      peakLearningRate: 8e-4,
      minLearningRate: 0,
      warmupSteps: 200,
      decaySteps: 10_000,
      weightDecay: 0.1,
      beta1: 0.9,
      beta2: 0.95,
      epsilon: 1e-8,
      clipGlobalNorm: 1,
    });
    expect(said).toEqual([
      "training.steps missing: 10000, torchtitan's default",
      "debug.seed missing: a job's own: torchtitan has no default",
      "optimizer.lr missing: 0.0008, torchtitan's default",
      "lr_scheduler.min_lr_factor missing: 0, torchtitan's default",
      "lr_scheduler.warmup_steps missing: 200, torchtitan's default",
      "lr_scheduler.decay_type missing: linear, torchtitan's default",
      "optimizer.weight_decay missing: 0.1, torchtitan's default",
      "optimizer.beta1 missing: 0.9, torchtitan's default",
      "optimizer.beta2 missing: 0.95, torchtitan's default",
      "optimizer.eps missing: 1e-8, torchtitan's default",
      "training.max_norm missing: 1, torchtitan's default",
    ]);
  });

  it("of InternEvo is what it has, else a job's own, which is said", () => {
    const { optimizer, steps, seed, said } = read("internevo", "");
    expect([optimizer, steps, seed]).toEqual([
      { minLearningRate: 0, warmupSteps: 0, clipGlobalNorm: 0 },
      undefined,
      1024,
    ]);
    const none = "missing: a job's own: InternEvo has no default";
    expect(said.slice(-11)).toEqual([
      `lr_scheduler.total_steps ${none}`,
      "lr_scheduler.warmup_ratio missing: 0, InternEvo's default",
      `adam.lr ${none}`,
      "lr_scheduler.eta_min missing: 0, InternEvo's default",
      `adam.weight_decay ${none}`,
      `adam.adam_beta1 ${none}`,
      `adam.adam_beta2 ${none}`,
      `adam.adam_eps ${none}`,
      "hybrid_zero_optimizer.clip_grad_norm missing: 0, InternEvo's default",
      `data.total_steps ${none}`,
      "seed missing: 1024, InternEvo's default",
    ]);
    expect(read("internevo", "lr_scheduler = dict(init_steps=5)").said).toContain(
      "lr_scheduler.init_steps 5: 0: warm-up begins with the first step",
    );
  });

  it("is a job on GPUs", () => {
    for (const framework of ["megatron", "deepspeed", "torchtitan", "internevo"] as const) {
      const job = importedJob(importConfiguration(framework, files[framework]("")), "imported", "80GB");
      expect(resolveJob(job).steps).toBe(framework === "torchtitan" ? 10_000 : 100);
      expect(job.cluster.device, "NCCL's memory counts").toBe("cuda");
    }
  });
});

describe("a schedule of the learning rate", () => {
  const SCHEDULES: readonly Partial<Optimizer>[] = [
    { schedule: "cosine" },
    { schedule: "linear", warmupSteps: 7, decaySteps: 110 },
    { schedule: "constant", warmupSteps: 3 },
    { schedule: "wsd", annealingSteps: 25, warmupSteps: 10 },
    { schedule: "wsd", annealingSteps: 11, warmupSteps: 0, decaySteps: 110 },
    // No step is between warm-up and decay.
    { schedule: "wsd", annealingSteps: 90, warmupSteps: 10 },
  ];

  it.each(["megatron", "deepspeed", "torchtitan", "internevo"] as const)(
    "is read back of %s as it was written",
    (framework) => {
      for (const optimizer of SCHEDULES) {
        const precision = framework === "internevo" ? "bf16-grad16" : "bf16";
        const job = jobOf({ precision, steps: 100, optimizer });
        const plan = planOfJob(parsePlanLabel("b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss128"), job);
        const written = exportConfiguration(framework, job, plan);
        const { optimizer: back, takenAs } = importConfiguration(
          framework,
          written.files as [FrameworkFile, ...FrameworkFile[]],
        );
        const isLost = written.inexpressible.some(({ field }) => field === "optimizer.schedule");
        const { schedule: _asked, annealingSteps: _steps, ...rest } = job.optimizer;
        expect([back, takenAs]).toEqual([isLost ? rest : job.optimizer, []]);
        expect(isLost).toBe(
          (framework === "deepspeed" && optimizer.schedule === "wsd") ||
            (framework === "internevo" && /wsd|linear/.test(optimizer.schedule ?? "")),
        );
      }
    },
  );

  it("that ends before the job is written to its end where the program would not stay at the least rate", () => {
    const asked = { warmupSteps: 7, decaySteps: 50, peakLearningRate: 1e-4, minLearningRate: 1e-5 };
    const written = (framework: Framework, optimizer: Partial<Optimizer>) => {
      const job = jobOf({ precision: "bf16-grad16", steps: 100, optimizer: { ...asked, ...optimizer } });
      const plan = planOfJob(parsePlanLabel("b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss128"), job);
      const { files: of, inexpressible } = exportConfiguration(framework, job, plan);
      const back = importConfiguration(framework, of as [FrameworkFile, ...FrameworkFile[]]);
      return {
        named: inexpressible.filter(({ field }) => field === "optimizer.decaySteps"),
        back: back.optimizer,
        takenAs: back.takenAs,
      };
    };
    const torchtitan = "a line goes on below 0 behind its decay, and a cosine rises again";
    for (const [framework, reason] of [
      ["torchtitan", torchtitan],
      ["internevo", "its cosine rises again behind its decay"],
    ] as const) {
      const { named, back, takenAs } = written(framework, {});
      expect(named).toEqual([{ field: "optimizer.decaySteps", value: 50, nearest: 100, reason }]);
      expect([back.decaySteps, back.warmupSteps, takenAs]).toEqual([100, 7, []]);
      // A rate that does not fall is the same behind its end.
      expect(written(framework, { minLearningRate: 1e-4 }).named).toEqual([]);
    }
    expect(written("torchtitan", { schedule: "wsd", annealingSteps: 9 }).back).toMatchObject({
      schedule: "wsd",
      annealingSteps: 9,
      decaySteps: 100,
    });
    for (const framework of ["megatron", "deepspeed"] as const)
      expect(written(framework, {})).toMatchObject({ named: [], back: { decaySteps: 50 } });
  });

  it("that ends before the job is read with what the program does behind it", () => {
    const titan = (more: string) =>
      schedule("torchtitan", `[training]\nsteps = 1000\n[lr_scheduler]\ntotal_steps = 500\n${more}`).said;
    expect(titan("")).toEqual([
      "lr_scheduler.total_steps 500: 500 steps of decay, then the least rate; " +
        "in torchtitan a line goes on below 0 behind its decay, and a cosine rises again",
    ]);
    expect(titan("min_lr_factor = 1.0")).toEqual([]);
    const cosine = "adam = dict(lr=1e-4)\nlr_scheduler = dict(total_steps=50, eta_min=1e-5)";
    expect(schedule("internevo", cosine).said).toEqual([
      "lr_scheduler.total_steps 50: 50 steps of decay, then the least rate; " +
        "in internevo its cosine rises again behind its decay",
    ]);
  });

  const schedule = (framework: Framework, more: string) => {
    const { optimizer, said, ignored } = read(framework, more);
    return {
      schedule: optimizer.schedule,
      annealingSteps: optimizer.annealingSteps,
      said: said.filter((text) => !/ missing: .*(?:default$|own)/.test(text)),
      ignored: ignored.filter((name) => /lr/.test(name)),
    };
  };

  it("of Megatron-LM is read in all its styles", () => {
    const megatron = (more: string) => schedule("megatron", `--train-iters 100 --lr 1e-3 ${more}`);
    const wsd = "--lr-decay-style WSD --lr-wsd-decay-iters 20";
    expect(megatron(`${wsd} --lr-wsd-decay-style linear`)).toMatchObject({
      schedule: "wsd",
      annealingSteps: 20,
      said: [],
    });
    expect(megatron(wsd).said).toEqual([
      "--lr-wsd-decay-style missing: linear, where the program's default is exponential",
    ]);
    expect(megatron(`${wsd} --lr-wsd-decay-style minus_sqrt`).said).toEqual([
      "--lr-wsd-decay-style minus_sqrt: linear: a job's wsd has no other",
    ]);
    expect(
      schedule(
        "megatron",
        "--train-samples 1600 --lr-decay-style WSD --lr-wsd-decay-samples 320 --lr-wsd-decay-style linear",
      ),
    ).toMatchObject({
      schedule: "wsd",
      annealingSteps: 20,
      said: ["--train-samples 1600: 100 steps", "--lr-wsd-decay-samples 320: 20 steps"],
    });
    expect(megatron(`${wsd} --lr-wsd-decay-style linear --lr-warmup-iters 90`)).toMatchObject({
      annealingSteps: 10,
      said: ["--lr-wsd-decay-iters 20: 10 steps: a job's wsd falls over a step at least, behind its warm-up"],
    });
    // What is of another style has no effect.
    expect(megatron("--lr-decay-style constant --min-lr 1e-5 --lr-decay-iters 50")).toMatchObject({
      schedule: "constant",
      ignored: ["--min-lr", "--lr-decay-iters"],
    });
    expect(megatron("--lr-decay-style cosine --lr-wsd-decay-samples 5")).toMatchObject({
      schedule: undefined,
      ignored: ["--lr-wsd-decay-samples"],
    });
    expect(megatron("--lr-decay-style inverse-square-root").said).toEqual([
      "--lr-decay-style inverse-square-root: cosine: a job has no schedule that falls with the root of the steps",
    ]);
  });

  it("that the program itself refuses is an error", () => {
    expect(faultsOf("megatron", "--lr-decay-style foo")).toEqual([
      "--lr-decay-style: is none of its choices → use one of constant, linear, cosine, inverse-square-root, WSD",
    ]);
    expect(faultsOf("deepspeed", "--lr-decay-style WSD")).toEqual([
      "--lr-decay-style: is none of its choices → use one of constant, linear, cosine, inverse-square-root",
    ]);
    expect(faultsOf("megatron", "--lr-decay-style WSD")).toEqual([
      "--lr-wsd-decay-iters: is missing, with --lr-decay-style WSD → add --lr-wsd-decay-iters",
    ]);
    expect(faultsOf("megatron", "--train-samples 160 --lr-decay-style WSD --lr-wsd-decay-iters 3")).toEqual([
      "--lr-wsd-decay-samples: is missing, with --lr-decay-style WSD → add --lr-wsd-decay-samples",
    ]);
    expect(faultsOf("torchtitan", '[lr_scheduler]\ndecay_type = "foo"\ndecay_ratio = 1.5')).toEqual([
      "lr_scheduler.decay_type: is none of its choices → use one of linear, sqrt, cosine",
      "lr_scheduler.decay_ratio: is more than 1, and a share of the steps → " +
        "give the share of the steps over which the learning rate falls",
    ]);
  });

  it("of torchtitan is read with its plateau", () => {
    const titan = (more: string) =>
      schedule("torchtitan", `[training]\nsteps = 1000\n[lr_scheduler]\n${more}`);
    expect(titan("decay_ratio = 0.1")).toMatchObject({ schedule: "wsd", annealingSteps: 100, said: [] });
    // A half is rounded to the even number, and the decay cut to what warm-up leaves.
    expect(titan("decay_ratio = 0.0005").schedule).toBe("constant");
    expect(titan("decay_ratio = 0.0025").annealingSteps).toBe(2);
    expect(titan("decay_ratio = 0.9").annealingSteps).toBe(800);
    expect(titan('decay_type = "cosine"')).toMatchObject({ schedule: undefined, said: [] });
    expect(titan("min_lr_factor = 1.0")).toMatchObject({ schedule: "constant", said: [] });
    expect(titan('decay_type = "cosine"\ndecay_ratio = 0.1')).toMatchObject({
      schedule: "wsd",
      said: ["lr_scheduler.decay_type cosine: linear: a job has no cosine behind a plateau"],
    });
    expect(titan('decay_type = "sqrt"')).toMatchObject({
      schedule: "linear",
      said: ["lr_scheduler.decay_type sqrt: linear: a job has no decay with the root of the steps"],
    });
  });
});

describe("data of a script", () => {
  const own = ["megatron", "deepspeed"] as const;
  const ofSplit = (framework: Framework, more: string): string[] =>
    read(framework, more).said.filter((text) => text.startsWith("--split"));

  it.each(own)("is the job's, and without effect no more: %s", (framework) => {
    const held = "--valid-data-path /v --eval-interval 5 --eval-iters 2 --save x --save-interval 7";
    const options =
      /^--(?:data-path|train-data-path|valid-data-path|eval-interval|eval-iters|save-interval|split)$/;
    const ignored = (more: string): string[] =>
      read(framework, more).ignored.filter((name) => options.test(name));
    expect(ignored(`--train-data-path /d ${held}`)).toEqual([]);
    expect(ignored("--data-path /d --split 1,0,0")).toEqual([]);
    // What cannot be read stays what it was.
    expect(ignored("--data-path $D --split 9,1,0 --eval-iters 5")).toEqual([
      "--data-path",
      "--split",
      "--eval-iters",
    ]);
  });

  it.each(own)("of which %s keeps a part from training is trained on whole, which is said", (framework) => {
    const whole = "100,0,0: the job trains on all of the data";
    expect(ofSplit(framework, "--data-path /d")).toEqual([
      `--split missing: ${whole}; the program's default, 969, 30, 1, keeps 3.1% of it for evaluation`,
    ]);
    expect(ofSplit(framework, "--data-path /d --split 90,8,2")).toEqual([
      `--split 90,8,2: ${whole}; this keeps 10.0% of it for evaluation`,
    ]);
    for (const more of ["", "--train-data-path /d", "--data-path /d --split 100,0,0", "--data-path $D"])
      expect([more, ofSplit(framework, more)]).toEqual([more, []]);
  });
});

describe("a weight decay that changes", () => {
  it("is the one that it ends with", () => {
    const grows = "--weight-decay-incr-style cosine --start-weight-decay 0.01 --end-weight-decay 0.2";
    const { optimizer, said } = read("megatron", grows);
    expect(optimizer.weightDecay).toBe(0.2);
    expect(said).toContain("--weight-decay-incr-style cosine: constant: 0.2, with which it ends");
    expect(faultsOf("deepspeed", "--weight-decay-incr-style linear --end-weight-decay 0.2")).toEqual([
      "--start-weight-decay: is missing, with --weight-decay-incr-style linear → add it",
    ]);
    expect(faultsOf("megatron", "--end-weight-decay 0.2")).toEqual([
      "--end-weight-decay: needs a --weight-decay-incr-style other than constant → give --weight-decay",
    ]);
  });
});
