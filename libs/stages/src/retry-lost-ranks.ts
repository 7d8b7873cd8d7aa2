import type { Failure } from "@internevo/domain";

/** How often ranks that something outside ended are started again before that counts as the answer. */
export const LOST_RANK_RETRIES = 2;

/**
 * Starts ranks again when one of them was ended from outside (a signal, a node that went): that says nothing
 * about the plan or the cluster that is being measured. Every other failure is an answer.
 */
export async function retryLostRanks<R>(
  launch: () => Promise<R>,
  failureOf: (result: R) => Failure | undefined,
  onRetry: (failure: Failure) => void = () => {},
): Promise<R> {
  for (let retries = 0; ; retries += 1) {
    const result = await launch();
    const failure = failureOf(result);
    if (failure?.code !== "rank-lost" || retries === LOST_RANK_RETRIES) return result;
    onRetry(failure);
  }
}
