import { createHash, type Hash } from "node:crypto";
import { chmod, mkdir, open, readFile, stat, type FileHandle } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import {
  asSource,
  dataFiles,
  documentsOf,
  ProblemError,
  sharesOf,
  sourcesOf,
  validate,
  type Data,
  type JobSpec,
  type SingleData,
} from "@internevo/domain";
import { Type, type Static } from "typebox";
import {
  beginUse,
  makeRoom,
  removeUnusedCopies,
  type DatasetUser,
  type RemovedDatasets,
  type Unended,
} from "./dataset-use.ts";
import { assertTextRoom, BYTES_PER_TEXT_TOKEN as BYTES_PER_TOKEN } from "./disk-room.ts";
import { handOver } from "./handed-over.ts";
import {
  nextPart,
  openData,
  openForRanks,
  openTokens,
  type OpenData,
  type OpenForRanks,
  type Reading,
} from "./open-data.ts";
import { removeAbandoned, writePassing } from "./passing-files.ts";
import { assertKnowsDocuments, DocumentCounter, openSource, type TokenData } from "./source.ts";
import { countTokens } from "./token-source.ts";
import { unigramEntropyNats } from "./token-reader.ts";
import { documentsByte, encodeHeader, TOKEN_FILE, type TokenFileHeader } from "./token-file.ts";

export const DatasetSchema = Type.Object(
  {
    path: Type.String({
      description: "what the trainer reads: a token file, or data in a format that it knows",
    }),
    tokenCount: Type.Integer({ minimum: 1 }),
    sizeBytes: Type.Integer({ minimum: 1 }),
    sha256: Type.String({ description: "identity of the content" }),
    mostDocuments: Type.Optional(
      Type.Integer({ minimum: 1, description: "with packing: documents of the sequence that has most" }),
    ),
    unigramEntropyNats: Type.Union([Type.Number({ minimum: 0 }), Type.Null()], {
      description: "of the tokens, nats per token; null: more tokens occur than are counted",
    }),
  },
  { additionalProperties: false },
);
export type Dataset = Static<typeof DatasetSchema>;

/** Text becomes bytes: 256 tokens. */
export const BYTE_VOCABULARY_SIZE = 256;
/** A part is worked on within milliseconds, and then others have their turn. */
const CHUNK_BYTES = 1 << 20;
/** Others fill the disk too: after so many chunks it is asked again whether the rest has room. */
const CHUNKS_A_LOOK = 64;
/** Other users of the machine may not read datasets. */
const OWN_FOLDER = 0o700;

/** Where text is written as tokens. */
interface Target {
  readonly handle: FileHandle;
  readonly hash: Hash;
  readonly counts: Float64Array;
  /** Before a chunk is written. */
  readonly beforeChunk: (writtenBytes: number) => Promise<void>;
}

async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Packing that data is prepared for, and how long sequences are, which decides how many documents are in one.
 */
interface Packing {
  readonly endOfDocumentToken: number | undefined;
  readonly sequenceLengthTokens: number;
}

const packingOf = (data: SingleData, sequenceLengthTokens: number): Packing | undefined =>
  data.packing === "documents"
    ? { endOfDocumentToken: data.endOfDocumentToken, sequenceLengthTokens }
    : undefined;

/**
 * Identity of the sources without reading them: path and where it leads, size and time of change, and what decides
 * what is made of them.
 */
async function sourceKey(
  data: SingleData,
  files: readonly { readonly path: string; readonly field: string }[],
  vocabularySize: number,
  packing: Packing | undefined,
  reading: Reading,
): Promise<string> {
  const packed = packing
    ? ` ${packing.endOfDocumentToken ?? "documents"} ${packing.sequenceLengthTokens}`
    : "";
  const hash = createHash("sha256").update(
    `${data.format} ${data.format === "text" ? BYTE_VOCABULARY_SIZE : vocabularySize}${packed}\n`,
  );
  for (const { path, field } of files) {
    reading.signal?.throwIfAborted();
    // Ranks read the tokens that are made of text, and not the text.
    const open = data.format === "text" ? openData : openForRanks;
    const file: OpenData & Partial<OpenForRanks> = await open(path, field, reading);
    await file.handle.close();
    const { leads, forRanks = leads } = file;
    const places = [resolve(path), leads, ...(forRanks === leads ? [] : [forRanks])];
    hash.update(`${[...places, file.sizeBytes, file.modifiedNanoseconds].join("\0")}\n`);
  }
  return hash.digest("hex");
}

