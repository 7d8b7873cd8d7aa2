import { access, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { EXIT } from "../src/exit-codes.ts";
import { run } from "../src/run.ts";

/** A Hugging Face folder of zeros: one layer, vocabulary 6, hidden size 8. */
async function writeFolder(folder: string): Promise<void> {
  const layer = "model.layers.0";
  const shapes: Record<string, number[]> = {
    "model.embed_tokens.weight": [6, 8],
    "model.norm.weight": [8],
    "lm_head.weight": [6, 8],
    [`${layer}.input_layernorm.weight`]: [8],
    [`${layer}.post_attention_layernorm.weight`]: [8],
    [`${layer}.self_attn.q_proj.weight`]: [8, 8],
    [`${layer}.self_attn.k_proj.weight`]: [4, 8],
    [`${layer}.self_attn.v_proj.weight`]: [4, 8],
    [`${layer}.self_attn.o_proj.weight`]: [8, 8],
    [`${layer}.mlp.gate_proj.weight`]: [12, 8],
    [`${layer}.mlp.up_proj.weight`]: [12, 8],
    [`${layer}.mlp.down_proj.weight`]: [8, 12],
  };
  let bytes = 0;
  const entries = Object.entries(shapes).map(([name, shape]) => {
    const begin = bytes;
    bytes += 4 * shape.reduce((product, size) => product * size, 1);
    return [name, { dtype: "F32", shape, data_offsets: [begin, bytes] }];
  });
  const header = Buffer.from(JSON.stringify(Object.fromEntries(entries)));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  await mkdir(folder);
  await writeFile(join(folder, "model.safetensors"), Buffer.concat([length, header, Buffer.alloc(bytes)]));
  await writeFile(
    join(folder, "config.json"),
    JSON.stringify({
      model_type: "llama",
      hidden_size: 8,
      num_hidden_layers: 1,
      num_attention_heads: 2,
      num_key_value_heads: 1,
      intermediate_size: 12,
      vocab_size: 6,
      tie_word_embeddings: false,
      rms_norm_eps: 1e-5,
      rope_theta: 10000,
    }),
  );
}

describe("internevo checkpoint", () => {
  let directory = "";
  const at = (name: string): string => join(directory, name);
  const call = async (...args: string[]) => {
    const written = { stdout: "", stderr: "" };
    const stream = (name: "stdout" | "stderr") =>
      ({ write: (text: string) => ((written[name] += text), true) }) as unknown as NodeJS.WritableStream;
    const status = await run(["checkpoint", ...args], {
      stdout: stream("stdout"),
      stderr: stream("stderr"),
      env: process.env,
    });
    return { status, ...written };
  };
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "internevo-checkpoint-"));
    await writeFolder(at("hf"));
    expect(await call("import", at("hf"), at("ck"), "--files", "2")).toMatchObject({ status: EXIT.ok });
  });
  afterAll(async () => rm(directory, { recursive: true, force: true }));

  it("inspects a checkpoint, and a Hugging Face folder", async () => {
    const { status, stdout } = await call("inspect", at("ck"), "--json");
    expect(status).toBe(EXIT.ok);
    const found = JSON.parse(stdout) as {
      files: unknown[];
      tensors: { name: string; shape: number[] }[];
      holds: string[];
    };
    expect(found.files).toHaveLength(2);
    expect(found.holds).toEqual(["weight"]);
    expect(found.tensors).toContainEqual(expect.objectContaining({ name: "layers.0.wk", shape: [4, 8] }));
    expect((await call("inspect", at("ck"))).stdout).toMatch(
      /TENSOR +SHAPE +SLICES[^]*layers\.0\.down +8 × 12/,
    );
    expect((await call("inspect", at("hf"))).stdout).toMatch(/hiddenSize +8/);
  });

  it("verifies, and ends with status 1 naming the damaged file", async () => {
    expect(await call("verify", at("ck"))).toMatchObject({
      status: EXIT.ok,
      stdout: expect.stringMatching(/^sound/) as string,
    });
    expect(await call("reshard", at("ck"), at("damaged"), "--files", "3")).toMatchObject({ status: EXIT.ok });
    const path = at("damaged/shard-00001.safetensors");
    const bytes = await readFile(path);
    bytes[bytes.length - 5] = (bytes[bytes.length - 5] as number) ^ 1;
    await writeFile(path, bytes);
    const { status, stdout } = await call("verify", at("damaged"), "--json");
    expect(status).toBe(EXIT.failed);
    expect(JSON.parse(stdout)).toMatchObject({
      ok: false,
      checkpoints: [{ problems: [{ file: "shard-00001.safetensors" }] }],
    });
    expect((await call("verify", at("damaged"))).stdout).toMatch(
      /damaged[^]*shard-00001\.safetensors: .*checksum/,
    );
    expect(await call("export", at("damaged"), at("out"))).toMatchObject({ status: EXIT.badInput });
  });

  it("cuts for a plan, and exports what it imported", async () => {
    const plan = {
      microBatchSize: 1,
      microBatches: 1,
      recompute: false,
      pipelineParallel: 1,
      dataParallel: 2,
      tensorParallel: 1,
      sequenceParallel: 2,
      parameterSharding: 2,
      gradientSharding: 1,
      optimizerStateSharding: 1,
    };
    await writeFile(at("plan.json"), JSON.stringify({ ...plan, sequenceParallel: 1 }));
    expect(await call("reshard", at("ck"), at("cut"), "--plan", at("plan.json"))).toMatchObject({
      status: EXIT.ok,
    });
    expect(await call("verify", at("cut"))).toMatchObject({ status: EXIT.ok });
    expect(await call("export", at("cut"), at("exported"))).toMatchObject({ status: EXIT.ok });
    await access(at("exported/config.json"));
    expect((await readFile(at("exported/model.safetensors"))).length).toBeGreaterThan(1000);
  });

  it.each([
    ["a directory that does not exist", ["inspect", "none"], EXIT.notFound, "not-found"],
    ["a directory without a checkpoint", ["verify", "empty"], EXIT.badInput, "data-invalid"],
    ["an output that exists", ["export", "ck", "hf"], EXIT.badInput, "data-invalid"],
  ] as const)("refuses %s", async (_what, [command, ...paths], status, code) => {
    await mkdir(at("empty"), { recursive: true });
    const result = await call(command, ...paths.map(at), "--json");
    expect(result).toMatchObject({ status, stdout: "" });
    expect(JSON.parse(result.stderr)).toMatchObject({ error: { code } });
  });

  it("says how to get the tool when it is not installed", async () => {
    const kept = process.env["INTERNEVO_NATIVE_DIRECTORY"];
    process.env["INTERNEVO_NATIVE_DIRECTORY"] = at("nothing");
    try {
      expect(await call("verify", at("ck"))).toMatchObject({
        status: EXIT.unavailable,
        stderr: expect.stringMatching(/npm run setup/) as string,
      });
    } finally {
      if (kept === undefined) delete process.env["INTERNEVO_NATIVE_DIRECTORY"];
      else process.env["INTERNEVO_NATIVE_DIRECTORY"] = kept;
    }
  });
});
