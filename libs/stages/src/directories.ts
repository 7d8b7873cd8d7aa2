import { createHash } from "node:crypto";
import { join } from "node:path";
import { schedulerOf, type Cluster } from "@internevo/domain";

/** Holds the run directories of clusters, one a directory. */
export const clustersDirectory = (dataDirectory: string): string => join(dataDirectory, "clusters");

/**
 * The one run directory of a cluster: whoever holds the leases of its hosts starts ranks there. Clusters of two
 * launchers may have one name, and share no host. The name is hashed: cluster names hold any character.
 */
export const clusterRunDirectory = (
  dataDirectory: string,
  { name, launcher }: Pick<Cluster, "name" | "launcher">,
): string =>
  join(
    clustersDirectory(dataDirectory),
    createHash("sha256").update(`${launcher}:${name}`).digest("hex").slice(0, 16),
    "run",
  );

/** Stages of a job that start ranks. */
export type LaunchStage = "profile" | "trials" | "run";

/**
 * The run directory of a launch. Where a scheduler starts ranks they outlive their supervisor, so that they
 * belong to their job and stage; all others belong to the cluster.
 * @param owner the job, or whatever else is launched for.
 */
export const launchDirectory = (
  dataDirectory: string,
  cluster: Pick<Cluster, "name" | "launcher">,
  owner: string,
  stage: LaunchStage,
): string =>
  schedulerOf(cluster) === null
    ? clusterRunDirectory(dataDirectory, cluster)
    : join(jobDirectory(dataDirectory, owner), cluster.launcher, stage);

/** Names of folders: of all jobs, and of what belongs to one. */
export const JOBS = "jobs";
export const CHECKPOINTS = "checkpoints";
export const TIMELINES = "timelines";
export const EXPORTS = "exports";

export const jobsDirectory = (dataDirectory: string): string => join(dataDirectory, JOBS);

/** What belongs to one job. */
export const jobDirectory = (dataDirectory: string, jobId: string): string =>
  join(jobsDirectory(dataDirectory), jobId);

/**
 * Where the points are kept that a measurement for a job, or a workload, has measured so far. It lies apart
 * from the launches: other jobs of the cluster may run between two attempts.
 * @param look of a job that measures again: what an earlier look left says nothing of this one
 */
export const measuredSoFarPath = (dataDirectory: string, owner: string, look?: string): string =>
  join(jobDirectory(dataDirectory, owner), `measured-so-far${look === undefined ? "" : `-${look}`}.jsonl`);

/** Names of such files. */
export const MEASURED_SO_FAR = /^measured-so-far(-.*)?\.jsonl$/;

export const timelineDirectory = (dataDirectory: string, jobId: string): string =>
  join(jobDirectory(dataDirectory, jobId), TIMELINES);

/** What ranks recorded of some steps, of a trial or of an attempt, for Perfetto. */
export const timelinePath = (dataDirectory: string, jobId: string, of: string): string =>
  join(timelineDirectory(dataDirectory, jobId), `${of}.json`);

/** Where people put what they exported of a job's checkpoints, such as Hugging Face folders. */
export const exportDirectory = (dataDirectory: string, jobId: string): string =>
  join(jobDirectory(dataDirectory, jobId), EXPORTS);

/** Names of complete checkpoints, with their step; ranks write one under another name. */
export const CHECKPOINT_NAME = /^step-(\d{1,18})$/;

/** The folder of a complete checkpoint among a job's checkpoints. */
export const checkpointName = (step: number): string => `step-${step}`;

export const checkpointDirectory = (dataDirectory: string, jobId: string): string =>
  join(jobDirectory(dataDirectory, jobId), CHECKPOINTS);

/** Holds the folders that a job's ranks read the weights from which it begins with. */
export const weightsDirectory = (dataDirectory: string, jobId: string): string =>
  join(jobDirectory(dataDirectory, jobId), "weights");
