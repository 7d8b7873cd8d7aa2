import { findShippedProfile, GIVEN_PROFILES } from "@internevo/cost-model";
import { nearestWord, ProblemError, type Profile, type ProfileAsker } from "@internevo/domain";
import { getProfile, listProfiles, profilesCalled, type Queryable } from "@internevo/store";

export interface NamedProfile {
  readonly profile: Profile;
  /** Null for a shipped one. */
  readonly storedId: string | null;
}

const MOST_LISTED = 10;

/**
 * The profile of that name: a shipped one, or a stored one by its id, its name, or its cluster's, of which it
 * is the newest: see `meantProfiles`. Never a file: whoever may name a profile would otherwise learn what lies on the
 * services' machine.
 * @param asker its project sees nothing of others; the installation sees all.
 * @throws ProblemError `profile-missing`, the same for every name that is none, and where it does not settle which of
 * several clusters, or for the installation of several projects, is meant.
 */
export async function namedProfile(
  db: Queryable,
  name: string,
  field: string,
  asker: ProfileAsker,
): Promise<NamedProfile> {
  const shipped = findShippedProfile(name);
  if (shipped) return { profile: shipped, storedId: null };
  const identified = await getProfile(db, name, asker.project);
  const called = identified ? [] : await profilesCalled(db, name, asker);
  if (called.length > 1) throw severalCalled(called, name, field);
  const stored = called[0] ? await getProfile(db, called[0].id) : identified;
  if (stored && stored.discardedAt !== null) {
    throw new ProblemError(
      "profile-missing",
      `the profile ${stored.name} was discarded at ${stored.discardedAt}`,
      [
        {
          field,
          value: name,
          message: "was discarded: no new job uses it",
          remedy: "leave it out to measure the cluster, or name another profile",
        },
      ],
    );
  }
  if (stored) return { profile: stored.profile, storedId: stored.id };
  const { items } = await listProfiles(db, { limit: MOST_LISTED }, asker.project);
  const known = [...new Set([...GIVEN_PROFILES, ...items.map((item) => item.name)])];
  const near = nearestWord(name, known);
  throw new ProblemError("profile-missing", `no profile is named ${name}`, [
    {
      field,
      value: name,
      message: "names no profile",
      remedy: `${near === undefined ? "" : `did you mean ${near}? `}choose one: ${known.join(", ")}`,
    },
  ]);
}

function severalCalled(
  called: Awaited<ReturnType<typeof profilesCalled>>,
  name: string,
  field: string,
): ProblemError {
  const details = called
    .slice(0, MOST_LISTED)
    .map(({ id, name: own, clusterKey, project }) => ({
      field,
      value: name,
      message: `may be ${own}, of ${project === null ? clusterKey : `project ${project}`}`,
      remedy: `give ${id}`,
    }));
  const places = called[0]?.project == null ? "clusters" : "projects";
  return new ProblemError("profile-missing", `${name} names profiles of ${called.length} ${places}`, details);
}
