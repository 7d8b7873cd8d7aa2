import { parseQuantity, readMemory, readShare } from "@internevo/domain";
import { InvalidArgumentError } from "commander";

/** An option's value as an integer within bounds. */
export const integerArgument =
  (minimum: number, maximum: number) =>
  (text: string): number => {
    const value = Number(text);
    if (!/^-?\d+$/.test(text.trim()) || !Number.isSafeInteger(value) || value < minimum || value > maximum)
      throw new InvalidArgumentError(`give an integer from ${minimum} to ${maximum}.`);
    return value;
  };

export const numberArgument =
  (minimum: number, maximum: number) =>
  (text: string): number => {
    const value = Number(text);
    if (text.trim() === "" || !Number.isFinite(value) || value < minimum || value > maximum)
      throw new InvalidArgumentError(`give a number from ${minimum} to ${maximum}.`);
    return value;
  };

/** An option's value as a share within bounds: `5%` or `0.05`. */
export const shareArgument =
  (minimum: number, maximum: number) =>
  (text: string): number => {
    const share = readShare(text);
    if (share === undefined || share < minimum || share > maximum)
      throw new InvalidArgumentError(
        `give a share from ${100 * minimum}% to ${100 * maximum}%, such as 5% or 0.05.`,
      );
    return share;
  };

/** An option's value as tokens of a sequence or a batch, from 1 to `maximum`: `4k` is 4096. */
export const lengthTokensArgument =
  (maximum: number) =>
  (text: string): number => {
    const tokens = parseQuantity(text, "lengthTokens");
    if (tokens === undefined || tokens < 1 || tokens > maximum)
      throw new InvalidArgumentError(`give tokens from 1 to ${maximum}, such as 1024 or 1k.`);
    return tokens;
  };

/** An option's value as tokens of a whole training: `2T` is 2e12. */
export function trainingTokensArgument(text: string): number {
  const tokens = parseQuantity(text, "trainingTokens");
  if (tokens === undefined || tokens < 1)
    throw new InvalidArgumentError("give a number of tokens, such as 2T, 300B or 2e12.");
  return tokens;
}

/** An option's value as the memory of a GPU, as it was written. */
export function memoryArgument(text: string): string {
  const memory = readMemory(text);
  if (!("bytes" in memory)) throw new InvalidArgumentError(`it ${memory.message}: ${memory.remedy}.`);
  return text;
}

const DURATION_SECONDS = new Map([
  ["s", 1],
  ["min", 60],
  ["m", 60],
  ["h", 3600],
  ["d", 86_400],
]);

/** A duration in seconds, 0 included; undefined when the text is none. */
function parseDuration(text: string): number | undefined {
  const [, digits, unit] = /^(\d+(?:\.\d+)?)([a-z]+)$/.exec(text.trim()) ?? [];
  const factor = DURATION_SECONDS.get(unit ?? "");
  return factor === undefined ? undefined : Number(digits) * factor;
}

/** A duration in seconds. */
export function durationArgument(text: string): number {
  const seconds = parseDuration(text);
  if (seconds === undefined || seconds === 0)
    throw new InvalidArgumentError("give a duration such as 12h or 30d (s, m, h, d).");
  return seconds;
}

/** A duration in seconds that may be none: `0` needs no unit. */
export function spanArgument(text: string): number {
  const seconds = text.trim() === "0" ? 0 : parseDuration(text);
  if (seconds === undefined)
    throw new InvalidArgumentError("give a duration such as 10m or 12h (s, m, h, d), or 0.");
  return seconds;
}

const INSTANT = /^(\d{4}-\d{2}-\d{2})(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?$/;

/** A written instant; undefined for what is none. `Date` itself takes a 7 for July, and February 30 for March 2. */
function instantOf(text: string): Date | undefined {
  const day = INSTANT.exec(text)?.[1];
  const at = new Date(text);
  if (day === undefined || Number.isNaN(at.getTime())) return undefined;
  const midnight = new Date(`${day}T00:00Z`);
  const isDay = !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(day);
  return isDay ? at : undefined;
}

/** An instant: one that is written, or so long ago. */
export function instantArgument(text: string): string {
  const seconds = parseDuration(text);
  const at = seconds === undefined ? instantOf(text) : new Date(Date.now() - 1000 * seconds);
  if (at === undefined || Number.isNaN(at.getTime()))
    throw new InvalidArgumentError("give an instant such as 2026-01-31T12:00Z, or how long ago: 12h, 7d.");
  return at.toISOString();
}
