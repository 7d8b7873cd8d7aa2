import { mkdtemp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ProblemError, type Data } from "@internevo/domain";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { writeInternevo, writeMegatron, writeOwn, type Documents } from "@internevo/test-kit/data-writers";
import { countTokens } from "./token-source.ts";
import { assertFitsSequences, prepareDataset } from "./prepare.ts";
import { assertKnowsDocuments, DocumentCounter, openSource, type TokenData } from "./source.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-source-"));
});
afterEach(() => rm(directory, { recursive: true, force: true }));
const at = (name: string): string => join(directory, name);

const documents: Documents = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 11], [12, 0], [13, 14, 15, 16]];
const starts = [0, 3, 4, 11, 13];

async function problemOf(promise: Promise<unknown>): Promise<ProblemError> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(ProblemError);
  return error as ProblemError;
}

async function all(source: AsyncIterable<number>): Promise<number[]> {
  const values: number[] = [];
  for await (const value of source) values.push(value);
  return values;
}

describe("InternEvo's data that lies", () => {
  const damaged = async (change: (bin: string) => Promise<void>): Promise<ProblemError> => {
    const path = await writeInternevo(at("lies.bin"), documents);
    await change(path);
    const open = openSource({ format: "internevo", path });
    return problemOf(open.then((source) => source.read(256)));
  };

  it("about its array's header is refused before the header is read", async () => {
    const error = await damaged(async (path) => {
      await writeFile(`${path}.meta`, Buffer.from("\x93NUMPY\x02\x00\xff\xff\xff\x7f", "latin1"));
      await truncate(`${path}.meta`, 2 ** 30);
    });
    expect(error.details[0]).toMatchObject({ field: "data.path", message: "is no NumPy array file" });
  });

  it("of tokens without loss, as InternLM writes a prompt's, is refused by name and place", async () => {
    const error = await damaged((path) =>
      writeInternevo(path, [
        [1, 2],
        [3, -133, 4],
      ]).then(() => undefined),
    );
    expect(error.details).toEqual([
      {
        field: "data.path",
        value: -133,
        message:
          "holds token -133, number 2 of document 1 (the line at byte 19): tokens without loss (negative numbers) are not supported",
        remedy: expect.stringContaining("as positive numbers"),
      },
    ]);
  });

  it("with a line that no program could read whole is refused", async () => {
    const error = await damaged(async (path) => {
      await writeInternevo(path, [documents.flat()]);
      await writeFile(path, '{"tokens": [');
      await truncate(path, 700 * 2 ** 20);
    });
    expect(error.details[0]?.message).toContain(
      "has more than 128.0 MiB of document 0 in one line, at byte 0",
    );
  });

  it("but not about what its lines hold, is read, whatever lies behind them", async () => {
    const path = await writeInternevo(at("long.bin"), documents);
    await truncate(path, 200 * 2 ** 20);
    const source = await openSource({ format: "internevo", path });
    expect((await countTokens(source, 256)).counts()?.reduce((sum, count) => sum + count, 0)).toBe(17);
  });
});

const written: readonly (readonly [string, () => Promise<TokenData>])[] = [
  ["own", async () => ({ format: "tokens", path: await writeOwn(at("own.tokens"), documents) })],
  [
    "Megatron by its .bin",
    async () => ({ format: "megatron", path: await writeMegatron(at("megatron"), documents) }),
  ],
  [
    "Megatron by its .idx, in sequences of 2",
    async () => ({
      format: "megatron",
      path: (await writeMegatron(at("megatron"), documents, { sequenceLength: 2, type: 4 })).replace(
        ".bin",
        ".idx",
      ),
    }),
  ],
  [
    "Megatron by its stem",
    async () => ({
      format: "megatron",
      path: (await writeMegatron(at("megatron"), documents)).replace(".bin", ""),
    }),
  ],
  [
    "InternEvo",
    async () => ({ format: "internevo", path: await writeInternevo(at("internevo.bin"), documents) }),
  ],
  [
    "InternEvo in int64, by columns",
    async () => ({
      format: "internevo",
      path: await writeInternevo(at("internevo.bin"), documents, { width: 8, columnMajor: true }),
    }),
  ],
];

