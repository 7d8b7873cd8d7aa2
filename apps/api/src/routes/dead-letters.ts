import { DeadLetterPageSchema, DeadLetterSchema } from "@internevo/contracts";
import { discardDeadLetter, listDeadLetters, replayDeadLetter, type Database } from "@internevo/store";
import { Type } from "typebox";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { mutate } from "../http/mutations.ts";
import { PageQuery } from "../http/pages.ts";
import { visibleTo } from "../http/rights.ts";
import { answers, headers, IdParams } from "./shapes.ts";

export function registerDeadLetterRoutes(app: ApiInstance, options: { readonly database: Database }): void {
  const { database } = options;
  app.get(
    "/dead-letters",
    {
      config: { role: "admin", scope: "visible" },
      schema: {
        tags: ["dead letters"],
        summary: "Messages that failed too often, newest first",
        querystring: Type.Object(
          { ...PageQuery, openOnly: Type.Optional(Type.Boolean()) },
          { additionalProperties: false },
        ),
        response: answers({ 200: DeadLetterPageSchema }),
      },
    },
    async (request) => listDeadLetters(database.db, request.query, visibleTo(actorOf(request))),
  );
  for (const [verb, summary, act] of [
    ["replay", "Send a dead letter's message again", replayDeadLetter],
    ["discard", "Put a dead letter away", discardDeadLetter],
  ] as const) {
    app.post(
      `/dead-letters/:id/${verb}`,
      {
        config: { role: "admin", scope: "dead-letter" },
        schema: {
          tags: ["dead letters"],
          summary,
          headers: headers.idempotent,
          params: IdParams,
          response: answers({ 200: DeadLetterSchema }),
        },
      },
      async (request, reply) =>
        mutate(database, request, reply, async (tx) => ({
          status: 200,
          body: await act(tx, request.params.id, actorOf(request).name),
          target: request.params.id,
        })),
    );
  }
}
