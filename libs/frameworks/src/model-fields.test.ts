import { shippedProfile } from "@internevo/cost-model";
import { ProblemError, resolveJob, type Model, type Plan } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { aPlan } from "@internevo/test-kit";
import { describe, expect, it } from "vitest";
import {
  exportBest,
  exportConfiguration,
  exportPredicted,
  importConfiguration,
  importedJob,
  type Framework,
  type FrameworkFile,
} from "./index.ts";
import { jobOf, LLAMA3_ROPE as llama3 } from "../test/random-plans.ts";
import { read } from "../test/reading.ts";

/** What models may have beyond LLaMA: each framework says it, or refuses it by name. */

const PLAIN = { base: "llama-7b" };
/** Where a framework can, heads of queries share heads of keys and values. */
const baseOf = (framework: Framework) => (framework === "deepspeed" ? PLAIN : { ...PLAIN, kvHeads: 8 });
const plan = (over: Partial<Plan> = {}): Plan =>
  aPlan({ recompute: true, dataParallel: 128, optimizerStateSharding: 128, ...over });
const ring = plan({ microBatches: 8, dataParallel: 16, sequenceParallel: 8, contextParallel: 8 });

const written = (framework: Framework, fields: Record<string, unknown>, of = plan()) => {
  const job = jobOf({ model: { ...baseOf(framework), ...fields } });
  return { job, ...exportConfiguration(framework, job, planOfJob(of, job)) };
};
function problem(run: () => unknown): ProblemError {
  try {
    run();
  } catch (error) {
    if (error instanceof ProblemError) return error;
    throw error;
  }
  throw new Error("nothing was refused");
}

const yarn = { kind: "yarn", factor: 4, originalPositions: 32_768 };
const FIELDS: Readonly<Record<string, Record<string, unknown>>> = {
  "a head size": { headSize: 64 },
  "heads that do not divide": { heads: 30, kvHeads: 30, headSize: 96 },
  "shared heads that do not divide": { heads: 30, kvHeads: 10, headSize: 96 },
  "shared heads": { kvHeads: 16 },
  "one head of keys and values": { kvHeads: 1 },
  norms: { queryKeyNorm: true },
  biases: { queryKeyValueBias: true },
  "a window": { slidingWindowTokens: 4096 },
  "a window of one key": { slidingWindowTokens: 1 },
  "linear positions": { ropeScaling: { kind: "linear", factor: 2 } },
  "positions as of Llama 3.1": { ropeScaling: llama3 },
  "other low frequencies": { ropeScaling: { ...llama3, lowFrequencyFactor: 2 } },
  "a fraction of linear positions": { ropeScaling: { kind: "linear", factor: 2.5 } },
  yarn: { ropeScaling: yarn },
  "norms and a head size": { headSize: 64, queryKeyNorm: true },
};
const SAID: Readonly<Record<Framework, readonly string[]>> = {
  megatron: [
    "a head size",
    "heads that do not divide",
    "shared heads that do not divide",
    "shared heads",
    "one head of keys and values",
    "norms",
    "biases",
    "a window",
    "a window of one key",
    "linear positions",
    "positions as of Llama 3.1",
    "norms and a head size",
  ],
  deepspeed: ["a head size", "heads that do not divide"],
  torchtitan: [
    "a head size",
    "heads that do not divide",
    "shared heads that do not divide",
    "shared heads",
    "one head of keys and values",
    "norms",
    "positions as of Llama 3.1",
    "other low frequencies",
    "norms and a head size",
  ],
  internevo: ["shared heads", "one head of keys and values"],
};
const CASES = (Object.keys(SAID) as Framework[]).flatMap((framework) =>
  Object.keys(FIELDS).map((what) => [framework, what] as const),
);

