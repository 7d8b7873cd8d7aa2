import { ProblemError, type Profile } from "@internevo/domain";
import a800 from "../profiles/a800-128.json" with { type: "json" };
import { ESTIMATED_PROFILES, findEstimatedProfile } from "./estimated-profile.ts";
import { parseProfile } from "./profile-check.ts";

const SHIPPED: Readonly<Record<string, unknown>> = { "a800-128": a800 };
const checked = new Map<string, Profile>();

/** Names of the profiles that ship with the project: clusters to plan for without having them. */
export const SHIPPED_PROFILES: readonly string[] = Object.keys(SHIPPED);

/** Names of all profiles that need no measurement: shipped, and estimated from published figures. */
export const GIVEN_PROFILES: readonly string[] = [...SHIPPED_PROFILES, ...ESTIMATED_PROFILES];

/** The same in a sentence. */
export const GIVEN_PROFILE_WORDS = GIVEN_PROFILES.join(", ");

/**
 * A profile that ships with the project, or that is estimated (`estimated:h100`); undefined when there is none
 * of that name.
 */
export function findShippedProfile(name: string): Profile | undefined {
  const known = checked.get(name) ?? findEstimatedProfile(name);
  if (known || !Object.hasOwn(SHIPPED, name)) return known;
  const profile = parseProfile(SHIPPED[name], `the shipped profile ${name}`);
  checked.set(name, profile);
  return profile;
}

/** @throws ProblemError `profile-missing` when no shipped profile has that name. */
export function shippedProfile(name: string): Profile {
  const profile = findShippedProfile(name);
  if (profile) return profile;
  throw new ProblemError("profile-missing", `there is no shipped profile ${name}`, [
    {
      field: "profile",
      value: name,
      message: "is not a shipped profile",
      remedy: `use one of ${GIVEN_PROFILE_WORDS}, or the path of a profile file`,
    },
  ]);
}