describe.each(written)("data of %s", (_what, write) => {
  it("is read whole: tokens, where documents begin, how often each token occurs", async () => {
    const source = await openSource(await write());
    expect(source.tokenCount).toBe(17);
    expect(source.starts && (await all(source.starts()))).toEqual(starts);
    const tokens: number[] = [];
    const counts = await countTokens(source, 17, (token, index) => (tokens[index] = token));
    expect(tokens).toEqual(documents.flat());
    expect(counts.counts()).toEqual(Array.from({ length: 17 }, () => 1));
  });

  it("is prepared where it is, with the documents of the fullest sequence", async () => {
    const data = await write();
    const prepared = await prepareDataset({ ...data, packing: "documents" }, at("data"), {
      vocabularySize: 17,
      sequenceLengthTokens: 8,
    });
    expect(prepared).toMatchObject({ tokenCount: 17, mostDocuments: 3 });
    expect(prepared.path.startsWith(directory)).toBe(true);
    // Documents are counted in sequences: of another length there are others.
    expect(
      (
        await prepareDataset({ ...data, packing: "documents" }, at("data"), {
          vocabularySize: 17,
          sequenceLengthTokens: 16,
        })
      ).mostDocuments,
    ).toBe(5);
    expect(
      (
        await prepareDataset({ ...data, packing: "documents", endOfDocumentToken: 10 }, at("data"), {
          vocabularySize: 17,
          sequenceLengthTokens: 16,
        })
      ).mostDocuments,
    ).toBe(2);
    expect(
      (await prepareDataset(data, at("data"), { vocabularySize: 17, sequenceLengthTokens: 16 }))
        .mostDocuments,
    ).toBeUndefined();
  });

  it("is refused for a token beyond the vocabulary, and for more documents than there is room for", async () => {
    const data = await write();
    expect(
      (await problemOf(prepareDataset(data, at("data"), { vocabularySize: 16, sequenceLengthTokens: 8 })))
        .message,
    ).toMatch(/holds token 16 at index 16 .*beyond the model's vocabulary of 16/);
    const packed: Data = { ...data, packing: "documents", maxDocumentsPerSequence: 2 };
    const dataset = await prepareDataset(packed, at("data"), { vocabularySize: 17, sequenceLengthTokens: 8 });
    expect(() => assertFitsSequences(dataset, { data: packed, sequenceLengthTokens: 8 })).toThrow(
      /has a sequence of 3 documents, and there is room for 2/,
    );
    expect(() =>
      assertFitsSequences(dataset, {
        data: { ...packed, maxDocumentsPerSequence: 3 },
        sequenceLengthTokens: 8,
      }),
    ).not.toThrow();
  });

  it("is refused when the end of any of its files is missing", async () => {
    const data = await write();
    for (const file of (await openSource(data)).files) {
      const whole = await readFile(file);
      // A last newline may be missing; what is before it may not.
      await truncate(file, whole.length - 2);
      const problem = await problemOf(openSource(data).then((source) => source.read(17)));
      expect(problem.code).toBe("data-invalid");
      expect(problem.message, file).toContain(file);
      expect(problem.details[0]).toMatchObject({ field: "data.path", remedy: expect.any(String) });
      await writeFile(file, whole);
    }
  });

  it("never ends in anything but an answer or a refusal, whichever byte is wrong", async () => {
    const data = await write();
    for (const file of (await openSource(data)).files) {
      const whole = await readFile(file);
      await fc.assert(
        fc.asyncProperty(fc.nat(Math.min(whole.length - 1, 260)), fc.nat(255), async (place, value) => {
          const damaged = Buffer.from(whole);
          damaged[place] = value;
          await writeFile(file, damaged);
          const outcome = await openSource(data)
            .then((source) => source.read(17))
            .then(
              () => "read",
              (error: unknown) => error,
            );
          if (outcome !== "read") expect(outcome).toBeInstanceOf(ProblemError);
        }),
        { numRuns: 60, seed: 5 },
      );
      await writeFile(file, whole);
    }
  });
});

describe("reading tokens", () => {
  it("takes no memory for a vocabulary of which few tokens occur", async () => {
    const path = await writeOwn(at("own.tokens"), documents, 2 ** 31 - 1);
    const before = process.memoryUsage().arrayBuffers;
    let most = before;
    const source = await openSource({ format: "tokens", path });
    await source.read(2 ** 31 - 1, () => (most = Math.max(most, process.memoryUsage().arrayBuffers)));
    expect(most - before).toBeLessThan(64 * 2 ** 20);
  });
});

describe("packing", () => {
  it("needs to know where documents begin", async () => {
    const data: TokenData = { format: "tokens", path: "any", packing: "documents" };
    expect(() => assertKnowsDocuments(data, { starts: null })).toThrow(/does not say where documents begin/);
    expect(() => assertKnowsDocuments({ ...data, endOfDocumentToken: 0 }, { starts: null })).not.toThrow();
    expect(() => assertKnowsDocuments({ format: "tokens", path: "any" }, { starts: null })).not.toThrow();
  });

  it("makes of every text file a document, or ends documents at a byte", async () => {
    await writeFile(at("a.txt"), "one\ntwo\n");
    await writeFile(at("b.txt"), "three\n");
    const text: Data = { format: "text", paths: [at("a.txt"), at("b.txt")], packing: "documents" };
    const job = { vocabularySize: 256, sequenceLengthTokens: 12 };
    const files = await prepareDataset(text, at("data"), job);
    const source = await openSource({ format: "tokens", path: files.path });
    expect(source.starts && (await all(source.starts()))).toEqual([0, 8]);
    expect(files.mostDocuments).toBe(2);
    expect((await prepareDataset({ ...text, endOfDocumentToken: 10 }, at("data"), job)).mostDocuments).toBe(
      3,
    );
    expect((await prepareDataset({ format: "text", paths: text.paths }, at("data"), job)).path).not.toBe(
      files.path,
    );
  });

  it("counts documents as a plain count over each sequence does", () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 6 }), { minLength: 1, maxLength: 40 }),
        fc.integer({ min: 1, max: 9 }),
        (lengths, sequence) => {
          const tokens = lengths.flatMap((length, document) => Array.from({ length }, () => document));
          if (tokens.length < sequence + 1) return;
          const counter = new DocumentCounter(sequence, tokens.length);
          let start = 0;
          for (const length of lengths) {
            counter.begin(start);
            start += length;
          }
          let most = 1;
          for (let first = 0; first + sequence < tokens.length; first += sequence)
            most = Math.max(most, new Set(tokens.slice(first, first + sequence)).size);
          expect(counter.most).toBe(most);
        },
      ),
    );
  });
});