describe("what a model has beyond LLaMA", () => {
  it.each(CASES)("is read back from %s, or refused by name: %s", (framework, what) => {
    const fields = FIELDS[what] as Record<string, unknown>;
    if (!SAID[framework].includes(what)) {
      const { code, details } = problem(() => written(framework, fields));
      expect(code).toBe("plan-invalid");
      for (const { field, message, remedy } of details) {
        expect(Object.keys(fields)).toContain(field.replace("model.", ""));
        expect(message).toMatch(new RegExp(`cannot say ${field.replace("model.", "")}: `));
        expect(remedy).toMatch(/another framework/);
      }
      return;
    }
    const { job, files } = written(framework, fields);
    const again = read(framework, files);
    const { name: _name, initStandardDeviation: _deviation, ...model } = job.model;
    const { name: _imported, initStandardDeviation: _default, ...found } = again.model;
    expect(found).toEqual(model);
    expect(resolveJob(importedJob(again, "again", "80GB")).model).toMatchObject(model);
  });

  it.each(["internevo", "torchtitan"] as const)(
    "names a spread of initial weights that %s has no word for",
    (framework) => {
      const named = (deviation: Record<string, unknown>): string[] =>
        written(framework, deviation).inexpressible.map(({ field }) => field);
      expect(named({ initStandardDeviation: 0.006 })).toContain("model.initStandardDeviation");
      expect(named({})).not.toContain("model.initStandardDeviation");
    },
  );

  it("changes nothing of a model without it", () => {
    for (const framework of Object.keys(SAID) as Framework[]) {
      const plain: Model = jobOf({ model: baseOf(framework) }).model;
      const { files } = written(framework, {});
      expect(read(framework, files).model).toEqual({ ...plain, name: "imported" });
      for (const { text } of files)
        expect(text).not.toMatch(
          /kv-channels|qk-layernorm|qkv-bias|window-size|rope-scaling|scaling_factor=(?!1,)|qwen3/,
        );
    }
  });

  it("has torchtitan's qwen3 tie embeddings, which its llama3 cannot", () => {
    const { files } = written("torchtitan", { queryKeyNorm: true, tiedEmbeddings: true });
    expect(read("torchtitan", files).model).toMatchObject({ queryKeyNorm: true, tiedEmbeddings: true });
    expect(files[0]?.text).toMatch(/name = "qwen3"/);
    expect(files[1]?.text).toMatch(/Qwen3ModelArgs\([^]*head_dim=128[^]*qk_norm=True/);
  });

  it("has no pipeline in torchtitan's qwen3, which the export says with the best that it can", () => {
    const profile = shippedProfile("a800-128");
    const stages = plan({
      microBatches: 4,
      dataParallel: 32,
      pipelineParallel: 4,
      optimizerStateSharding: 32,
    });
    for (const fields of [{ headSize: 64 }, { queryKeyNorm: true }]) {
      const job = jobOf({ model: { ...PLAIN, ...fields } });
      const { details } = problem(() => exportPredicted("torchtitan", job, planOfJob(stages, job), profile));
      expect(details).toMatchObject([
        { field: "plan.pipelineParallel", value: 4, message: expect.stringMatching(/qwen3.* no pipeline/) },
      ]);
      expect(details[0]?.remedy).toMatch(/the best plan that it can say is b\d.* pp1 /);
      const best = exportBest("torchtitan", { ...job, plan: { pipelineParallel: [1, 4] } }, profile);
      expect(best.plan.pipelineParallel).toBe(1);
      const fixed = problem(() =>
        exportBest("torchtitan", { ...job, plan: { pipelineParallel: 4 } }, profile),
      );
      expect(fixed.details).toMatchObject([{ field: "plan.pipelineParallel", value: 4 }]);
      expect(fixed.message).toMatch(/qwen3.* no pipeline/);
    }
    const { files } = written("torchtitan", {}, stages);
    expect(files[0]?.text).toMatch(/pipeline_parallel_degree = 4/);
  });

  it("is warned of where a torchtitan file has a pipeline of its qwen3", () => {
    const { files } = written("torchtitan", { queryKeyNorm: true });
    const [toml, flavor] = files as [FrameworkFile, FrameworkFile];
    expect(read("torchtitan", [toml, flavor]).warnings).toEqual([]);
    const text = toml.text
      .replace("pipeline_parallel_degree = 1", "pipeline_parallel_degree = 4")
      .replace("data_parallel_shard_degree = 128", "data_parallel_shard_degree = 32");
    expect(read("torchtitan", [{ ...toml, text }, flavor]).warnings).toMatchObject([
      { field: "parallelism.pipeline_parallel_degree", value: 4, remedy: expect.stringContaining("1") },
    ]);
  });
});

describe("heads of keys and values", () => {
  const shared = { base: "llama-7b", kvHeads: 4 };
  const tensor = plan({
    microBatches: 8,
    dataParallel: 16,
    tensorParallel: 8,
    sequenceParallel: 8,
    optimizerStateSharding: 16,
  });

  it("are refused for DeepSpeed where queries share them, with field, value and remedy", () => {
    expect(problem(() => written("deepspeed", { kvHeads: 8 })).details).toEqual([
      {
        field: "model.kvHeads",
        value: 8,
        message: expect.stringMatching(/^Megatron-DeepSpeed cannot say kvHeads: .*three equal parts/),
        remedy: "export to another framework, or export a model whose kvHeads is its heads, 32",
      },
    ]);
  });

  it("are warned of where a DeepSpeed script has queries share them", () => {
    const { files } = written("deepspeed", {});
    const [script, json] = files as [FrameworkFile, FrameworkFile];
    const grouped = (text: string) => ({
      ...script,
      text: script.text.replace(
        "--num-attention-heads 32",
        `--num-attention-heads 32 --num-key-value-heads ${text}`,
      ),
    });
    expect(read("deepspeed", [grouped("8"), json]).warnings).toMatchObject([
      { field: "--num-key-value-heads", value: 8, remedy: expect.stringContaining("32") },
    ]);
    expect(read("deepspeed", [grouped("32"), json]).warnings).toEqual([]);
  });

  it("are not shared by more tensor ranks in torchtitan, which the export says with the best that it can", () => {
    const job = jobOf({ model: shared });
    const profile = shippedProfile("a800-128");
    const { details } = problem(() => exportPredicted("torchtitan", job, planOfJob(tensor, job), profile));
    expect(details).toMatchObject([
      {
        field: "plan.tensorParallel",
        value: 8,
        message: expect.stringMatching(/4 heads of keys and values/),
      },
    ]);
    expect(details[0]?.remedy).toMatch(/the best plan that it can say is b/);
    const best = exportBest("torchtitan", { ...job, plan: { tensorParallel: [4, 8] } }, profile);
    expect(best.plan.tensorParallel).toBe(4);
    const fixed = problem(() => exportBest("torchtitan", { ...job, plan: { tensorParallel: 8 } }, profile));
    expect(fixed.details).toMatchObject([{ field: "plan.tensorParallel", value: 8 }]);
  });

  it("are on several tensor ranks each in Megatron-LM, which repeats them", () => {
    const job = jobOf({ model: shared });
    const { files, inexpressible } = exportConfiguration("megatron", job, planOfJob(tensor, job));
    expect(inexpressible.filter(({ field }) => field.startsWith("plan."))).toEqual([]);
    expect(read("megatron", files).plan).toMatchObject({ tensorParallel: 8 });
  });

  it.each(["megatron", "deepspeed", "torchtitan"] as const)(
    "are a fault of %s's tensor ranks that cannot share them",
    (framework) => {
      const twelve = jobOf({
        model: {
          hiddenSize: 3072,
          layers: 4,
          heads: 24,
          kvHeads: framework === "deepspeed" ? 24 : 4,
          ffnHiddenSize: 8192,
          vocabularySize: 32_000,
        },
      });
      const four = plan({
        microBatches: 4,
        dataParallel: 32,
        tensorParallel: 4,
        sequenceParallel: 4,
        optimizerStateSharding: 32,
      });
      const { files } = exportConfiguration(framework, twelve, planOfJob(four, twelve));
      const [main, ...rest] = files as [FrameworkFile, ...FrameworkFile[]];
      const text = main.text
        .replace("--tensor-model-parallel-size 4", "--tensor-model-parallel-size 6")
        .replace("tensor_parallel_degree = 4", "tensor_parallel_degree = 8")
        .replace("data_parallel_shard_degree = 32", "data_parallel_shard_degree = 16")
        .replace(
          "--num-attention-heads 24",
          framework === "deepspeed"
            ? "--num-attention-heads 24 --num-key-value-heads 4"
            : "--num-attention-heads 24",
        );
      const { details } = problem(() => read(framework, [{ ...main, text }, ...rest]));
      expect(details[0]).toMatchObject({
        field:
          framework === "torchtitan" ? "parallelism.tensor_parallel_degree" : "--tensor-model-parallel-size",
        value: framework === "torchtitan" ? 8 : 6,
        message: expect.stringMatching(/heads of keys and values|4 of keys and values/),
      });
    },
  );
});

describe("Megatron-LM's window", () => {
  it("is the keys before a query, of which ours counts one more", () => {
    const [{ text } = { text: "" }] = written("megatron", { slidingWindowTokens: 4096 }).files;
    expect(text).toMatch(/--window-size 4095,0/);
    const model = (window: string) =>
      read("megatron", [{ name: "pretrain.sh", text: text.replace("4095,0", window) }]).model;
    expect(model("'(127, 0)'").slidingWindowTokens).toBe(128);
    expect(model("-1,0")).not.toHaveProperty("slidingWindowTokens");
    expect(problem(() => model("127")).details[0]).toMatchObject({
      field: "--window-size",
      value: "127",
      remedy: expect.stringMatching(/4095,0/),
    });
  });

  it("is not written with a ring of ranks, and warned of where it is read with one", () => {
    const { details } = problem(() => written("megatron", { slidingWindowTokens: 4096 }, ring));
    expect(details).toMatchObject([{ field: "plan.contextParallel", value: 8 }]);
    const [{ text } = { text: "" }] = written("megatron", {}, ring).files;
    const { warnings } = read("megatron", [
      { name: "pretrain.sh", text: text.replace("--swiglu", "--swiglu --window-size 4095,0") },
    ]);
    expect(warnings).toMatchObject([{ field: "--window-size", value: "4095,0" }]);
  });

  it.each([
    ["--window-attn-skip-freq 2", "--window-attn-skip-freq"],
    ["--rope-scaling-factor 8", "--rope-scaling-factor"],
    ["--use-rope-scaling --rotary-seq-len-interpolation-factor 2", "--rotary-seq-len-interpolation-factor"],
    ["--kv-channels 63", "--kv-channels"],
    ["--kv-channels 1024", "--kv-channels"],
  ])("and its other options are refused where no model has them: %s", (options, field) => {
    const [{ text } = { text: "" }] = written("megatron", {}).files;
    const { details } = problem(() =>
      read("megatron", [{ name: "pretrain.sh", text: text.replace("--swiglu", `--swiglu ${options}`) }]),
    );
    expect(details).toMatchObject([{ field, remedy: expect.any(String) }]);
  });

  it("is read of yarn's position embeddings that they are not read", () => {
    const [{ text } = { text: "" }] = written("megatron", {}).files;
    const { details } = problem(() =>
      read("megatron", [
        {
          name: "pretrain.sh",
          text: text.replace("--position-embedding-type rope", "--position-embedding-type yarn"),
        },
      ]),
    );
    expect(details).toMatchObject([{ field: "--position-embedding-type", value: "yarn" }]);
  });
});

describe("torchtitan's flavors", () => {
  const flavor = (name: string, flavorName: string) =>
    importConfiguration(
      "torchtitan",
      [
        {
          name: "train.toml",
          text: `[model]\nname = "${name}"\nflavor = "${flavorName}"\n[training]\nlocal_batch_size = 1\nseq_len = 4096\n`,
        },
      ],
      { nodes: 1, gpusPerNode: 1 },
    );

  it("of qwen3 are known", () => {
    expect(flavor("qwen3", "4B").model).toMatchObject({
      headSize: 128,
      queryKeyNorm: true,
      tiedEmbeddings: true,
    });
  });

  it("of other models are refused", () => {
    expect(problem(() => flavor("llama4", "8B")).details[0]).toMatchObject({
      field: "model.name",
      remedy: "use llama3 or qwen3",
    });
  });
});
