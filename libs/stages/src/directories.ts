import { createHash } from "node:crypto";
import { join } from "node:path";

/**
 * The one run directory of a cluster: whoever holds the cluster's lease starts ranks there, and ends what a killed holder left.
 * The name is hashed: cluster names hold any character.
 */
export const clusterRunDirectory = (dataDirectory: string, clusterName: string): string => join(dataDirectory, "clusters", createHash("sha256").update(clusterName).digest("hex").slice(0, 16), "run");

/** What belongs to one job. */
export const jobDirectory = (dataDirectory: string, jobId: string): string => join(dataDirectory, "jobs", jobId);

/** What ranks recorded of some steps, of a trial or of an attempt, for Perfetto. */
export const timelinePath = (dataDirectory: string, jobId: string, of: string): string => join(jobDirectory(dataDirectory, jobId), "timelines", `${of}.json`);

export const checkpointDirectory = (dataDirectory: string, jobId: string): string => join(jobDirectory(dataDirectory, jobId), "checkpoints");
