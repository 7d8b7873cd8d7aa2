import { ProblemError } from "@internevo/domain";

/** The field of a job that names weights. */
export const WEIGHTS_FIELD = "initialWeights";

/** A refusal of weights, with the file that it is about. */
export const weightsFault = (path: string, message: string, remedy: string, cause?: unknown): ProblemError =>
  new ProblemError(
    "data-invalid",
    `${path} ${message}`,
    [{ field: WEIGHTS_FIELD, value: path, message, remedy }],
    { cause },
  );

export const COPY_AGAIN = "copy the folder again, whole";
