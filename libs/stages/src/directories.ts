import { createHash } from "node:crypto";
import { join } from "node:path";
import type { Cluster } from "@internevo/domain";
import { clusterLease } from "@internevo/store";

/**
 * The one run directory of a cluster: whoever holds the cluster's lease starts ranks there, and ends what a killed holder left.
 * The name is hashed: cluster names hold any character.
 */
export const clusterRunDirectory = (dataDirectory: string, clusterName: string): string => join(dataDirectory, "clusters", createHash("sha256").update(clusterName).digest("hex").slice(0, 16), "run");

/** Stages of a job that start ranks. */
export type LaunchStage = "profile" | "trials" | "run";

/**
 * The run directory of a launch. Ranks that Slurm runs outlive their supervisor, so that they belong to their job and stage; all others belong
 * to the cluster.
 * @param owner the job, or whatever else is launched for.
 */
export const launchDirectory = (dataDirectory: string, cluster: Pick<Cluster, "name" | "launcher">, owner: string, stage: LaunchStage): string =>
  cluster.launcher === "slurm" ? join(jobDirectory(dataDirectory, owner), "slurm", stage) : clusterRunDirectory(dataDirectory, cluster.name);

/** What is reserved before ranks are started: the cluster's devices, where Slurm does not share them out itself. */
export const launchResource = (cluster: Pick<Cluster, "name" | "launcher">, owner: string): string => clusterLease(cluster.launcher === "slurm" ? `${cluster.name}:${owner}` : cluster.name);

/** What belongs to one job. */
export const jobDirectory = (dataDirectory: string, jobId: string): string => join(dataDirectory, "jobs", jobId);

/** What ranks recorded of some steps, of a trial or of an attempt, for Perfetto. */
export const timelinePath = (dataDirectory: string, jobId: string, of: string): string => join(jobDirectory(dataDirectory, jobId), "timelines", `${of}.json`);

export const checkpointDirectory = (dataDirectory: string, jobId: string): string => join(jobDirectory(dataDirectory, jobId), "checkpoints");
