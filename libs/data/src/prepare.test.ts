import { execFileSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ProblemError } from "@internevo/domain";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { assertFitsSequences, prepareData, prepareDataset } from "./prepare.ts";
import { encodeHeader } from "./token-file.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-dataset-"));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

const at = (name: string): string => join(directory, name);
const datasets = (): Promise<string[]> => readdir(at("data/datasets")).catch(() => []);

async function problemOf(work: Promise<unknown>): Promise<ProblemError> {
  const error = await work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(ProblemError);
  return error as ProblemError;
}

async function tokenFile(name: string, tokens: readonly number[], bytesPerToken: 2 | 4 = 2): Promise<string> {
  const body = Buffer.alloc(tokens.length * bytesPerToken);
  tokens.forEach((token, index) =>
    bytesPerToken === 2 ? body.writeUInt16LE(token, index * 2) : body.writeUInt32LE(token, index * 4),
  );
  await writeFile(
    at(name),
    Buffer.concat([encodeHeader({ bytesPerToken, tokenCount: tokens.length, vocabularySize: 1000 }), body]),
  );
  return at(name);
}

describe("prepareData of a mixture", () => {
  const cut = { vocabularySize: 1000, sequenceLengthTokens: 4 };

  it("makes of each source what it would be by itself, with its share", async () => {
    await writeFile(at("a.txt"), "some text");
    const own = await tokenFile("own", [1, 2, 3, 4, 5]);
    const text = { format: "text" as const, paths: [at("a.txt")] };
    const prepared = await prepareData(
      {
        format: "mixture",
        sources: [
          { ...text, weight: 3 },
          { format: "tokens", path: own, weight: 1 },
        ],
      },
      at("data"),
      cut,
    );
    const { path } = await prepareDataset(text, at("data"), cut);
    expect(prepared).toEqual({
      path,
      tokenCount: 14,
      unigramEntropyNats: null,
      sources: [
        { path, share: 7500 },
        { path: own, share: 2500 },
      ],
    });
  });

  it("names the source that is at fault", async () => {
    const faultOf = async (second: string) =>
      (
        await problemOf(
          prepareData(
            {
              format: "mixture",
              sources: [
                { format: "tokens", path: await tokenFile("own", [1, 2, 3, 4, 5]), weight: 1 },
                { format: "tokens", path: second, weight: 1 },
              ],
            },
            at("data"),
            cut,
          ),
        )
      ).details.map(({ field }) => field);
    expect(await faultOf(at("absent"))).toEqual(["data.sources.1.path"]);
    expect(await faultOf(await tokenFile("large", [1, 2, 3, 4, 5000]))).toEqual(["data.sources.1.path"]);
    expect(await faultOf(await tokenFile("short", [1, 2, 3, 4]))).toEqual(["data.sources.1"]);
  });
});

