// What the command line writes too is in @internevo/domain, with the rule for figures; here is what only
// pages write.
export {
  formatBytes,
  formatClock,
  formatCorrelation,
  formatCount,
  formatCounted,
  formatInteger,
  formatMoment,
  formatPercent,
  formatRate,
  formatSeconds,
  formatSecondsRange,
  formatSigned,
  formatSignedPercent,
  formatTokens,
  formatZone,
} from "@internevo/domain";

export const formatLoss = (value: number): string =>
  Number.isFinite(value) ? value.toFixed(4) : String(value);

/** (predicted − measured) / measured. */
export const relativeError = (predicted: number, measured: number): number =>
  (predicted - measured) / measured;

/** Bandwidth with decimal units, as vendors give it. */
export function formatBandwidth(bytesPerSecond: number): string {
  for (const [unit, size] of [
    ["TB/s", 1e12],
    ["GB/s", 1e9],
    ["MB/s", 1e6],
    ["kB/s", 1e3],
  ] as const) {
    if (bytesPerSecond >= size) return `${(bytesPerSecond / size).toPrecision(3)} ${unit}`;
  }
  return `${bytesPerSecond.toFixed(0)} B/s`;
}

/** Arithmetic rate with decimal units. */
export function formatFlops(flopsPerSecond: number): string {
  for (const [unit, size] of [
    ["PFLOP/s", 1e15],
    ["TFLOP/s", 1e12],
    ["GFLOP/s", 1e9],
  ] as const) {
    if (flopsPerSecond >= size) return `${(flopsPerSecond / size).toPrecision(3)} ${unit}`;
  }
  return `${(flopsPerSecond / 1e6).toPrecision(3)} MFLOP/s`;
}

/** A span between two moments: 850 ms, 12 s, 3 min 5 s, 2 h 4 min, 3 d 1 h. */
export function formatSpan(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds)} s`;
  const units: [number, string][] = [
    [86_400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  const at = units.findIndex(([size]) => seconds >= size);
  const [size, unit] = units[at] as [number, string];
  const whole = Math.floor(seconds / size);
  const next = units[at + 1];
  const rest = next ? Math.floor((seconds - whole * size) / next[0]) : 0;
  return next && rest > 0 ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
}

/** How far a moment is from now: "just now", "3 min ago", "in 2 h". */
export function formatRelative(moment: number, now: number): string {
  const span = now - moment;
  if (Math.abs(span) < 5000) return "just now";
  const text = formatSpan(Math.floor(Math.abs(span) / 1000) * 1000).replace(/^(\d+ (?:h|d|min)) .*$/, "$1");
  return span > 0 ? `${text} ago` : `in ${text}`;
}

/** Ends a message of a program as a sentence. */
export const sentence = (message: string): string =>
  /[.!?…]$/.test(message.trim()) ? message.trim() : `${message.trim()}.`;
