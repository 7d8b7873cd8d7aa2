import { createHash, randomUUID, type Hash } from "node:crypto";
import { mkdir, open, readFile, rename, rm, stat, type FileHandle } from "node:fs/promises";
import { join, resolve } from "node:path";
import { ProblemError, validate, type Data } from "@internevo/domain";
import { Type, type Static } from "typebox";
import { countTokens, encodeHeader, openData, readHeader, TOKEN_FILE, unigramEntropyNats } from "./token-file.ts";

export const DatasetSchema = Type.Object(
  {
    path: Type.String({ description: "a token file that the trainer reads" }),
    tokenCount: Type.Integer({ minimum: 1 }),
    sizeBytes: Type.Integer({ minimum: 1 }),
    sha256: Type.String({ description: "identity of the content" }),
    unigramEntropyNats: Type.Number({ minimum: 0, description: "of the tokens, nats per token" }),
  },
  { additionalProperties: false },
);
export type Dataset = Static<typeof DatasetSchema>;

/** Text becomes bytes: 256 tokens. */
export const BYTE_VOCABULARY_SIZE = 256;
const BYTES_PER_TOKEN = 2;
const CHUNK_BYTES = 4 << 20;

/** Writes a file so that a reader sees all of it or nothing, even after a power cut. */
async function replaceFile(path: string, fill: (handle: FileHandle) => Promise<void>): Promise<void> {
  const temporary = `${path}.${randomUUID()}.tmp`;
  try {
    const handle = await open(temporary, "wx");
    try {
      await fill(handle);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Identity of the sources without reading them: path, size and time of change. */
async function sourceKey(data: Data, vocabularySize: number): Promise<string> {
  const paths = data.format === "text" ? data.paths : [data.path];
  const hash = createHash("sha256").update(`${data.format} ${data.format === "tokens" ? vocabularySize : BYTE_VOCABULARY_SIZE}\n`);
  for (const [index, path] of paths.entries()) {
    const { handle, sizeBytes, modifiedNanoseconds } = await openData(path, data.format === "text" ? `data.paths.${index}` : "data.path");
    await handle.close();
    hash.update(`${resolve(path)}\0${sizeBytes}\0${modifiedNanoseconds}\n`);
  }
  return hash.digest("hex");
}

/** Adds the bytes of one text file as tokens. */
async function appendText(target: FileHandle, hash: Hash, counts: Float64Array, path: string, field: string): Promise<number> {
  const { handle } = await openData(path, field);
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
      }
      const part = tokens.subarray(0, bytesRead * BYTES_PER_TOKEN);
      hash.update(part);
      await target.writeFile(part);
      count += bytesRead;
    }
  } finally {
    await handle.close();
  }
}

async function tokenize(paths: readonly string[], directory: string): Promise<Dataset> {
  const counts = new Float64Array(BYTE_VOCABULARY_SIZE);
  const body = createHash("sha256");
  let tokenCount = 0;
  // The name is the content's hash, known only at the end: the file is written under a passing name.
  const passing = join(directory, `text-${randomUUID()}`);
  await replaceFile(passing, async (target) => {
    await target.writeFile(Buffer.alloc(TOKEN_FILE.headerBytes));
    for (const [index, path] of paths.entries()) tokenCount += await appendText(target, body, counts, path, `data.paths.${index}`);
    const header = encodeHeader({ bytesPerToken: BYTES_PER_TOKEN, tokenCount, vocabularySize: BYTE_VOCABULARY_SIZE });
    await target.write(header, 0, header.length, 0);
  });
  const sha256 = createHash("sha256").update(encodeHeader({ bytesPerToken: BYTES_PER_TOKEN, tokenCount, vocabularySize: BYTE_VOCABULARY_SIZE })).update(body.digest()).digest("hex");
  const path = join(directory, `${sha256}.tokens`);
  await rename(passing, path);
  await syncDirectory(directory);
  return { path, tokenCount, sizeBytes: TOKEN_FILE.headerBytes + tokenCount * BYTES_PER_TOKEN, sha256, unigramEntropyNats: unigramEntropyNats(counts) };
}

async function inspect(path: string, vocabularySize: number): Promise<Dataset> {
  const { handle, sizeBytes } = await openData(path, "data.path");
  try {
    const header = await readHeader(handle, path, sizeBytes);
    if (header.tokenCount === 0) throw new ProblemError("data-invalid", `${path} holds no token`, [{ field: "data.path", value: path, message: "holds no token", remedy: "give a file with content" }]);
    const counts = await countTokens(handle, path, header, vocabularySize);
    const sha256 = createHash("sha256");
    const chunk = Buffer.alloc(CHUNK_BYTES);
    for (let position = 0; ; ) {
      const { bytesRead } = await handle.read(chunk, 0, chunk.length, position);
      if (bytesRead === 0) break;
      sha256.update(chunk.subarray(0, bytesRead));
      position += bytesRead;
    }
    return { path: resolve(path), tokenCount: header.tokenCount, sizeBytes, sha256: sha256.digest("hex"), unigramEntropyNats: unigramEntropyNats(counts) };
  } finally {
    await handle.close();
  }
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

/**
 * Makes the token file that the trainer reads.
 * Text files are read as bytes, one after the other, each byte a token, and kept in `<dataDirectory>/datasets` under the hash of
 * their content; a token file is checked, whole, and used where it is. The answer is remembered by path, size and time of
 * change, so that a job's later stages do not read the data again.
 * @param vocabularySize V of the model; every token is below it.
 * @throws ProblemError `data-invalid`: missing, empty, a directory, truncated (expected and found bytes), a token beyond V (with its place).
 */
export async function prepareDataset(data: Data, dataDirectory: string, vocabularySize: number): Promise<Dataset> {
  if (data.format === "text" && vocabularySize < BYTE_VOCABULARY_SIZE) {
    throw new ProblemError("data-invalid", `a vocabulary of ${vocabularySize} is too small for text, which is read as bytes`, [
      { field: "model.vocabularySize", value: vocabularySize, message: "is too small for byte tokens", remedy: `use ${BYTE_VOCABULARY_SIZE} or more` },
    ]);
  }
  const directory = resolve(dataDirectory, "datasets");
  await mkdir(directory, { recursive: true });
  const sidecar = join(directory, `source-${await sourceKey(data, vocabularySize)}.json`);
  const remembered = await known(sidecar);
  if (remembered) return remembered;
  const dataset = data.format === "text" ? await tokenize(data.paths, directory) : await inspect(data.path, vocabularySize);
  await replaceFile(sidecar, async (handle) => handle.writeFile(JSON.stringify(dataset, null, 2)));
  await syncDirectory(directory);
  return dataset;
}

/**
 * Checks that the data holds at least one global batch.
 * @throws ProblemError `data-invalid` with what is there and what is needed.
 */
export function assertEnoughTokens(dataset: Dataset, spec: { readonly sequenceLengthTokens: number; readonly globalBatchTokens: number }): void {
  // Sequences of S tokens and the one target that follows, S apart.
  const sequences = Math.floor((dataset.tokenCount - 1) / spec.sequenceLengthTokens);
  if (sequences >= 1) return;
  throw new ProblemError("data-invalid", `${dataset.path} holds ${dataset.tokenCount} tokens: fewer than one sequence of ${spec.sequenceLengthTokens} and its last target`, [
    { field: "data", value: dataset.tokenCount, message: "holds less than one sequence", remedy: `give at least ${spec.sequenceLengthTokens + 1} tokens, or a shorter sequenceLengthTokens` },
  ]);
}
