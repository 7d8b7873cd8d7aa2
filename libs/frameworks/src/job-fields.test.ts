import { describe, expect, it } from "vitest";
import {
  ProblemError,
  resolveJob,
  type Data,
  type JobSpec,
  type Plan,
  type Validation,
} from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { exportConfiguration, FRAMEWORKS, importedJob, type Framework } from "./index.ts";
import type { TrainingField } from "./exported-fields.ts";
import { jobOf } from "../test/random-plans.ts";
import { read } from "../test/reading.ts";

/** The format of data that each framework reads itself; torchtitan reads none of a job's. */
const OWN_FORMAT: Readonly<Record<Framework, "megatron" | "internevo">> = {
  internevo: "internevo",
  megatron: "megatron",
  deepspeed: "megatron",
  torchtitan: "megatron",
};
const VOCABULARY = 100_000;

/** A job that says all that training depends on. */
const fullJob = (format: "megatron" | "internevo", more: Record<string, unknown> = {}): JobSpec =>
  jobOf({
    data: { format, path: "/data/x/a.bin", packing: "documents", endOfDocumentToken: VOCABULARY - 1 },
    validation: { data: { format, path: "/data/v/b.bin" }, everySteps: 50, batches: 4 },
    checkpointing: { everySteps: 100, keepLast: 3 },
    initialWeights: "/data/w",
    ...more,
  });

/** Replicas alone, as many as there are ranks. */
const planFor = (job: JobSpec, more: Partial<Plan> = {}): Plan => {
  const ranks = job.cluster.nodes * job.cluster.gpusPerNode;
  return {
    microBatchSize: 1,
    microBatches: job.globalBatchTokens / job.sequenceLengthTokens / ranks,
    recompute: false,
    pipelineParallel: 1,
    dataParallel: ranks,
    tensorParallel: 1,
    sequenceParallel: 1,
    parameterSharding: 1,
    gradientSharding: 1,
    optimizerStateSharding: 1,
    forwardOverlap: "none",
    backwardOverlap: "none",
    ...more,
  };
};

const exported = (framework: Framework, job: JobSpec, more: Partial<Plan> = {}) =>
  exportConfiguration(framework, job, planOfJob(planFor(job, more), job));

const withModel =
  (model: Partial<JobSpec["model"]>) =>
  (job: JobSpec): JobSpec => ({ ...job, model: { ...job.model, ...model } });
const withOptimizer =
  (optimizer: Partial<JobSpec["optimizer"]>) =>
  (job: JobSpec): JobSpec => ({ ...job, optimizer: { ...job.optimizer, ...optimizer } });
const withData =
  (data: Record<string, unknown>) =>
  (job: JobSpec): JobSpec => ({ ...job, data: { ...job.data, ...data } as Data });
const withValidation =
  (validation: Partial<Validation>) =>
  (job: JobSpec): JobSpec => ({ ...job, validation: { ...(job.validation as Validation), ...validation } });

