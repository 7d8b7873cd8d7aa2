import { isAbsolute } from "node:path";
import { ProblemError, type Model } from "@internevo/domain";
import { assertInitialWeights } from "@internevo/data";
import type { Allowed } from "./check-data.ts";

/** Weights, and the model that they have to be of. */
export interface WeightsTask {
  readonly initialWeights: string;
  readonly model: Model;
}

/**
 * Checks the weights that a job begins with, as the machine that serves the API sees them.
 * @throws ProblemError `job-invalid` for a relative path; `data-invalid` where they are missing, of another
 * model, or not below the roots.
 */
export async function checkWeights({ initialWeights, model, roots }: WeightsTask & Allowed): Promise<void> {
  if (!isAbsolute(initialWeights)) {
    throw new ProblemError("job-invalid", "initialWeights is a relative path", [
      {
        field: "initialWeights",
        value: initialWeights,
        message: "is a relative path, and the services do not know where your job file is",
        remedy:
          "give the path from / on, on the machine where the services run; " +
          "`internevo submit` completes paths from the job file's folder",
      },
    ]);
  }
  await assertInitialWeights(initialWeights, model, roots);
}
