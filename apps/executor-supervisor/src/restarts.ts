import type { Attempt, Failure } from "@internevo/domain";
import { notFiniteTwice, tooManyLost } from "@internevo/stages";

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

/** How a training ends that does not go on by itself: in failure, or held until somebody lets it go on. */
export interface TrainingEnd {
  readonly state: "failed" | "held";
  readonly failure: Failure;
}

/**
 * Whether ranks are started again after an attempt failed. What comes from outside (lost ranks, a network that
 * fails, silence) holds the job when it comes too often; an error of the trainer's own fails it. A loss that is
 * not finite is repeated once, which tells whether it is the job's own.
 * @param attempts since somebody let the job go on, oldest first, the failed one last.
 * @param limit attempts in a row that may fail without a newer checkpoint.
 * @returns how the training ends when not.
 */
export function endAfter(
  attempts: readonly Attempt[],
  failure: Failure,
  limit: number,
): TrainingEnd | undefined {
  if (LASTING.includes(failure.code)) return { state: "failed", failure };
  const last = attempts.at(-1);
  const own = last && notFiniteTwice(attempts.at(-2), { ...last, failure });
  if (own) return { state: "failed", failure: own };
  const without = attemptsWithoutProgress(attempts);
  if (without < limit) return undefined;
  const lost = tooManyLost(without, "a newer checkpoint", failure);
  return failure.code === "internal" || failure.code === "not-finite"
    ? { state: "failed", failure: { ...lost, remedy: failure.remedy ?? "see the log of the attempts" } }
    : { state: "held", failure: lost };
}
