import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ATTENTION_TILE_TOKENS } from "@internevo/domain";
import { PATIENCE } from "@internevo/test-kit";
import { writeInternevo, writeMegatron, writeOwn } from "@internevo/test-kit/data-writers";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { countPackedDocuments, PackedDocumentCounter, ringTiles } from "./packed-documents.ts";

const TILE = ATTENTION_TILE_TOKENS;

/** Tiles of which any query sees any key, looked for one pair of tokens after another. */
function seenTiles(starts: readonly number[], ring: number, length: number, window: number) {
  const chunks = ring === 1 ? 1 : 2 * ring;
  const chunk = length / chunks;
  const owner = (place: number) => (ring === 1 ? 0 : Math.min(place, chunks - 1 - place));
  const seen = Array.from({ length: ring }, () => ({ first: new Set<string>(), all: new Set<string>() }));
  const tileOf = (token: number) => `${Math.floor(token / chunk)} ${Math.floor((token % chunk) / TILE)}`;
  for (let query = 0; query < length; query += 1) {
    const start = starts.findLast((each) => each <= query) as number;
    for (let key = Math.max(start, query - window + 1); key <= query; key += 1) {
      const [mine, theirs] = [Math.floor(query / chunk), Math.floor(key / chunk)].map(owner);
      const rank = seen[mine as number] as (typeof seen)[number];
      const tiles = `${tileOf(query)} ${tileOf(key)}`;
      rank.all.add(tiles);
      if (mine === theirs) rank.first.add(tiles);
    }
  }
  return seen.map(({ first, all }) => ({ first: first.size, all: all.size }));
}

describe("ringTiles", () => {
  it("counts the tiles that some query sees, for every ring, document and window", () =>
    fc.assert(
      fc.property(
        fc.constantFrom(1, 2, 3, 4),
        fc.constantFrom(24, 40, 96, 120),
        fc.uniqueArray(fc.integer({ min: 1, max: 900 }), { maxLength: 12 }),
        fc.constantFrom(Infinity, 1, 50, 130),
        (ring, half, borders, window) => {
          const length = 2 * ring * half;
          const starts = [0, ...borders.filter((each) => each < length).sort((a, b) => a - b)];
          expect(ringTiles(starts, ring, length, window)).toEqual(seenTiles(starts, ring, length, window));
        },
      ),
      { numRuns: 120, seed: 3 },
    ));

  it("gives every rank of a ring as much of one document", () => {
    const tiles = ringTiles([0], 4, 8 * 3 * TILE, Infinity);
    expect(new Set(tiles.map(({ all }) => all)).size).toBe(1);
    expect(tiles[0]?.first).toBeLessThan((tiles[0]?.all ?? 0) / 2);
  });
});

