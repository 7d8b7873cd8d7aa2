import { ProblemError } from "@internevo/domain";

/** A problem of a job inside another document, with its fields named from the outside. */
function seenFromOutside(error: unknown): unknown {
  if (!(error instanceof ProblemError)) return error;
  const details = error.details.map((detail) => ({ ...detail, field: `job.${detail.field}` }));
  return new ProblemError(error.code, error.message, details);
}

/** The problems of a job file inside another document, with their fields named from the outside. */
export function innerJob<T>(resolve: () => T): T {
  try {
    return resolve();
  } catch (error) {
    throw seenFromOutside(error);
  }
}

/** {@link innerJob} for a check that takes its time. */
export async function innerCheck(check: () => Promise<void>): Promise<void> {
  try {
    await check();
  } catch (error) {
    throw seenFromOutside(error);
  }
}
