import {
  asSource,
  ATTENTION_TILE_TOKENS,
  sourcesOf,
  type Data,
  type Model,
  type PackedDocuments,
  type SingleData,
} from "@internevo/domain";
import { nextPart, openData, type Reading } from "./open-data.ts";
import { assertKnowsDocuments, DocumentCounter, openSource } from "./source.ts";

/** Sequences that are counted at most, and tiles of queries: beyond that a mean is known well enough. */
const MOST_SEQUENCES = 1024;
const MOST_QUERY_TILES = 2 ** 21;
/** Longer rings are taken as the longest that was counted. */
const LONGEST_RING = 1024;
/** In longer sequences nothing is counted: nobody trains with them, and a count would take as long as it likes. */
const LONGEST_COUNTED_TOKENS = 2 ** 24;
/**
 * Tokens in files up to this size are read whole before a job is accepted; larger ones are by the job's first
 * stage.
 */
export const FULLY_READ_BYTES = 2 ** 30;
const CHUNK_BYTES = 4 << 20;

/** What decides how sequences are cut, seen and shared. */
export interface CutSequences {
  readonly sequenceLengthTokens: number;
  readonly slidingWindowTokens?: number | undefined;
  readonly tokenCount: number;
  readonly ranks: number;
}

/** Tiles of keys that one rank of a ring computes, in its first turn and in all. */
interface RankTiles {
  first: number;
  all: number;
}

/**
 * Tiles that every rank of a ring computes of a sequence, as native/src/comm/ring_attention.cpp pairs chunks and
 * native/src/backend/cpu/attention.h leaves tiles out: rank r has the chunks r and 2c − 1 − r of 2c.
 * @param starts first tokens of the sequence's documents, ascending from 0
 * @param window keys that a query sees at most
 */
export function ringTiles(
  starts: readonly number[],
  ring: number,
  sequenceLengthTokens: number,
  window: number,
): RankTiles[] {
  const tile = ATTENTION_TILE_TOKENS;
  const chunks = ring === 1 ? 1 : 2 * ring;
  const chunk = sequenceLengthTokens / chunks;
  const wholeChunk = Math.ceil(chunk / tile);
  const tiles = Array.from({ length: ring }, (): RankTiles => ({ first: 0, all: 0 }));
  const ownerOf = (place: number): number => (ring === 1 ? 0 : Math.min(place, chunks - 1 - place));
  let document = 0;
  for (let place = 0; place < chunks; place += 1) {
    const own = tiles[ownerOf(place)] as RankTiles;
    for (let row = 0; row < chunk; row += tile) {
      const query = place * chunk + row;
      while (document + 1 < starts.length && (starts[document + 1] as number) <= query) document += 1;
      const firstKey = Math.max(starts[document] as number, query - window + 1, 0);
      const last = query + Math.min(tile, chunk - row);
      const seenIn = (keys: number): number => {
        const from = Math.max(firstKey - keys * chunk, 0);
        const to = Math.min(last - keys * chunk, chunk);
        return Math.ceil(to / tile) - Math.floor(from / tile);
      };
      // Of the chunks of keys only the first and the last are seen in part.
      const firstChunk = Math.floor(firstKey / chunk);
      const here = seenIn(place);
      const before = firstChunk < place ? seenIn(firstChunk) + (place - firstChunk - 1) * wholeChunk : 0;
      own.all += here + before;
      const mirror = chunks - 1 - place;
      own.first += here + (firstChunk <= mirror && mirror < place ? seenIn(mirror) : 0);
    }
  }
  return tiles;
}

/** Pairs of a query and a key that a document of l tokens has under a window. */
const pairsOf = (length: number, window: number): number => {
  const whole = Math.min(length, window);
  return (whole * (whole + 1)) / 2 + (length - whole) * whole;
};

/** Mean, spread and most of the work of a ring's ranks, one sequence after another. */
class RingWork {
  readonly ranks: number;
  /** Of a rank, of one document as long as the sequence. */
  readonly #whole: number;
  #count = 0;
  #sum = 0;
  #squares = 0;
  #most = 0;
  #first = 0;

  constructor(ranks: number, sequenceLengthTokens: number, window: number) {
    this.ranks = ranks;
    const whole = ringTiles([0], ranks, sequenceLengthTokens, window);
    this.#whole = whole.reduce((sum, { all }) => sum + all, 0) / ranks;
  }

  add(tiles: readonly RankTiles[]): void {
    for (const { first, all } of tiles) {
      const work = all / this.#whole;
      this.#count += 1;
      this.#sum += work;
      this.#squares += work * work;
      this.#first += first / this.#whole;
      this.#most = Math.max(this.#most, work);
    }
  }

