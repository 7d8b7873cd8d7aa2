import { API_PREFIX, CreatedTokenSchema, TokenCreateSchema, TokenPageSchema } from "@internevo/contracts";
import { createToken, listTokens, revokeToken, type Database } from "@internevo/store";
import { Type } from "typebox";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { mutate, mutateUnkeyed } from "../http/mutations.ts";
import { visibleTo, projectForSubmission } from "../http/rights.ts";
import { PageQuery } from "../http/pages.ts";
import { answers, IdParams } from "./shapes.ts";

export function registerTokenRoutes(app: ApiInstance, options: { readonly database: Database }): void {
  const { database } = options;
  const tags = ["access"];
  app.post(
    "/tokens",
    {
      config: { role: "admin", scope: "submission" },
      schema: {
        tags,
        summary: "Create a token",
        description:
          "`token` is shown in this answer only: its digest is stored, nothing else. For the same " +
          "reason there is no `Idempotency-Key`; a repeated request finds the name taken (409).",
        body: TokenCreateSchema,
        response: answers({ 201: CreatedTokenSchema }),
      },
    },
    async (request, reply) => {
      const { name, role, project: named, validForSeconds = null } = request.body;
      const place = named ?? visibleTo(actorOf(request));
      const project =
        place === null ? null : await projectForSubmission(database.db, request, place, "project");
      // An answer to a key is stored as it is, and this one is a secret.
      return mutateUnkeyed(database, request, reply, async (tx) => {
        const { token, record } = await createToken(tx, { name, role, project, validForSeconds });
        return {
          status: 201,
          body: { ...record, token },
          target: record.id,
          location: `${API_PREFIX}/tokens/${record.id}`,
        };
      });
    },
  );
  app.get(
    "/tokens",
    {
      config: { role: "admin", scope: "visible" },
      schema: {
        tags,
        summary: "List tokens that were not revoked, newest first, without their secrets",
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers({ 200: TokenPageSchema }),
      },
    },
    async (request) => listTokens(database.db, request.query, visibleTo(actorOf(request))),
  );
  app.delete(
    "/tokens/:id",
    {
      config: { role: "admin", scope: "token" },
      schema: { tags, summary: "Revoke a token", params: IdParams, response: answers({ 204: Type.Null() }) },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const { id } = request.params;
        await revokeToken(tx, id);
        return { status: 204, body: null, target: id };
      }),
  );
}
