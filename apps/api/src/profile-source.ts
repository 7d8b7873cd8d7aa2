import { readFile } from "node:fs/promises";
import { isAbsolute } from "node:path";
import { findShippedProfile, SHIPPED_PROFILES } from "@internevo/cost-model";
import { clusterKey, ProblemError, ProfileSchema, validate, type JobSpec, type Profile } from "@internevo/domain";
import { newestProfile, type Database } from "@internevo/store";

const missing = (field: string, value: string, message: string, cause?: unknown): ProblemError =>
  new ProblemError("profile-missing", `there is no profile ${value}`, [{ field, value, message, remedy: `use one of ${SHIPPED_PROFILES.join(", ")}, the absolute path of a profile file, or leave it out to measure the cluster` }], { cause });

/** @throws ProblemError `profile-missing` when it cannot be read, `profile-invalid` when it is no profile. */
async function profileOfFile(path: string, field: string): Promise<Profile> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    throw missing(field, path, "is neither a shipped profile nor a file that can be read", error);
  }
  try {
    return validate(ProfileSchema, JSON.parse(text), "profile-invalid", `profile ${path}`);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new ProblemError("profile-invalid", `profile ${path} is not JSON`, [{ field, value: path, message: "is not JSON", remedy: "give a profile in JSON" }], { cause: error });
  }
}

/** The profile that a job names, shipped or a file; undefined when it names none and its cluster is measured. */
export async function namedProfile(spec: JobSpec): Promise<Profile | undefined> {
  const name = spec.cluster.profile;
  if (name === null) return undefined;
  const shipped = findShippedProfile(name);
  if (shipped) return shipped;
  if (!isAbsolute(name)) throw missing("cluster.profile", name, "is neither a shipped profile nor an absolute path");
  return profileOfFile(name, "cluster.profile");
}

/**
 * The profile to plan a job with: a shipped one of that name, else the one that the job names, else the newest of its cluster.
 * @throws ProblemError `profile-missing`, `profile-invalid`
 */
export const createProfileSource =
  (database: Database) =>
  async (spec: JobSpec, name: string | undefined): Promise<Profile> => {
    if (name !== undefined) {
      const shipped = findShippedProfile(name);
      if (shipped) return shipped;
      throw missing("profile", name, "is not a shipped profile");
    }
    const given = await namedProfile(spec);
    if (given) return given;
    const stored = await newestProfile(database.db, clusterKey(spec.cluster));
    if (stored) return stored.profile;
    const { name: cluster, nodes, gpusPerNode } = spec.cluster;
    throw new ProblemError("profile-missing", `there is no profile of cluster ${cluster}, ${nodes} × ${gpusPerNode}`, [
      { field: "job.cluster.profile", value: null, message: "is not given, and this cluster has not been measured", remedy: `submit the job, which measures the cluster; or name a shipped profile: ${SHIPPED_PROFILES.join(", ")}` },
    ]);
  };
