import { formatSpan } from "@internevo/domain";

// What the command line writes too is in @internevo/domain, with the rule for figures; here is what only
// pages write.
export {
  formatBandwidth,
  formatBytes,
  formatClock,
  formatCorrelation,
  formatCount,
  formatCounted,
  formatFlops,
  formatGpuHours,
  formatInteger,
  formatMoment,
  formatPercent,
  formatRate,
  formatSeconds,
  formatSecondsRange,
  formatSigned,
  formatSignedPercent,
  formatSpan,
  formatTokens,
  formatZone,
} from "@internevo/domain";

export const formatLoss = (value: number): string =>
  Number.isFinite(value) ? value.toFixed(4) : String(value);

/** (predicted − measured) / measured. */
export const relativeError = (predicted: number, measured: number): number =>
  (predicted - measured) / measured;

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
