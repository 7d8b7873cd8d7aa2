import { megatronStem, ProblemError } from "@internevo/domain";
import { nextPart, openTokens, readExactly, type Reading } from "./open-data.ts";
import { readPlainTokens, TokenReader, type PlainTokens } from "./token-reader.ts";
import type { TokenSource } from "./token-source.ts";

/*
 * Megatron-LM's indexed data set, as the trainer reads it (native/src/trainer/data_megatron.cpp): NAME.idx with lengths and places of
 * sequences and the first sequence of every document, NAME.bin with the tokens one behind the other.
 */

const MAGIC = "MMIDIDX\0\0";
const HEADER_BYTES = 34;
const AT_A_TIME = 1 << 16;
const REMEDY = "write the data set again with Megatron-LM's preprocessing";

/** By the code of a token's type in the index. */
const TYPES: Readonly<Record<number, Pick<PlainTokens, "bytesPerToken" | "read">>> = {
  1: { bytesPerToken: 1, read: (bytes, at) => bytes.readUInt8(at) },
  2: { bytesPerToken: 1, read: (bytes, at) => bytes.readInt8(at) },
  3: { bytesPerToken: 2, read: (bytes, at) => bytes.readInt16LE(at) },
  4: { bytesPerToken: 4, read: (bytes, at) => bytes.readInt32LE(at) },
  5: { bytesPerToken: 8, read: (bytes, at) => Number(bytes.readBigInt64LE(at)) },
  8: { bytesPerToken: 2, read: (bytes, at) => bytes.readUInt16LE(at) },
};

const invalid = (path: string, message: string, remedy = REMEDY, value: unknown = path): ProblemError =>
  new ProblemError("data-invalid", `${path} ${message}`, [{ field: "data.path", value, message, remedy }]);

interface Index {
  readonly path: string;
  readonly forRanks: string;
  readonly sequences: number;
  readonly documentEntries: number;
  readonly tokens: Pick<PlainTokens, "bytesPerToken" | "read">;
}

const pointersByte = ({ sequences }: Index): number => HEADER_BYTES + 4 * sequences;
const documentsByte = ({ sequences }: Index): number => HEADER_BYTES + 12 * sequences;

/** Checks the head of an index against its size. */
async function readIndex(path: string, reading: Reading): Promise<Index> {
  const { handle, sizeBytes, forRanks } = await openTokens(path, reading);
  try {
    if (sizeBytes < HEADER_BYTES)
      throw invalid(path, `is truncated: expected ${HEADER_BYTES} bytes of header, found ${sizeBytes}`);
    const head = await readExactly(handle, 0, HEADER_BYTES);
    if (head.toString("latin1", 0, 9) !== MAGIC)
      throw invalid(
        path,
        "is no index of Megatron-LM: it does not begin with MMIDIDX",
        "give the .idx file that lies beside the .bin file, or another data.format",
      );
    if (head.readBigUInt64LE(9) !== 1n)
      throw invalid(path, `has version ${head.readBigUInt64LE(9)}; 1 is expected`);
    const tokens = TYPES[head.readUInt8(17)];
    if (!tokens)
      throw invalid(
        path,
        `has token type ${head.readUInt8(17)} at byte 17; an integer type is expected (1, 2, 3, 4, 5 or 8)`,
      );
    const index: Index = {
      path,
      forRanks,
      sequences: Number(head.readBigUInt64LE(18)),
      documentEntries: Number(head.readBigUInt64LE(26)),
      tokens,
    };
    const expected = documentsByte(index) + 8 * index.documentEntries;
    // Newer indices end with a byte of mode for each sequence.
    if (sizeBytes !== expected && sizeBytes !== expected + index.sequences) {
      throw invalid(
        path,
        `is ${sizeBytes < expected ? "truncated" : "too long"}: expected ${expected} bytes for ${index.sequences} sequences and ${index.documentEntries} document entries, found ${sizeBytes}`,
      );
    }
    return index;
  } finally {
    await handle.close();
  }
}

/**
 * Calls for every sequence with its length in tokens. @returns tokens in all. @throws where sequences do not
 * follow one another.
 */