  get summary(): PackedDocuments["rings"][number] {
    const work = this.#sum / this.#count;
    const rounded = (value: number): number => Number(Math.min(1, Math.max(0, value)).toPrecision(9));
    return {
      ranks: this.ranks,
      work: rounded(work),
      deviation: rounded(Math.sqrt(Math.max(0, this.#squares / this.#count - work * work))),
      most: rounded(this.#most),
      firstTurn: rounded(this.#first / this.#sum),
    };
  }
}

/** Packed documents of a job's data. */
export interface CountedDocuments {
  /** Of the sequence that has most. */
  readonly mostDocuments: number;
  /** What they leave of attention; not where the data holds no whole sequence. */
  readonly documents?: PackedDocuments;
}

/** Counts what documents leave of attention, told by where they begin, in ascending order. */
export class PackedDocumentCounter {
  readonly #cut: CutSequences;
  readonly #window: number;
  readonly #total: number;
  readonly #wanted: number;
  readonly #rings: RingWork[];
  /** Counts every sequence, and not only those whose attention is counted. */
  readonly #documentsOfAll: DocumentCounter;
  #next = 0;
  #starts: number[] = [0];
  #pairs = 0;
  #documents = 0;

  constructor(cut: CutSequences) {
    this.#cut = cut;
    const { sequenceLengthTokens: length, tokenCount, ranks, slidingWindowTokens } = cut;
    this.#window = slidingWindowTokens ?? Infinity;
    this.#documentsOfAll = new DocumentCounter(length, tokenCount);
    this.#rings = [1, ...Array.from({ length: Math.min(ranks, LONGEST_RING) - 1 }, (_, i) => i + 2)]
      .filter((ring) => ring === 1 || length % (2 * ring) === 0)
      .map((ring) => new RingWork(ring, length, this.#window));
    // Sequences of S tokens and the one target that follows.
    this.#total = Math.floor((tokenCount - 1) / length);
    const tiles = this.#rings.reduce(
      (sum, { ranks: ring }) => sum + Math.max(2 * ring, length / ATTENTION_TILE_TOKENS),
      0,
    );
    this.#wanted = Math.min(this.#total, MOST_SEQUENCES, Math.max(1, Math.floor(MOST_QUERY_TILES / tiles)));
  }

  /** The sequence that is counted as the i-th: they are spread over the data evenly. */
  #sequence(index: number): number {
    return Math.floor(((index + 0.5) * this.#total) / this.#wanted);
  }

  #end(): void {
    const { sequenceLengthTokens: length } = this.#cut;
    const starts = this.#starts;
    for (const ring of this.#rings) ring.add(ringTiles(starts, ring.ranks, length, this.#window));
    for (const [place, start] of starts.entries())
      this.#pairs += pairsOf((starts[place + 1] ?? length) - start, this.#window);
    this.#documents += starts.length;
    this.#starts = [0];
    this.#next += 1;
  }

  begin(position: number): void {
    const { sequenceLengthTokens: length } = this.#cut;
    this.#documentsOfAll.begin(position);
    while (this.#next < this.#wanted && position >= (this.#sequence(this.#next) + 1) * length) this.#end();
    if (this.#next === this.#wanted) return;
    const within = position - this.#sequence(this.#next) * length;
    // Documents of no tokens begin where the next one does.
    if (within > 0 && within !== this.#starts.at(-1)) this.#starts.push(within);
  }

  /** What is known once every document was told of. */
  counted(): CountedDocuments {
    const documents = this.#summary();
    return { mostDocuments: this.#documentsOfAll.most, ...(documents === undefined ? {} : { documents }) };
  }

  /** undefined where the data holds no whole sequence. */
  #summary(): PackedDocuments | undefined {
    const { sequenceLengthTokens: length, slidingWindowTokens } = this.#cut;
    while (this.#next < this.#wanted) this.#end();
    if (this.#wanted < 1) return undefined;
    const whole = this.#wanted * pairsOf(length, this.#window);
    return {
      sequenceLengthTokens: length,
      ...(slidingWindowTokens === undefined ? {} : { slidingWindowTokens }),
      sequences: this.#wanted,
      meanDocuments: this.#documents / this.#wanted,
      keysShare: Number((this.#pairs / whole).toPrecision(9)),
      rings: this.#rings.map(({ summary }) => summary),
    };
  }
}

/** What decides how a job's data is cut and shared. */
export interface DocumentTask {
  readonly model: Pick<Model, "slidingWindowTokens" | "vocabularySize">;
  readonly sequenceLengthTokens: number;
  /** Of the cluster: no ring is longer. */
  readonly ranks: number;
}

const counterFor = (
  { sequenceLengthTokens, model: { slidingWindowTokens }, ranks }: DocumentTask,
  tokenCount: number,
): PackedDocumentCounter =>
  new PackedDocumentCounter({ sequenceLengthTokens, slidingWindowTokens, tokenCount, ranks });

/** Text files are read one after the other, each a document, or cut where a byte ends one. */
async function countText(
  { paths, endOfDocumentToken }: Extract<SingleData, { format: "text" }>,
  job: DocumentTask,
  reading: Reading,
): Promise<CountedDocuments | undefined> {
  const opened = async (place: number) => openData(paths[place] as string, `data.paths.${place}`, reading);
  const sizes: number[] = [];
  for (const place of paths.keys()) {
    const { handle, sizeBytes } = await opened(place);
    await handle.close();
    sizes.push(sizeBytes);
  }
  const tokenCount = sizes.reduce((sum, size) => sum + size, 0);
  const counter = counterFor(job, tokenCount);
  if (endOfDocumentToken !== undefined && tokenCount > FULLY_READ_BYTES) return undefined;
  const bytes = Buffer.alloc(CHUNK_BYTES);
  let first = 0;
  for (const [place, size] of sizes.entries()) {
    if (endOfDocumentToken === undefined) counter.begin(first);
    else {
      const { handle } = await opened(place);
      try {
        for (let at = 0; ;) {
          await nextPart(reading);
          const { bytesRead } = await handle.read(bytes, 0, bytes.length, null);
          if (bytesRead === 0) break;
          for (let i = 0; i < bytesRead; i += 1)
            if (bytes[i] === endOfDocumentToken) counter.begin(first + at + i + 1);
          at += bytesRead;
        }
      } finally {
        await handle.close();
      }
    }
    first += size;
  }
  return counter.counted();
}

/** @returns undefined where only the tokens of a file beyond 1 GiB tell where documents end */
async function countSource(
  data: SingleData,
  job: DocumentTask,
  reading: Reading,
): Promise<CountedDocuments | undefined> {
  if (data.format === "text") return countText(data, job, reading);
  const source = await openSource(data, reading);
  assertKnowsDocuments(data, source);
  const { endOfDocumentToken: end } = data;
  const counter = counterFor(job, source.tokenCount);
  if (end === undefined) {
    for await (const start of source.starts?.() ?? []) counter.begin(start);
  } else {
    if (source.sizeBytes > FULLY_READ_BYTES) return undefined;
    await source.read(job.model.vocabularySize, (token, index) => {
      if (token === end) counter.begin(index + 1);
    });
  }
  return counter.counted();
}

type Counted = NonNullable<CountedDocuments["documents"]>;

/** Packed documents of all sources of a job's data. */
export interface CountedData extends CountedDocuments {
  /** Which source has the sequence with most documents. */
  readonly mostIn: number;
}

/**
 * What the documents of several sources leave of attention in a mixture of them.
 * @param counted of each source, of sequences that are cut and seen alike
 */
function mixed(counted: readonly { readonly documents: Counted; readonly weight: number }[]): Counted {
  const all = counted.reduce((sum, { weight }) => sum + weight, 0);
  const mean = (value: (documents: Counted) => number): number =>
    counted.reduce((sum, { documents, weight }) => sum + (weight / all) * value(documents), 0);
  const rounded = (value: number): number => Number(Math.min(1, Math.max(0, value)).toPrecision(9));
  const [first] = counted;
  if (first === undefined) throw new Error("a mixture has no source");
  return {
    ...first.documents,
    sequences: counted.reduce((sum, { documents }) => sum + documents.sequences, 0),
    meanDocuments: mean(({ meanDocuments }) => meanDocuments),
    keysShare: rounded(mean(({ keysShare }) => keysShare)),
    rings: first.documents.rings.map(({ ranks }, place) => {
      const ring = ({ rings }: Counted) => rings[place] as Counted["rings"][number];
      const work = mean((one) => ring(one).work);
      const squares = mean((one) => ring(one).work ** 2 + ring(one).deviation ** 2);
      return {
        ranks,
        work: rounded(work),
        deviation: rounded(Math.sqrt(Math.max(0, squares - work * work))),
        most: Math.max(...counted.map(({ documents }) => ring(documents).most)),
        firstTurn: rounded(mean((one) => ring(one).firstTurn * ring(one).work) / work),
      };
    }),
  };
}

/**
 * Counts the documents of a job's data, and what they leave of attention, in sequences as the trainer will cut
 * them. Sources of a mixture count by their weights.
 * @returns undefined where documents are not packed, where sequences are longer than 16M tokens, and where only
 * the tokens of a file beyond 1 GiB tell where documents end.
 * @throws ProblemError `data-invalid` as {@link openSource} does
 */
export async function countPackedDocuments(
  data: Data | null,
  job: DocumentTask,
  reading: Reading = {},
): Promise<CountedData | undefined> {
  if (data?.packing !== "documents" || job.sequenceLengthTokens > LONGEST_COUNTED_TOKENS) return undefined;
  const counted: (CountedDocuments & { readonly weight: number })[] = [];
  for (const { data: source, weight, part } of sourcesOf(data)) {
    const one = await asSource(part, () => countSource(source, job, reading));
    if (one === undefined) return undefined;
    counted.push({ ...one, weight });
  }
  const mostDocuments = Math.max(...counted.map((one) => one.mostDocuments));
  const mostIn = counted.findIndex((one) => one.mostDocuments === mostDocuments);
  const known = counted.flatMap(({ documents, weight }) => (documents ? [{ documents, weight }] : []));
  if (known.length < counted.length) return { mostDocuments, mostIn };
  const [only] = known;
  return { mostDocuments, mostIn, documents: known.length === 1 && only ? only.documents : mixed(known) };
}