describe("PackedDocumentCounter", () => {
  const length = 8 * TILE;
  const counted = (starts: readonly number[], sequences = 4, ranks = 4) => {
    const counter = new PackedDocumentCounter({
      sequenceLengthTokens: length,
      tokenCount: sequences * length + 1,
      ranks,
    });
    for (const start of starts) counter.begin(start);
    return counter.counted().documents;
  };

  it("says 1 of sequences that are one document", () => {
    const summary = counted([0, length, 2 * length]);
    expect(summary).toMatchObject({ sequences: 4, meanDocuments: 1, keysShare: 1 });
    for (const { work, deviation, most } of summary?.rings ?? [])
      expect({ work, deviation, most }).toEqual({ work: 1, deviation: 0, most: 1 });
    expect(summary?.rings.map(({ ranks }) => ranks)).toEqual([1, 2, 3, 4]);
  });

  it("says what tiles are left, and how sequences differ", () => {
    // The first of two sequences has 8 documents of a tile each, the other is one document.
    const starts = Array.from({ length: 8 }, (_, i) => i * TILE);
    const summary = counted(starts, 2);
    const share = 8 / 36;
    expect(summary?.rings[0]?.work).toBeCloseTo((1 + share) / 2, 8);
    expect(summary?.rings[0]?.deviation).toBeCloseTo((1 - share) / 2, 8);
    expect(summary?.rings[0]?.most).toBe(1);
    expect(summary?.keysShare).toBeCloseTo((1 + (8 * TILE * (TILE + 1)) / (length * (length + 1))) / 2, 8);
  });

  it("has all the work of short documents in the first turn of a ring", () => {
    const starts = Array.from({ length: 4 * 8 }, (_, i) => i * TILE);
    expect(counted(starts)?.rings.find(({ ranks }) => ranks === 4)?.firstTurn).toBe(1);
  });

  it("counts sequences that are spread over long data", () => {
    const counter = new PackedDocumentCounter({
      sequenceLengthTokens: 96,
      tokenCount: 96 * 10_000 + 1,
      ranks: 1,
    });
    // The second half alone has documents.
    for (let start = 96 * 5000; start < 96 * 10_000; start += 32) counter.begin(start);
    expect(counter.counted().documents).toMatchObject({ sequences: 1024 });
    expect(counter.counted().documents?.meanDocuments).toBeCloseTo(2, 9);
  });

  it("says nothing of data that holds no whole sequence", () => {
    const counter = new PackedDocumentCounter({ sequenceLengthTokens: 96, tokenCount: 96, ranks: 1 });
    counter.begin(0);
    expect(counter.counted().documents).toBeUndefined();
  });
});

