import type { Problem } from "@internevo/contracts";

/** The API refused a request: `problem` says what is wrong, field by field. */
export class ApiProblemError extends Error {
  readonly problem: Problem;
  /** From `Retry-After`, when the server sent it. */
  readonly retryAfterSeconds: number | undefined;

  constructor(problem: Problem, retryAfterSeconds?: number) {
    super(problem.detail ?? problem.title);
    this.name = "ApiProblemError";
    this.problem = problem;
    this.retryAfterSeconds = retryAfterSeconds;
  }

  get status(): number {
    return this.problem.status;
  }

  get code(): Problem["code"] {
    return this.problem.code;
  }
}

/** The API could not be reached, or its answer broke off. */
export class ApiConnectionError extends Error {
  readonly url: string;

  constructor(url: string, cause: unknown) {
    super(`cannot reach ${url}: ${reasonOf(cause)}`, { cause });
    this.name = "ApiConnectionError";
    this.url = url;
  }
}

/** Something answered, but not this API: a proxy, another program, another version. */
export class UnexpectedAnswerError extends Error {
  readonly url: string;
  readonly status: number;

  constructor(url: string, status: number, what: string) {
    super(`${url} answered ${status} with ${what}`);
    this.name = "UnexpectedAnswerError";
    this.url = url;
    this.status = status;
  }
}

/** `fetch` hides the reason in `cause`, once or twice deep. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  if (cause instanceof Error)
    return cause.message !== "" ? cause.message : ((cause as { code?: string }).code ?? error.message);
  return error.message;
}
