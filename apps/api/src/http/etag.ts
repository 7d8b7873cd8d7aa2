import { ProblemError } from "@internevo/domain";

export const etagOf = (version: number): string => `"${version}"`;

/**
 * The version that `If-Match` asks for; undefined when there is no condition.
 * @throws ProblemError `bad-request` when it is not a version.
 */
export function versionOfIfMatch(header: string | undefined): number | undefined {
  if (header === undefined || header.trim() === "*") return undefined;
  const match = /^\s*"(\d{1,9})"\s*$/.exec(header);
  if (!match)
    throw new ProblemError("bad-request", "If-Match is not a version", [
      {
        field: "if-match",
        value: header,
        message: "is not one strong entity tag of this API",
        remedy: 'send the ETag that was read, for example "3"',
      },
    ]);
  return Number(match[1]);
}
