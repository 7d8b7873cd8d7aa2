import { ProblemError } from "@internevo/domain";

/** The problems of a job file inside another document, with their fields named from the outside. */
export function innerJob<T>(resolve: () => T): T {
  try {
    return resolve();
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    throw new ProblemError(
      error.code,
      error.message,
      error.details.map((detail) => ({ ...detail, field: `job.${detail.field}` })),
    );
  }
}
