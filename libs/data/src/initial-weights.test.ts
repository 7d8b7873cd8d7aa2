import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ProblemError, resolveJob } from "@internevo/domain";
import { afterEach, beforeEach, expect, it } from "vitest";
import { assertInitialWeights } from "./initial-weights.ts";

const { model } = resolveJob({
  name: "any",
  model: { hiddenSize: 64, layers: 2, heads: 4, kvHeads: 2, ffnHiddenSize: 128, vocabularySize: 256 },
  sequenceLengthTokens: 64,
  globalBatchTokens: 64,
  cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: "1GiB" },
});
const config = {
  model_type: "llama",
  hidden_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  intermediate_size: 128,
  vocab_size: 256,
  rms_norm_eps: 1e-5,
  tie_word_embeddings: false,
  rope_theta: 10_000,
};

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "internevo-weights-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const put = (name: string, content: unknown) =>
  writeFile(join(folder, name), typeof content === "string" ? content : JSON.stringify(content));
async function refusal(path = folder): Promise<string> {
  const error: unknown = await assertInitialWeights(path, model).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(ProblemError);
  expect((error as ProblemError).details[0]).toMatchObject({
    field: "initialWeights",
    remedy: expect.any(String),
  });
  return (error as ProblemError).message;
}

it("takes a Hugging Face folder of the model, in one file or several", async () => {
  await put("config.json", config);
  expect(await refusal()).toContain("has neither model.safetensors nor model.safetensors.index.json");
  await put("model.safetensors.index.json", { weight_map: { a: "one.safetensors", b: "two.safetensors" } });
  await put("one.safetensors", "x");
  expect(await refusal()).toContain("two.safetensors does not exist");
  await put("two.safetensors", "x");
  await assertInitialWeights(folder, model);
  await put("model.safetensors", "x");
  await put("config.json", {
    ...config,
    rope_theta: undefined,
    rope_parameters: { rope_theta: 10_000 },
    tie_word_embeddings: undefined,
  });
  await assertInitialWeights(folder, model);
});

it.each([
  [{ hidden_size: 128 }, "has hidden_size 128; the job's model has hiddenSize 64"],
  [{ num_key_value_heads: undefined }, "has num_key_value_heads 4; the job's model has kvHeads 2"],
  [{ tie_word_embeddings: true }, "has tie_word_embeddings true"],
  [{ rope_theta: 500_000 }, "has rope_theta 500000"],
  [{ rms_norm_eps: undefined }, "has rms_norm_eps 0.000001"],
  [{ model_type: "gpt2" }, `has model_type "gpt2"`],
])("refuses a folder of another model: %o", async (over, message) => {
  await put("model.safetensors", "x");
  await put("config.json", { ...config, ...over });
  expect(await refusal()).toContain(message);
});

it("refuses what is no weights: missing, a file, a folder of something else, a run's checkpoints, a damaged description", async () => {
  expect(await refusal(join(folder, "absent"))).toContain("does not exist");
  await put("file", "x");
  expect(await refusal(join(folder, "file"))).toContain("is no directory");
  expect(await refusal()).toContain("has neither a config.json nor a manifest.json");
  for (const step of [9, 10]) await mkdir(join(folder, `step-${step}`));
  expect(await refusal()).toContain("is the directory of a run's checkpoints");
  await put("config.json", "{");
  expect(await refusal()).toContain("is not JSON");
  await put("config.json", "[]");
  expect(await refusal()).toContain("is no description of weights");
});

const identity = {
  model: {
    hiddenSize: 64,
    layers: 2,
    heads: 4,
    kvHeads: 2,
    ffnHiddenSize: 128,
    vocabularySize: 256,
    tiedEmbeddings: false,
    ropeTheta: 10_000,
    normEpsilon: 1e-5,
  },
};

it("says of weights that cannot be read that they cannot, not that they are missing", async () => {
  await symlink("model.safetensors", join(folder, "model.safetensors"));
  await put("config.json", config);
  expect(await refusal()).toContain("model.safetensors cannot be read (ELOOP)");
});

it("takes a checkpoint of the model whose files are there", async () => {
  await put("manifest.json", { content: { identity, files: [{ name: "rank-0" }] } });
  expect(await refusal()).toContain("rank-0 does not exist");
  await put("rank-0", "x");
  await assertInitialWeights(folder, model);
});

it.each([5, "abc", {}, [null], [{ name: 5 }], [{ name: "../x" }], [{ name: ".." }], [], null, undefined])(
  "refuses a checkpoint whose files are %o, by the field",
  async (files) => {
    await put("manifest.json", { content: { identity, files } });
    expect(await refusal()).toMatch(/manifest\.json is no description of weights: content\.files/);
  },
);

it.each([
  {},
  { content: 5 },
  { content: { identity: 5, files: [{ name: "x" }] } },
  { content: { identity: { model: { ...identity.model, heads: [] } }, files: [{ name: "x" }] } },
])("refuses a manifest of another shape: %o", async (manifest) => {
  await put("manifest.json", manifest);
  expect(await refusal()).toMatch(/manifest\.json is no description of weights: content/);
});

it.each([
  {},
  { weight_map: 5 },
  { weight_map: {} },
  { weight_map: { a: { toString: 5 } } },
  { weight_map: { a: "" } },
  { weight_map: { a: "/etc/passwd" } },
  { weight_map: ["one"] },
])("refuses an index of another shape: %o", async (index) => {
  await put("config.json", config);
  await put("model.safetensors.index.json", index);
  expect(await refusal()).toMatch(/index\.json is no description of weights: weight_map/);
});

it("tells nothing of what it was not asked for, and keeps every message short", async () => {
  await put("elsewhere", "root:x:0:0:root:/root:/bin/bash\n");
  await symlink(join(folder, "elsewhere"), join(folder, "config.json"));
  expect(await refusal()).not.toContain("root:");
  await rm(join(folder, "config.json"));
  await put("model.safetensors", "x");
  for (const hidden_size of [
    "X".repeat(3_000),
    "X".repeat(3_000_000),
    Array.from({ length: 200 }).reduce<unknown>((inner) => [inner], 1),
  ]) {
    await put("config.json", { ...config, hidden_size });
    const message = await refusal();
    expect(message).not.toContain("XXX");
    expect(message.length).toBeLessThan(1000);
  }
  await put(
    "config.json",
    `{"model_type":"llama","hidden_size":${"[".repeat(200_000)}${"]".repeat(200_000)}}`,
  );
  expect(await refusal()).toContain("nested more than 100 levels deep");
  await put("config.json", { ...config, model_type: "Y".repeat(100_000) });
  expect((await refusal()).length).toBeLessThan(1000);
});
