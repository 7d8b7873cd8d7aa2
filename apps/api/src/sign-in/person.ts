import { ROLES, type Place } from "@internevo/contracts";
import { printable } from "@internevo/domain";
import type { SignedInPerson } from "@internevo/store";
import type { SignInSettings } from "./settings.ts";

/** What a provider says of a person: those of the ID token, and of its userinfo endpoint. */
export type Claims = Readonly<Record<string, unknown>>;

const MOST_CHARACTERS = 100;

/** A claim by its name, or by a path into objects, such as `realm_access.roles`. */
function claimAt(claims: Claims, path: string): unknown {
  if (Object.hasOwn(claims, path)) return claims[path];
  let at: unknown = claims;
  for (const step of path.split(".")) {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, step)) return undefined;
    at = (at as Claims)[step];
  }
  return at;
}

const groupsOf = (claims: Claims, path: string): readonly string[] =>
  [claimAt(claims, path)].flat().filter((group) => typeof group === "string");

/** The strongest role of each place. */
export function strongest(places: readonly Place[]): readonly Place[] {
  const roles = new Map<string | null, Place["role"]>();
  for (const { project, role } of places) {
    const before = roles.get(project);
    if (before === undefined || ROLES.indexOf(role) > ROLES.indexOf(before)) roles.set(project, role);
  }
  return [...roles].map(([project, role]) => ({ project, role }));
}

/** Whether the claims have the groups, or the userinfo endpoint must be asked for them. */
export const hasGroups = (claims: Claims, settings: Pick<SignInSettings, "groupsClaim">): boolean =>
  claimAt(claims, settings.groupsClaim) !== undefined;

/**
 * The person whom the claims are about. An address that the provider has not verified is nobody's name: anybody
 * could have typed it.
 */
export function personOf(
  claims: Claims,
  settings: Pick<SignInSettings, "issuer" | "groupsClaim" | "placesOfGroup" | "placeOfEverybody">,
): SignedInPerson {
  const text = (name: string): string | undefined => {
    const value = claims[name];
    return typeof value === "string" && value.trim() !== ""
      ? printable(value.trim()).slice(0, MOST_CHARACTERS)
      : undefined;
  };
  const { sub } = claims;
  if (typeof sub !== "string" || sub === "") throw new TypeError("the claims have no subject");
  // Only a provider that says nothing of it may be trusted to have verified it, or one that says so.
  const { email_verified: verified = true } = claims;
  const email = verified === true ? text("email") : undefined;
  const { placesOfGroup, placeOfEverybody } = settings;
  const given = groupsOf(claims, settings.groupsClaim).flatMap((group) => placesOfGroup.get(group) ?? []);
  return {
    issuer: settings.issuer.href,
    subject: sub,
    name: email ?? text("preferred_username") ?? text("name") ?? sub.slice(0, MOST_CHARACTERS),
    email: email ?? null,
    places: strongest(placeOfEverybody === undefined ? given : [...given, placeOfEverybody]),
  };
}