async function checkSequences(index: Index, reading: Reading): Promise<number> {
  const {
    path,
    sequences,
    tokens: { bytesPerToken },
  } = index;
  const { handle } = await openTokens(path, reading);
  try {
    let byte = 0;
    for (let first = 0; first < sequences; first += AT_A_TIME) {
      await nextPart(reading);
      const count = Math.min(AT_A_TIME, sequences - first);
      const lengths = await readExactly(handle, HEADER_BYTES + 4 * first, 4 * count);
      const pointers = await readExactly(handle, pointersByte(index) + 8 * first, 8 * count);
      for (let i = 0; i < count; i += 1) {
        const length = lengths.readInt32LE(4 * i);
        const pointer = Number(pointers.readBigInt64LE(8 * i));
        if (length < 0)
          throw invalid(path, `gives sequence ${first + i} the length ${length}; at least 0 is expected`);
        if (pointer !== byte)
          throw invalid(
            path,
            `puts sequence ${first + i} at byte ${pointer} of the .bin file; ${byte}, the end of the one before, is expected`,
          );
        byte += length * bytesPerToken;
      }
    }
    return byte / bytesPerToken;
  } finally {
    await handle.close();
  }
}

/**
 * First tokens of the documents; the last entry of the index is the end. @throws where entries do not ascend
 * from 0 to the end.
 */
async function* documentStarts(index: Index, reading: Reading): AsyncGenerator<number> {
  const {
    path,
    sequences,
    documentEntries,
    tokens: { bytesPerToken },
  } = index;
  const { handle } = await openTokens(path, reading);
  try {
    let former = 0;
    let window: { readonly first: number; readonly bytes: Buffer } = { first: 0, bytes: Buffer.alloc(0) };
    const firstByteOf = async (sequence: number): Promise<number> => {
      if (sequence < window.first || 8 * (sequence - window.first) >= window.bytes.length) {
        window = {
          first: sequence,
          bytes: await readExactly(
            handle,
            pointersByte(index) + 8 * sequence,
            8 * Math.min(AT_A_TIME, sequences - sequence),
          ),
        };
      }
      return Number(window.bytes.readBigInt64LE(8 * (sequence - window.first)));
    };
    for (let first = 0; first < documentEntries; first += AT_A_TIME) {
      await nextPart(reading);
      const entries = await readExactly(
        handle,
        documentsByte(index) + 8 * first,
        8 * Math.min(AT_A_TIME, documentEntries - first),
      );
      for (let i = 0; 8 * i < entries.length; i += 1) {
        const entry = first + i;
        const sequence = Number(entries.readBigInt64LE(8 * i));
        const last = entry === documentEntries - 1;
        const lowest = last ? sequences : former;
        const highest = entry === 0 && !last ? 0 : sequences;
        if (sequence < lowest || sequence > highest)
          throw invalid(
            path,
            `begins document ${entry} with sequence ${sequence}; from ${lowest} to ${highest} is expected`,
          );
        former = sequence;
        if (sequence < sequences) yield (await firstByteOf(sequence)) / bytesPerToken;
      }
    }
  } finally {
    await handle.close();
  }
}

/**
 * Opens a data set of Megatron-LM by the path of either file, or by what they have in common. @throws
 * ProblemError `data-invalid`
 */
export async function openMegatron(path: string, reading: Reading): Promise<TokenSource> {
  const index = await readIndex(`${megatronStem(path)}.idx`, reading);
  const bin = `${megatronStem(path)}.bin`;
  const { handle, sizeBytes, forRanks } = await openTokens(bin, reading);
  await handle.close();
  const tokenCount = await checkSequences(index, reading);
  const expected = tokenCount * index.tokens.bytesPerToken;
  if (sizeBytes !== expected)
    throw invalid(
      bin,
      `is ${sizeBytes < expected ? "truncated" : "too long"}: expected ${expected} bytes for the ${tokenCount} tokens of its index, found ${sizeBytes}`,
      "give the .bin and the .idx file of one data set",
    );
  for await (const _start of documentStarts(index, reading));
  return {
    path: bin,
    files: [bin, index.path],
    forRanks: [forRanks, index.forRanks],
    sizeBytes,
    tokenCount,
    starts: () => documentStarts(index, reading),
    async read(vocabularySize, onToken) {
      const tokens = new TokenReader(bin, vocabularySize, onToken);
      const { handle: again } = await openTokens(bin, reading);
      try {
        await readPlainTokens(again, { ...index.tokens, firstByte: 0, tokenCount }, tokens, reading);
      } finally {
        await again.close();
      }
    },
  };
}
