import type { FileHandle } from "node:fs/promises";
import { ProblemError } from "@internevo/domain";
import { nextPart, openTokens, readExactly, type Reading } from "./open-data.ts";
import { readPlainTokens, TokenReader } from "./token-reader.ts";
import type { TokenSource } from "./token-source.ts";

/**
 * The project's token file: a 64-byte header, little endian, then the tokens. Version 2 goes on, at a
 * multiple of 8 bytes, with the first token of every document, 8 bytes each.
 */
export const TOKEN_FILE = { magic: "IEVOTOK\0", version: 1, documentsVersion: 2, headerBytes: 64 } as const;

export interface TokenFileHeader {
  readonly bytesPerToken: 2 | 4;
  readonly tokenCount: number;
  readonly vocabularySize: number;
  /** Version 2; a file of version 1 knows no documents. */
  readonly documentCount?: number;
}

const upTo8 = (bytes: number): number => Math.ceil(bytes / 8) * 8;

/** Where the index of the documents begins. */
export const documentsByte = (header: TokenFileHeader): number =>
  upTo8(TOKEN_FILE.headerBytes + header.tokenCount * header.bytesPerToken);

export function encodeHeader(header: TokenFileHeader): Buffer {
  const bytes = Buffer.alloc(TOKEN_FILE.headerBytes);
  bytes.write(TOKEN_FILE.magic, 0, "latin1");
  bytes.writeUInt32LE(
    header.documentCount === undefined ? TOKEN_FILE.version : TOKEN_FILE.documentsVersion,
    8,
  );
  bytes.writeUInt32LE(header.bytesPerToken, 12);
  bytes.writeBigUInt64LE(BigInt(header.tokenCount), 16);
  bytes.writeUInt32LE(header.vocabularySize, 24);
  if (header.documentCount !== undefined) bytes.writeBigUInt64LE(BigInt(header.documentCount), 32);
  return bytes;
}

const invalid = (path: string, message: string, remedy: string, value: unknown = path): ProblemError =>
  new ProblemError("data-invalid", `${path} ${message}`, [{ field: "data.path", value, message, remedy }]);

/**
 * Reads and checks a token file's header against its size.
 * @throws ProblemError `data-invalid`: foreign magic, unknown version, a vocabulary of 0, or a size that is
 * not the header's (expected and found bytes).
 */
export async function readHeader(
  handle: FileHandle,
  path: string,
  sizeBytes: number,
): Promise<TokenFileHeader> {
  const bytes = Buffer.alloc(TOKEN_FILE.headerBytes);
  const { bytesRead } = await handle.read(bytes, 0, bytes.length, 0);
  const remedy = "write the file again in the token format of this project, or give text files";
  if (bytesRead < bytes.length)
    throw invalid(path, `is truncated: expected ${bytes.length} bytes of header, found ${bytesRead}`, remedy);
  const magic = bytes.subarray(0, 8).toString("latin1");
  if (magic !== TOKEN_FILE.magic)
    throw invalid(
      path,
      `is not a token file: it does not begin with ${TOKEN_FILE.magic.slice(0, -1)}`,
      remedy,
    );
  const version = bytes.readUInt32LE(8);
  if (version !== TOKEN_FILE.version && version !== TOKEN_FILE.documentsVersion)
    throw invalid(
      path,
      `has version ${version} of the token format; this program reads ${TOKEN_FILE.version} and ${TOKEN_FILE.documentsVersion}`,
      remedy,
    );
  const bytesPerToken = bytes.readUInt32LE(12);
  if (bytesPerToken !== 2 && bytesPerToken !== 4)
    throw invalid(path, `says ${bytesPerToken} bytes a token: 2 and 4 are known`, remedy);
  const tokenCount = Number(bytes.readBigUInt64LE(16));
  const vocabularySize = bytes.readUInt32LE(24);
  const header: TokenFileHeader = {
    bytesPerToken,
    tokenCount,
    vocabularySize,
    ...(version === TOKEN_FILE.documentsVersion ? { documentCount: Number(bytes.readBigUInt64LE(32)) } : {}),
  };
  const { documentCount } = header;
  const expected =
    documentCount === undefined
      ? TOKEN_FILE.headerBytes + tokenCount * bytesPerToken
      : documentsByte(header) + 8 * documentCount;
  if (expected !== sizeBytes) {
    throw invalid(
      path,
      `is ${sizeBytes < expected ? "truncated" : "too long"}: expected ${expected} bytes for ${tokenCount} tokens${documentCount === undefined ? "" : ` and ${documentCount} documents`}, found ${sizeBytes}`,
      "copy or write the file again",
    );
  }
  if (vocabularySize === 0) throw invalid(path, "says a vocabulary of 0 tokens", remedy);
  return header;
}

const DOCUMENTS_AT_A_TIME = 1 << 16;

/**
 * First tokens of the documents of a file of version 2. @throws ProblemError `data-invalid` where they do not
 * ascend from 0.
 */
async function* documentStarts(
  path: string,
  header: TokenFileHeader,
  reading: Reading,
): AsyncGenerator<number> {
  const { documentCount = 0, tokenCount } = header;
  const { handle } = await openTokens(path, reading);
  try {
    let former = -1;
    for (let document = 0; document < documentCount;) {
      await nextPart(reading);
      const bytes = await readExactly(
        handle,
        documentsByte(header) + 8 * document,
        8 * Math.min(DOCUMENTS_AT_A_TIME, documentCount - document),
      );
      for (let at = 0; at < bytes.length; at += 8, document += 1) {
        const start = Number(bytes.readBigUInt64LE(at));
        const [lowest, highest] = document === 0 ? [0, 0] : [former + 1, tokenCount - 1];
        if (start < lowest || start > highest) {
          throw invalid(
            path,
            `starts document ${document} at token ${start} (byte ${documentsByte(header) + 8 * document}); from ${lowest} to ${highest} is expected`,
            "write the file again",
            start,
          );
        }
        yield (former = start);
      }
    }
  } finally {
    await handle.close();
  }
}

/** Opens a token file and checks all of it but the tokens. @throws ProblemError `data-invalid` */
export async function openTokenFile(path: string, reading: Reading): Promise<TokenSource> {
  const { handle, sizeBytes, forRanks } = await openTokens(path, reading);
  let header: TokenFileHeader;
  try {
    header = await readHeader(handle, path, sizeBytes);
  } finally {
    await handle.close();
  }
  const { bytesPerToken, tokenCount, documentCount = 0 } = header;
  for await (const _start of documentStarts(path, header, reading));
  return {
    path,
    files: [path],
    forRanks: [forRanks],
    sizeBytes,
    tokenCount,
    starts: documentCount > 0 ? () => documentStarts(path, header, reading) : null,
    async read(vocabularySize, onToken) {
      const tokens = new TokenReader(path, vocabularySize, onToken);
      const { handle: again } = await openTokens(path, reading);
      try {
        await readPlainTokens(
          again,
          {
            firstByte: TOKEN_FILE.headerBytes,
            tokenCount,
            bytesPerToken,
            read:
              bytesPerToken === 2
                ? (bytes, at) => bytes.readUInt16LE(at)
                : (bytes, at) => bytes.readUInt32LE(at),
          },
          tokens,
          reading,
        );
      } finally {
        await again.close();
      }
    },
  };
}
