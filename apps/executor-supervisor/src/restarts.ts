import type { Attempt, Failure } from "@internevo/domain";

/** Failures that come again however often the ranks are started. */
const LASTING: readonly Failure["code"][] = [
  "out-of-memory",
  "plan-unsupported",
  "data-invalid",
  "checkpoint-invalid",
  "no-feasible-plan",
  "not-started",
  "cancelled",
];

/** How many of the newest attempts failed without getting further than where the first of them began. */
export function attemptsWithoutProgress(attempts: readonly Attempt[]): number {
  const last = attempts.at(-1);
  if (!last) return 0;
  let count = 0;
  for (const attempt of [...attempts].reverse()) {
    if (
      (attempt.state !== "failed" && attempt.state !== "lost") ||
      attempt.resumedFromStep !== last.resumedFromStep
    )
      break;
    count += 1;
  }
  return count;
}

/**
 * Whether ranks are started again after an attempt failed.
 * @param attempts all of the run, oldest first, the failed one last.
 * @param limit attempts in a row that may fail without a newer checkpoint.
 * @returns the job's failure when not.
 */
export function failureAfter(
  attempts: readonly Attempt[],
  failure: Failure,
  limit: number,
): Failure | undefined {
  if (LASTING.includes(failure.code)) return failure;
  const without = attemptsWithoutProgress(attempts);
  if (without < limit) return undefined;
  return {
    code: "too-many-restarts",
    message: `${without} attempts in a row failed without a newer checkpoint; the last: ${failure.message}`,
    remedy: "see the log of the attempts; checkpoint more often than the ranks fail",
    ...(failure.rank === undefined ? {} : { rank: failure.rank }),
  };
}
