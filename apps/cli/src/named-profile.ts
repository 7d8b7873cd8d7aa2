import { existsSync } from "node:fs";
import { findShippedProfile, parseProfile, SHIPPED_PROFILES } from "@internevo/cost-model";
import { didYouMean, ProblemError, type Profile } from "@internevo/domain";
import type { Context } from "./context.ts";
import { readJson } from "./plan-argument.ts";
import { profileId } from "./resolve.ts";

/** Where stored profiles are asked for. */
export type ProfileContext = Pick<Context, "client" | "signal">;

const MISSING_REMEDY = `give --profile, or cluster.profile in the job: a shipped profile (${SHIPPED_PROFILES.join(", ")}), the path of a profile file, or the name of a cluster that a running stack has measured (\`internevo profile list\`)`;

async function storedProfile(text: string, field: string, { client: connect, signal }: ProfileContext): Promise<Profile> {
  try {
    const client = await connect();
    return (await client.getProfile(await profileId(client, text, signal), { signal })).profile;
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    if (error.code === "bad-request") throw new ProblemError(error.code, error.message, error.details.map((detail) => ({ ...detail, field })), { cause: error });
    if (error.code !== "unavailable" && error.code !== "not-found") throw error;
    const stored = error.code === "unavailable" ? "; stored ones were not looked at, since no API is given and no local stack runs" : ", nor one that is stored";
    const offline = `${didYouMean(text, SHIPPED_PROFILES)}give a shipped profile (${SHIPPED_PROFILES.join(", ")}), the path of a profile file`;
    throw new ProblemError("profile-missing", `there is no profile ${text}`, [
      { field, value: text, message: `is neither a shipped profile nor a file${stored}`, remedy: error.code === "unavailable" ? `${offline}, or an API with --url and --token (or \`internevo up\`)` : `${offline}, or one that \`internevo profile list\` shows` },
    ], { cause: error });
  }
}

/** A profile in a file. @throws ProblemError `profile-missing` or `profile-invalid`. */
export const readProfile = async (path: string, field: string): Promise<Profile> =>
  parseProfile(await readJson(path, field, { missing: "profile-missing", invalid: "profile-invalid" }, "a profile in JSON, as `internevo profile show NAME --json` writes it"), `the profile ${path}`);

/**
 * A shipped profile by name or a file, offline; otherwise one that is stored, by its id, its name or its cluster's.
 * @throws ProblemError `profile-missing` or `profile-invalid`; `bad-request` for a name that several have.
 */
export async function loadProfile(text: string | null, field: string, context: ProfileContext): Promise<Profile> {
  if (text === null) throw new ProblemError("profile-missing", "the job names no profile, and planning offline measures nothing", [{ field, value: null, message: "is missing", remedy: MISSING_REMEDY }]);
  const shipped = findShippedProfile(text);
  if (shipped) return shipped;
  // In a job a name is a name; on the command line a file may have any.
  if (text.includes("/") || text.endsWith(".json") || (field !== "cluster.profile" && existsSync(text))) return readProfile(text, field);
  return storedProfile(text, field, context);
}
