import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { resolveJob } from "@internevo/domain";
import { huggingFaceShapes, writeHeader, writeManifest, writeWeights } from "@internevo/test-kit/weights";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createProject, createToken, getJob, submitJob } from "@internevo/store";
import { jobFile, startTestApi, type TestApi } from "./harness.ts";

const MODEL = {
  hiddenSize: 64,
  layers: 2,
  heads: 4,
  kvHeads: 4,
  ffnHiddenSize: 192,
  vocabularySize: 256,
  tiedEmbeddings: false,
  ropeTheta: 10_000,
  normEpsilon: 1e-5,
};
const CONFIG = JSON.stringify({
  model_type: "llama",
  hidden_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  intermediate_size: 192,
  vocab_size: 256,
  rms_norm_eps: 1e-5,
});
const LONG = "X".repeat(3_000_000);

interface Problem {
  readonly code: string;
  readonly errors: readonly {
    readonly field: string;
    readonly value?: unknown;
    readonly message: string;
    readonly remedy: string;
  }[];
}

let api: TestApi;
let free: TestApi;
let outside: string;
let inside: string;
beforeAll(async () => {
  outside = await mkdtemp(join(tmpdir(), "internevo-outside-"));
  inside = join(outside, "allowed");
  await mkdir(inside);
  api = await startTestApi({ roots: [inside] });
  free = await startTestApi();
});
afterAll(async () => {
  await Promise.all([api, free].map((each) => each.close()));
  await rm(outside, { recursive: true });
});

async function submit(
  to: TestApi,
  over: Record<string, unknown>,
  url = "/api/v1/jobs",
  authorization = to.bearer.operator,
): Promise<{ readonly status: number; readonly body: string; readonly problem: Problem }> {
  const reply = await to.app.inject({
    method: "POST",
    url,
    headers: { authorization },
    payload: jobFile(to, { model: MODEL, ...over }),
  });
  return { status: reply.statusCode, body: reply.body, problem: reply.json<Problem>() };
}

async function folder(at: string, files: Readonly<Record<string, string>>): Promise<string> {
  const path = await mkdtemp(join(at, "weights-"));
  for (const [name, text] of Object.entries(files)) await writeFile(join(path, name), text);
  return path;
}

