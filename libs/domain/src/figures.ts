import { formatSeconds } from "./units.ts";

/*
 * How the command line and the console write figures. The rule, once for both (docs/reference/cli.md, "How figures are written"):
 *
 * - Integers have a comma between thousands: 38,572,704.
 * - Percentages have one decimal and no space: 47.6%. A share that exists is never written as none: < 0.1%.
 * - Differences have a sign, which is U+2212 below zero: +2.5%, −2.5%. What rounds to nothing is ±0.0%.
 * - Times of a step and its parts have three or four figures: 90.95 s. Longer spans have whole units, two at
 *   most: 2 min 2 s.
 * - Moments are in the reader's time zone, on a 24-hour clock, and name the zone: 2026-11-23 18:18:51 UTC.
 */

const integer = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** 38,572,704 */
export const formatInteger = (value: number): string => integer.format(value);

/** Any number: a large one as an integer, of a small one four figures. 38,572,704; 1.235 */
export const formatFigure = (value: number): string =>
  Math.abs(value) >= 1000 ? formatInteger(value) : String(Number(value.toPrecision(4)));

/** Large counts where there is little room, as on an axis: 262,144 stays, 4,194,304 becomes 4.2M. */
export const formatCount = (value: number): string =>
  Math.abs(value) < 1e6 ? integer.format(value) : compact.format(value);

/** A count and its noun: "1 rank", "5,844 ranks". @param plural default: the noun with an s */
export const formatCounted = (count: number, noun: string, plural = `${noun}s`): string =>
  `${formatInteger(count)} ${count === 1 ? noun : plural}`;

/** Tokens a second: an integer, or three significant figures where there are fewer than a hundred. */
export function formatRate(tokensPerSecond: number): string {
  if (!Number.isFinite(tokensPerSecond)) return "–";
  return tokensPerSecond >= 100 ? formatInteger(tokensPerSecond) : tokensPerSecond.toPrecision(3);
}

/** A share of a whole. @param fraction 0.476 is 47.6% */
export function formatPercent(fraction: number, digits = 1): string {
  const percent = fraction * 100;
  const least = 10 ** -digits;
  return percent > 0 && percent < least ? `< ${least.toFixed(digits)}%` : `${percent.toFixed(digits)}%`;
}

/** A relative difference with its sign. @param fraction 0.025 is +2.5% */
export function formatSignedPercent(fraction: number, digits = 1): string {
  const text = Math.abs(fraction * 100).toFixed(digits);
  const sign = fraction > 0 ? "+" : "−";
  return `${Number(text) === 0 ? "±" : sign}${text}%`;
}

/** A correlation, from −1 to 1. */
export function formatCorrelation(value: number): string {
  const text = Math.abs(value).toFixed(2);
  return value < 0 && Number(text) > 0 ? `−${text}` : text;
}

/** A difference with its sign; nothing has none. */
export const formatSigned = (value: number, format: (size: number) => string): string =>
  value === 0 ? format(0) : `${value > 0 ? "+" : "−"}${format(Math.abs(value))}`;

/** From – to in seconds, with the unit once where it is the same: "8.02 – 8.31 s". */
export function formatSecondsRange({ low, high }: { readonly low: number; readonly high: number }): string {
  const [from, to] = [formatSeconds(low), formatSeconds(high)];
  const unit = to.slice(to.indexOf(" "));
  return from === to ? to : `${from.endsWith(unit) ? from.slice(0, -unit.length) : from} – ${to}`;
}

/** Three figures in the first unit in which they are below a thousand: 999.6 MB/s are 1.00 GB/s. */
function inLargestUnit(value: number, units: readonly (readonly [unit: string, size: number])[]): string {
  for (const [unit, size] of units) {
    const text = (value / size).toPrecision(3);
    if (Math.abs(Number(text)) < 1000) return `${text} ${unit}`;
  }
  const [unit, size] = units.at(-1) ?? ["", 1];
  return `${formatInteger(value / size)} ${unit}`;
}

