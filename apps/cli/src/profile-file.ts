import type { InternEvoClient } from "@internevo/client";
import { findShippedProfile } from "@internevo/cost-model";
import type { Cluster, ProblemDetail, Profile } from "@internevo/domain";
import { givenProfileRemedy, readProfile } from "./named-profile.ts";

const clusterOf = (job: unknown): Record<string, unknown> | undefined => {
  const cluster =
    typeof job === "object" && job !== null ? (job as Record<string, unknown>)["cluster"] : undefined;
  return typeof cluster === "object" && cluster !== null ? (cluster as Record<string, unknown>) : undefined;
};

/** Whether a job's profile is a file of this machine, and no name. */
export const isProfileFile = (profile: string | null): profile is string =>
  profile !== null && findShippedProfile(profile) === undefined && /\/|\.json$/.test(profile);

/** What to say of a profile that a job names, where no stack says whether it has one of that name. */
export const unknownProfileWarnings = ({ profile }: Pick<Cluster, "profile">): ProblemDetail[] =>
  profile === null || isProfileFile(profile) || findShippedProfile(profile) !== undefined
    ? []
    : [
        {
          field: "cluster.profile",
          value: profile,
          message: "is neither a shipped profile nor a file, and no stack was asked for one of that name",
          remedy: `${givenProfileRemedy(profile)}, or one that the stack has stored`,
        },
      ];

/** A profile file that a job names. @throws ProblemError `profile-missing` or `profile-invalid` */
export const readProfileFile = (path: string): Promise<Profile> => readProfile(path, "cluster.profile");

/**
 * The services read no files that a job names: a profile file of this machine is stored there, and the job
 * names what was stored.
 * @throws ProblemError `profile-missing` or `profile-invalid` for a file that is none.
 */
export async function withStoredProfile(
  client: InternEvoClient,
  job: unknown,
  signal: AbortSignal,
): Promise<unknown> {
  const cluster = clusterOf(job);
  const profile = cluster?.["profile"];
  if (typeof profile !== "string" || !isProfileFile(profile)) return job;
  const { id } = await client.createProfile(await readProfileFile(profile), { signal });
  return { ...(job as Record<string, unknown>), cluster: { ...cluster, profile: id } };
}
