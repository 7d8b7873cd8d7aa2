import { pino, type DestinationStream, type Logger } from "pino";
import { beginningOf, printable, ProblemError } from "@internevo/domain";

export type { Logger } from "pino";

/** Characters of a line; what is longer repeats what somebody has sent, or what was read. */
const LONGEST_LINE = 8192;
/** Characters of any text in a line that would be longer. */
const LONGEST_TEXT = 1000;
/** Parts of any list or object in such a line. */
const MOST_PARTS = 20;

/** A value with its long texts shortened, and its long lists. */
function shortened(value: unknown, depth = 0): unknown {
  if (typeof value === "string") return beginningOf(value, LONGEST_TEXT);
  if (typeof value !== "object" || value === null) return value;
  if (depth > 3) return "…";
  if (Array.isArray(value)) return value.slice(0, MOST_PARTS).map((one) => shortened(one, depth + 1));
  return Object.fromEntries(
    Object.entries(value)
      .slice(0, MOST_PARTS)
      .map(([key, one]) => [beginningOf(key, LONGEST_TEXT), shortened(one, depth + 1)]),
  );
}

/**
 * One line, whatever its texts hold: bounded, still JSON, and without anything that a terminal or a reader of
 * lines obeys.
 */
function plainLine(line: string): string {
  const text = line.endsWith("\n") ? line.slice(0, -1) : line;
  const plain = printable(text);
  if (plain.length <= LONGEST_LINE) return `${plain}\n`;
  const whole = JSON.parse(text) as Record<string, unknown>;
  const short = printable(JSON.stringify(shortened(whole)));
  if (short.length <= LONGEST_LINE) return `${short}\n`;
  const { level, time, service, pid, traceId, msg } = whole;
  const least = { level, time, service, pid, traceId, msg: beginningOf(String(msg), LONGEST_TEXT) };
  return `${printable(JSON.stringify({ ...least, leftOut: "the rest: it is too long" }))}\n`;
}

/** JSON lines with the service's name; bind `jobId` and `traceId` with `log.child`. */
export function createLogger(service: string, level: string, destination?: DestinationStream): Logger {
  const options = {
    level,
    base: { service, pid: process.pid },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
    hooks: { streamWrite: plainLine },
    redact: {
      paths: ["token", "*.token", "authorization", "*.authorization", "password", "*.password"],
      censor: "[hidden]",
    },
  };
  return destination ? pino(options, destination) : pino(options);
}

/** Expected errors are warnings with their code; others are errors with their stack. */
export function logError(log: Logger, error: unknown, message: string): void {
  if (error instanceof ProblemError)
    log.warn({ code: error.code, details: error.details }, `${message}: ${error.message}`);
  else log.error({ err: error }, message);
}
