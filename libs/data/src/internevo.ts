import { formatBytes, ProblemError } from "@internevo/domain";
import { nextPart, openTokens, readExactly, type Reading } from "./open-data.ts";
import { TokenReader } from "./token-reader.ts";
import type { TokenSource } from "./token-source.ts";

/*
 * InternEvo's tokenized data, as the trainer reads it (native/src/trainer/data_internevo.cpp): NAME.bin has a JSON object a line,
 * {"tokens": [1, 2, …]}; NAME.bin.meta is a NumPy array of where a line begins (first column) and how many tokens it has (last).
 */

const AT_A_TIME = 1 << 14;
const READ_BYTES = 4 << 20;
/** NumPy writes some hundred bytes: a header of more is another file's. */
const MOST_HEADER_BYTES = 1 << 20;
/** A document's line is read at once: what becomes of a longer one may take all memory. */
const MOST_LINE_BYTES = 1 << 27;
const REMEDY = "write the .meta file again (with int64 where the .bin file has 2 GiB or more)";

const invalid = (path: string, message: string, remedy = REMEDY): ProblemError =>
  new ProblemError("data-invalid", `${path} ${message}`, [
    { field: "data.path", value: path, message, remedy },
  ]);

interface Meta {
  readonly path: string;
  readonly forRanks: string;
  /** Where the cells begin. */
  readonly firstByte: number;
  readonly bytesPerCell: 4 | 8;
  readonly columnMajor: boolean;
  readonly documents: number;
  readonly columns: number;
}

/** Head of a NumPy file, checked against its size. */
async function readMeta(path: string, reading: Reading): Promise<Meta> {
  const { handle, sizeBytes, forRanks } = await openTokens(path, reading);
  try {
    const notNumpy = (): ProblemError => invalid(path, "is no NumPy array file");
    if (sizeBytes < 12) throw notNumpy();
    const head = await readExactly(handle, 0, 12);
    if (head.toString("latin1", 0, 6) !== "\x93NUMPY") throw notNumpy();
    const [at, length] = head.readUInt8(6) === 1 ? [10, head.readUInt16LE(8)] : [12, head.readUInt32LE(8)];
    if (length > MOST_HEADER_BYTES) throw notNumpy();
    if (at + length > sizeBytes)
      throw invalid(path, `is truncated: expected ${at + length} bytes of header, found ${sizeBytes}`);
    const text = (await readExactly(handle, at, length)).toString("latin1");
    const bytesPerCell = { i4: 4, i8: 8 }[/'descr':\s*'<(i4|i8)'/.exec(text)?.[1] as "i4" | "i8"];
    const [, rows, columns] = /'shape':\s*\((\d+),\s*(\d+)\)/.exec(text) ?? [];
    const meta = {
      path,
      forRanks,
      firstByte: at + length,
      bytesPerCell: bytesPerCell as 4 | 8,
      columnMajor: /'fortran_order':\s*True/.test(text),
      documents: Number(rows),
      columns: Number(columns),
    };
    if (
      bytesPerCell === undefined ||
      rows === undefined ||
      !(meta.columns >= 2 && meta.columns <= 1024) ||
      meta.documents > sizeBytes
    ) {
      throw invalid(
        path,
        "is an array of another kind; little-endian int32 or int64 of shape (documents, 2 or more) is expected",
      );
    }
    const expected = meta.firstByte + meta.documents * meta.columns * meta.bytesPerCell;
    if (sizeBytes !== expected)
      throw invalid(
        path,
        `is ${sizeBytes < expected ? "truncated" : "too long"}: expected ${expected} bytes for ${meta.documents} documents, found ${sizeBytes}`,
      );
    return meta;
  } finally {
    await handle.close();
  }
}

interface Line {
  readonly document: number;
  readonly byte: number;
  readonly tokens: number;
}

/**
 * Every document's line and number of tokens, in order. @throws where lines do not ascend, or lie outside of
 * the file.
 */
async function* linesOf(meta: Meta, fileBytes: number, reading: Reading): AsyncGenerator<Line> {
  const { path, documents, columns, bytesPerCell: width } = meta;
  const { handle } = await openTokens(path, reading);
  try {
    let former = -1;
    for (let first = 0; first < documents; first += AT_A_TIME) {
      await nextPart(reading);
      const count = Math.min(AT_A_TIME, documents - first);
      const row = width * columns;
      const column = async (place: number): Promise<number[]> => {
        const bytes = meta.columnMajor
          ? await readExactly(handle, meta.firstByte + width * (place * documents + first), width * count)
          : await readExactly(handle, meta.firstByte + row * first, row * count);
        const [step, offset] = meta.columnMajor ? [width, 0] : [row, width * place];
        return Array.from({ length: count }, (_, i) =>
          width === 4
            ? bytes.readInt32LE(i * step + offset)
            : Number(bytes.readBigInt64LE(i * step + offset)),
        );
      };
      const [offsets, lengths] = [await column(0), await column(columns - 1)];
      for (let i = 0; i < count; i += 1) {
        const [byte, tokens] = [offsets[i] as number, lengths[i] as number];
        if (byte <= former || byte >= fileBytes)
          throw invalid(
            path,
            `says byte ${byte} for document ${first + i}; from ${former + 1} to ${fileBytes - 1}, a byte of the .bin file, is expected`,
          );
        if (tokens < 0) throw invalid(path, `says ${tokens} tokens for document ${first + i}`);
        former = byte;
        yield { document: first + i, byte, tokens };
      }
    }
  } finally {
    await handle.close();
  }
}

