/** Multipliers accepted by {@link parseBytes}: decimal (kB, MB, …) and binary (KiB, MiB, …). */
const UNIT_BYTES: ReadonlyMap<string, number> = new Map([
  ["", 1], ["B", 1],
  ["kB", 1e3], ["KB", 1e3], ["MB", 1e6], ["GB", 1e9], ["TB", 1e12],
  ["KiB", 2 ** 10], ["MiB", 2 ** 20], ["GiB", 2 ** 30], ["TiB", 2 ** 40],
]);

/**
 * Reads a byte count: an integer, or a text such as `80GB` or `512 MiB`.
 * @returns the bytes, or undefined when the text is not a byte count.
 */
export function parseBytes(text: string | number): number | undefined {
  if (typeof text === "number") return Number.isSafeInteger(text) && text >= 0 ? text : undefined;
  // The ends are cut off first: blanks on both sides of an optional unit would be tried in every division.
  const [, digits, unit] = /^(\d+(?:\.\d+)?)\s*([A-Za-z]*)$/.exec(text.trim()) ?? [];
  if (digits === undefined || unit === undefined) return undefined;
  const factor = UNIT_BYTES.get(unit);
  if (factor === undefined) return undefined;
  const bytes = Math.round(Number(digits) * factor);
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

/** What is said behind the step time of a plan that was run more than once; nothing of one run. */
export const formatRuns = ({ runStepTimeSeconds: runs }: { readonly runStepTimeSeconds?: readonly number[] }): string => (runs ? `, middle of ${runs.length} runs: ${runs.map(formatSeconds).join(", ")}` : "");
