import { execFileSync } from "node:child_process";
import {
  link,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  symlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeInternevo, writeMegatron } from "@internevo/test-kit/data-writers";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { assertMayBeData, type Judge } from "./data-roots.ts";
import { assertLeadsStill } from "./handed-over.ts";
import { assertWeightsLeadStill, handOverWeights } from "./handed-weights.ts";
import { openData } from "./open-data.ts";
import { passingName } from "./passing-files.ts";
import { prepareData, prepareDataset } from "./prepare.ts";
import { openSource } from "./source.ts";
import { encodeHeader } from "./token-file.ts";
import { TokenCounts } from "./token-source.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-hostile-"));
  await mkdir(at("own"));
  await writeFile(at("own/secrets.json"), "the secret");
});
afterEach(() => rm(directory, { recursive: true, force: true }));
const at = (name: string): string => join(directory, name);
const cut = { vocabularySize: 256, sequenceLengthTokens: 2 };
const documents = [
  [1, 2, 3, 4],
  [5, 6, 7],
];

const judge: Judge = (files) => assertMayBeData(files, { roots: null, own: at("own") });

/** Has a link lead elsewhere. */
async function swap(path: string, target: string): Promise<void> {
  await symlink(target, `${path}.new`);
  await rename(`${path}.new`, path);
}

describe("a link that is swapped while data is read", () => {
  it("does not lead to files of the installation: what is open is judged", async () => {
    await symlink(at("own/secrets.json"), at("link"));
    await expect(openData(at("link"), "data.path", { judge })).rejects.toThrow("lies in the data directory");
  });

  it("is refused where text has become another file since it was looked at", async () => {
    await writeFile(at("first.txt"), Buffer.alloc(3 << 20, "a"));
    await writeFile(at("harmless.txt"), "harmless");
    await symlink(at("harmless.txt"), at("link"));
    let looks = 0;
    const prepared = prepareDataset(
      { format: "text", paths: [at("first.txt"), at("link")] },
      at("own"),
      cut,
      {
        judge,
        // The first file is being written as tokens.
        pause: async () => {
          looks += 1;
          if (looks === 2) await swap(at("link"), at("own/secrets.json"));
        },
      },
    );
    await expect(prepared).rejects.toThrow(/link lies in the data directory of the installation/);
    expect(await readdir(at("own/datasets"))).toEqual([]);
  });

  it("changes nothing of what the trainer is given", async () => {
    await writeMegatron(at("real"), documents);
    for (const end of ["bin", "idx"]) await symlink(at(`real.${end}`), at(`link.${end}`));
    const data = { format: "megatron", path: at("link.bin") } as const;
    const prepared = await prepareData(data, at("data"), cut, { judge });
    expect(prepared.path).toBe(at("real.bin"));
    await swap(at("link.bin"), at("own/secrets.json"));
    await assertLeadsStill(data, prepared, at("data/datasets"));
    // What it was given itself becomes a link.
    await rename(at("real.bin"), at("moved.bin"));
    await symlink(at("own/secrets.json"), at("real.bin"));
    await expect(assertLeadsStill(data, prepared, at("data/datasets"))).rejects.toThrow(
      "does not lead any more to the file that was read",
    );
  });

  it("changes nothing of files that lie apart, which are reached by links of the services", async () => {
    await mkdir(at("apart"));
    const bin = await writeInternevo(at("real.bin"), documents);
    await rename(`${bin}.meta`, at("apart/meta"));
    await symlink(bin, at("link.bin"));
    await symlink(at("apart/meta"), at("link.bin.meta"));
    const data = { format: "internevo", path: at("link.bin") } as const;
    const prepared = await prepareData(data, at("data"), cut, { judge });
    expect(prepared.path.startsWith(at("data/datasets/links/"))).toBe(true);
    expect(await readlink(`${prepared.path}.meta`)).toBe(at("apart/meta"));
    expect((await openSource({ ...data, path: prepared.path })).tokenCount).toBe(7);
    expect(await prepareData(data, at("data"), cut, { judge })).toEqual(prepared);
    await assertLeadsStill(data, prepared, at("data/datasets"));
    await swap(at("apart/meta"), at("own/secrets.json"));
    await expect(assertLeadsStill(data, prepared, at("data/datasets"))).rejects.toThrow(
      "does not lead any more",
    );
  });
});