async function* documentStarts(meta: Meta, fileBytes: number, reading: Reading): AsyncGenerator<number> {
  let start = 0;
  for await (const { tokens } of linesOf(meta, fileBytes, reading)) {
    if (tokens > 0) yield start;
    start += tokens;
  }
}

const tooLong = (path: string, { document, byte }: Line): ProblemError =>
  invalid(
    path,
    `has more than ${formatBytes(MOST_LINE_BYTES)} of document ${document} in one line, at byte ${byte}`,
    "split the document into several",
  );

/** InternLM writes tokens that are not to be learned, those of a prompt, as negative numbers. */
function withoutLoss(path: string, { document, byte }: Line, place: number, token: number): ProblemError {
  const message = `holds token ${token}, number ${place + 1} of document ${document} (the line at byte ${byte}): tokens without loss (negative numbers) are not supported`;
  return new ProblemError("data-invalid", `${path} ${message}`, [
    {
      field: "data.path",
      value: token,
      message,
      remedy: "write these tokens as positive numbers, so that their loss counts, or leave them out",
    },
  ]);
}

/** The tokens of a line. */
function parseLine(
  path: string,
  { document, byte, tokens: expected }: Line,
  text: string,
): readonly unknown[] {
  const damaged = (what: string): ProblemError =>
    invalid(
      path,
      `${what} in document ${document} at byte ${byte}`,
      "write the .bin and the .meta file again",
    );
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // What a parser says quotes the file, which may be another than was meant.
    throw damaged("has no JSON");
  }
  const tokens = typeof value === "object" && value !== null && "tokens" in value ? value.tokens : undefined;
  if (!Array.isArray(tokens)) throw damaged(`has no array "tokens"`);
  if (tokens.length !== expected)
    throw damaged(`has ${tokens.length} tokens where its .meta file says ${expected}`);
  return tokens as unknown[];
}

/** Opens InternEvo's data by the path of its .bin file. @throws ProblemError `data-invalid` */
export async function openInternevo(path: string, reading: Reading): Promise<TokenSource> {
  const { handle, sizeBytes, forRanks } = await openTokens(path, reading);
  await handle.close();
  const meta = await readMeta(`${path}.meta`, reading);
  let tokenCount = 0;
  for await (const line of linesOf(meta, sizeBytes, reading)) tokenCount += line.tokens;
  return {
    path,
    files: [path, meta.path],
    forRanks: [forRanks, meta.forRanks],
    sizeBytes,
    tokenCount,
    starts: () => documentStarts(meta, sizeBytes, reading),
    async read(vocabularySize, onToken) {
      const tokens = new TokenReader(path, vocabularySize, onToken);
      const { handle: again } = await openTokens(path, reading);
      /** Lines that lie together, up to where the one behind them begins. */
      const readLines = async (lines: readonly Line[], end: number): Promise<void> => {
        const from = lines[0]?.byte ?? 0;
        const most = (lines.at(-1)?.byte ?? from) + MOST_LINE_BYTES;
        await nextPart(reading);
        const bytes = await readExactly(again, from, Math.min(end, most) - from);
        for (const [i, line] of lines.entries()) {
          const next = lines[i + 1];
          const own = bytes.subarray(line.byte - from, next && next.byte - from);
          const newline = own.indexOf("\n");
          if (newline < 0 && from + bytes.length < end) throw tooLong(path, line);
          const text = own.toString("utf8", 0, newline < 0 ? own.length : newline);
          for (const [place, token] of parseLine(path, line, text).entries()) {
            if (typeof token === "number" && token < 0) throw withoutLoss(path, line, place, token);
            tokens.add(token, line.byte);
          }
        }
      };
      try {
        let lines: Line[] = [];
        for await (const line of linesOf(meta, sizeBytes, reading)) {
          if (lines[0] && line.byte - lines[0].byte > READ_BYTES) {
            await readLines(lines, line.byte);
            lines = [];
          }
          lines.push(line);
        }
        if (lines.length > 0) await readLines(lines, sizeBytes);
      } finally {
        await again.close();
      }
    },
  };
}
