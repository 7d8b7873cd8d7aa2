import { ProblemError } from "@internevo/domain";
import { Type } from "typebox";

/** Query parameters of every list. */
export const PageQuery = {
  cursor: Type.Optional(Type.String({ maxLength: 500, description: "`nextCursor` of the page before" })),
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 200, description: "items a page; 50 when absent" }),
  ),
};

/**
 * The number in a cursor of a list that is ordered by one. @throws ProblemError `bad-request` for a cursor
 * that no page gave.
 */
export function numberOfCursor(cursor: string, last: number): number {
  if (/^\d{1,15}$/.test(cursor) && Number(cursor) <= last) return Number(cursor);
  throw new ProblemError("bad-request", "cursor is not valid", [
    {
      field: "cursor",
      value: cursor,
      message: "was not made by a page of this list",
      remedy: "use nextCursor of the page before, or none",
    },
  ]);
}
