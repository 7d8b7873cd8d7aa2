import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { isTerminal } from "@internevo/domain";
import { cancelSlurmLeftover, readSlurmRecord } from "@internevo/launcher";
import { getJobState, type Database } from "@internevo/store";

/** How long Slurm may take to confirm; it is asked again at the next look. */
const CANCEL_SECONDS = 10;

async function namesIn(directory: string): Promise<string[]> {
  try {
    return await readdir(directory);
  } catch (error) {
    if (["ENOENT", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) return [];
    throw error;
  }
}

/** Cancels what jobs that have ended still have in Slurm: a job can be cancelled while no supervisor looks after its ranks. @returns run directories that were cleared. */
export async function cancelEndedOnSlurm(database: Database, dataDirectory: string): Promise<string[]> {
  const cleared: string[] = [];
  for (const jobId of await namesIn(join(dataDirectory, "jobs"))) {
    for (const stage of await namesIn(join(dataDirectory, "jobs", jobId, "slurm"))) {
      const top = join(dataDirectory, "jobs", jobId, "slurm", stage);
      // The probe's job and, beside it, the one that measures the trainer's own memory.
      for (const runDirectory of [top, join(top, "runtime")]) {
        if (!readSlurmRecord(runDirectory)) continue;
        const state = await getJobState(database.db, jobId);
        if (
          state !== undefined &&
          isTerminal(state) &&
          (await cancelSlurmLeftover(runDirectory, CANCEL_SECONDS))
        )
          cleared.push(runDirectory);
      }
    }
  }
  return cleared;
}
