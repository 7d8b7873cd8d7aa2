import { existsSync } from "node:fs";
import {
  estimatedProfileName,
  findShippedProfile,
  GIVEN_PROFILE_WORDS,
  GIVEN_PROFILES,
  parseProfile,
  SHIPPED_PROFILES,
} from "@internevo/cost-model";
import {
  clusterKey,
  didYouMean,
  ProblemError,
  type Cluster,
  type JobSpec,
  type LauncherKind,
  type Profile,
} from "@internevo/domain";
import { ApiConnectionError, type ProfileSummary } from "@internevo/client";
import { deviceWarning } from "@internevo/search";
import type { Context } from "./context.ts";
import { pages } from "./lists.ts";
import { readJson } from "./plan-argument.ts";
import { clusterOfProfile, profileId } from "./resolve.ts";

/** Where stored profiles are asked for. */
export type ProfileContext = Pick<Context, "client" | "signal" | "output">;

/** Begins a remedy: a GPU's name alone is meant for its estimated profile. */
const meantProfile = (text: string): string =>
  findShippedProfile(estimatedProfileName(text)) === undefined
    ? didYouMean(text, GIVEN_PROFILES)
    : `did you mean ${estimatedProfileName(text.toLowerCase())}? Otherwise `;

/** What may be given instead of a profile that is none of these. */
export const givenProfileRemedy = (text: string): string =>
  `${meantProfile(text)}give a shipped profile (${GIVEN_PROFILE_WORDS}), the path of a profile file`;

async function storedProfile(
  text: string,
  field: string,
  { client: connect, signal }: ProfileContext,
  launcher: LauncherKind | null,
): Promise<Profile> {
  try {
    const client = await connect();
    const id = await profileId(client, text, signal, launcher);
    return (await client.getProfile(id, { signal })).profile;
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    if (error.code === "bad-request")
      throw new ProblemError(
        error.code,
        error.message,
        error.details.map((detail) => ({ ...detail, field })),
        { cause: error },
      );
    if (error.code !== "unavailable" && error.code !== "not-found") throw error;
    const stored =
      error.code === "unavailable"
        ? "; stored ones were not looked at, since no API is given and no local stack runs"
        : ", nor one that is stored";
    const offline = givenProfileRemedy(text);
    throw new ProblemError(
      "profile-missing",
      `there is no profile ${text}`,
      [
        {
          field,
          value: text,
          message: `is neither a shipped profile nor a file${stored}`,
          remedy:
            error.code === "unavailable"
              ? `${offline}, or an API with --url and --token (or \`internevo up\`)`
              : `${offline}, or one that \`internevo profile list\` shows`,
        },
      ],
      { cause: error },
    );
  }
}

/** A profile in a file. @throws ProblemError `profile-missing` or `profile-invalid`. */
export const readProfile = async (path: string, field: string): Promise<Profile> =>
  parseProfile(
    await readJson(
      path,
      field,
      { missing: "profile-missing", invalid: "profile-invalid" },
      "a profile in JSON, as `internevo profile show NAME --json` writes it",
    ),
    `the profile ${path}`,
  );

const MOST_OFFERED = 5;

/**
 * What to say of a job that names no profile. @param stored what the stack at hand has; undefined: none is at
 * hand.
 */
function nothingMeasured(cluster: Cluster, stored: readonly ProfileSummary[] | undefined): ProblemError {
  const { name, nodes, gpusPerNode } = cluster;
  const ofName = stored?.filter((profile) => clusterOfProfile(profile) === name) ?? [];
  const offered = [...new Set([...ofName, ...(stored ?? [])].map((profile) => profile.name))]
    .slice(0, MOST_OFFERED)
    .map((one) => `--profile '${one}'`);
  const files = `--profile ${SHIPPED_PROFILES[0] ?? ""} (shipped), --profile estimated:GPU (from published figures), --profile FILE`;
  const message =
    stored === undefined
      ? "is missing, and no stack runs that could have measured the cluster"
      : `is missing, and cluster ${name}, ${nodes} × ${gpusPerNode}, has not been measured`;
  const remedy =
    stored === undefined
      ? `give ${files}; or submit the job to a stack (\`internevo up\`), which measures its cluster`
      : `give ${[...offered, files].join(", ")}; or submit the job, which measures its cluster`;
  return new ProblemError("profile-missing", "the job names no profile to plan it with", [
    { field: "cluster.profile", value: null, message, remedy },
  ]);
}

/**
 * The newest profile that the stack at hand has measured of exactly this cluster. @throws ProblemError
 * `profile-missing`
 */
async function measuredProfile(
  cluster: Cluster,
  { client: connect, signal }: ProfileContext,
): Promise<Profile> {
  const stored: ProfileSummary[] = [];
  try {
    const client = await connect();
    const key = clusterKey(cluster);
    for await (const profile of pages((cursor) => client.listProfiles({ limit: 200, signal, ...cursor }))) {
      if (profile.clusterKey === key) return (await client.getProfile(profile.id, { signal })).profile;
      stored.push(profile);
    }
  } catch (error) {
    const isOffline =
      error instanceof ApiConnectionError || (error instanceof ProblemError && error.code === "unavailable");
    throw isOffline ? nothingMeasured(cluster, undefined) : error;
  }
  throw nothingMeasured(cluster, stored);
}

/**
 * The profile to plan a job with: the one that is given, else the one that the job names, else the newest
 * that the stack at hand has measured of the job's cluster. Warns where it is of another kind of device.
 * @param given the value of `--profile`.
 * @throws ProblemError as {@link loadProfile}
 */
export async function jobProfile(
  job: JobSpec,
  given: string | undefined,
  context: ProfileContext,
): Promise<Profile> {
  const profile = await foundProfile(job, given, context);
  const warning = deviceWarning(job, profile);
  const output = context.output();
  // An error in JSON is all that stands on stderr; what is answered in JSON has its warnings itself.
  if (warning !== undefined && !output.json && !warnedOf.has(job.cluster)) {
    warnedOf.add(job.cluster);
    output.note(`warning: ${warning}`);
  }
  return profile;
}

/** Clusters of jobs whose device was warned of: a command may look for the profile twice. */
const warnedOf = new WeakSet<Cluster>();

function foundProfile(
  { cluster }: JobSpec,
  given: string | undefined,
  context: ProfileContext,
): Promise<Profile> {
  if (given !== undefined) return loadProfile(given, "--profile", context, cluster.launcher);
  return cluster.profile === null
    ? measuredProfile(cluster, context)
    : loadProfile(cluster.profile, "cluster.profile", context, cluster.launcher);
}

/**
 * A shipped profile by name or a file, offline; otherwise one that is stored, by its id, its name or its
 * cluster's.
 * @param launcher of the job that it is for; null: it is for none.
 * @throws ProblemError `profile-missing` or `profile-invalid`; `bad-request` for a name that several have.
 */
export async function loadProfile(
  text: string,
  field: string,
  context: ProfileContext,
  launcher: LauncherKind | null = null,
): Promise<Profile> {
  const shipped = findShippedProfile(text);
  if (shipped) return shipped;
  // In a job a name is a name; on the command line a file may have any.
  if (text.includes("/") || text.endsWith(".json") || (field !== "cluster.profile" && existsSync(text)))
    return readProfile(text, field);
  return storedProfile(text, field, context, launcher);
}
