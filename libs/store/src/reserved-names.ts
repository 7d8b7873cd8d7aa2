import { ProblemError, SERVICE_NAMES } from "@internevo/domain";

/** The name of the token that the first start makes. */
export const FIRST_TOKEN_NAME = "first-admin";
/** The name of the token that whoever starts the services gives them. */
export const GIVEN_TOKEN_NAME = "local-stack";

/** By these names jobs and the audit log tell what the product itself did. */
const RESERVED = new Set<string>([
  ...SERVICE_NAMES,
  FIRST_TOKEN_NAME,
  GIVEN_TOKEN_NAME,
  "first-token",
  "internevo",
  "system",
]);

export const isReservedName = (name: string): boolean => RESERVED.has(name.normalize("NFKC").toLowerCase());

/** Whether a name reads as somebody's e-mail address, also where its `@` only looks like one. */
export const isAddressLike = (name: string): boolean => name.normalize("NFKC").includes("@");

/**
 * Nobody's token is to be taken for a person or for a service. @throws ProblemError `bad-request` for a name with
 * `@`, as addresses of people have, and for one that the product has itself
 */
export function assertNameOfToken(name: string): void {
  const isAddress = isAddressLike(name);
  if (!isAddress && !isReservedName(name)) return;
  const message = isAddress
    ? "has an @, as the names of people have who sign in"
    : "is a name of the product itself";
  throw new ProblemError("bad-request", `a token cannot be called ${name}`, [
    {
      field: "name",
      value: name,
      message,
      remedy: "use a name of the person or program, such as grace or nightly-ci",
    },
  ]);
}
