import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ProblemError, resolveJob, type Model } from "@internevo/domain";
import {
  huggingFaceShapes,
  internlm2Shapes,
  writeManifest,
  writeSafetensors,
} from "@internevo/test-kit/weights";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { assertInitialWeights } from "./initial-weights.ts";
import { weightsWarnings } from "./hugging-face.ts";

/** Folders of every family of models, as their config.json has them. */

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "internevo-family-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const sizes = { hiddenSize: 64, layers: 4, heads: 4, kvHeads: 2, ffnHiddenSize: 128, vocabularySize: 256 };
const modelOf = (fields: Record<string, unknown> = {}) =>
  resolveJob({
    name: "any",
    model: { ...sizes, normEpsilon: 1e-6, ...fields },
    sequenceLengthTokens: 64,
    globalBatchTokens: 64,
    cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: "1GiB" },
  }).model;
const config = {
  hidden_act: "silu",
  hidden_size: 64,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  intermediate_size: 128,
  vocab_size: 256,
  rms_norm_eps: 1e-6,
  max_position_embeddings: 32_768,
  rope_theta: 10_000,
};
const llama = { ...config, model_type: "llama", attention_bias: false, mlp_bias: false, rope_scaling: null };
const qwen2 = {
  ...config,
  model_type: "qwen2",
  use_sliding_window: false,
  sliding_window: 4096,
  max_window_layers: 4,
};
const qwen3 = { ...qwen2, model_type: "qwen3", attention_bias: false, head_dim: 32 };
const mistral = { ...config, model_type: "mistral", sliding_window: 4096 };
const internlm2 = { ...config, model_type: "internlm2", bias: false, rope_scaling: null };
const wide = { headSize: 32, queryKeyNorm: true };

const check = async (written: Record<string, unknown>, fields: Record<string, unknown>): Promise<void> => {
  await writeFile(join(folder, "config.json"), JSON.stringify(written));
  const model = modelOf(fields);
  const shapes = written["model_type"] === "internlm2" ? internlm2Shapes(model) : huggingFaceShapes(model);
  await writeSafetensors(join(folder, "model.safetensors"), shapes);
  await assertInitialWeights(folder, model);
};
async function refusal(
  written: Record<string, unknown>,
  fields: Record<string, unknown>,
): Promise<{ message: string; remedy: string }> {
  const error: unknown = await check(written, fields).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(ProblemError);
  const [detail] = (error as ProblemError).details;
  return { message: detail?.message ?? "", remedy: detail?.remedy ?? "" };
}

const llama3 = {
  rope_type: "llama3",
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 8192,
};
const stretched = {
  kind: "llama3",
  factor: 8,
  originalPositions: 8192,
  lowFrequencyFactor: 1,
  highFrequencyFactor: 4,
};
const yarn = { kind: "yarn", factor: 4, originalPositions: 32_768 };

