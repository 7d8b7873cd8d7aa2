import { formatBytes, formatSeconds } from "@internevo/domain";

export { formatBytes, formatSeconds };

const integer = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const formatInteger = (value: number): string => integer.format(value);

/** Large counts for people: 262,144 stays, 4,194,304 becomes 4.2M. */
export const formatCount = (value: number): string => (Math.abs(value) < 1e6 ? integer.format(value) : short.format(value));

/** Tokens of a rate: three significant figures from ten up are enough to compare. */
export function formatRate(value: number): string {
  if (!Number.isFinite(value)) return "–";
  return value >= 100 ? formatCount(Math.round(value)) : value.toPrecision(3);
}

export const formatLoss = (value: number): string => (Number.isFinite(value) ? value.toFixed(4) : String(value));

export function formatPercent(fraction: number, digits = 1): string {
  const percent = fraction * 100;
  if (fraction > 0 && percent < 10 ** -digits) return `< ${(10 ** -digits).toFixed(digits)} %`;
  return `${percent.toFixed(digits)} %`;
}

/** A relative error with its sign: +4.2 % means predicted above measured. */
export function formatSignedPercent(fraction: number, digits = 1): string {
  const text = Math.abs(fraction * 100).toFixed(digits);
  if (Number(text) === 0) return `±${text} %`;
  return `${fraction > 0 ? "+" : "−"}${text} %`;
}

/** From – to, with the unit once where it is the same: "8.02 – 8.31 s". */
export function formatSecondsRange({ low, high }: { readonly low: number; readonly high: number }): string {
  const [from, to] = [formatSeconds(low), formatSeconds(high)];
  const unit = to.slice(to.indexOf(" "));
  return from === to ? to : `${from.endsWith(unit) ? from.slice(0, -unit.length) : from} – ${to}`;
}

/** A difference with its sign; nothing has none. */
export const formatSigned = (value: number, format: (size: number) => string): string => (value === 0 ? format(0) : `${value > 0 ? "+" : "−"}${format(Math.abs(value))}`);

/** Tokens of a sequence or a batch as the field writes them: 4k is 4,096. */
export function formatTokens(tokens: number): string {
  if (tokens >= 2 ** 20 && tokens % 2 ** 20 === 0) return `${tokens / 2 ** 20}M`;
  return tokens >= 1024 && tokens % 1024 === 0 ? `${tokens / 1024}k` : integer.format(tokens);
}

/** (predicted − measured) / measured. */
export const relativeError = (predicted: number, measured: number): number => (predicted - measured) / measured;

/** Bandwidth with decimal units, as vendors give it. */
export function formatBandwidth(bytesPerSecond: number): string {
  for (const [unit, size] of [["TB/s", 1e12], ["GB/s", 1e9], ["MB/s", 1e6], ["kB/s", 1e3]] as const) {
    if (bytesPerSecond >= size) return `${(bytesPerSecond / size).toPrecision(3)} ${unit}`;
  }
  return `${bytesPerSecond.toFixed(0)} B/s`;
}

/** Arithmetic rate with decimal units. */
export function formatFlops(flopsPerSecond: number): string {
  for (const [unit, size] of [["PFLOP/s", 1e15], ["TFLOP/s", 1e12], ["GFLOP/s", 1e9]] as const) {
    if (flopsPerSecond >= size) return `${(flopsPerSecond / size).toPrecision(3)} ${unit}`;
  }
  return `${(flopsPerSecond / 1e6).toPrecision(3)} MFLOP/s`;
}

/** A span between two moments: 850 ms, 12 s, 3 min 5 s, 2 h 4 min, 3 d 1 h. */
export function formatSpan(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds)} s`;
  const units: [number, string][] = [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
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

const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
export const formatMoment = (moment: number): string => absolute.format(moment);
export const formatClock = (moment: number): string => clock.format(moment);

/** Ends a message of a program as a sentence. */
export const sentence = (message: string): string => (/[.!?…]$/.test(message.trim()) ? message.trim() : `${message.trim()}.`);
