import { ApiConnectionError, ApiProblemError, UnexpectedAnswerError } from "@internevo/client";
import { ProblemError, type JobState, type ProblemCode } from "@internevo/domain";
import { CommanderError } from "commander";

/** What the program's status says; `docs/reference/cli.md` lists it. */
export const EXIT = {
  ok: 0,
  /** It was tried and failed: a job that failed, an error inside. */
  failed: 1,
  /** The command line, the job file or another input is wrong. */
  badInput: 2,
  noFeasiblePlan: 3,
  notFound: 4,
  /** The API, the database or the local stack cannot be reached or started. */
  unavailable: 5,
  notAllowed: 6,
  /** What is there does not allow it: another key's body, an ended job. */
  conflict: 7,
  /** The job was cancelled while it was watched. */
  cancelled: 8,
  interrupted: 130,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** The status that a problem's code stands for. */
export function exitCodeOfProblem(code: ProblemCode): ExitCode {
  switch (code) {
    case "bad-request":
    case "job-invalid":
    case "plan-invalid":
    case "profile-invalid":
    case "data-invalid":
    case "method-not-allowed":
    case "payload-too-large":
    case "unsupported-media-type":
      return EXIT.badInput;
    case "no-feasible-plan":
      return EXIT.noFeasiblePlan;
    case "not-found":
    case "profile-missing":
      return EXIT.notFound;
    case "unauthorized":
    case "forbidden":
    case "quota-exceeded":
      return EXIT.notAllowed;
    case "conflict":
    case "precondition-failed":
      return EXIT.conflict;
    case "rate-limited":
    case "unavailable":
      return EXIT.unavailable;
    case "internal":
      return EXIT.failed;
    default:
      // Of a newer API, or of what stands between: it did not do what was asked.
      return EXIT.failed;
  }
}

export function exitCodeOfState(state: JobState): ExitCode {
  switch (state) {
    case "failed":
    case "held":
      return EXIT.failed;
    case "cancelled":
      return EXIT.cancelled;
    case "succeeded":
    case "profiling":
    case "planning":
    case "trialling":
    case "running":
    case "cancelling":
      return EXIT.ok;
  }
}

/** The person pressed Ctrl-C, or the program was asked to stop. */
export class InterruptedError extends Error {
  constructor() {
    super("interrupted");
    this.name = "InterruptedError";
  }
}

export function exitCodeOf(error: unknown): ExitCode {
  if (error instanceof ProblemError || error instanceof ApiProblemError) return exitCodeOfProblem(error.code);
  if (error instanceof ApiConnectionError || error instanceof UnexpectedAnswerError) return EXIT.unavailable;
  if (error instanceof InterruptedError) return EXIT.interrupted;
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.badInput;
  return EXIT.failed;
}