/** Each field of a job that training depends on, written otherwise. */
const OTHERWISE: Readonly<Record<TrainingField, (job: JobSpec) => JobSpec>> = {
  "model.hiddenSize": withModel({ hiddenSize: 2048 }),
  "model.layers": withModel({ layers: 16 }),
  "model.heads": withModel({ heads: 64, kvHeads: 64 }),
  "model.kvHeads": withModel({ kvHeads: 8 }),
  "model.ffnHiddenSize": withModel({ ffnHiddenSize: 8192 }),
  "model.vocabularySize": withModel({ vocabularySize: 65_536 }),
  "model.tiedEmbeddings": withModel({ tiedEmbeddings: true }),
  "model.ropeTheta": withModel({ ropeTheta: 500_000 }),
  "model.normEpsilon": withModel({ normEpsilon: 1e-6 }),
  "model.initStandardDeviation": withModel({ initStandardDeviation: 0.01 }),
  "model.headSize": withModel({ headSize: 64 }),
  "model.queryKeyNorm": withModel({ queryKeyNorm: true }),
  "model.queryKeyValueBias": withModel({ queryKeyValueBias: true }),
  "model.slidingWindowTokens": withModel({ slidingWindowTokens: 4096 }),
  "model.ropeScaling": withModel({ ropeScaling: { kind: "linear", factor: 2 } }),
  sequenceLengthTokens: (job) => ({ ...job, sequenceLengthTokens: job.sequenceLengthTokens / 2 }),
  globalBatchTokens: (job) => ({ ...job, globalBatchTokens: job.globalBatchTokens * 2 }),
  precision: (job) => ({ ...job, precision: "fp32" }),
  "optimizer.schedule": withOptimizer({ schedule: "linear" }),
  "optimizer.annealingSteps": withOptimizer({ schedule: "wsd", annealingSteps: 77 }),
  "optimizer.peakLearningRate": withOptimizer({ peakLearningRate: 0.001 }),
  "optimizer.minLearningRate": withOptimizer({ minLearningRate: 0.0001 }),
  "optimizer.warmupSteps": withOptimizer({ warmupSteps: 20 }),
  "optimizer.decaySteps": withOptimizer({ decaySteps: 900 }),
  "optimizer.weightDecay": withOptimizer({ weightDecay: 0.2 }),
  "optimizer.beta1": withOptimizer({ beta1: 0.8 }),
  "optimizer.beta2": withOptimizer({ beta2: 0.9 }),
  "optimizer.epsilon": withOptimizer({ epsilon: 1e-7 }),
  "optimizer.clipGlobalNorm": withOptimizer({ clipGlobalNorm: 2 }),
  "data.format": withData({ format: "tokens" }),
  "data.path": withData({ path: "/data/other/c.bin" }),
  "data.paths": (job) => ({ ...job, data: { format: "text", paths: ["/data/a.txt"] } }),
  "data.sources": (job) => ({
    ...job,
    data: { format: "mixture", sources: [{ format: "text", paths: ["/data/a.txt"], weight: 1 }] },
  }),
  "data.packing": withData({ packing: "none" }),
  "data.endOfDocumentToken": withData({ endOfDocumentToken: 2 }),
  steps: (job) => ({ ...job, steps: 2000 }),
  seed: (job) => ({ ...job, seed: 7 }),
  "cluster.nodes": (job) => ({ ...job, cluster: { ...job.cluster, nodes: 8 } }),
  "cluster.gpusPerNode": (job) => ({ ...job, cluster: { ...job.cluster, gpusPerNode: 4 } }),
  "validation.data": withValidation({ data: { format: "tokens", path: "/data/v" } }),
  "validation.everySteps": withValidation({ everySteps: 60 }),
  "validation.batches": withValidation({ batches: 5 }),
  "checkpointing.everySteps": (job) => ({ ...job, checkpointing: { everySteps: 200, keepLast: 3 } }),
  "checkpointing.keepLast": (job) => ({ ...job, checkpointing: { everySteps: 100, keepLast: 5 } }),
  initialWeights: (job) => ({ ...job, initialWeights: "/data/others" }),
};
const FIELDS = Object.keys(OTHERWISE) as TrainingField[];

/** What an export says of a job: its files and what it names, or what it refuses. */
function outcome(framework: Framework, job: JobSpec): { files: string; named: readonly string[] } {
  try {
    const { files, inexpressible } = exported(framework, job);
    return { files: JSON.stringify(files), named: inexpressible.map(({ field }) => field) };
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    return { files: "refused", named: error.details.map(({ field }) => field) };
  }
}

/** Fields whose part in another one is named with it. */
const WITH: Partial<Record<TrainingField, TrainingField>> = {
  "optimizer.annealingSteps": "optimizer.schedule",
  "data.endOfDocumentToken": "data.packing",
};

/** Whether a name stands for a field: its own, or that of what it is in. */
const standsFor = (name: string, field: TrainingField): boolean =>
  field === name || field.startsWith(`${name}.`) || WITH[field] === name;

describe.each(FRAMEWORKS)("%s", (framework) => {
  const job = fullJob(OWN_FORMAT[framework]);

  it.each(FIELDS)("writes %s, or names it", (field) => {
    const [before, after] = [outcome(framework, job), outcome(framework, OTHERWISE[field](job))];
    const isNamed = [...before.named, ...after.named].some((name) => standsFor(name, field));
    expect(before.files === "refused").toBe(false);
    expect(after.files !== before.files || isNamed, `${field}: ${JSON.stringify(after.named)}`).toBe(true);
    if (after.files === "refused") expect(after.named.some((name) => standsFor(name, field))).toBe(true);
  });
});

const named = (framework: Framework, job: JobSpec, more: Partial<Plan> = {}) =>
  exported(framework, job, more).inexpressible.map(({ field, value, nearest }) => [field, value, nearest]);
const text = (framework: Framework, job: JobSpec, more: Partial<Plan> = {}): string =>
  (exported(framework, job, more).files[0]?.text ?? "").replaceAll(/\s*\\\n\s*/g, " ");