/** Bandwidth with decimal units, as vendors give it. */
export function formatBandwidth(bytesPerSecond: number): string {
  const bytes = bytesPerSecond.toFixed(0);
  if (Number(bytes) < 1000) return `${bytes} B/s`;
  return inLargestUnit(bytesPerSecond, [
    ["kB/s", 1e3],
    ["MB/s", 1e6],
    ["GB/s", 1e9],
    ["TB/s", 1e12],
  ]);
}

/** Arithmetic rate with decimal units. */
export function formatFlops(flopsPerSecond: number): string {
  return inLargestUnit(flopsPerSecond, [
    ["MFLOP/s", 1e6],
    ["GFLOP/s", 1e9],
    ["TFLOP/s", 1e12],
    ["PFLOP/s", 1e15],
  ]);
}

/** A span between two moments, a stage or a training: 850 ms, 12 s, 3 min 5 s, 2 h 4 min, 3 d 1 h. */
export function formatSpan(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds) / 1000;
  const rounded = Math.round(seconds * 1000);
  if (rounded < 1000) return `${rounded} ms`;
  const tenths = seconds.toFixed(1);
  if (seconds < 60) return `${Number(tenths) < 10 ? tenths : Math.max(10, Math.floor(seconds))} s`;
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

/** Tokens of a sequence or a batch as the field writes them: 4k is 4,096. */
export function formatTokens(tokens: number): string {
  if (tokens >= 2 ** 20 && tokens % 2 ** 20 === 0) return `${tokens / 2 ** 20}M`;
  return tokens >= 1024 && tokens % 1024 === 0 ? `${tokens / 1024}k` : formatInteger(tokens);
}

type MomentPart = "year" | "month" | "day" | "hour" | "minute" | "second" | "timeZoneName";

/** By zone: making one takes longer than a log's lines may. */
const momentFormats = new Map<string | undefined, Intl.DateTimeFormat>();

function momentFormat(timeZone: string | undefined): Intl.DateTimeFormat {
  const digits = "2-digit";
  const known = momentFormats.get(timeZone);
  if (known) return known;
  const made = new Intl.DateTimeFormat("en-GB", {
    year: "numeric",
    month: digits,
    day: digits,
    hour: digits,
    minute: digits,
    second: digits,
    hourCycle: "h23",
    timeZoneName: "short",
    ...(timeZone === undefined ? {} : { timeZone }),
  });
  momentFormats.set(timeZone, made);
  return made;
}

function momentParts(
  moment: number | string,
  timeZone: string | undefined,
): Readonly<Record<MomentPart, string>> {
  const format = momentFormat(timeZone);
  const date = typeof moment === "number" ? moment : Date.parse(moment);
  return Object.fromEntries(format.formatToParts(date).map(({ type, value }) => [type, value])) as Record<
    MomentPart,
    string
  >;
}

/**
 * 2026-11-23 18:18:51 UTC. @param moment milliseconds since 1970, or ISO 8601. @param timeZone default: the
 * reader's
 */
export function formatMoment(moment: number | string, timeZone?: string): string {
  const { year, month, day, timeZoneName } = momentParts(moment, timeZone);
  return `${year}-${month}-${day} ${formatClock(moment, timeZone)} ${timeZoneName}`;
}

/** 18:18:51, where a caption names the zone: see {@link formatZone}. */
export function formatClock(moment: number | string, timeZone?: string): string {
  const { hour, minute, second } = momentParts(moment, timeZone);
  return `${hour}:${minute}:${second}`;
}

/** The zone of a moment: UTC, CET, GMT+8. Summer time is another one. */
export const formatZone = (moment: number | string, timeZone?: string): string =>
  momentParts(moment, timeZone).timeZoneName;

/** Text of at most so many characters: a longer one loses its middle, since names differ at both ends. */
export function shortened(text: string, most: number): string {
  const characters = Array.from(text);
  if (characters.length <= most) return text;
  const kept = Math.max(2, most) - 1;
  const head = Math.ceil(kept / 2);
  return `${characters.slice(0, head).join("")}…${characters.slice(characters.length - (kept - head)).join("")}`;
}