/** Adds the bytes of one text file as tokens. */
async function appendText(
  { handle: target, hash, counts, beforeChunk }: Target,
  path: string,
  field: string,
  onByte: ((byte: number, index: number) => void) | undefined,
  reading: Reading,
): Promise<number> {
  const { handle } = await openData(path, field, reading);
  try {
    const bytes = Buffer.alloc(CHUNK_BYTES);
    const tokens = Buffer.alloc(CHUNK_BYTES * BYTES_PER_TOKEN);
    let count = 0;
    for (;;) {
      const { bytesRead } = await handle.read(bytes, 0, bytes.length, null);
      if (bytesRead === 0) return count;
      for (let at = 0; at < bytesRead; at += 1) {
        const byte = bytes[at] as number;
        tokens.writeUInt16LE(byte, at * BYTES_PER_TOKEN);
        counts[byte] = (counts[byte] as number) + 1;
        onByte?.(byte, count + at);
      }
      const part = tokens.subarray(0, bytesRead * BYTES_PER_TOKEN);
      await beforeChunk(part.length);
      hash.update(part);
      await target.writeFile(part);
      count += bytesRead;
    }
  } finally {
    await handle.close();
  }
}

/** Tells of every token whether a document begins behind it. */
const endOf =
  (documents: DocumentCounter, endOfDocumentToken: number | undefined) =>
  (token: number, index: number): void => {
    if (token === endOfDocumentToken) documents.begin(index + 1);
  };

/**
 * Ends the writing of text when the signal does, or the disk has no room for the rest, though copies that nobody needs
 * were removed.
 */
function guarded(sizeTokens: number, directory: string, { user, ...reading }: PrepareOptions) {
  let [leftBytes, chunks] = [sizeTokens * BYTES_PER_TOKEN, 0];
  return async (writtenBytes: number): Promise<void> => {
    await nextPart(reading);
    if (chunks % CHUNKS_A_LOOK === 0) {
      const bytes = Math.max(leftBytes, writtenBytes);
      if (user) await makeRoom(bytes, directory, user.unended);
      await assertTextRoom(bytes, directory);
    }
    leftBytes -= writtenBytes;
    chunks += 1;
  };
}

async function tokenize(
  paths: readonly string[],
  directory: string,
  packing: Packing | undefined,
  options: PrepareOptions,
): Promise<Dataset> {
  const counts = new Float64Array(BYTE_VOCABULARY_SIZE);
  const body = createHash("sha256");
  let sizeTokens = 0;
  for (const [index, path] of paths.entries()) {
    const { handle, sizeBytes } = await openData(path, `data.paths.${index}`, options);
    await handle.close();
    sizeTokens += sizeBytes;
  }
  const documents = packing && new DocumentCounter(packing.sequenceLengthTokens, sizeTokens);
  const byToken = packing?.endOfDocumentToken !== undefined;
  const starts: number[] = [];
  let header: TokenFileHeader = {
    bytesPerToken: BYTES_PER_TOKEN,
    tokenCount: 0,
    vocabularySize: BYTE_VOCABULARY_SIZE,
  };
  // The name is the content's hash, known only at the end.
  const written = await writePassing(join(directory, "text"), async (handle) => {
    const target = { handle, hash: body, counts, beforeChunk: guarded(sizeTokens, directory, options) };
    await handle.writeFile(Buffer.alloc(TOKEN_FILE.headerBytes));
    let tokenCount = 0;
    for (const [index, path] of paths.entries()) {
      const first = tokenCount;
      if (packing && !byToken) documents?.begin(first);
      starts.push(first);
      const onByte = documents && byToken ? endOf(documents, packing.endOfDocumentToken) : undefined;
      tokenCount += await appendText(
        target,
        path,
        `data.paths.${index}`,
        onByte && ((byte, at) => onByte(byte, first + at)),
        options,
      );
    }
    header = { ...header, tokenCount, ...(packing && !byToken ? { documentCount: starts.length } : {}) };
    if (header.documentCount !== undefined) {
      const index = Buffer.alloc(
        documentsByte(header) - TOKEN_FILE.headerBytes - tokenCount * BYTES_PER_TOKEN + 8 * starts.length,
      );
      for (const [place, start] of starts.entries())
        index.writeBigUInt64LE(BigInt(start), index.length - 8 * (starts.length - place));
      body.update(index);
      await handle.writeFile(index);
    }
    const head = encodeHeader(header);
    await handle.write(head, 0, head.length, 0);
    const sha256 = createHash("sha256").update(head).update(body.digest()).digest("hex");
    const { size: sizeBytes } = await handle.stat();
    return { path: join(directory, `${sha256}.tokens`), sizeBytes, sha256 };
  });
  await syncDirectory(directory);
  return {
    ...written,
    tokenCount: header.tokenCount,
    ...(documents ? { mostDocuments: documents.most } : {}),
    unigramEntropyNats: unigramEntropyNats(counts),
  };
}

