import { Type } from "typebox";

/** Query parameters of every list. */
export const PageQuery = {
  cursor: Type.Optional(Type.String({ maxLength: 500, description: "`nextCursor` of the page before" })),
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 200, description: "items a page; 50 when absent" }),
  ),
};
