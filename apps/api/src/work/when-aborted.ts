/**
 * The work's answer, unless the signal aborts before: then its reason, and the work goes on by itself. Nothing of it
 * stays with the signal, which may live on for minutes.
 */
export async function unlessAborted<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const left = (): void => aborted.reject(signal.reason as Error);
  if (signal.aborted) left();
  else signal.addEventListener("abort", left, { once: true });
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener("abort", left);
  }
}

/** Seconds in which work that nobody waits for may end by itself, before what does it is ended. */
const END_SECONDS = 2;

/** What has had all its time is given no more of it. */
const isLate = (reason: unknown): boolean => (reason as Error | undefined)?.name === "TimeoutError";

/**
 * Aborts some time after the signal, unless `settle` is called before. What works is told at once (`onAbort`): work
 * that ends by itself leaves a thread or process that others need not make anew.
 */
export function abortedLater(
  signal: AbortSignal,
  onAbort: () => void = () => undefined,
): { readonly signal: AbortSignal; settle(): void } {
  const later = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const begin = (): void => {
    onAbort();
    timer = setTimeout(() => later.abort(signal.reason), isLate(signal.reason) ? 0 : END_SECONDS * 1000);
  };
  if (signal.aborted) begin();
  else signal.addEventListener("abort", begin, { once: true });
  return {
    signal: later.signal,
    settle: () => (signal.removeEventListener("abort", begin), clearTimeout(timer)),
  };
}