describe("prepareDataset of text", () => {
  it("writes every byte as a token, in order, under the name of its content", async () => {
    await writeFile(at("a.txt"), Buffer.from([0, 1, 255]));
    await writeFile(at("b.txt"), "xy");
    const dataset = await prepareDataset({ format: "text", paths: [at("a.txt"), at("b.txt")] }, at("data"), {
      vocabularySize: 256,
      sequenceLengthTokens: 64,
    });
    const bytes = await readFile(dataset.path);
    expect(bytes.subarray(0, 8).toString("latin1")).toBe("IEVOTOK\0");
    expect([8, 12, 24].map((offset) => bytes.readUInt32LE(offset))).toEqual([1, 2, 256]);
    expect(bytes.readBigUInt64LE(16)).toBe(5n);
    expect(bytes.subarray(28, 64).every((byte) => byte === 0)).toBe(true);
    expect([0, 1, 2, 3, 4].map((index) => bytes.readUInt16LE(64 + 2 * index))).toEqual([0, 1, 255, 120, 121]);
    expect(bytes.length).toBe(dataset.sizeBytes);
    expect(dataset.unigramEntropyNats).toBeCloseTo(Math.log(5), 12);
    expect(dataset.path).toContain(dataset.sha256);
  });

  it("is the same for the same content, and remembered without a second reading", async () => {
    await writeFile(at("a.txt"), "abcabd");
    await writeFile(at("copy.txt"), "abcabd");
    const first = await prepareDataset({ format: "text", paths: [at("a.txt")] }, at("data"), {
      vocabularySize: 300,
      sequenceLengthTokens: 64,
    });
    expect(
      await prepareDataset({ format: "text", paths: [at("copy.txt")] }, at("data"), {
        vocabularySize: 256,
        sequenceLengthTokens: 64,
      }),
    ).toEqual(first);
    expect(
      await prepareDataset({ format: "text", paths: [at("a.txt")] }, at("data"), {
        vocabularySize: 256,
        sequenceLengthTokens: 64,
      }),
    ).toEqual(first);
    expect((await datasets()).filter((name) => name.endsWith(".tokens"))).toHaveLength(1);
    const expected = -(2 / 6) * Math.log(2 / 6) * 2 - 2 * (1 / 6) * Math.log(1 / 6);
    expect(first.unigramEntropyNats).toBeCloseTo(expected, 12);
  });

  it("reads a source again when it has changed, and makes a damaged token file again", async () => {
    await writeFile(at("a.txt"), "first");
    const first = await prepareDataset({ format: "text", paths: [at("a.txt")] }, at("data"), {
      vocabularySize: 256,
      sequenceLengthTokens: 64,
    });
    await truncate(first.path, 10);
    const again = await prepareDataset({ format: "text", paths: [at("a.txt")] }, at("data"), {
      vocabularySize: 256,
      sequenceLengthTokens: 64,
    });
    expect(again).toEqual(first);
    expect((await readFile(first.path)).length).toBe(first.sizeBytes);
    await writeFile(at("a.txt"), "second!");
    expect(
      (
        await prepareDataset({ format: "text", paths: [at("a.txt")] }, at("data"), {
          vocabularySize: 256,
          sequenceLengthTokens: 64,
        })
      ).tokenCount,
    ).toBe(7);
  });

  it.each([
    ["a missing file", "absent.txt", "does not exist"],
    ["a directory", ".", "is a directory"],
    ["an empty file", "empty.txt", "is empty"],
    ["a device", "/dev/zero", "is a device"],
  ])("refuses %s by name and leaves nothing behind", async (_what, name, message) => {
    await writeFile(at("good.txt"), "good");
    await writeFile(at("empty.txt"), "");
    const path = name.startsWith("/") ? name : at(name);
    const problem = await problemOf(
      prepareDataset({ format: "text", paths: [at("good.txt"), path] }, at("data"), {
        vocabularySize: 256,
        sequenceLengthTokens: 64,
      }),
    );
    expect(problem.code).toBe("data-invalid");
    expect(problem.message).toContain(message);
    expect(problem.details[0]).toMatchObject({ field: "data.paths.1", value: path });
    expect(await datasets()).toEqual([]);
  });

  it("refuses a pipe that nobody writes to, and a socket, at once", async () => {
    execFileSync("mkfifo", [at("pipe")]);
    const server = createServer();
    await new Promise<void>((listening) => server.listen(at("socket"), listening));
    try {
      for (const [name, what] of [
        ["pipe", "is a pipe"],
        ["socket", "is a socket"],
      ] as const) {
        const inText = await problemOf(
          prepareDataset({ format: "text", paths: [at(name)] }, at("data"), {
            vocabularySize: 256,
            sequenceLengthTokens: 64,
          }),
        );
        expect(inText.details).toEqual([
          { field: "data.paths.0", value: at(name), message: what, remedy: "give a regular file" },
        ]);
        const inTokens = await problemOf(
          prepareDataset({ format: "tokens", path: at(name) }, at("data"), {
            vocabularySize: 256,
            sequenceLengthTokens: 64,
          }),
        );
        expect(inTokens.details).toEqual([
          { field: "data.path", value: at(name), message: what, remedy: "give a regular file" },
        ]);
      }
    } finally {
      server.close();
    }
  }, 5000);

  it("refuses a vocabulary below 256", async () => {
    const problem = await problemOf(
      prepareDataset({ format: "text", paths: [at("a.txt")] }, at("data"), {
        vocabularySize: 255,
        sequenceLengthTokens: 64,
      }),
    );
    expect(problem.details[0]).toMatchObject({ field: "model.vocabularySize", value: 255 });
  });
});

