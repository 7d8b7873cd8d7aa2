import { constants, type BigIntStats } from "node:fs";
import { open, stat, type FileHandle } from "node:fs/promises";
import { ProblemError } from "@internevo/domain";

/** The project's token file: a 64-byte header, little endian, then the tokens. */
export const TOKEN_FILE = { magic: "IEVOTOK\0", version: 1, headerBytes: 64 } as const;

export interface TokenFileHeader {
  readonly bytesPerToken: 2 | 4;
  readonly tokenCount: number;
  readonly vocabularySize: number;
}

export function encodeHeader(header: TokenFileHeader): Buffer {
  const bytes = Buffer.alloc(TOKEN_FILE.headerBytes);
  bytes.write(TOKEN_FILE.magic, 0, "latin1");
  bytes.writeUInt32LE(TOKEN_FILE.version, 8);
  bytes.writeUInt32LE(header.bytesPerToken, 12);
  bytes.writeBigUInt64LE(BigInt(header.tokenCount), 16);
  bytes.writeUInt32LE(header.vocabularySize, 24);
  return bytes;
}

const invalid = (path: string, message: string, remedy: string, value: unknown = path): ProblemError =>
  new ProblemError("data-invalid", `${path} ${message}`, [{ field: "data.path", value, message, remedy }]);

/** What a file is that is no regular one; undefined for a regular one. */
function otherKind(found: BigIntStats): string | undefined {
  if (found.isFile()) return undefined;
  if (found.isDirectory()) return "a directory";
  if (found.isFIFO()) return "a pipe";
  if (found.isSocket()) return "a socket";
  return "a device";
}

/**
 * Opens a file for reading, with an error that people understand. Only regular files: opening a pipe waits for its writer, opening a
 * device may act on it.
 */
export async function openData(path: string, field: string): Promise<{ handle: FileHandle; sizeBytes: number; modifiedNanoseconds: bigint }> {
  const refuse = (message: string, remedy: string, cause?: unknown): ProblemError =>
    new ProblemError("data-invalid", `${path} ${message}`, [{ field, value: path, message, remedy }], { cause });
  const assertRegular = (found: BigIntStats): void => {
    const kind = otherKind(found);
    if (kind !== undefined) throw refuse(`is ${kind}`, kind === "a directory" ? "give the files in it, one by one" : "give a regular file");
  };
  let handle: FileHandle;
  try {
    assertRegular(await stat(path, { bigint: true }));
    // Should the path mean something else by now, this does not wait for it.
    handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if (error instanceof ProblemError) throw error;
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "ENOTDIR") throw refuse("does not exist", "give the path of a file that exists on the machine that trains", error);
    if (code === "EACCES") throw refuse("cannot be read", "give the service's user the right to read it", error);
    throw refuse(`cannot be opened (${code ?? String(error)})`, "check the file", error);
  }
  try {
    const found = await handle.stat({ bigint: true });
    assertRegular(found);
    if (found.size === 0n) throw refuse("is empty", "give a file with content");
    return { handle, sizeBytes: Number(found.size), modifiedNanoseconds: found.mtimeNs };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/**
 * Reads and checks a token file's header against its size.
 * @throws ProblemError `data-invalid`: foreign magic, unknown version, a vocabulary of 0, or a size that is not the header's (expected and found bytes).
 */
export async function readHeader(handle: FileHandle, path: string, sizeBytes: number): Promise<TokenFileHeader> {
  const bytes = Buffer.alloc(TOKEN_FILE.headerBytes);
  const { bytesRead } = await handle.read(bytes, 0, bytes.length, 0);
  const remedy = "write the file again in the token format of this project, or give text files";
  if (bytesRead < bytes.length) throw invalid(path, `is truncated: expected ${bytes.length} bytes of header, found ${bytesRead}`, remedy);
  const magic = bytes.subarray(0, 8).toString("latin1");
  if (magic !== TOKEN_FILE.magic) throw invalid(path, `is not a token file: it begins with ${JSON.stringify(magic)}`, remedy);
  const version = bytes.readUInt32LE(8);
  if (version !== TOKEN_FILE.version) throw invalid(path, `has version ${version} of the token format; this program reads ${TOKEN_FILE.version}`, remedy);
  const bytesPerToken = bytes.readUInt32LE(12);
  if (bytesPerToken !== 2 && bytesPerToken !== 4) throw invalid(path, `says ${bytesPerToken} bytes a token: 2 and 4 are known`, remedy);
  const tokenCount = Number(bytes.readBigUInt64LE(16));
  const expected = TOKEN_FILE.headerBytes + tokenCount * bytesPerToken;
  if (expected !== sizeBytes) {
    throw invalid(path, `is ${sizeBytes < expected ? "truncated" : "too long"}: expected ${expected} bytes for ${tokenCount} tokens, found ${sizeBytes}`, "copy or write the file again");
  }
  const vocabularySize = bytes.readUInt32LE(24);
  if (vocabularySize === 0) throw invalid(path, "says a vocabulary of 0 tokens", remedy);
  return { bytesPerToken, tokenCount, vocabularySize };
}

/**
 * Counts every token of a file whose header has been checked.
 * @param vocabularySize V: a token at or above it is refused with its place.
 * @returns how often each token occurs.
 */
export async function countTokens(handle: FileHandle, path: string, header: TokenFileHeader, vocabularySize: number): Promise<Float64Array> {
  const counts = new Float64Array(vocabularySize);
  const chunk = Buffer.alloc(4 << 20);
  let position: number = TOKEN_FILE.headerBytes;
  for (;;) {
    const { bytesRead } = await handle.read(chunk, 0, chunk.length, position);
    if (bytesRead === 0) return counts;
    for (let at = 0; at + header.bytesPerToken <= bytesRead; at += header.bytesPerToken) {
      const token = header.bytesPerToken === 2 ? chunk.readUInt16LE(at) : chunk.readUInt32LE(at);
      if (token >= vocabularySize) {
        const index = (position - TOKEN_FILE.headerBytes + at) / header.bytesPerToken;
        throw invalid(path, `holds token ${token} at index ${index} (byte offset ${position + at}), beyond the model's vocabulary of ${vocabularySize}`, `raise model.vocabularySize above ${token}, or tokenize with the model's vocabulary`, token);
      }
      counts[token] = (counts[token] as number) + 1;
    }
    position += bytesRead;
  }
}

/** Entropy of the tokens taken one by one, in nats per token: what a model that knows only frequencies would reach. */
export function unigramEntropyNats(counts: ArrayLike<number>): number {
  let total = 0;
  for (let token = 0; token < counts.length; token += 1) total += counts[token] as number;
  let entropy = 0;
  for (let token = 0; token < counts.length; token += 1) {
    const share = (counts[token] as number) / total;
    if (share > 0) entropy -= share * Math.log(share);
  }
  return entropy;
}
