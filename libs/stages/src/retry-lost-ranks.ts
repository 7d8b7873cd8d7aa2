import { formatCounted, LET_IT_GO_ON, type Failure } from "@internevo/domain";
import { pause } from "@internevo/store";

/** Attempts in a row that may lose ranks without progress, unless a service is told otherwise. */
export const DEFAULT_LOST_RANK_LIMIT = 5;

const MOST_SECONDS_BETWEEN = 30;

/** Time before ranks are started again, by the attempts in a row that made no progress: 1, 2, 4, … 30 s. */
export const secondsBeforeRestart = (withoutProgress: number): number =>
  Math.min(MOST_SECONDS_BETWEEN, 2 ** Math.max(0, withoutProgress - 1));

export interface LostRankRetries<R> {
  readonly launch: () => Promise<R>;
  readonly failureOf: (result: R) => Failure | undefined;
  /** Attempts in a row that may lose ranks without progress. */
  readonly limit: number;
  /** Ends the wait between two attempts: its reason is thrown then. */
  readonly signal: AbortSignal;
  /** Grows with what is kept of an attempt; default: nothing is. */
  readonly progress?: () => number;
  readonly onRetry?: (failure: Failure, inSeconds: number) => void;
}

/**
 * Starts ranks again when one of them was ended from outside (a signal, a node that went): that says nothing
 * about the plan or the cluster that is being measured. Every other failure is an answer.
 * @returns the last result; it failed for lost ranks when the attempts in a row without progress are used up.
 */
export async function retryLostRanks<R>(retries: LostRankRetries<R>): Promise<R> {
  const { limit, signal, progress = () => 0, onRetry } = retries;
  for (let withoutProgress = 0, before = progress(); ;) {
    const result = await retries.launch();
    const failure = retries.failureOf(result);
    if (failure?.code !== "rank-lost") return result;
    const now = progress();
    withoutProgress = now > before ? 1 : withoutProgress + 1;
    before = now;
    if (withoutProgress >= limit) return result;
    const seconds = secondsBeforeRestart(withoutProgress);
    onRetry?.(failure, seconds);
    await pause(seconds * 1000, signal);
    signal.throwIfAborted();
  }
}

/** Why a job is held whose ranks were lost in too many attempts. @param what they were without, in words. */
export const tooManyLost = (attempts: number, what: string, last: Failure): Failure => ({
  code: "too-many-restarts",
  message: `${formatCounted(attempts, "attempt")} in a row ended without ${what}; the last: ${last.message}`,
  remedy: `find what ends the ranks, and ${LET_IT_GO_ON}`,
  ...(last.rank === undefined ? {} : { rank: last.rank }),
});