describe("a folder of a known family", () => {
  it.each<[string, Record<string, unknown>, Record<string, unknown>]>([
    ["LLaMA", llama, {}],
    ["LLaMA with heads of the usual size", { ...llama, head_dim: 16 }, {}],
    ["LLaMA with wider heads", { ...llama, head_dim: 32 }, { headSize: 32 }],
    ["Llama 3.1", { ...llama, rope_scaling: llama3 }, { ropeScaling: stretched }],
    [
      "Llama 3.1, newer members",
      { ...llama, rope_theta: undefined, rope_parameters: { ...llama3, rope_theta: 500_000 } },
      { ropeTheta: 500_000, ropeScaling: stretched },
    ],
    [
      "positions that are not scaled, newer members",
      { ...llama, rope_parameters: { rope_type: "default", rope_theta: 10_000 } },
      {},
    ],
    [
      "linear positions, older members",
      { ...llama, rope_scaling: { type: "linear", factor: 2 } },
      { ropeScaling: { kind: "linear", factor: 2 } },
    ],
    [
      "yarn, defaults written or not",
      {
        ...llama,
        rope_scaling: {
          rope_type: "yarn",
          factor: 4,
          beta_fast: 32,
          beta_slow: 1,
          truncate: true,
          mscale: 0,
          attention_factor: null,
        },
      },
      { ropeScaling: yarn },
    ],
    [
      "yarn of its own",
      {
        ...llama,
        rope_scaling: {
          rope_type: "yarn",
          factor: 4,
          original_max_position_embeddings: 4096,
          beta_fast: 16,
          truncate: false,
          mscale: 1,
          mscale_all_dim: 0.5,
        },
      },
      {
        ropeScaling: {
          ...yarn,
          originalPositions: 4096,
          betaFast: 16,
          truncate: false,
          mscale: 1,
          mscaleAllDimensions: 0.5,
        },
      },
    ],
    ["Qwen2", qwen2, { queryKeyValueBias: true }],
    [
      "Qwen2 with windows in all layers",
      { ...qwen2, use_sliding_window: true, max_window_layers: 0 },
      { queryKeyValueBias: true, slidingWindowTokens: 4096 },
    ],
    [
      "Qwen2 with windows in no layer",
      { ...qwen2, use_sliding_window: true, max_window_layers: 4 },
      { queryKeyValueBias: true },
    ],
    [
      "Qwen2 that lists windows for all layers",
      {
        ...qwen2,
        use_sliding_window: true,
        sliding_window: 64,
        max_window_layers: 4,
        layer_types: Array<string>(4).fill("sliding_attention"),
      },
      { queryKeyValueBias: true, slidingWindowTokens: 64 },
    ],
    [
      "Qwen2 that lists a window for no layer",
      {
        ...qwen2,
        use_sliding_window: true,
        max_window_layers: 0,
        layer_types: Array<string>(4).fill("full_attention"),
      },
      { queryKeyValueBias: true },
    ],
    ["Qwen3", qwen3, wide],
    ["Qwen3 that says no head size", { ...qwen3, head_dim: undefined }, { ...wide, headSize: 128 }],
    ["Mistral", mistral, { slidingWindowTokens: 4096 }],
    ["Mistral without a window", { ...mistral, sliding_window: null }, {}],
    [
      "Mistral that says nothing of windows",
      { ...mistral, sliding_window: undefined },
      { slidingWindowTokens: 4096 },
    ],
    ["Mistral with wider heads", { ...mistral, sliding_window: null, head_dim: 32 }, { headSize: 32 }],
    ["InternLM2", internlm2, {}],
    [
      "InternLM2 with as many heads of keys",
      { ...internlm2, num_key_value_heads: undefined },
      { kvHeads: 4 },
    ],
  ])("is taken: %s", async (_name, written, fields) => check(written, fields));
});