describe("prepareDataset of token files", () => {
  it.each([2, 4] as const)(
    "accepts %i bytes a token and uses the file where it is",
    async (bytesPerToken) => {
      const path = await tokenFile("t.tokens", [0, 999, 5, 5], bytesPerToken);
      const dataset = await prepareDataset({ format: "tokens", path }, at("data"), {
        vocabularySize: 1000,
        sequenceLengthTokens: 64,
      });
      expect(dataset).toMatchObject({ path, tokenCount: 4, sizeBytes: 64 + 4 * bytesPerToken });
      expect(dataset.unigramEntropyNats).toBeCloseTo(1.5 * Math.log(2), 12);
    },
  );

  it("names the first token beyond the vocabulary and its place", async () => {
    const path = await tokenFile("t.tokens", [1, 2, 300, 400]);
    const problem = await problemOf(
      prepareDataset({ format: "tokens", path }, at("data"), {
        vocabularySize: 300,
        sequenceLengthTokens: 64,
      }),
    );
    expect(problem.message).toContain("holds token 300 at index 2 (byte offset 68)");
  });

  it("refuses a header that says there are no tokens to choose from", async () => {
    const path = await tokenFile("t.tokens", [1, 2, 3, 4]);
    const bytes = await readFile(path);
    bytes.writeUInt32LE(0, 24);
    await writeFile(path, bytes);
    const problem = await problemOf(
      prepareDataset({ format: "tokens", path }, at("data"), {
        vocabularySize: 300,
        sequenceLengthTokens: 64,
      }),
    );
    expect(problem.message).toContain("says a vocabulary of 0");
    expect(problem.details[0]).toMatchObject({ field: "data.path", value: path });
  });

  it("says how many bytes a truncated file lacks", async () => {
    const path = await tokenFile("t.tokens", [1, 2, 3, 4]);
    await truncate(path, 70);
    const problem = await problemOf(
      prepareDataset({ format: "tokens", path }, at("data"), {
        vocabularySize: 300,
        sequenceLengthTokens: 64,
      }),
    );
    expect(problem.message).toContain("truncated: expected 72 bytes for 4 tokens, found 70");
    await truncate(path, 20);
    expect(
      (
        await problemOf(
          prepareDataset({ format: "tokens", path }, at("data"), {
            vocabularySize: 300,
            sequenceLengthTokens: 64,
          }),
        )
      ).message,
    ).toContain("expected 64 bytes of header, found 20");
  });

  it("refuses foreign files", async () => {
    await writeFile(at("t.tokens"), Buffer.alloc(100, 65));
    expect(
      (
        await problemOf(
          prepareDataset({ format: "tokens", path: at("t.tokens") }, at("data"), {
            vocabularySize: 300,
            sequenceLengthTokens: 64,
          }),
        )
      ).message,
    ).toContain("is not a token file");
  });
});

it("assertFitsSequences asks for one sequence and its last target", () => {
  const dataset = { path: "x", tokenCount: 64, sizeBytes: 1, sha256: "", unigramEntropyNats: 1 };
  expect(() => assertFitsSequences(dataset, { data: null, sequenceLengthTokens: 63 })).not.toThrow();
  expect(() => assertFitsSequences(dataset, { data: null, sequenceLengthTokens: 64 })).toThrow(
    /fewer than one sequence of 64/,
  );
});
