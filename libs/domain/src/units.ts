import { MAXIMUM_BYTES } from "./bounds.ts";

/** Prefixes of the decimal units and of the binary ones, in lower case. */
const PREFIXES = ["k", "m", "g", "t"] as const;
const decimal = (suffix: string): [string, number][] =>
  PREFIXES.map((prefix, index) => [`${prefix}${suffix}`, 1000 ** (index + 1)]);
const binary = (suffix: string): [string, number][] =>
  PREFIXES.map((prefix, index) => [`${prefix}${suffix}`, 1024 ** (index + 1)]);

/**
 * Units of each kind of quantity, in lower case: people write GB, Gb and gb, and mean one thing. Lengths and
 * batches are nearly always powers of two, so their `k` is 1024. What a training reads is counted in
 * thousands.
 */
const UNITS = {
  bytes: new Map([["", 1], ["b", 1], ...decimal(""), ...decimal("b"), ...binary("i"), ...binary("ib")]),
  lengthTokens: new Map([["", 1], ...binary(""), ...binary("i")]),
  trainingTokens: new Map([["", 1], ["b", 1e9], ...decimal("")]),
} as const satisfies Record<string, ReadonlyMap<string, number>>;

/**
 * What a quantity counts. `bytes`: 80GB, 80GiB, 80G. `lengthTokens`, of a sequence or a batch: 4k is 4096.
 * `trainingTokens`, of a whole training: 2T is 2e12.
 */
export type QuantityKind = keyof typeof UNITS;

/** A number without a superfluous zero: `096` is half of one that was written with a comma. */
const QUANTITY = /^((?:0|[1-9]\d*)(?:\.\d+)?|\.\d+)(?:e([+-]?\d{1,3}))?\s*([a-z]*)$/;

/**
 * Reads a count of bytes or tokens: an integer, or a text such as `80GB`, `512 MiB`, `4k` or `2e12`.
 * @returns the bytes or tokens, or undefined when the text is no such count. Fractions of a byte are rounded;
 * fractions of a token are none.
 */
export function parseQuantity(text: string | number, kind: QuantityKind): number | undefined {
  if (typeof text === "number") return Number.isSafeInteger(text) && text >= 0 ? text : undefined;
  // The ends are cut off first: blanks on both sides of an optional unit would be tried in every division.
  const [, digits, exponent = "0", unit] = QUANTITY.exec(text.trim().toLowerCase()) ?? [];
  if (digits === undefined || unit === undefined) return undefined;
  const factor = UNITS[kind].get(unit);
  if (factor === undefined) return undefined;
  const exact = Number(`${digits}e${exponent}`) * factor;
  const count = kind === "bytes" ? Math.round(exact) : exact;
  // A training may read more tokens than integers are exact for.
  const isExact =
    kind === "trainingTokens" ? Number.isInteger(count) && count <= 1e18 : Number.isSafeInteger(count);
  return isExact ? count : undefined;
}

/** {@link parseQuantity} of bytes. */
export const parseBytes = (text: string | number): number | undefined => parseQuantity(text, "bytes");

/** Below this, bytes without a unit are taken for a unit that was forgotten. */
export const LEAST_PLAIN_MEMORY_BYTES = 2 ** 20;

export type ReadMemory = { readonly bytes: number } | { readonly message: string; readonly remedy: string };

/**
 * Reads the memory of a GPU. A number without a unit counts bytes, and has to be {@link
 * LEAST_PLAIN_MEMORY_BYTES} or more: 80 is 80GB to whoever writes it. `80B` is 80 bytes.
 * @returns the bytes, 1 to {@link MAXIMUM_BYTES}; or what is wrong, and what to do about it.
 */