describe("data", () => {
  it.each(["megatron", "deepspeed"] as const)(
    "%s trains on all of it, and evaluates nothing",
    (framework) => {
      const plain = jobOf({ data: { format: "megatron", path: "/data/x.bin" } });
      expect(text(framework, plain)).toContain(
        " --data-path /data/x --split 100,0,0 --eval-interval 1000 --eval-iters 0",
      );
      const none = framework === "megatron" ? "--mock-data" : "--data-path data --split 100,0,0";
      expect(text(framework, jobOf())).toContain(` ${none} --eval-interval 1000 --eval-iters 0`);
    },
  );

  it.each(["megatron", "deepspeed"] as const)("%s evaluates the job's own held-out data", (framework) => {
    const job = fullJob("megatron");
    expect(text(framework, job)).toContain(
      " --train-data-path /data/x/a --valid-data-path /data/v/b --eval-interval 50 --eval-iters 4",
    );
    expect(text(framework, job)).not.toMatch(/--split| --data-path/);
    expect(named(framework, job)).toContainEqual(["validation.batches", 4, 4]);
    const other = fullJob("megatron", {
      validation: { data: { format: "text", paths: ["/v"] }, everySteps: 50, batches: 4 },
    });
    expect(named(framework, other)).toContainEqual(["validation", "text", "no evaluation"]);
    expect(text(framework, other)).toContain(" --split 100,0,0 --eval-interval 1000 --eval-iters 0");
  });

  it.each(["megatron", "deepspeed"] as const)("%s reads a mixture by its weights, and back", (framework) => {
    const source = (path: string, weight: number) => ({ format: "megatron", path, weight });
    const job = fullJob("megatron", {
      data: { format: "mixture", sources: [source("/data/a.bin", 1e-7), source("/data/b", 3e-7)] },
    });
    expect(text(framework, job)).toContain(" --train-data-path 1e-7 /data/a 3e-7 /data/b --valid-data-path");
    const { data } = read(framework, exported(framework, job).files);
    expect(data).toMatchObject({
      format: "mixture",
      sources: [source("/data/a", 1e-7), source("/data/b", 3e-7)],
    });
    const other = fullJob("megatron", {
      data: {
        format: "mixture",
        sources: [source("/data/a", 1), { format: "text", paths: ["/t"], weight: 1 }],
      },
    });
    expect(named(framework, other)).toContainEqual(["data", "mixture", expect.any(String)]);
  });

  it.each([
    ["/data/x/en/a.bin", '"/data/x"'],
    ["/data//x/./en/../fr/a.bin", '"/data/x"'],
    ["/x/en/a.bin", '"/x"'],
  ])("InternEvo takes the folders below train_folder as kinds of data: %s", (path, folder) => {
    const job = fullJob("internevo", { data: { format: "internevo", path } });
    expect(text("internevo", job)).toContain(` train_folder=${folder},`);
    const said = exported("internevo", job).inexpressible.find(({ field }) => field === "data.path");
    expect(said).toMatchObject({ value: path, nearest: path });
    expect(said?.reason).toMatch(/every \.bin below train_folder/);
  });

  it("InternEvo is said to train on held-out data that lies below train_folder, too", () => {
    const reason = (path: string): string | undefined =>
      exported("internevo", fullJob("internevo", { data: { format: "internevo", path } })).inexpressible.find(
        ({ field }) => field === "data.path",
      )?.reason;
    expect(reason("/data/x/a.bin")).toMatch(/also the held-out data/);
    expect(reason("/data/x/en/a.bin")).not.toMatch(/held-out/);
  });

  it.each(["/en.bin", "/x/en.bin", "en.bin"])(
    "InternEvo reads no file without two folders above it, which is said: %s",
    (path) => {
      const job = fullJob("internevo", { data: { format: "internevo", path } });
      expect(text("internevo", job)).toContain(" train_folder=None,");
      const said = exported("internevo", job).inexpressible.find(({ field }) => field === "data.path");
      expect(said).toMatchObject({ value: path, nearest: expect.stringMatching(/^random data/) });
      expect(said?.reason).toMatch(/\/data\/en\/en\.bin/);
    },
  );

  it("keeps attention, positions and loss inside a document where a framework can", () => {
    const job = fullJob("megatron");
    expect(text("megatron", job)).toContain(
      ` --dataloader-inter-document-masking --null-tokenizer-eod-id ${VOCABULARY - 1} --eod-mask-loss`,
    );
    expect(named("megatron", job)).toContainEqual([
      "data.endOfDocumentToken",
      VOCABULARY - 1,
      VOCABULARY - 1,
    ]);
    const borders = fullJob("megatron", {
      data: { format: "megatron", path: "/data/x", packing: "documents" },
    });
    expect(text("megatron", borders)).toContain(" --dataloader-inter-document-masking");
    expect(text("megatron", borders)).not.toContain("--eod-mask-loss");
    expect(named("megatron", borders)).toContainEqual(["data.packing", "documents", "documents"]);
    expect(text("deepspeed", job)).toContain(
      " --reset-position-ids --reset-attention-mask --eod-mask-loss --no-masked-softmax-fusion",
    );
    for (const [other, plan] of [
      [borders, {}],
      [OTHERWISE["data.endOfDocumentToken"](job), {}],
      [job, { pipelineParallel: 2, dataParallel: 64, microBatches: 2 }],
    ] as const) {
      expect(named("deepspeed", other, plan)).toContainEqual(["data.packing", "documents", "none"]);
      expect(text("deepspeed", other, plan)).not.toContain("--reset-attention-mask");
    }
    expect(named("torchtitan", job)).toContainEqual(["data.packing", "documents", "none"]);
    const own = fullJob("internevo");
    expect(text("internevo", own)).toContain("pack_sample_into_one=False");
    expect(named("internevo", own)).toContainEqual(["data.endOfDocumentToken", VOCABULARY - 1, null]);
    expect(text("internevo", OTHERWISE["data.packing"](own))).toContain("pack_sample_into_one=True");
  });
});

