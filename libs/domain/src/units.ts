import { Type, type TLiteral, type TNumber, type TUnion } from "typebox";

/** More than any memory, file or message has; small enough that sums over a cluster stay exact. */
export const MAXIMUM_BYTES = 2 ** 50;

/** A number that is nothing at all, or large enough to matter in the 4 bytes that the trainer computes with. */
export const zeroOr = (minimum: number, maximum: number, description?: string): TUnion<[TLiteral<0>, TNumber]> =>
  Type.Union([Type.Literal(0), Type.Number({ minimum, maximum })], description === undefined ? {} : { description });

/** Multipliers accepted by {@link parseBytes}: decimal (kB, MB, …) and binary (KiB, MiB, …). */
const UNIT_BYTES: Readonly<Record<string, number>> = {
  B: 1,
  kB: 1e3, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12,
  KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40,
};

/**
 * Reads a byte count: an integer, or a text such as `80GB` or `512 MiB`.
 * @returns the bytes, or undefined when the text is not a byte count.
 */
export function parseBytes(text: string | number): number | undefined {
  if (typeof text === "number") return Number.isSafeInteger(text) && text >= 0 ? text : undefined;
  const match = /^\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*$/.exec(text);
  if (!match) return undefined;
  const factor = UNIT_BYTES[match[2] === "" ? "B" : (match[2] ?? "")];
  if (factor === undefined) return undefined;
  const bytes = Math.round(Number(match[1]) * factor);
  return Number.isSafeInteger(bytes) ? bytes : undefined;
}

/** Formats a byte count with binary units, for people. */
export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let index = 0;
  while (Math.abs(value) >= 1024 && index < units.length - 1) {
    value /= 1024;
    index += 1;
  }
  return `${index === 0 ? value : value.toFixed(value < 10 ? 2 : 1)} ${units[index]}`;
}

/** Formats a duration, for people. */
export function formatSeconds(seconds: number): string {
  if (seconds < 1e-3) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(seconds < 0.01 ? 2 : 1)} ms`;
  if (seconds < 120) return `${seconds.toFixed(2)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(1)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}
