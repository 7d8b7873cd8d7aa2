import { findShippedProfile, SHIPPED_PROFILES } from "@internevo/cost-model";
import { didYouMean, ProblemError, type Profile } from "@internevo/domain";
import { getProfile, profilesCalled, type Queryable } from "@internevo/store";

export interface NamedProfile {
  readonly profile: Profile;
  /** Null for a shipped one. */
  readonly storedId: string | null;
}

const MOST_LISTED = 10;

/**
 * The profile of that name: a shipped one, or a stored one by its id, its name, or its cluster's, of which it is the newest. Never a file:
 * whoever may name a profile would otherwise learn what lies on the services' machine.
 * @throws ProblemError `profile-missing`, the same for every name that is none, and where profiles of several clusters are called so.
 */
export async function namedProfile(db: Queryable, name: string, field: string): Promise<NamedProfile> {
  const shipped = findShippedProfile(name);
  if (shipped) return { profile: shipped, storedId: null };
  const identified = await getProfile(db, name);
  const called = identified ? [] : await profilesCalled(db, name);
  if (called.length > 1) {
    const details = called.slice(0, MOST_LISTED).map(({ id, name: own, clusterKey }) => ({ field, value: name, message: `may be ${own}, of ${clusterKey}`, remedy: `give ${id}` }));
    throw new ProblemError("profile-missing", `${name} names profiles of ${called.length} clusters`, details);
  }
  const stored = called[0] ? await getProfile(db, called[0].id) : identified;
  if (stored) return { profile: stored.profile, storedId: stored.id };
  throw new ProblemError("profile-missing", `there is no profile ${name}`, [
    {
      field,
      value: name,
      message: "is neither a shipped profile nor a stored one",
      remedy: `${didYouMean(name, SHIPPED_PROFILES)}use one of ${SHIPPED_PROFILES.join(", ")}, or leave it out to measure the cluster; the command line sends a profile file's content, as POST /api/v1/profiles does, which answers its id`,
    },
  ]);
}
