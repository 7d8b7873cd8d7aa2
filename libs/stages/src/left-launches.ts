import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { ifThere, isAtRest, LAUNCHERS } from "@internevo/domain";
import { launcherOf } from "@internevo/launcher";
import { runtimeDirectory } from "@internevo/profiling";
import { getJobState, type Database } from "@internevo/store";
import { jobsDirectory } from "./directories.ts";

/** How long a scheduler may take to confirm; it is asked again at the next look. */
const END_SECONDS = 10;

const namesIn = async (directory: string): Promise<string[]> =>
  (await ifThere(() => readdir(directory))) ?? [];

/**
 * Ends what jobs that are over, or held, still have with schedulers: a job can be cancelled while no supervisor looks
 * after its ranks.
 * @returns the run directories that were cleared.
 */
export async function endLaunchesOfEndedJobs(database: Database, dataDirectory: string): Promise<string[]> {
  const jobs = jobsDirectory(dataDirectory);
  const cleared: string[] = [];
  for (const jobId of await namesIn(jobs)) {
    for (const launcher of LAUNCHERS) {
      const { outliving } = launcherOf({ launcher });
      if (outliving === null) continue;
      for (const stage of await namesIn(join(jobs, jobId, launcher))) {
        const top = join(jobs, jobId, launcher, stage);
        for (const runDirectory of [top, runtimeDirectory(top)]) {
          if (!outliving.left(runDirectory)) continue;
          const state = await getJobState(database.db, jobId);
          if (state !== undefined && isAtRest(state) && (await outliving.endLeft(runDirectory, END_SECONDS)))
            cleared.push(runDirectory);
        }
      }
    }
  }
  return cleared;
}
