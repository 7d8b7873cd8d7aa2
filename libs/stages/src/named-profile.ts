import { findShippedProfile, SHIPPED_PROFILES } from "@internevo/cost-model";
import { ProblemError, type Profile } from "@internevo/domain";
import { getProfile, type Queryable } from "@internevo/store";

export interface NamedProfile {
  readonly profile: Profile;
  /** Null for a shipped one. */
  readonly storedId: string | null;
}

/**
 * The profile of that name: a shipped one, or a stored one by its id. Never a file: whoever may name a profile would otherwise learn what
 * lies on the services' machine.
 * @throws ProblemError `profile-missing`, the same for every name that is none.
 */
export async function namedProfile(db: Queryable, name: string, field: string): Promise<NamedProfile> {
  const shipped = findShippedProfile(name);
  if (shipped) return { profile: shipped, storedId: null };
  const stored = await getProfile(db, name);
  if (stored) return { profile: stored.profile, storedId: stored.id };
  throw new ProblemError("profile-missing", `there is no profile ${name}`, [
    {
      field,
      value: name,
      message: "is neither a shipped profile nor the id of a stored one",
      remedy: `use one of ${SHIPPED_PROFILES.join(", ")}, or leave it out to measure the cluster; the command line sends a profile file's content, as POST /api/v1/profiles does, which answers its id`,
    },
  ]);
}
