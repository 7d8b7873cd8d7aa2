import type { Failure } from "@internevo/domain";

/** Where ranks ended that failed: after their last step. */
export interface FailedAt {
  readonly failure: Failure | null;
  readonly lastStep: number;
}

/**
 * The failure of a job whose loss or gradient was not finite at the same step in two attempts in a row;
 * undefined where it was not. Training is bit-exact, so an error of the job's own comes again; a bit that
 * flipped in the hardware does not.
 */
export function notFiniteTwice(before: FailedAt | undefined, last: FailedAt): Failure | undefined {
  const { failure } = last;
  if (failure?.code !== "not-finite" || before?.failure?.code !== "not-finite") return undefined;
  if (before.lastStep !== last.lastStep) return undefined;
  return {
    ...failure,
    message: `${failure.message}; it was the same when the step was repeated, so it is not a fault of the hardware`,
  };
}