describe("data and weights of an installation that allows some folders", () => {
  it("are taken below them", async () => {
    const path = join(inside, "text.txt");
    await writeFile(path, "a".repeat(4096));
    await symlink(path, join(outside, "in.txt"));
    for (const each of [path, join(outside, "in.txt")])
      expect((await submit(api, { data: { format: "text", paths: [each] } })).status, each).toBe(201);
  });

  it("are refused elsewhere in the same words, whatever is there", async () => {
    const secret = join(outside, "secret.txt");
    await writeFile(secret, "secret ".repeat(1000));
    await symlink(secret, join(inside, "link.txt"));
    await symlink(join(outside, "none.txt"), join(inside, "dangling.txt"));
    await symlink(outside, join(inside, "up"));
    await symlink(join(inside, "round"), join(inside, "round"));
    const places = [
      secret,
      join(outside, "none.txt"),
      join(inside, "link.txt"),
      join(inside, "dangling.txt"),
      join(inside, "up", "none.txt"),
      join(inside, "round"),
      `${inside}/../secret.txt`,
      `${inside}-not`,
      "/etc/shadow",
    ];
    for (const path of places) {
      for (const data of [
        { format: "text", paths: [path] },
        { format: "tokens", path },
        { format: "internevo", path },
      ]) {
        const { status, problem } = await submit(api, { data });
        expect([status, problem.code], path).toEqual([422, "data-invalid"]);
        expect(problem.errors[0], path).toEqual({
          field: data.format === "text" ? "data.paths.0" : "data.path",
          value: path,
          message: "is not below a folder that this installation reads data and weights from",
          remedy: `give a path below ${inside}; links are followed first`,
        });
      }
    }
    expect((await submit(free, { data: { format: "text", paths: [secret] } })).status).toBe(201);
  });

  it("are refused in the installation's own directory in the same words, whatever is there", async () => {
    const own = await mkdtemp(join(outside, "own-"));
    const installed = await startTestApi({ own });
    await writeFile(join(own, "secrets.json"), "secret ".repeat(1000));
    await symlink(join(own, "secrets.json"), join(outside, "to-secrets.txt"));
    const named = [
      join(own, "secrets.json"),
      join(own, "none.txt"),
      join(own, "jobs", crypto.randomUUID(), "checkpoints", "shard-0.safetensors"),
      join(outside, "to-secrets.txt"),
    ];
    const readable = join(outside, "readable.txt");
    await writeFile(readable, "a".repeat(4096));
    const over = (path: string): [string, Record<string, unknown>][] => [
      ["data.paths.0", { data: { format: "text", paths: [path] } }],
      ["data.path", { data: { format: "tokens", path } }],
      [
        "validation.data.paths.0",
        {
          data: { format: "text", paths: [readable] },
          validation: { data: { format: "text", paths: [path] }, everySteps: 5 },
        },
      ],
    ];
    for (const path of named)
      for (const [field, asked] of over(path)) {
        const { status, problem } = await submit(installed, asked);
        expect([status, problem.code], `${field} ${path}`).toEqual([422, "data-invalid"]);
        expect(problem.errors[0]).toMatchObject({
          field,
          value: path,
          message: "lies in the data directory of the installation, which no job reads its data from",
        });
      }
    const weights = { initialWeights: join(own, "datasets"), data: { format: "text", paths: [readable] } };
    expect((await submit(installed, weights)).problem.errors[0]).toMatchObject({
      field: "initialWeights",
      message: expect.stringContaining("lies in the data directory") as string,
    });
    expect((await submit(installed, { data: { format: "text", paths: [readable] } })).status).toBe(201);
    await installed.close();
  });

  it("hold for every file of a folder of weights", async () => {
    const config = CONFIG;
    await writeFile(join(outside, "config.json"), config);
    const linked = await folder(inside, { "model.safetensors": "x" });
    await symlink(join(outside, "config.json"), join(linked, "config.json"));
    const weights = await folder(inside, { "config.json": config });
    await symlink(join(outside, "none"), join(weights, "model.safetensors"));
    for (const initialWeights of [linked, weights, outside, join(outside, "none")]) {
      const { status, problem } = await submit(api, {
        initialWeights,
        data: { format: "text", paths: [join(inside, "text.txt")] },
      });
      expect(status, initialWeights).toBe(422);
      expect(
        problem.errors.map(({ field, message }) => `${field} ${message}`),
        initialWeights,
      ).toEqual(["initialWeights is not below a folder that this installation reads data and weights from"]);
    }
    const good = await folder(inside, { "config.json": config });
    await writeWeights(good, resolveJob(jobFile(api, { model: MODEL })).model);
    expect(
      (
        await submit(api, {
          initialWeights: good,
          data: { format: "text", paths: [join(inside, "text.txt")] },
        })
      ).status,
    ).toBe(201);
  });
});