describe("countPackedDocuments", () => {
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), "internevo-documents-"));
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));
  const at = (name: string): string => join(directory, name);
  const documents = [40, 3, 60, 30, 1, 66].map((length, index) =>
    Array.from({ length }, (_, i) => (i === length - 1 ? 250 : index)),
  );
  const job = { model: { vocabularySize: 256 }, sequenceLengthTokens: 48, ranks: 2 };

  it("counts the sources of a mixture by their weights", async () => {
    const packing = "documents" as const;
    const [short, long] = [
      await writeOwn(at("short.tokens"), documents),
      await writeOwn(at("long.tokens"), [Array.from({ length: 97 }, () => 1)]),
    ];
    const alone = async (path: string) =>
      (await countPackedDocuments({ format: "tokens", path, packing }, job))?.documents;
    const [a, b] = [await alone(short), await alone(long)];
    if (!a || !b) throw new Error("nothing was counted");
    const mixture = (weights: readonly [number, number]) =>
      countPackedDocuments(
        {
          format: "mixture",
          packing,
          sources: [
            { format: "tokens", path: short, weight: weights[0] },
            { format: "tokens", path: long, weight: weights[1] },
          ],
        },
        job,
      );
    const counted = await mixture([1, 3]);
    expect(counted?.mostDocuments).toBe(4);
    const mixed = counted?.documents;
    expect(mixed?.sequences).toBe(a.sequences + b.sequences);
    expect(mixed?.meanDocuments).toBeCloseTo((a.meanDocuments + 3) / 4, 8);
    expect(mixed?.keysShare).toBeCloseTo((a.keysShare + 3) / 4, 8);
    for (const [place, ring] of a.rings.entries()) {
      const work = (ring.work + 3) / 4;
      expect(mixed?.rings[place]?.work).toBeCloseTo(work, 8);
      expect(mixed?.rings[place]?.deviation).toBeCloseTo(
        Math.sqrt((ring.work ** 2 + ring.deviation ** 2 + 3) / 4 - work ** 2),
        8,
      );
      expect(mixed?.rings[place]?.most).toBe(1);
    }
    // As much of each as there is of them: as if they were one.
    const even = (await mixture([a.sequences, b.sequences]))?.documents;
    expect(even?.meanDocuments).toBeCloseTo(
      (a.meanDocuments * a.sequences + b.sequences) / (a.sequences + b.sequences),
      8,
    );
  });

  it("names the source of a mixture that it cannot count", async () => {
    const sources = [
      { format: "tokens" as const, path: await writeOwn(at("own.tokens"), documents), weight: 1 },
      { format: "tokens" as const, path: at("absent"), weight: 1 },
    ];
    await expect(
      countPackedDocuments({ format: "mixture", packing: "documents", sources }, job),
    ).rejects.toMatchObject({ details: [{ field: "data.sources.1.path" }] });
  });

  it("is the same for data of every format, by its index and by a token that ends documents", async () => {
    const packing = "documents" as const;
    const paths = await Promise.all(
      documents.map(async (tokens, index) => {
        await writeFile(at(`${index}.txt`), Buffer.from(tokens));
        return at(`${index}.txt`);
      }),
    );
    const forms = [
      { format: "tokens", path: await writeOwn(at("own.tokens"), documents), packing },
      { format: "megatron", path: await writeMegatron(at("megatron"), documents), packing },
      { format: "internevo", path: await writeInternevo(at("internevo.bin"), documents), packing },
      { format: "text", paths, packing },
      { format: "text", paths, packing, endOfDocumentToken: 250 },
      { format: "megatron", path: at("megatron.bin"), packing, endOfDocumentToken: 250 },
    ] as const;
    const first = await countPackedDocuments(forms[0], job);
    expect(first).toMatchObject({ mostDocuments: 4, documents: { sequences: 4, meanDocuments: 9 / 4 } });
    for (const form of forms) expect(await countPackedDocuments(form, job)).toEqual(first);
  });

  it("takes no longer for a sequence of millions of tokens on many ranks", async () => {
    // A file may be named many times, so that any small one makes data of any length.
    await writeFile(at("large.txt"), Buffer.alloc(1 << 20));
    const data = { format: "text", paths: Array.from({ length: 17 }, () => at("large.txt")) } as const;
    const long = { ...job, sequenceLengthTokens: 2 ** 24, ranks: 1024 };
    const began = performance.now();
    const counted = await countPackedDocuments({ ...data, packing: "documents" }, long);
    expect(performance.now() - began).toBeLessThan(10_000 * PATIENCE);
    expect(counted).toMatchObject({ mostDocuments: 16, documents: { sequences: 1, meanDocuments: 16 } });
    expect(counted?.documents?.rings.map(({ ranks }) => ranks)).toEqual(
      Array.from({ length: 11 }, (_, i) => 2 ** i),
    );
  });

  it("takes no memory for each of many small files", async () => {
    await writeFile(at("small.txt"), "one\ntwo\n");
    const paths = Array.from({ length: 10_000 }, () => at("small.txt"));
    /** Processor time, for a clock says more of who else computes. */
    const processorTime = async <T>(work: () => Promise<T>) => {
      const began = process.cpuUsage();
      const result = await work();
      const { user, system } = process.cpuUsage(began);
      return { result, us: user + system };
    };
    const reading = await processorTime(async () => {
      for (const path of paths) await readFile(path);
    });
    const { result: counted, us } = await processorTime(() =>
      countPackedDocuments({ format: "text", paths, packing: "documents", endOfDocumentToken: 10 }, job),
    );
    // Two to three times what reading them alone takes; a buffer a file took ten times as long.
    expect(us / reading.us).toBeLessThan(8);
    expect(counted).toMatchObject({ mostDocuments: 12, documents: { sequences: 1024, meanDocuments: 12 } });
  });

  it("counts nothing in sequences that nobody trains with", async () => {
    await writeFile(at("large.txt"), Buffer.alloc(1 << 20));
    const data = { format: "text", paths: Array.from({ length: 10_000 }, () => at("large.txt")) } as const;
    const endless = { ...job, sequenceLengthTokens: 2 ** 33, ranks: 1024 };
    expect(await countPackedDocuments({ ...data, packing: "documents" }, endless)).toBeUndefined();
  });

  it("counts nothing where documents are not packed", async () => {
    const path = await writeOwn(at("own.tokens"), documents);
    expect(await countPackedDocuments({ format: "tokens", path }, job)).toBeUndefined();
    expect(await countPackedDocuments(null, job)).toBeUndefined();
  });
});