/** @returns the hash of the files' bytes, one behind the other. */
async function hashFiles(files: readonly string[], reading: Reading): Promise<string> {
  const sha256 = createHash("sha256");
  const chunk = Buffer.alloc(CHUNK_BYTES);
  for (const path of files) {
    const { handle } = await openTokens(path, reading);
    try {
      for (;;) {
        await nextPart(reading);
        const { bytesRead } = await handle.read(chunk, 0, chunk.length, null);
        if (bytesRead === 0) break;
        sha256.update(chunk.subarray(0, bytesRead));
      }
    } finally {
      await handle.close();
    }
  }
  return sha256.digest("hex");
}

async function inspect(
  data: TokenData,
  directory: string,
  vocabularySize: number,
  packing: Packing | undefined,
  reading: Reading,
): Promise<Dataset> {
  const source = await openSource(data, reading);
  const { path, files, tokenCount, sizeBytes, starts } = source;
  if (tokenCount === 0)
    throw new ProblemError("data-invalid", `${path} holds no token`, [
      { field: "data.path", value: path, message: "holds no token", remedy: "give a file with content" },
    ]);
  assertKnowsDocuments(data, source);
  const documents = packing && new DocumentCounter(packing.sequenceLengthTokens, tokenCount);
  if (documents && packing.endOfDocumentToken === undefined && starts)
    for await (const start of starts()) documents.begin(start);
  const counts = await countTokens(
    source,
    vocabularySize,
    documents && packing.endOfDocumentToken !== undefined
      ? endOf(documents, packing.endOfDocumentToken)
      : undefined,
  );
  const occurrences = counts.counts();
  return {
    path: await handOver(data, source, directory),
    tokenCount,
    sizeBytes,
    sha256: await hashFiles(files, reading),
    ...(documents ? { mostDocuments: documents.most } : {}),
    unigramEntropyNats: occurrences && unigramEntropyNats(occurrences),
  };
}

