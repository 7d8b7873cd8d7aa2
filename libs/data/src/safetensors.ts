import type { ProblemError } from "@internevo/domain";
import { HeaderMembers } from "./header-members.ts";
import { nextPart, openForRanks, readExactly, type OpenForRanks, type Reading } from "./open-data.ts";
import { COPY_AGAIN, WEIGHTS_FIELD, weightsFault } from "./weights-fault.ts";

/*
 * Headers of safetensors files: u64 length, a JSON object of tensors, their data. The trainer checks the same again when it
 * reads them (native/src/checkpoint/safetensors.cpp).
 */

/** As the format bounds it. */
const MOST_HEADER_BYTES = 100_000_000;
const LENGTH_BYTES = 8;
const PIECE_BYTES = 2 ** 18;
/** Types that the trainer reads, with their bytes. */
const TYPES: ReadonlyMap<unknown, number> = new Map([
  ["F32", 4],
  ["BF16", 2],
  ["F16", 2],
]);

/** Which tensors files may have. A message names only known ones: what else a file holds is nobody's business. */
export interface AwaitedTensors {
  /** Whether a message may say this name. */
  isKnown(name: string): boolean;
  /** Whether a tensor that is not known may be there. */
  isLeftOut(name: string): boolean;
  /** Takes a known tensor, or says what is wrong with it. */
  fault(
    name: string,
    shape: readonly number[],
  ): { readonly message: string; readonly remedy: string } | undefined;
}

export const GIVE_OTHERS = "give weights of this model";

interface Spans {
  readonly begins: number[];
  readonly ends: number[];
}

const isSize = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const isSizes = (value: unknown): value is number[] => Array.isArray(value) && value.every(isSize);

/** Bytes of a tensor; undefined where no file could hold them. */
function bytesOf(shape: readonly number[], width: number): number | undefined {
  let bytes = width;
  for (const size of shape) {
    bytes *= size;
    if (!Number.isSafeInteger(bytes)) return undefined;
  }
  return bytes;
}

/** Checks one tensor of a header, and notes which bytes it has. */
function checkTensor(
  path: string,
  [name, value]: readonly [string, unknown],
  awaited: AwaitedTensors,
  { begins, ends }: Spans,
): void {
  const isKnown = awaited.isKnown(name);
  const label = isKnown ? name : `tensor ${begins.length + 1}`;
  if (!isKnown && !awaited.isLeftOut(name))
    throw weightsFault(path, `holds ${label}, which the model does not have`, GIVE_OTHERS);
  const { dtype, shape, data_offsets: offsets } = (value ?? {}) as Readonly<Record<string, unknown>>;
  const unsound = (): ProblemError =>
    weightsFault(path, `is damaged: its header does not describe ${label} soundly`, COPY_AGAIN);
  if (typeof dtype !== "string" || !isSizes(shape) || !isSizes(offsets)) throw unsound();
  const width = TYPES.get(dtype);
  if (width === undefined)
    throw weightsFault(path, `holds ${label} in a type that is not read`, "give tensors of F32, BF16 or F16");
  const [begin, end] = offsets;
  const bytes = bytesOf(shape, width);
  if (
    begin === undefined ||
    end === undefined ||
    offsets.length !== 2 ||
    bytes === undefined ||
    end - begin !== bytes
  )
    throw unsound();
  const wrong = isKnown ? awaited.fault(name, shape) : undefined;
  if (wrong) throw weightsFault(path, `holds ${label} ${wrong.message}`, wrong.remedy);
  begins.push(begin);
  ends.push(end);
}

/** Checks that tensors fill the bytes behind a header, one behind the other. */
function checkSpans(path: string, { begins, ends }: Spans, dataBegin: number, fileBytes: number): void {
  const beginOf = (index: number): number => begins[index] as number;
  const endOf = (index: number): number => ends[index] as number;
  const order = begins
    .map((_, index) => index)
    .sort((a, b) => beginOf(a) - beginOf(b) || endOf(a) - endOf(b));
  let at = 0;
  for (const index of order) {
    if (beginOf(index) !== at)
      throw weightsFault(path, "is damaged: its tensors overlap or leave a gap", COPY_AGAIN);
    at = endOf(index);
  }
  if (dataBegin + at !== fileBytes)
    throw weightsFault(
      path,
      `is cut off or damaged: its tensors end at byte ${dataBegin + at}, and it has ${fileBytes}`,
      COPY_AGAIN,
    );
}

/**
 * Reads the header of a safetensors file and checks it whole: that it is there, that each tensor is described
 * soundly and awaited, and that the tensors fill the file. It holds one tensor's description at a time.
 * @returns where the file lies
 * @throws ProblemError `data-invalid`, which tells nothing of what the file holds.
 */
export async function checkSafetensors(
  path: string,
  awaited: AwaitedTensors,
  reading: Reading,
): Promise<Pick<OpenForRanks, "leads" | "forRanks">> {
  const { handle, sizeBytes, leads, forRanks } = await openForRanks(path, WEIGHTS_FIELD, reading);
  try {
    if (sizeBytes < LENGTH_BYTES)
      throw weightsFault(path, `is no safetensors file: it has ${sizeBytes} bytes`, COPY_AGAIN);
    const told = (await readExactly(handle, 0, LENGTH_BYTES)).readBigUInt64LE();
    if (told > MOST_HEADER_BYTES)
      throw weightsFault(
        path,
        "is damaged, or has a header of more than the 100 MB that the format allows",
        COPY_AGAIN,
      );
    const length = Number(told);
    if (length > sizeBytes - LENGTH_BYTES)
      throw weightsFault(path, "is cut off or damaged: its header is longer than the file", COPY_AGAIN);
    const members = new HeaderMembers(() =>
      weightsFault(path, "is damaged: its header is no JSON object of tensors", COPY_AGAIN),
    );
    const spans: Spans = { begins: [], ends: [] };
    for (let at = 0; at < length; at += PIECE_BYTES) {
      await nextPart(reading);
      const piece = await readExactly(handle, LENGTH_BYTES + at, Math.min(PIECE_BYTES, length - at));
      for (const member of members.read(piece)) checkTensor(path, member, awaited, spans);
    }
    members.finish();
    checkSpans(path, spans, LENGTH_BYTES + length, sizeBytes);
    return { leads, forRanks };
  } finally {
    await handle.close();
  }
}
