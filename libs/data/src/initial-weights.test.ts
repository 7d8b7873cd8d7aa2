import { mkdir, mkdtemp, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ProblemError, resolveJob } from "@internevo/domain";
import { huggingFaceShapes, writeHeader, writeManifest, writeSafetensors } from "@internevo/test-kit/weights";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
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
const putTensors = (name = "model.safetensors", shapes = huggingFaceShapes(model)) =>
  writeSafetensors(join(folder, name), shapes);
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
  const whole = Object.entries(huggingFaceShapes(model));
  await putTensors("one.safetensors", Object.fromEntries(whole.slice(0, 5)));
  expect(await refusal()).toContain("two.safetensors does not exist");
  await putTensors("two.safetensors", Object.fromEntries(whole.slice(5)));
  await assertInitialWeights(folder, model);
  await putTensors();
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

it("names every member in which a model differs, of a folder and of a checkpoint", async () => {
  const differing = async (): Promise<unknown> =>
    assertInitialWeights(folder, { ...model, layers: 3, tiedEmbeddings: true, normEpsilon: 1e-6 }).catch(
      (error: unknown) => error,
    );
  await writeManifest(folder, identity.model, [{ name: "rank-0", bytes: 1 }]);
  expect(await differing()).toMatchObject({
    details: ["layers 2", "tiedEmbeddings false", "normEpsilon 0.00001"].map((has) => ({
      field: "initialWeights",
      message: expect.stringContaining(`has ${has};`),
    })),
  });
  await put("config.json", config);
  const error = await differing();
  expect(error).toMatchObject({
    details: ["num_hidden_layers 2", "tie_word_embeddings false", "rms_norm_eps 0.00001"].map((has) => ({
      field: "initialWeights",
      message: expect.stringContaining(`has ${has};`),
    })),
  });
  expect((error as ProblemError).message).toMatch(
    /config\.json has num_hidden_layers 2.*, and 2 more members differ$/,
  );
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

describe("a checkpoint", () => {
  const manifest = (...files: readonly unknown[]) => writeManifest(folder, identity.model, files);

  it("is taken where its files are there as its manifest says", async () => {
    const bytes = await putTensors("rank-0", { "embedding.weight": [256, 64], "embedding.firstMoment": [3] });
    await manifest({ name: "rank-0", bytes }, { name: "rank-1", bytes: 8 });
    expect(await refusal()).toContain("rank-1 does not exist");
    await manifest({ name: "rank-0", bytes });
    await assertInitialWeights(folder, model);
  });

  it("is refused where a file has another size, or tensors that it cannot hold", async () => {
    await put("rank-0", "x");
    await manifest({ name: "rank-0", bytes: 999 });
    expect(await refusal()).toMatch(/rank-0 has 1 bytes; the manifest says 999/);
    await manifest({ name: "rank-0", bytes: 1 });
    expect(await refusal()).toMatch(/rank-0 is no safetensors file/);
    for (const bytes of [-1, 1.5, 2 ** 60, "1", null, undefined]) {
      await manifest({ name: "rank-0", bytes });
      expect(await refusal()).toMatch(
        /manifest\.json is no description of weights: content\.files\.0\.bytes/,
      );
    }
  });

  it("is refused where a file lies elsewhere, unless that is below a folder that is allowed", async () => {
    const elsewhere = await mkdtemp(join(tmpdir(), "internevo-elsewhere-"));
    try {
      const bytes = await writeSafetensors(join(elsewhere, "rank-0"), { secret: [4] });
      await symlink(join(elsewhere, "rank-0"), join(folder, "rank-0"));
      await manifest({ name: "rank-0", bytes });
      expect(await refusal()).toMatch(/rank-0 is a link to a file outside of the checkpoint$/);
      await rm(join(elsewhere, "rank-0"));
      expect(await refusal()).toMatch(/rank-0 is a link to a file outside of the checkpoint$/);
      await writeSafetensors(join(elsewhere, "rank-0"), { secret: [4] });
      await assertInitialWeights(folder, model, { roots: [folder, elsewhere], own: undefined, ofJob: null });
      await expect(
        assertInitialWeights(folder, model, { roots: [folder], own: undefined, ofJob: null }),
      ).rejects.toThrow("is not below a folder");
      await symlink(folder, join(elsewhere, "linked"));
      await rm(join(folder, "rank-0"));
      await putTensors("rank-0", { secret: [4] });
      await assertInitialWeights(join(elsewhere, "linked"), model);
    } finally {
      await rm(elsewhere, { recursive: true });
    }
  });
});

describe("the header of a safetensors file", () => {
  const sound = Object.entries(huggingFaceShapes(model));
  const name = "model.embed_tokens.weight";
  const entry = (over: Record<string, unknown>) =>
    JSON.stringify({ [name]: { dtype: "F32", shape: [2, 3], data_offsets: [0, 24], ...over } });
  const path = () => join(folder, "model.safetensors");
  beforeEach(() => put("config.json", config));

  it.each<[string, string, number, bigint | undefined, RegExp]>([
    ["8 zeros", "", 0, 0n, /is damaged: its header is no JSON object of tensors/],
    [
      "a length of 2^64-1",
      "{}",
      24,
      2n ** 64n - 1n,
      /is damaged, or has a header of more than the 100 MB that the format allows/,
    ],
    ["a length beyond the file", "{}", 24, 27n, /is cut off or damaged: its header is longer than the file/],
    ["a list", "[]", 0, undefined, /no JSON object of tensors/],
    ["a text", '"secret"', 0, undefined, /no JSON object of tensors/],
    ["no JSON", "root:x:0:0:secret", 0, undefined, /no JSON object of tensors/],
    ["half an object", entry({}).slice(0, -1), 24, undefined, /no JSON object of tensors/],
    ["two objects", "{}{}", 0, undefined, /no JSON object of tensors/],
    ["a comma alone", "{,}", 0, undefined, /no JSON object of tensors/],
    [
      "a comma at the end",
      `${entry({ shape: [256, 64], data_offsets: [0, 65_536] }).slice(0, -1)},}`,
      65_536,
      undefined,
      /no JSON object of tensors/,
    ],
    ["brackets that do not match", '{"a":[}}', 0, undefined, /no JSON object of tensors/],
    ["deep lists", `{"a":${"[".repeat(200_000)}${"]".repeat(200_000)}}`, 0, undefined, /no JSON object/],
    ["a member of 2 MB", `{"${"x".repeat(2 ** 21)}":{}}`, 0, undefined, /no JSON object of tensors/],
    ["a number for a tensor", `{"${name}":5}`, 0, undefined, /does not describe model\.embed_tokens\.weight/],
    ["no type", entry({ dtype: undefined }), 24, undefined, /does not describe model\.embed_tokens/],
    [
      "another type",
      entry({ dtype: "secret" }),
      24,
      undefined,
      /embed_tokens\.weight in a type that is not read/,
    ],
    [
      "a name of Object for a type",
      entry({ dtype: "toString" }),
      24,
      undefined,
      /in a type that is not read/,
    ],
    ["no shape", entry({ shape: 5 }), 24, undefined, /does not describe model\.embed_tokens/],
    ["a negative size", entry({ shape: [-2, -3] }), 24, undefined, /does not describe model\.embed_tokens/],
    ["half a size", entry({ shape: [0.5, 12] }), 24, undefined, /does not describe model\.embed_tokens/],
    [
      "2^53 rows and columns",
      entry({ shape: [2 ** 53, 2 ** 53] }),
      24,
      undefined,
      /does not describe model\.embed_tokens/,
    ],
    ["elements beyond numbers", entry({ shape: [2 ** 50, 2 ** 50, 0] }), 24, undefined, /does not describe/],
    ["negative offsets", entry({ data_offsets: [-24, 0] }), 24, undefined, /does not describe/],
    ["offsets that go back", entry({ data_offsets: [24, 0] }), 24, undefined, /does not describe/],
    ["one offset", entry({ data_offsets: [24] }), 24, undefined, /does not describe/],
    ["fewer bytes than its shape", entry({ data_offsets: [0, 20] }), 24, undefined, /does not describe/],
    ["an unknown tensor", '{"secret":{}}', 0, undefined, /holds tensor 1, which the model does not have/],
    ["another shape", entry({}), 24, undefined, /in another shape than the model's \[256,64\]/],
  ])("is refused: %s", async (_, header, bytes, length, message) => {
    await writeHeader(path(), header, bytes, length);
    const refused = await refusal();
    expect(refused).toMatch(message);
    expect(refused).not.toContain("secret");
    expect(refused.length).toBeLessThan(400);
  });

  it("is refused where tensors overlap, leave gaps, are missing, come twice, or are cut off", async () => {
    const bytes = await putTensors();
    await truncate(path(), bytes - 1);
    expect(await refusal()).toMatch(/is cut off or damaged: its tensors end at byte \d+, and it has \d+/);
    await truncate(path(), bytes + 1);
    expect(await refusal()).toMatch(/is cut off or damaged/);
    await putTensors("model.safetensors", Object.fromEntries(sound.slice(0, -1)));
    expect(await refusal()).toMatch(/holds no model\.layers\.1\.mlp\.down_proj\.weight/);
    for (const wrong of [
      "model.layers.2.mlp.down_proj.weight",
      "model.layers.01.mlp.down_proj.weight",
      "lm_head",
    ]) {
      await putTensors("model.safetensors", { ...Object.fromEntries(sound), [wrong]: [64, 128] });
      expect(await refusal()).toMatch(/holds tensor \d+, which the model does not have/);
    }
    const [norm, wide] = ["model.norm.weight", "lm_head.weight"];
    const at = (begin: number, end: number, shape: number[]) => ({
      dtype: "BF16",
      shape,
      data_offsets: [begin, end],
    });
    for (const [begin, what] of [
      [32_768 - 2, "overlap"],
      [32_768 + 2, "gap"],
    ] as const) {
      const header = { [norm]: at(begin, begin + 128, [64]), [wide]: at(0, 32_768, [256, 64]) };
      await writeHeader(path(), JSON.stringify(header), 40_000);
      expect(await refusal(), what).toMatch(/its tensors overlap or leave a gap/);
    }
    await rm(path());
    await putTensors("one.safetensors");
    await putTensors("two.safetensors", { [norm]: [64] });
    await put("model.safetensors.index.json", { weight_map: { a: "one.safetensors", b: "two.safetensors" } });
    expect(await refusal()).toMatch(/two\.safetensors holds model\.norm\.weight a second time/);
  });

  it("is taken with metadata of any size, and with tensors that no model needs", async () => {
    const shapes = Object.entries({ ...huggingFaceShapes(model), "model.layers.0.rotary_emb.inv_freq": [8] });
    let end = 0;
    const entries = shapes.map(([key, shape]) => {
      const begin = end;
      end += 4 * shape.reduce((product, size) => product * size, 1);
      return [key, { dtype: "F32", shape, data_offsets: [begin, end] }];
    });
    const metadata = { __metadata__: { long: '\\"}{,'.repeat(500_000) } };
    await writeHeader(
      path(),
      JSON.stringify({ ...metadata, ...(Object.fromEntries(entries) as object) }),
      end,
    );
    await assertInitialWeights(folder, model);
  });
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
