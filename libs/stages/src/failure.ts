import {
  LET_IT_GO_ON,
  type Failure,
  type FailureCode,
  type ProblemCode,
  type ProblemError,
} from "@internevo/domain";
import { ClustersFileError } from "@internevo/launcher";
import { transitionJob, type StageState } from "@internevo/store";
import type { Effect } from "@internevo/service-kit";

function failureCodeOf(code: ProblemCode): FailureCode {
  switch (code) {
    case "data-invalid":
      return "data-invalid";
    case "profile-invalid":
    case "profile-missing":
      return "profile-missing";
    case "no-feasible-plan":
      return "no-feasible-plan";
    case "plan-invalid":
      return "plan-unsupported";
    default:
      return "internal";
  }
}

/** An expected error of a stage, as the job's failure. */
export function failureOfProblem(problem: ProblemError): Failure {
  const remedy = problem.details[0]?.remedy;
  if (problem instanceof ClustersFileError)
    return {
      code: "not-started",
      message: problem.message,
      remedy: `${remedy ?? "mend the file"}; then ${LET_IT_GO_ON}`,
    };
  return {
    code: failureCodeOf(problem.code),
    message: problem.message,
    ...(remedy === undefined ? {} : { remedy }),
  };
}

/** The effect that holds a job until somebody lets it go on: what failed was not its own. */
export const heldJob =
  (jobId: string, from: Exclude<StageState, "planning">, failure: Failure): Effect =>
  async (tx) =>
    void (await transitionJob(tx, { jobId, from, to: "held", failure }));

/**
 * The effect of an expected error of a stage: it fails the job, unless it is the installation's. Then the job waits for
 * whoever mends that.
 */
export function endedByProblem(jobId: string, stage: StageState, problem: ProblemError): Effect {
  const failure = failureOfProblem(problem);
  return stage !== "planning" && problem instanceof ClustersFileError
    ? heldJob(jobId, stage, failure)
    : failedJob(jobId, stage, failure);
}

/** The effect that ends a job in failure. */
export const failedJob =
  (jobId: string, from: StageState, failure: Failure): Effect =>
  async (tx) =>
    void (await transitionJob(tx, { jobId, from, to: "failed", failure }));
