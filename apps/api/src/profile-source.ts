import { GIVEN_PROFILE_WORDS } from "@internevo/cost-model";
import { clusterKey, ProblemError, type JobSpec, type Profile, type ProfileAsker } from "@internevo/domain";
import { namedProfile } from "@internevo/stages";
import { getProfile, isProfileUsable, newestProfile, type Database, type Queryable } from "@internevo/store";
import { namingProject } from "./http/rights.ts";

/**
 * Checks that a profile which a job names is there. @param visible the project of the token; null: it sees all.
 * @throws ProblemError `profile-missing`
 */
export async function assertNamedProfile(
  db: Queryable,
  spec: JobSpec,
  field: string,
  visible: string | null,
): Promise<void> {
  const { profile, launcher } = spec.cluster;
  if (profile !== null)
    await namedProfile(db, profile, field, { project: namingProject(visible, spec), launcher });
}

/**
 * Profiles of hundreds of kilobytes that were asked for last, by id. What is stored under an id does not
 * change.
 */
const MOST_KEPT = 16;
const kept = new Map<string, Profile>();

function keep(id: string, profile: Profile): Profile {
  const known = kept.get(id) ?? profile;
  kept.delete(id);
  kept.set(id, known);
  const [oldest] = kept.keys();
  if (kept.size > MOST_KEPT && oldest !== undefined) kept.delete(oldest);
  return known;
}

/**
 * A stored profile: the same object as long as it is kept, so that it is read, and written down for the
 * threads, once.
 */
export async function storedProfile(db: Queryable, id: string): Promise<Profile | undefined> {
  const known = kept.get(id);
  if (known) return keep(id, known);
  const stored = await getProfile(db, id);
  return stored && keep(stored.id, stored.profile);
}

/** The profile of that name. @param asker as of {@link namedProfile} @throws ProblemError `profile-missing` */
export async function profileOfName(
  db: Queryable,
  name: string,
  field: string,
  asker: ProfileAsker,
): Promise<Profile> {
  const known = kept.get(name);
  if (known && (await isProfileUsable(db, name, asker.project))) return keep(name, known);
  const { profile, storedId } = await namedProfile(db, name, field, asker);
  return storedId === null ? profile : keep(storedId, profile);
}

/**
 * The profile to plan a job with: the one of that name, else the one that the job names, else the newest of
 * its cluster. What the job names is looked up as its submission does; `name` is what the token sees.
 * @throws ProblemError `profile-missing`
 */
export const createProfileSource =
  (database: Database) =>
  async (spec: JobSpec, name: string | undefined, visible: string | null): Promise<Profile> => {
    const { name: cluster, nodes, gpusPerNode, launcher, profile } = spec.cluster;
    if (name !== undefined)
      return profileOfName(database.db, name, "profile", { project: visible, launcher });
    if (profile !== null)
      return profileOfName(database.db, profile, "job.cluster.profile", {
        project: namingProject(visible, spec),
        launcher,
      });
    const stored = await newestProfile(database.db, clusterKey(spec.cluster));
    if (stored) return keep(stored.id, stored.profile);
    throw new ProblemError(
      "profile-missing",
      `there is no profile of cluster ${cluster}, ${nodes} × ${gpusPerNode}`,
      [
        {
          field: "job.cluster.profile",
          value: null,
          message: "is not given, and this cluster has not been measured",
          remedy:
            "submit the job, which measures the cluster; or name " +
            `a shipped profile: ${GIVEN_PROFILE_WORDS}`,
        },
      ],
    );
  };