describe("a folder of another model", () => {
  it.each<[string, Record<string, unknown>, Record<string, unknown>, RegExp, RegExp]>([
    [
      "an unknown family",
      { ...config, model_type: "gemma3" },
      {},
      /model_type "gemma3", which is not supported/,
      /LLaMA, Mistral, Qwen2, Qwen3 or InternLM2/,
    ],
    ["no family", config, {}, /model_type missing/, /LLaMA, Mistral/],
    [
      "biases of LLaMA",
      { ...llama, attention_bias: true },
      {},
      /has attention_bias true/,
      /attention_bias false/,
    ],
    ["biases of the MLP", { ...llama, mlp_bias: true }, {}, /has mlp_bias true/, /mlp_bias false/],
    [
      "biases of Qwen3",
      { ...qwen3, attention_bias: true },
      wide,
      /has attention_bias true/,
      /attention_bias false/,
    ],
    ["biases of InternLM2", { ...internlm2, bias: true }, {}, /has bias true/, /bias false/],
    [
      "biases that InternLM2 has unless it says otherwise",
      { ...internlm2, bias: undefined },
      {},
      /has bias missing/,
      /bias false/,
    ],
    [
      "dynamic positions",
      { ...internlm2, rope_scaling: { type: "dynamic", factor: 2 } },
      {},
      /rope_scaling of type "dynamic"/,
      /linear, llama3 or yarn/,
    ],
    ["another activation", { ...llama, hidden_act: "gelu" }, {}, /has hidden_act "gelu"/, /silu/],
    [
      "windows listed for some layers",
      {
        ...qwen2,
        use_sliding_window: true,
        max_window_layers: 0,
        layer_types: ["full_attention", "sliding_attention"],
      },
      { queryKeyValueBias: true },
      /layer_types of several kinds/,
      /all of one kind/,
    ],
    [
      "windows in some layers",
      { ...qwen2, use_sliding_window: true, max_window_layers: 2 },
      { queryKeyValueBias: true },
      /max_window_layers 2, which leaves some of its 4 layers without a window/,
      /max_window_layers 0/,
    ],
    [
      "no biases in the job",
      qwen2,
      {},
      /has queryKeyValueBias by its model_type; the job's model has no queryKeyValueBias/,
      /the model of these weights/,
    ],
    [
      "biases in the job",
      llama,
      { queryKeyValueBias: true },
      /has no queryKeyValueBias by its model_type/,
      /the model of these weights/,
    ],
    [
      "another head size",
      qwen3,
      { queryKeyNorm: true },
      /has head_dim 32; the job's model has no headSize/,
      /./,
    ],
    ["no head size", llama, { headSize: 32 }, /has head_dim missing; the job's model has headSize 32/, /./],
    [
      "another window",
      mistral,
      { slidingWindowTokens: 512 },
      /has sliding_window 4096; the job's model has slidingWindowTokens 512/,
      /./,
    ],
    [
      "other positions",
      { ...llama, rope_scaling: { ...llama3, factor: 32 } },
      { ropeScaling: stretched },
      /has rope_scaling .*"factor":32.*ropeScaling .*"factor":8/,
      /./,
    ],
    [
      "positions without their factor",
      { ...llama, rope_scaling: { ...llama3, factor: undefined } },
      { ropeScaling: stretched },
      /has rope_scaling/,
      /./,
    ],
    [
      "too few heads of keys",
      { ...mistral, num_key_value_heads: undefined },
      { slidingWindowTokens: 4096 },
      /has num_key_value_heads missing/,
      /./,
    ],
  ])("is refused: %s", async (_name, written, fields, message, remedy) => {
    const refused = await refusal(written, fields);
    expect(refused.message).toMatch(message);
    expect(refused.remedy).toMatch(remedy);
  });
});

describe("a checkpoint", () => {
  const put = async (over: Record<string, unknown>): Promise<void> => {
    const model = { ...sizes, tiedEmbeddings: false, ropeTheta: 10_000, normEpsilon: 1e-6, ...over };
    const bytes = await writeSafetensors(join(folder, "shard"), {});
    await writeManifest(folder, model, [{ name: "shard", bytes }]);
  };

  it("is taken with the fields that its model has", async () => {
    const fields = { ...wide, slidingWindowTokens: 32, ropeScaling: stretched };
    await put(fields);
    await assertInitialWeights(folder, modelOf(fields));
    await expect(assertInitialWeights(folder, modelOf())).rejects.toThrow(/the job's model has no headSize/);
    await expect(
      assertInitialWeights(folder, modelOf({ ...fields, ropeScaling: { ...stretched, factor: 4 } })),
    ).rejects.toThrow(/has ropeScaling .*"factor":8/);
  });
});

describe("weights that a job writes", () => {
  const warnings = (model: Partial<Model>, checkpointing: { everySteps: number; keepLast: number } | null) =>
    weightsWarnings({ model: { ...modelOf(), ...model }, checkpointing });
  const saved = { everySteps: 1, keepLast: 1 };
  const both = { queryKeyNorm: true, queryKeyValueBias: true } as const;

  it("become a folder unless no architecture has all that the model has", () => {
    for (const model of [{}, wide, { queryKeyValueBias: true }, { slidingWindowTokens: 8 }] as const)
      expect(warnings(model, saved)).toEqual([]);
    expect(warnings(both, null)).toEqual([]);
    expect(warnings(both, saved)).toEqual([
      {
        field: "model.queryKeyValueBias",
        value: true,
        message:
          "and queryKeyNorm are of no Hugging Face architecture together: the weights stay a checkpoint",
        remedy: "leave one of the two out if `internevo checkpoint export` is to write a Hugging Face folder",
      },
    ]);
  });
});
