import { AuditFilterSchema, AuditPageSchema } from "@internevo/contracts";
import { instantMilliseconds, ProblemError } from "@internevo/domain";
import { listAudit, type Database } from "@internevo/store";
import { Type } from "typebox";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import type { LongReads } from "../http/long-reads.ts";
import { numberOfCursor, PageQuery } from "../http/pages.ts";
import { visibleTo } from "../http/rights.ts";
import { answers, LONG_READ } from "./shapes.ts";

/** Who did what to which object, and what came of it. */
export function registerAuditRoutes(
  app: ApiInstance,
  { database, longReads }: { readonly database: Database; readonly longReads: LongReads },
): void {
  app.get(
    "/audit",
    {
      config: { role: "admin", scope: "visible" },
      schema: {
        tags: ["access"],
        summary: "The audit log, newest first",
        description:
          "Every request that changes something, done or refused. Of refusals that one token repeats, " +
          `the first 20 a minute have rows of their own; \`details.repeated\` counts the rest. ${LONG_READ}`,
        querystring: Type.Object(
          { ...PageQuery, ...AuditFilterSchema.properties },
          { additionalProperties: false },
        ),
        response: answers({ 200: AuditPageSchema }),
      },
    },
    async (request, reply) => {
      const { cursor, ...filter } = request.query;
      const { from, until } = filter;
      if (
        from !== undefined &&
        until !== undefined &&
        instantMilliseconds(from) >= instantMilliseconds(until)
      )
        throw new ProblemError("bad-request", "until is not after from", [
          {
            field: "until",
            value: until,
            message: `is not after from, ${from}`,
            remedy: "give a later instant",
          },
        ]);
      const visible = visibleTo(actorOf(request));
      // Of another project there is nothing to see.
      if (visible !== null && filter.project !== undefined && filter.project !== visible)
        return { items: [], nextCursor: null };
      const before = cursor === undefined ? {} : { before: numberOfCursor(cursor, Number.MAX_SAFE_INTEGER) };
      // Where few rows match, all are looked at.
      return longReads.run(reply, () => listAudit(database.db, { ...filter, ...before }, visible));
    },
  );
}
