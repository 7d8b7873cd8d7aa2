import { folderThatHolds, WEIGHTS_FIELD } from "@internevo/data";
import { ProblemError } from "@internevo/domain";
import { projectOf, type Database, type JobRow } from "@internevo/store";
import { jobDirectory, jobsDirectory } from "./directories.ts";

/**
 * The directory of the job among whose files a job's weights lie now, links followed; null: among no job's. What
 * submission has looked at says little: a link can lead elsewhere since.
 * @throws ProblemError `data-invalid`, the same for another project's job and for none, unless submission has found
 * that the job's token sees that very job
 */
export async function jobOfWeights(
  dataDirectory: string,
  database: Database,
  { project, weightsOf }: Pick<JobRow, "project" | "weightsOf">,
  weights: string,
): Promise<string | null> {
  const owner = await folderThatHolds(jobsDirectory(dataDirectory), weights);
  if (owner === null) return null;
  if (owner !== weightsOf && (await projectOf(database.db, "job", owner)) !== project) {
    const message = `is no checkpoint of a job of the project ${project}`;
    throw new ProblemError("data-invalid", `${weights} ${message}`, [
      {
        field: WEIGHTS_FIELD,
        value: weights,
        message,
        remedy:
          "submit the job again with a checkpoint of its own project, or with weights that lie elsewhere; " +
          "links are followed first, each time",
      },
    ]);
  }
  return jobDirectory(dataDirectory, owner);
}