describe("checkpoints and weights", () => {
  const none = { checkpointing: null, initialWeights: undefined };

  it("are written where the framework has words for them", () => {
    const megatron = fullJob("megatron");
    expect(text("megatron", megatron)).toContain(
      " --save checkpoints --load checkpoints --save-interval 100 --pretrained-checkpoint /data/w",
    );
    expect(text("deepspeed", megatron)).toContain(
      " --save checkpoints --save-interval 100 --load /data/w --finetune",
    );
    expect(text("deepspeed", { ...megatron, initialWeights: undefined } as unknown as JobSpec)).toContain(
      " --save checkpoints --load checkpoints --save-interval 100",
    );
    expect(text("internevo", fullJob("internevo"))).toContain(
      'ckpt = dict(enable_save_ckpt=True, save_ckpt_folder="local:checkpoints", checkpoint_every=100, auto_resume=False, load_ckpt_info=dict(path="local:/data/w", content=("model",), ckpt_type="internevo"))',
    );
    const titan = exported("torchtitan", megatron).files[0]?.text;
    expect(titan).toContain(
      `[checkpoint]
enable = true
interval = 100
keep_latest_k = 3
last_save_model_only = false
initial_load_path = "/data/w"
initial_load_in_hf = true`,
    );
    for (const framework of FRAMEWORKS)
      expect(named(framework, fullJob(OWN_FORMAT[framework]))).toContainEqual([
        "initialWeights",
        "/data/w",
        "/data/w",
      ]);
    for (const framework of ["internevo", "megatron", "deepspeed"] as const)
      expect(named(framework, fullJob(OWN_FORMAT[framework]))).toContainEqual([
        "checkpointing.keepLast",
        3,
        "all",
      ]);
  });

  it("are left out where the job has none", () => {
    const job = { ...jobOf(), ...none } as unknown as JobSpec;
    for (const framework of FRAMEWORKS) {
      expect(text(framework, job)).not.toMatch(
        /--save|--load|--pretrained|\[checkpoint\]|enable_save_ckpt=True/,
      );
      expect(named(framework, job).filter(([field]) => /checkpoint|Weights/.test(String(field)))).toEqual([]);
    }
  });
});

describe("import", () => {
  it.each(["megatron", "deepspeed"] as const)(
    "%s: reads back data, validation and checkpoints",
    (framework) => {
      const job = fullJob("megatron");
      const again = importedJob(read(framework, exported(framework, job).files), "again", "80GB");
      expect(again).toMatchObject({
        data: { ...job.data, path: "/data/x/a" },
        validation: { data: { format: "megatron", path: "/data/v/b" }, everySteps: 50, batches: 4 },
        checkpointing: { everySteps: 100 },
      });
      expect(resolveJob(again).data).toEqual(again.data);
      const plain = jobOf({ data: { format: "megatron", path: "/data/x.bin" } });
      const second = importedJob(read(framework, exported(framework, plain).files), "again", "80GB");
      expect([second.data, second.validation]).toEqual([{ format: "megatron", path: "/data/x" }, undefined]);
    },
  );

  it("InternEvo: lists folders of data as left out, and not as without effect", () => {
    const { takenAs, ignored, data } = read("internevo", exported("internevo", fullJob("internevo")).files);
    expect(data).toBeUndefined();
    for (const [option, value] of [
      ["data.train_folder", "/data"],
      ["data.valid_folder", "/data/v"],
    ]) {
      expect(takenAs).toContainEqual({ option, value, as: expect.stringMatching(/it is left out$/) });
      expect(ignored).not.toContain(option);
    }
    const none = read("internevo", exported("internevo", jobOf()).files);
    expect(none.takenAs.filter(({ option }) => option.endsWith("_folder"))).toEqual([]);
  });

  it("torchtitan: reads back checkpoints and weights", () => {
    const job = fullJob("megatron");
    const again = importedJob(read("torchtitan", exported("torchtitan", job).files), "again", "80GB");
    expect(again).toMatchObject({ checkpointing: job.checkpointing, initialWeights: "/data/w" });
  });
});
