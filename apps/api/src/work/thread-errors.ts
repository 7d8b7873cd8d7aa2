import type { FastifyBaseLogger } from "fastify";

/** Piscina's words for an answer to a task that it does not know any more; the whole answer follows. */
const LATE_ANSWER = "Unexpected message from Worker:";

/**
 * Writes down what happens to a thread when nobody waits for it. A thread that answers what was aborted just
 * before does what it should: that is no warning, and its answer is not repeated.
 */
export function logThreadError(log: Pick<FastifyBaseLogger, "debug" | "warn">, error: Error): void {
  if (error.message.startsWith(LATE_ANSWER)) log.debug("a thread answered work that was aborted just before");
  else log.warn({ err: error }, "a thread of searches failed while nobody waited for it");
}
