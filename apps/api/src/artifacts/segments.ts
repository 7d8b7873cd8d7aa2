import { constants } from "node:fs";
import { open } from "node:fs/promises";

/** A piece of what is downloaded: bytes, or a file of that size. */
export type Segment = { readonly bytes: Buffer } | { readonly path: string; readonly size: number };

export const sizeOf = (segments: readonly Segment[]): number =>
  segments.reduce((sum, segment) => sum + ("bytes" in segment ? segment.bytes.length : segment.size), 0);

/** Both included, as HTTP has it. */
export interface ByteRange {
  readonly first: number;
  readonly last: number;
}

async function* fileBytes(path: string, first: number, last: number): AsyncGenerator<Buffer> {
  let left = last - first + 1;
  // A link that has taken the file's place meanwhile is not followed.
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  // A file that has grown meanwhile is read as far as it was: its size was told.
  for await (const chunk of file.createReadStream({ start: first, end: last })) {
    left -= (chunk as Buffer).length;
    yield chunk as Buffer;
  }
  if (left > 0) throw new Error(`${path} has become shorter by ${left} bytes while it was read`);
}

/** The bytes of segments, one after the other, or a range of them. */
export async function* bytesOf(
  segments: readonly Segment[],
  { first, last }: ByteRange,
): AsyncGenerator<Buffer> {
  let begin = 0;
  for (const segment of segments) {
    const size = "bytes" in segment ? segment.bytes.length : segment.size;
    const [from, to] = [Math.max(0, first - begin), Math.min(size - 1, last - begin)];
    begin += size;
    if (from > to) continue;
    if ("bytes" in segment) yield segment.bytes.subarray(from, to + 1);
    else yield* fileBytes(segment.path, from, to);
  }
}

/**
 * The one range that a request's header asks for; undefined: the whole, also where the header is none that is
 * understood. Null: none that is there.
 */
export function rangeOf(header: string | undefined, size: number): ByteRange | null | undefined {
  const [, from = "", to = ""] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header?.trim() ?? "") ?? [];
  if (from === "" && to === "") return undefined;
  if (from === "") {
    const first = Math.max(0, size - Number(to));
    return Number(to) === 0 || size === 0 ? null : { first, last: size - 1 };
  }
  const last = Math.min(size - 1, to === "" ? size - 1 : Number(to));
  if (to !== "" && Number(to) < Number(from)) return undefined;
  return Number(from) > last ? null : { first: Number(from), last };
}