describe("checkpoints of the installation's own jobs", () => {
  /** A job of project alpha with weights in its directory, and who submits in which project. */
  async function world(to: TestApi, links: string) {
    const { database } = to;
    const tokens: Record<string, string> = {};
    for (const project of ["alpha", "beta"]) {
      await database.transaction((tx) => createProject(tx, { name: project }));
      const made = await database.transaction((tx) =>
        createToken(tx, { name: project, role: "operator", project, validForSeconds: null }),
      );
      tokens[project] = `Bearer ${made.token}`;
    }
    const spec = resolveJob(jobFile(to, { project: "alpha" }));
    const id = await database.transaction((tx) => submitJob(tx, spec));
    const checkpoints = join(to.dataDirectory, "jobs", id, "checkpoints");
    await mkdir(checkpoints, { recursive: true });
    const weights = await folder(checkpoints, { "config.json": CONFIG });
    await writeWeights(weights, resolveJob(jobFile(to, { model: MODEL })).model);
    const link = join(links, "theirs");
    await symlink(weights, link);
    const linked = await folder(links, { "config.json": CONFIG });
    await symlink(join(weights, "model.safetensors"), join(linked, "model.safetensors"));
    const text = join(inside, "text.txt");
    await writeFile(text, "a".repeat(4096));
    const data = { format: "text", paths: [text] };
    const give = (initialWeights: string, authorization: string | undefined) =>
      submit(to, { initialWeights, data }, "/api/v1/jobs", authorization);
    return { tokens, weights, link, linked, give };
  }
  const refusal = (value: string) => ({
    field: "initialWeights",
    value,
    message: "is no checkpoint of a job that this token may see",
    remedy: expect.stringContaining("of your project"),
  });

  it.each([
    ["some folders", () => api, () => inside],
    ["every file", () => free, () => outside],
  ])("are for the tokens that see the job, where %s may be read", async (_, to, links) => {
    const { tokens, weights, link, give } = await world(to(), links());
    const absent = join(
      to().directory,
      "jobs",
      "0198d1a2-0000-7000-8000-000000000000",
      "checkpoints",
      "step-1",
    );
    for (const path of [weights, link, absent, join(to().directory, "jobs")]) {
      const { status, problem } = await give(path, tokens["beta"]);
      expect([status, problem.code], path).toEqual([422, "data-invalid"]);
      expect(problem.errors).toEqual([refusal(path)]);
    }
    for (const path of [weights, link])
      for (const token of [tokens["alpha"], undefined]) {
        const { status, body } = await give(path, token);
        expect(status, path).toBe(201);
        // The stages know it from there.
        const { id } = JSON.parse(body) as { readonly id: string };
        expect((await getJob(to().database.db, id))?.weightsOf).toBe(weights.split("/").at(-3));
      }
  });

  it("are not read through links of a folder that lies elsewhere, where every file may be read", async () => {
    const own = await mkdtemp(join(outside, "own-"));
    const installed = await startTestApi({ own });
    const { tokens, weights, give } = await world(installed, await mkdtemp(join(outside, "links-")));
    const index = "model.safetensors.index.json";
    const { model } = resolveJob(jobFile(installed, { model: MODEL }));
    const map = Object.fromEntries(Object.keys(huggingFaceShapes(model)).map((name) => [name, "part"]));
    await writeFile(join(weights, index), JSON.stringify({ weight_map: map }));
    const theirs = (name: string) => join(weights, name);
    const absent = join(own, "jobs", crypto.randomUUID(), "exports", "model.safetensors");
    const links: readonly (readonly [string, string])[][] = [
      [["model.safetensors", theirs("model.safetensors")]],
      [["model.safetensors", absent]],
      [["config.json", theirs("config.json")]],
      [[index, theirs(index)]],
      [
        [index, join(outside, "index")],
        ["part", theirs("model.safetensors")],
      ],
    ];
    await writeFile(join(outside, "index"), JSON.stringify({ weight_map: map }));
    for (const each of links) {
      const names = each.map(([name]) => name);
      const linked = await folder(outside, names.includes("config.json") ? {} : { "config.json": CONFIG });
      for (const [name, target] of each) await symlink(target, join(linked, name));
      for (const token of ["alpha", "beta"]) {
        const { status, problem } = await give(linked, tokens[token]);
        expect([status, problem.code], `${token} ${names.join()}`).toEqual([422, "data-invalid"]);
        expect(problem.errors).toEqual([
          {
            field: "initialWeights",
            value: join(linked, names.at(-1) as string),
            message: "lies in the data directory of the installation, which no job reads its data from",
            remedy: expect.stringContaining("links are followed first") as string,
          },
        ]);
      }
    }
    await installed.close();
  });

  it("are read, and links as a cache of Hugging Face has them, where every file may be read", async () => {
    const own = await mkdtemp(join(outside, "own-"));
    const installed = await startTestApi({ own });
    const { tokens, weights, link, give } = await world(installed, await mkdtemp(join(outside, "links-")));
    for (const path of [weights, link]) expect((await give(path, tokens["alpha"])).status, path).toBe(201);
    const blobs = await folder(outside, { config: CONFIG });
    await writeWeights(blobs, resolveJob(jobFile(installed, { model: MODEL })).model);
    const snapshot = await folder(outside, {});
    await symlink(join(blobs, "config"), join(snapshot, "config.json"));
    await symlink(join(blobs, "model.safetensors"), join(snapshot, "model.safetensors"));
    expect((await give(snapshot, tokens["beta"])).status).toBe(201);
    await installed.close();
  });

  it("are not read through links of a folder that lies elsewhere", async () => {
    const other = await startTestApi({ roots: [inside] });
    const { tokens, linked, give } = await world(other, await mkdtemp(join(inside, "links-")));
    expect((await give(linked, tokens["beta"])).problem.errors[0]?.message).toBe(
      "is not below a folder that this installation reads data and weights from",
    );
    await other.close();
  });
});

