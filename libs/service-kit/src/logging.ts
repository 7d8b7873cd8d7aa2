import { pino, type DestinationStream, type Logger } from "pino";
import { ProblemError } from "@internevo/domain";

export type { Logger } from "pino";

/** JSON lines with the service's name; bind `jobId` and `traceId` with `log.child`. */
export function createLogger(service: string, level: string, destination?: DestinationStream): Logger {
  const options = {
    level,
    base: { service, pid: process.pid },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
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