export function readMemory(text: string | number): ReadMemory {
  const bytes = parseBytes(text);
  if (bytes === undefined || bytes === 0)
    return { message: "is not a memory size", remedy: "give a number with a unit, such as 80GB or 80GiB" };
  if (bytes > MAXIMUM_BYTES)
    return { message: `is more than ${formatBytes(MAXIMUM_BYTES)}`, remedy: "give the memory of one GPU" };
  const isPlain = typeof text === "number" || !/[a-z]\s*$/i.test(text);
  if (isPlain && bytes < LEAST_PLAIN_MEMORY_BYTES)
    return {
      message: `is ${bytes} bytes`,
      // Nobody has a GPU of 2048GB: so large a number counts MiB.
      remedy: `did you mean ${bytes}${bytes < 1024 ? "GB" : "MiB"}? For bytes, write ${bytes}B`,
    };
  return { bytes };
}

/** Units that a byte count is written in, the largest first of those that divide it. */
const WRITTEN_UNITS = [
  ["TiB", 2 ** 40],
  ["TB", 1e12],
  ["GiB", 2 ** 30],
  ["GB", 1e9],
  ["MiB", 2 ** 20],
  ["MB", 1e6],
  ["KiB", 2 ** 10],
  ["kB", 1e3],
  ["B", 1],
] as const;

/** Writes a byte count exactly, as {@link parseBytes} reads it: `80GB`, `2GiB`, `81B`. */
export function writeBytes(bytes: number): string {
  const [unit, size] = WRITTEN_UNITS.find(([, each]) => bytes % each === 0 && bytes >= each) ?? ["B", 1];
  return `${bytes / size}${unit}`;
}

/** Formats a byte count with binary units, for people. */
export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let index = 0;
  const isBelow = (bound: number, decimals: number): boolean =>
    Math.abs(Number(value.toFixed(decimals))) < bound;
  while (!isBelow(1024, index === 0 ? 0 : 1) && index < units.length - 1) {
    value /= 1024;
    index += 1;
  }
  return `${index === 0 ? value : value.toFixed(isBelow(10, 2) ? 2 : 1)} ${units[index]}`;
}

/** How a duration is written below so many of a unit, the smallest unit first; above all of them in days. */
const SECONDS_WRITTEN: readonly {
  readonly unit: string;
  readonly below: number;
  readonly decimals: number;
  readonly of: (seconds: number) => number;
}[] = [
  { unit: "ns", below: 1000, decimals: 0, of: (seconds) => seconds * 1e9 },
  { unit: "µs", below: 1000, decimals: 0, of: (seconds) => seconds * 1e6 },
  { unit: "ms", below: 10, decimals: 2, of: (seconds) => seconds * 1e3 },
  { unit: "ms", below: 1000, decimals: 1, of: (seconds) => seconds * 1e3 },
  { unit: "s", below: 120, decimals: 2, of: (seconds) => seconds },
  { unit: "min", below: 120, decimals: 1, of: (seconds) => seconds / 60 },
  { unit: "h", below: 48, decimals: 1, of: (seconds) => seconds / 3600 },
];

/** Formats a duration, for people. What takes time is never written as none. */
export function formatSeconds(seconds: number): string {
  if (seconds === 0) return "0 s";
  if (seconds > 0 && seconds < 1e-9) return "< 1 ns";
  for (const { unit, below, decimals, of } of SECONDS_WRITTEN) {
    const text = of(seconds).toFixed(decimals);
    if (Math.abs(Number(text)) < below) return `${text} ${unit}`;
  }
  return `${(seconds / 86_400).toFixed(1)} d`;
}

/** About how long something takes, as people say it: "about 20 seconds", "about a minute", "about 2 hours". */
export function aboutSeconds(seconds: number): string {
  if (seconds < 5) return "a few seconds";
  if (seconds < 55) return `about ${Math.round(seconds / 10) * 10} seconds`;
  if (seconds < 90) return "about a minute";
  if (seconds < 55 * 60) return `about ${Math.round(seconds / 60)} minutes`;
  return seconds < 90 * 60 ? "about an hour" : `about ${Math.round(seconds / 3600)} hours`;
}