async function known(sidecar: string): Promise<Dataset | undefined> {
  let text: string;
  try {
    text = await readFile(sidecar, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
  const dataset = validate(DatasetSchema, JSON.parse(text), "internal", sidecar);
  try {
    return (await stat(dataset.path)).size === dataset.sizeBytes ? dataset : undefined;
  } catch (error) {
    // Somebody has removed it: it is made again.
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** Where a service keeps what it makes of data. */
export const datasetsDirectory = (dataDirectory: string): string => resolve(dataDirectory, "datasets");

async function ownFolder(dataDirectory: string): Promise<string> {
  const directory = datasetsDirectory(dataDirectory);
  await mkdir(dirname(directory), { recursive: true });
  await mkdir(directory, { recursive: true, mode: OWN_FOLDER });
  // One that an earlier version made, unless it is another user's.
  await chmod(directory, OWN_FOLDER).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EPERM") throw error;
  });
  return directory;
}

/** Removes what a service that was killed left of data that it prepared. @returns names of files */
export const removeAbandonedDatasets = (dataDirectory: string): Promise<string[]> =>
  removeAbandoned(datasetsDirectory(dataDirectory));

/** Removes copies of text that no job needs, and that were not used for some days. */
export const removeUnusedDatasets = (
  dataDirectory: string,
  unended: Unended,
  options: { readonly now: Date; readonly signal: AbortSignal },
): Promise<RemovedDatasets> => removeUnusedCopies(datasetsDirectory(dataDirectory), unended, options);

/** What was written when the signal ends it is removed. */
export interface PrepareOptions extends Reading {
  /** The job that needs it until it has ended; where room is lacking, copies that no job needs make room. */
  readonly user?: DatasetUser | undefined;
}

/**
 * Makes what the trainer reads. Text files are read as bytes, one after the other, each byte a token, and kept
 * in `<dataDirectory>/datasets` under the hash of their content; with packing each file is a document. Data that
 * is tokens already is checked, whole, and used where it is. The answer is remembered by path, size and time of
 * change, so that a job's later stages do not read the data again.
 * @param job V of the model, and S: the sequences that documents are counted in.
 * @throws ProblemError `data-invalid`: text that has no room as tokens, missing, empty, a directory, truncated
 * (expected and found bytes), an index that is not the data's, a token beyond V (with its place), packing
 * without documents.
 */
export async function prepareDataset(
  data: SingleData,
  dataDirectory: string,
  {
    vocabularySize,
    sequenceLengthTokens,
  }: { readonly vocabularySize: number; readonly sequenceLengthTokens: number },
  options: PrepareOptions = {},
): Promise<Dataset> {
  const { signal, user } = options;
  if (data.format === "text" && vocabularySize < BYTE_VOCABULARY_SIZE) {
    throw new ProblemError(
      "data-invalid",
      `a vocabulary of ${vocabularySize} is too small for text, which is read as bytes`,
      [
        {
          field: "model.vocabularySize",
          value: vocabularySize,
          message: "is too small for byte tokens",
          remedy: `use ${BYTE_VOCABULARY_SIZE} or more`,
        },
      ],
    );
  }
  const directory = await ownFolder(dataDirectory);
  await removeAbandoned(directory);
  const packing = packingOf(data, sequenceLengthTokens);
  const sidecar = join(
    directory,
    `source-${await sourceKey(data, dataFiles(data), vocabularySize, packing, options)}.json`,
  );
  const make = async (): Promise<Dataset> => {
    const dataset =
      data.format === "text"
        ? await tokenize(data.paths, directory, packing, options)
        : await inspect(data, directory, vocabularySize, packing, options);
    await writePassing(sidecar, async (handle) => {
      await handle.writeFile(JSON.stringify(dataset, null, 2));
      return { path: sidecar };
    });
    await syncDirectory(directory);
    return dataset;
  };
  for (;;) {
    const dataset = (await known(sidecar)) ?? (await make());
    // A copy may be removed until it is said that it is used.
    if (data.format !== "text" || (await beginUse(dataset.path, user?.jobId, signal))) return dataset;
  }
}

/** A job's data, ready for the trainer. */
export interface PreparedData extends Pick<Dataset, "path" | "tokenCount" | "mostDocuments"> {
  /** Null for a mixture too: frequencies of its sources are not kept. */
  readonly unigramEntropyNats: number | null;
  /** Of a mixture: what the trainer reads, with the sequences of a cycle that each gives. `path` is the first one's. */
  readonly sources?: readonly { readonly path: string; readonly share: number }[];
}

/** How sequences are cut. */
type Cut = Pick<JobSpec, "sequenceLengthTokens"> & { readonly vocabularySize: number };

/**
 * Makes what the trainer reads of each source of a job's data, and checks that it has sequences.
 * @throws ProblemError `data-invalid` as {@link prepareDataset} and {@link assertFitsSequences}, naming the source's
 * field.
 */
export async function prepareData(
  data: Data,
  dataDirectory: string,
  cut: Cut,
  options: PrepareOptions = {},
): Promise<PreparedData> {
  const sources = sourcesOf(data);
  const datasets: Dataset[] = [];
  for (const source of sources) {
    const dataset = await asSource(source.part, async () => {
      const prepared = await prepareDataset(source.data, dataDirectory, cut, options);
      assertFitsSequences(prepared, { data: source.data, ...cut });
      return prepared;
    });
    datasets.push(dataset);
  }
  const [first] = datasets;
  if (first === undefined) throw new Error("data has no source");
  if (data.format !== "mixture") return first;
  const shares = sharesOf(sources.map(({ weight }) => weight));
  const most = datasets.flatMap(({ mostDocuments = [] }) => mostDocuments);
  return {
    path: first.path,
    tokenCount: datasets.reduce((sum, { tokenCount }) => sum + tokenCount, 0),
    ...(most.length === 0 ? {} : { mostDocuments: Math.max(...most) }),
    unigramEntropyNats: null,
    sources: datasets.map(({ path }, index) => ({ path, share: shares[index] as number })),
  };
}

/**
 * Checks that the data holds at least one sequence, and that no sequence holds more documents than memory is
 * planned for.
 * @throws ProblemError `data-invalid` with what is there and what is needed.
 */
export function assertFitsSequences(
  dataset: Dataset,
  { data, sequenceLengthTokens }: { readonly data: Data | null; readonly sequenceLengthTokens: number },
): void {
  // Sequences of S tokens and the one target that follows, S apart.
  const sequences = Math.floor((dataset.tokenCount - 1) / sequenceLengthTokens);
  if (sequences < 1) {
    throw new ProblemError(
      "data-invalid",
      `${dataset.path} holds ${dataset.tokenCount} tokens: fewer than one sequence of ${sequenceLengthTokens} and its last target`,
      [
        {
          field: "data",
          value: dataset.tokenCount,
          message: "holds less than one sequence",
          remedy: `give at least ${sequenceLengthTokens + 1} tokens, or a shorter sequenceLengthTokens`,
        },
      ],
    );
  }
  if (dataset.mostDocuments !== undefined) assertRoomForDocuments(data, dataset.mostDocuments, dataset.path);
}

/**
 * Checks that held-out data holds the batches of an evaluation.
 * @param tokenCount of all of the data
 * @throws ProblemError `data-invalid`
 */
export function assertHoldsBatches(
  tokenCount: number,
  {
    validation,
    globalBatchTokens,
    sequenceLengthTokens,
  }: Pick<JobSpec, "validation" | "globalBatchTokens" | "sequenceLengthTokens">,
): void {
  if (validation === undefined) return;
  const { batches } = validation;
  const sequences = Math.floor((tokenCount - 1) / sequenceLengthTokens);
  const most = Math.floor(sequences / (globalBatchTokens / sequenceLengthTokens));
  if (batches <= most) return;
  throw new ProblemError(
    "data-invalid",
    `the held-out data holds ${tokenCount} tokens: fewer than ${batches} batches of ${globalBatchTokens} and their last target`,
    [
      {
        field: "validation.batches",
        value: batches,
        message: `is more than the ${most} batches of ${globalBatchTokens} tokens that the held-out data holds`,
        remedy: most < 1 ? "give more held-out data" : `use ${most} or less, or give more held-out data`,
      },
    ],
  );
}

/**
 * Checks that memory is planned for the documents of every sequence.
 * @param mostDocuments of the sequence that has most
 * @throws ProblemError `data-invalid`
 */
export function assertRoomForDocuments(data: Data | null, mostDocuments: number, path: string): void {
  const most = documentsOf(data);
  if (most === null || mostDocuments <= most) return;
  throw new ProblemError(
    "data-invalid",
    `${path} has a sequence of ${mostDocuments} documents, and there is room for ${most}`,
    [
      {
        field: "data.maxDocumentsPerSequence",
        value: most,
        message: `is less than the ${mostDocuments} documents of a sequence of the data`,
        remedy: `use ${mostDocuments} or more, or join short documents`,
      },
    ],
  );
}
