import { removeUnusedDatasets } from "@internevo/data";
import { unendedJobs, type Database } from "@internevo/store";

/**
 * Removes copies of text that were made for jobs, once no job needs them that has not ended, and nobody used them for
 * some days. Any number of processes may, at any time.
 * @throws the signal's reason when it aborts
 */
export const removeUnusedCopies = ({
  database,
  dataDirectory,
  now,
  signal,
}: {
  readonly database: Database;
  readonly dataDirectory: string;
  readonly now: Date;
  readonly signal: AbortSignal;
}): ReturnType<typeof removeUnusedDatasets> =>
  removeUnusedDatasets(dataDirectory, (ids) => unendedJobs(database.db, ids), { now, signal });
