import { termWords } from "./memory-lines.ts";
import { formatBytes } from "./units.ts";

/** As the trainer says it: "the plan needs 9 bytes a rank; memoryLimitBytes is 8: parameters 5, runtime 4". */
const TOO_MUCH = /^the plan needs (\d+) bytes a rank; memoryLimitBytes is (\d+): (.+)$/;
/** Lines that are named; the rest are summed. */
const NAMED = 4;

/** A line of memory, by the name that it has in plans. */
export interface NamedBytes {
  readonly name: string;
  readonly bytes: number;
}

/** What a plan needs that does not fit. */
export interface TooMuchMemory {
  readonly neededBytes: number;
  readonly limitBytes: number;
  readonly lines: readonly NamedBytes[];
}

/** What the trainer says of a plan that does not fit; undefined where it says something else. */
export function readTooMuchMemory(message: string): TooMuchMemory | undefined {
  const [, needed, limit, list] = TOO_MUCH.exec(message) ?? [];
  if (needed === undefined || limit === undefined || list === undefined) return undefined;
  const lines = list
    .split(", ")
    .map((each) => each.split(" "))
    .map(([name = "", bytes]) => ({ name, bytes: Number(bytes) }));
  return { neededBytes: Number(needed), limitBytes: Number(limit), lines };
}

/** That a plan does not fit. @param has whose memory it is beyond: "a GPU has" */
export const tooMuchMemoryWords = (
  { neededBytes, limitBytes }: Pick<TooMuchMemory, "neededBytes" | "limitBytes">,
  has: string,
): string =>
  `the plan does not fit: it needs ${formatBytes(neededBytes)} a rank, ` +
  `${formatBytes(neededBytes - limitBytes)} more than ${has}`;

/** The largest lines, and the rest as one. @param all in any order */
export function largestLinesWords(all: readonly NamedBytes[]): string {
  const lines = all.filter(({ bytes }) => bytes > 0).sort((a, b) => b.bytes - a.bytes);
  const rest = lines.slice(NAMED).reduce((sum, { bytes }) => sum + bytes, 0);
  return [
    ...lines.slice(0, NAMED).map(({ name, bytes }) => `${termWords(name)} ${formatBytes(bytes)}`),
    ...(rest > 0 ? [`all else ${formatBytes(rest)}`] : []),
  ].join(", ");
}
