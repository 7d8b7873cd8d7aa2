/** SQLSTATEs and system errors after which nobody knows whether a transaction was committed. */
const LOST_SQLSTATES = new Set(["57P01", "57P02", "57P03", "25P03"]);
const LOST_SYSTEM_ERRORS = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "EPIPE",
  "ENOENT",
  "ETIMEDOUT",
  "EAI_AGAIN",
]);
const LOST_MESSAGES =
  /Connection terminated|Client has encountered a connection error|timeout exceeded when trying to connect|timeout expired|Client was closed|not queryable/;

/** The SQLSTATE of a failed query, where Postgres gave one (drizzle wraps it: it is the cause's). */
export function sqlStateOf(error: unknown): string | undefined {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    const code = (at as { code?: unknown }).code;
    if (typeof code === "string" && /^[0-9A-Z]{5}$/.test(code)) return code;
  }
  return undefined;
}

/** Whether an error means that the connection to Postgres was lost or could not be made. */
export function isConnectionLoss(error: unknown): boolean {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    const code = (at as { code?: unknown }).code;
    if (
      typeof code === "string" &&
      (code.startsWith("08") || LOST_SQLSTATES.has(code) || LOST_SYSTEM_ERRORS.has(code))
    )
      return true;
    if (LOST_MESSAGES.test(at.message)) return true;
    if (at instanceof AggregateError && at.errors.some(isConnectionLoss)) return true;
  }
  return false;
}

const DISK_FULL = "53100";

/** Whether Postgres had no room on its disk for a write; what it was asked to do is rolled back. */
export const isDiskFull = (error: unknown): boolean => sqlStateOf(error) === DISK_FULL;

/** Serialisation failures and deadlocks: Postgres rolled back and asks for another try. */
export const isTransientConflict = (error: unknown): boolean =>
  ["40001", "40P01"].includes(sqlStateOf(error) ?? "");

export interface RetryOptions {
  /** How long to go on, seconds. Default 30. */
  readonly forSeconds?: number;
  readonly signal?: AbortSignal;
  readonly onRetry?: (error: unknown) => void;
}

/** Waits; ends early, without an error, when the signal aborts. */
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", done, { once: true });
  });
}

/**
 * Repeats a whole transaction when the connection was lost. Only for work that is idempotent as a whole:
 * after a lost commit nobody knows whether it happened.
 * @throws the last error, when the time is over, the signal aborted, or it is another kind of error.
 */
export async function withRetryOnConnectionLoss<T>(
  work: () => Promise<T>,
  options: RetryOptions = {},
): Promise<T> {
  const deadline = performance.now() + (options.forSeconds ?? 30) * 1000;
  for (let delay = 50; ; delay = Math.min(delay * 2, 1000)) {
    try {
      return await work();
    } catch (error) {
      if (
        !(isConnectionLoss(error) || isTransientConflict(error)) ||
        options.signal?.aborted ||
        performance.now() + delay > deadline
      )
        throw error;
      options.onRetry?.(error);
      await pause(delay, options.signal);
      if (options.signal?.aborted) throw error;
    }
  }
}
