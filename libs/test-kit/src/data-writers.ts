import { writeFile } from "node:fs/promises";
import { documentsByte, encodeHeader } from "@internevo/data";

/** Documents as lists of tokens, written in every format of tokens that the trainer reads. */
export type Documents = readonly (readonly number[])[];

const tokensOf = (documents: Documents): number[] => documents.flat();

function startsOf(documents: Documents): number[] {
  let start = 0;
  return documents.map(({ length }) => (start += length) - length);
}

const littleEndian = (values: readonly number[], width: 2 | 4 | 8): Buffer => {
  const bytes = Buffer.alloc(values.length * width);
  for (const [at, value] of values.entries()) {
    if (width === 2) bytes.writeUInt16LE(value, 2 * at);
    else if (width === 4) bytes.writeInt32LE(value, 4 * at);
    else bytes.writeBigInt64LE(BigInt(value), 8 * at);
  }
  return bytes;
};

/** The project's own format, version 2. */
export async function writeOwn(path: string, documents: Documents, vocabularySize = 256): Promise<string> {
  const tokens = tokensOf(documents);
  const header = {
    bytesPerToken: 2 as const,
    tokenCount: tokens.length,
    vocabularySize,
    documentCount: documents.length,
  };
  const body = Buffer.concat([encodeHeader(header), littleEndian(tokens, 2)]);
  await writeFile(
    path,
    Buffer.concat([
      body,
      Buffer.alloc(documentsByte(header) - body.length),
      littleEndian(startsOf(documents), 8),
    ]),
  );
  return path;
}

/** Megatron-LM's NAME.bin and NAME.idx, every document one or more sequences. */
export async function writeMegatron(
  stem: string,
  documents: Documents,
  { sequenceLength = 1 << 30, type = 8 }: { readonly sequenceLength?: number; readonly type?: 4 | 8 } = {},
): Promise<string> {
  const width = type === 4 ? 4 : 2;
  const lengths: number[] = [];
  const entries: number[] = [];
  for (const document of documents) {
    entries.push(lengths.length);
    for (let at = 0; at < document.length; at += sequenceLength)
      lengths.push(Math.min(sequenceLength, document.length - at));
  }
  entries.push(lengths.length);
  let byte = 0;
  const pointers = lengths.map((length) => (byte += length * width) - length * width);
  const head = Buffer.concat([
    Buffer.from("MMIDIDX\0\0", "latin1"),
    littleEndian([1], 8),
    Buffer.from([type]),
    littleEndian([lengths.length, entries.length], 8),
  ]);
  await writeFile(
    `${stem}.idx`,
    Buffer.concat([head, littleEndian(lengths, 4), littleEndian(pointers, 8), littleEndian(entries, 8)]),
  );
  await writeFile(`${stem}.bin`, littleEndian(tokensOf(documents), width));
  return `${stem}.bin`;
}

/** InternEvo's NAME.bin and NAME.bin.meta. */
export async function writeInternevo(
  path: string,
  documents: Documents,
  { width = 4, columnMajor = false }: { readonly width?: 4 | 8; readonly columnMajor?: boolean } = {},
): Promise<string> {
  const lines = documents.map((tokens) => `{"tokens": [${tokens.join(", ")}]}\n`);
  let byte = 0;
  const offsets = lines.map((line) => (byte += line.length) - line.length);
  const lengths = documents.map((tokens) => tokens.length);
  const cells = columnMajor
    ? [...offsets, ...lengths]
    : documents.flatMap((_, i) => [offsets[i] as number, lengths[i] as number]);
  const text = `{'descr': '<i${width}', 'fortran_order': ${columnMajor ? "True" : "False"}, 'shape': (${documents.length}, 2), }`;
  const padded = `${text.padEnd(Math.ceil((10 + text.length + 1) / 64) * 64 - 11)}\n`;
  const head = Buffer.concat([
    Buffer.from("\x93NUMPY\x01\x00", "latin1"),
    Buffer.from([padded.length & 255, padded.length >> 8]),
    Buffer.from(padded, "latin1"),
  ]);
  await writeFile(path, lines.join(""));
  await writeFile(`${path}.meta`, Buffer.concat([head, littleEndian(cells, width)]));
  return path;
}
