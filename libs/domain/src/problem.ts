/**
 * Every expected error of the product, as a closed set. HTTP statuses, exit codes and texts follow from the
 * code.
 */
export const PROBLEM_CODES = [
  "bad-request",
  "job-invalid",
  "plan-invalid",
  "profile-invalid",
  "profile-missing",
  "no-feasible-plan",
  "data-invalid",
  "unauthorized",
  "forbidden",
  "not-found",
  "method-not-allowed",
  "conflict",
  "precondition-failed",
  "payload-too-large",
  "unsupported-media-type",
  "quota-exceeded",
  "rate-limited",
  "unavailable",
  "internal",
] as const;
export type ProblemCode = (typeof PROBLEM_CODES)[number];

/** One thing that is wrong: where, what was found, and what to do about it. */
export interface ProblemDetail {
  /** Path of the field, for example `model.heads`. */
  readonly field: string;
  /** The value that was found. */
  readonly value?: unknown;
  readonly message: string;
  readonly remedy: string;
  /** Of a text: the line that is meant, and below it a mark at the place. */
  readonly excerpt?: string;
}

/** An expected error: it is shown to the person who caused it, never logged as a crash. */
export class ProblemError extends Error {
  readonly code: ProblemCode;
  readonly details: readonly ProblemDetail[];

  constructor(
    code: ProblemCode,
    message: string,
    details: readonly ProblemDetail[] = [],
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = "ProblemError";
    this.code = code;
    this.details = details;
  }
}

async function withFields<T>(read: () => Promise<T>, renamed: (field: string) => string): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    const details = error.details.map((detail) => ({ ...detail, field: renamed(detail.field) }));
    throw new ProblemError(error.code, error.message, details, { cause: error });
  }
}

/** Fields of held-out data. How documents are packed is said of the training data, and holds for both. */
const IN_HELD_OUT = /^data\b(?!\.(?:packing|endOfDocumentToken|maxDocumentsPerSequence)\b)/;

/**
 * Calls what reads a part of a job, and has its expected errors name that part's fields: `data.path` becomes
 * `validation.data.path` below `validation`.
 */
export const asPartOf = <T>(part: string, read: () => Promise<T>): Promise<T> =>
  withFields(read, (field) => (IN_HELD_OUT.test(field) ? `${part}.${field}` : field));

/**
 * Calls what reads one source of a job's data, and has its expected errors name that source's fields: `data.path`
 * becomes `data.sources.0.path`. How documents are packed is said of all sources.
 * @param part the field that the source stands in
 */
export const asSource = <T>(part: string, read: () => Promise<T>): Promise<T> =>
  withFields(read, (field) => field.replace(/^data(?=$|\.(format|path|paths)\b)/, part));
