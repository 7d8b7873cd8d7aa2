import { isAbsolute } from "node:path";
import { ProblemError, type Model } from "@internevo/domain";
import { assertInitialWeights, folderThatHolds } from "@internevo/data";
import type { Allowed } from "./check-data.ts";

/** Weights, and the model that they have to be of. */
export interface WeightsTask {
  readonly initialWeights: string;
  readonly model: Model;
  /** The directory of the job whose checkpoint they are; null: of none. It may be read whatever the roots are. */
  readonly ofJob: string | null;
}

/** The question whose checkpoint the weights are. */
export interface OwnerTask {
  readonly weightsPath: string;
  /** Holds what belongs to each job, by its id. */
  readonly jobsDirectory: string;
}

/** @returns the name of the job's directory that the weights lie in, links followed; null: in none. */
export const ownerOfWeights = async ({ weightsPath, jobsDirectory }: OwnerTask): Promise<string | null> =>
  isAbsolute(weightsPath) ? folderThatHolds(jobsDirectory, weightsPath) : null;

/** Says the same of another project's job and of none: ids tell nothing of what is there. */
export const notOwnWeights = (value: string): ProblemError =>
  new ProblemError("data-invalid", `${value} is no checkpoint of a job that this token may see`, [
    {
      field: "initialWeights",
      value,
      message: "is no checkpoint of a job that this token may see",
      remedy: "give a checkpoint of a job of your project, or weights that lie elsewhere",
    },
  ]);

/**
 * Checks the weights that a job begins with, as the machine that serves the API sees them.
 * @throws ProblemError `job-invalid` for a relative path; `data-invalid` where they are missing, of another
 * model, or not below the roots.
 */
export async function checkWeights({
  initialWeights,
  model,
  ofJob,
  roots,
  own,
}: WeightsTask & Allowed): Promise<void> {
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
  await assertInitialWeights(initialWeights, model, { roots, own, ofJob });
}