it("hands weights over as copies of their descriptions and links to files that were checked", async () => {
  await writeFile(at("tensors"), "tensors");
  const checked = {
    documents: new Map([["config.json", "{}"]]),
    files: new Map([["model.safetensors", at("tensors")]]),
  };
  const folder = await handOverWeights(checked, at("own/weights"));
  expect(await handOverWeights(checked, at("own/weights"))).toBe(folder);
  expect(await readdir(at("own/weights"))).toHaveLength(1);
  // Half of another one, whose writer was killed.
  const left = passingName(at("own/weights/half")).replace(/-\d+-\d+\.tmp$/, "-1-999999999999.tmp");
  await mkdir(left);
  await writeFile(join(left, "config.json"), "{}");
  expect(await handOverWeights(checked, at("own/weights"))).toBe(folder);
  expect(await readdir(at("own/weights"))).toHaveLength(1);
  expect(await readFile(join(folder, "config.json"), "utf8")).toBe("{}");
  expect(await readFile(join(folder, "model.safetensors"), "utf8")).toBe("tensors");
  await assertWeightsLeadStill(folder);
  await link(at("tensors"), at("others"));
  await swap(at("tensors"), at("others"));
  await expect(assertWeightsLeadStill(folder)).rejects.toThrow("does not lead any more");
});

it("never waits for a pipe", async () => {
  execFileSync("mkfifo", [at("pipe")]);
  await expect(openData(at("pipe"), "data.path")).rejects.toThrow("is a pipe");
});

/** A file of holes behind its beginning. */
async function sparse(name: string, bytes: number, beginning: Buffer): Promise<string> {
  const handle = await open(at(name), "w");
  await handle.truncate(bytes);
  await handle.write(beginning, 0, beginning.length, 0);
  await handle.close();
  return at(name);
}

describe("a large file of holes", () => {
  it("of tokens is refused with what was written of it", async () => {
    const tokenCount = 2e12;
    const header = encodeHeader({ bytesPerToken: 2, tokenCount, vocabularySize: 256 });
    const path = await sparse("sparse", 64 + 2 * tokenCount, header);
    await expect(openSource({ format: "tokens", path })).rejects.toMatchObject({
      code: "data-invalid",
      details: [
        {
          field: "data.path",
          value: path,
          message: expect.stringMatching(
            /^has 3\.64 TiB, of which 4\.00 KiB were written; the rest are holes$/,
          ),
          remedy: expect.stringContaining("--sparse=never"),
        },
      ],
    });
  });

  it("beside data of Megatron-LM is refused, whichever of its files it is", async () => {
    const sequences = 1e9;
    const head = Buffer.alloc(34);
    head.write("MMIDIDX\0\0", 0, "latin1");
    head.writeBigUInt64LE(1n, 9);
    head.writeUInt8(8, 17);
    head.writeBigUInt64LE(BigInt(sequences), 18);
    head.writeBigUInt64LE(2n, 26);
    await writeFile(at("large.bin"), "ab");
    await sparse("large.idx", 34 + 12 * sequences + 16, head);
    const data = { format: "megatron", path: at("large.bin") } as const;
    await expect(openSource(data)).rejects.toThrow(/large\.idx has .* the rest are holes/);
    await rm(at("large.idx"));
    await writeMegatron(at("large"), documents);
    await sparse("large.bin", 2.4e12, Buffer.from("ab"));
    await expect(openSource(data)).rejects.toThrow(/large\.bin has .* the rest are holes/);
  });
});

describe("the signal", () => {
  it.each(["megatron", "internevo", "tokens"] as const)("ends the opening of %s", async (format) => {
    const stop = new AbortController();
    const write = {
      megatron: () => writeMegatron(at("data"), documents),
      internevo: () => writeInternevo(at("data.bin"), documents),
      tokens: async () => {
        const path = at("own.tokens");
        const header = { bytesPerToken: 2, tokenCount: 4, vocabularySize: 9, documentCount: 1 } as const;
        await writeFile(path, Buffer.concat([encodeHeader(header), Buffer.alloc(16)]));
        return path;
      },
    };
    const path = await write[format]();
    await openSource({ format, path }, { signal: stop.signal });
    stop.abort(new Error("cancelled"));
    await expect(openSource({ format, path }, { signal: stop.signal })).rejects.toThrow("cancelled");
  });
});

describe("counts of tokens", () => {
  it("take memory for tokens that occur, and not for a vocabulary", () => {
    const before = process.memoryUsage().arrayBuffers;
    const counts = new TokenCounts(469_762_048);
    for (let place = 0; place < 2000; place += 1) counts.add(place * 234_881);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(64 * 2 ** 20);
    expect(counts.counts()).toEqual(Array.from({ length: 2000 }, () => 1));
  });

  it("are not told where more tokens occur than any vocabulary has that is trained with", () => {
    const counts = new TokenCounts(2 ** 31 - 1);
    for (let token = 0; token < 3 * 2 ** 19; token += 1) counts.add(token);
    expect(counts.counts()).toBeNull();
  });
});
