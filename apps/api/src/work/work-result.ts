import { ProblemError, type ProblemCode, type ProblemDetail } from "@internevo/domain";

/** What crosses threads and processes: an error's class does not. */
export type WorkResult<T> =
  | { readonly value: T }
  | {
      readonly problem: {
        readonly code: ProblemCode;
        readonly message: string;
        readonly details: readonly ProblemDetail[];
      };
    };

/** Runs the work; its expected errors become values. */
export async function resultOf<T>(work: () => T | Promise<T>): Promise<WorkResult<T>> {
  try {
    return { value: await work() };
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    return { problem: { code: error.code, message: error.message, details: error.details } };
  }
}

/** The other way round. @throws ProblemError */
export function valueOf<T>(result: WorkResult<T>): T {
  if ("problem" in result)
    throw new ProblemError(result.problem.code, result.problem.message, result.problem.details);
  return result.value;
}
