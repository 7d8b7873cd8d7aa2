import { SHIPPED_PROFILES } from "@internevo/cost-model";
import { clusterKey, ProblemError, type JobSpec, type Profile } from "@internevo/domain";
import { namedProfile } from "@internevo/stages";
import { newestProfile, type Database, type Queryable } from "@internevo/store";

/** Checks that a profile which a job names is there. @throws ProblemError `profile-missing` */
export async function assertNamedProfile(db: Queryable, spec: JobSpec, field: string): Promise<void> {
  if (spec.cluster.profile !== null) await namedProfile(db, spec.cluster.profile, field);
}

/**
 * The profile to plan a job with: the one of that name, else the one that the job names, else the newest of its cluster.
 * @throws ProblemError `profile-missing`
 */
export const createProfileSource =
  (database: Database) =>
  async (spec: JobSpec, name: string | undefined): Promise<Profile> => {
    const { name: cluster, nodes, gpusPerNode, profile } = spec.cluster;
    if (name !== undefined) return (await namedProfile(database.db, name, "profile")).profile;
    if (profile !== null) return (await namedProfile(database.db, profile, "job.cluster.profile")).profile;
    const stored = await newestProfile(database.db, clusterKey(spec.cluster));
    if (stored) return stored.profile;
    throw new ProblemError("profile-missing", `there is no profile of cluster ${cluster}, ${nodes} × ${gpusPerNode}`, [
      { field: "job.cluster.profile", value: null, message: "is not given, and this cluster has not been measured", remedy: `submit the job, which measures the cluster; or name a shipped profile: ${SHIPPED_PROFILES.join(", ")}` },
    ]);
  };