describe("files that are not what they should be", () => {
  const manifest = (files: unknown, over: Record<string, unknown> = {}): string =>
    JSON.stringify({ content: { identity: { model: { ...MODEL, ...over } }, files } });
  const lists = `${"[".repeat(200_000)}${"]".repeat(200_000)}`;
  it.each([
    ["5 for files", { "manifest.json": manifest(5) }],
    ["a text for files", { "manifest.json": manifest("abc") }],
    ["an object for files", { "manifest.json": manifest({}) }],
    ["null for a file", { "manifest.json": manifest([null]) }],
    ["a number for a name", { "manifest.json": manifest([{ name: 5 }]) }],
    ["a name that leads out", { "manifest.json": manifest([{ name: "../../etc/passwd" }]) }],
    ["3 MB for a size of a checkpoint", { "manifest.json": manifest([{ name: "a" }], { hiddenSize: LONG }) }],
    ["deep lists for a size", { "config.json": `{"model_type":"llama","hidden_size":${lists}}` }],
    ["3 MB for a size", { "config.json": `{"model_type":"llama","hidden_size":"${LONG}"}` }],
    ["3 MB for a type", { "config.json": `{"model_type":"${LONG.slice(0, 900_000)}"}` }],
    [
      "an object for a tensor's file",
      { "config.json": "{}", "model.safetensors.index.json": '{"weight_map":{"a":{"toString":5}}}' },
    ],
    ["no JSON", { "config.json": "root:x:0:0" }],
  ])("weights with %s are a short problem", async (_, files: Readonly<Record<string, string>>) => {
    const path = await folder(outside, files);
    const { status, body, problem } = await submit(free, { initialWeights: path });
    expect(status).toBe(422);
    expect(problem.errors.map(({ field }) => field)).toEqual(["initialWeights"]);
    expect(body.length).toBeLessThan(2000);
    expect(body).not.toContain("root:x");
  });

  it.each<[string, string, number, bigint | undefined]>([
    ["8 zeros", "", 0, 0n],
    ["a header of 2^64-1 bytes", "{}", 0, 2n ** 64n - 1n],
    ["a list for a header", "[]", 0, undefined],
    [
      "a tensor of 2^53 rows and columns",
      '{"lm_head.weight":{"dtype":"F32","shape":[9007199254740992,9007199254740992],"data_offsets":[0,8]}}',
      8,
      undefined,
    ],
    [
      "negative offsets",
      '{"lm_head.weight":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}}',
      8,
      undefined,
    ],
  ])("tensors with %s are a problem before a job is stored", async (_, header, bytes, length) => {
    const path = await folder(outside, { "config.json": CONFIG });
    await writeHeader(join(path, "model.safetensors"), header, bytes, length);
    for (const url of ["/api/v1/jobs/check", "/api/v1/jobs"]) {
      const { status, problem } = await submit(free, { initialWeights: path }, url);
      expect([status, problem.code], url).toEqual([422, "data-invalid"]);
      expect(problem.errors[0]).toMatchObject({
        field: "initialWeights",
        value: join(path, "model.safetensors"),
      });
    }
  });

  it("a checkpoint's files of another size, or that are links out of it, are a problem too", async () => {
    const path = await folder(outside, { shard: "x" });
    await writeManifest(path, MODEL, [{ name: "shard", bytes: 999 }]);
    const refusal = async (): Promise<unknown> =>
      (await submit(free, { initialWeights: path }, "/api/v1/jobs/check")).problem.errors[0]?.message;
    expect(await refusal()).toBe("has 1 bytes; the manifest says 999");
    await rm(join(path, "shard"));
    await symlink("/etc/hostname", join(path, "shard"));
    expect(await refusal()).toBe("is a link to a file outside of the checkpoint");
  });

  /** A NumPy array of a line's first byte and number of tokens. */
  function meta(tokens: number, shape = "(1, 2)"): Buffer {
    const head = Buffer.from(`{'descr': '<i4', 'fortran_order': False, 'shape': ${shape}, }\n`);
    const cells = Buffer.alloc(8);
    cells.writeInt32LE(tokens, 4);
    const start = Buffer.from("\x93NUMPY\x01\0\0\0", "latin1");
    start.writeUInt16LE(head.length, 8);
    return Buffer.concat([start, head, cells]);
  }

  it.each([
    ["a text", '"secret"'],
    ["an object", '{"toString":5,"valueOf":5}'],
    ["deep lists", "[".repeat(9000) + "]".repeat(9000)],
    ["a long text", JSON.stringify(LONG)],
    ["a text of digits", '"71"'],
  ])("data with %s for a token is a short problem that does not repeat it", async (_, token) => {
    const path = join(outside, "data.bin");
    await writeFile(path, `{"tokens":[1,${token}]}\n`);
    await writeFile(`${path}.meta`, meta(2));
    const { status, body, problem } = await submit(free, { data: { format: "internevo", path } });
    expect(status).toBe(422);
    expect(problem.errors[0]).toMatchObject({
      field: "data.path",
      value: path,
      message:
        "holds a value at index 1 (byte offset 0), which is no token: tokens are whole numbers from 0 to 255",
    });
    expect(body.length).toBeLessThan(2000);
  });

  it("an array of another kind is not repeated", async () => {
    const path = join(outside, "array.bin");
    await writeFile(path, "x");
    await writeFile(`${path}.meta`, meta(2, "'secret'"));
    expect((await submit(free, { data: { format: "internevo", path } })).body).not.toContain("secret");
  });
});
