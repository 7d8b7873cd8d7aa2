import { SessionChangeSchema, SignedOutSchema, WhoamiSchema, type Whoami } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import { endSession, moveSession, placesOf, type Database, type Queryable } from "@internevo/store";
import type { FastifyRequest } from "fastify";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { mutateUnkeyed } from "../http/mutations.ts";
import { clearSessionCookie, csrfTokenOf, sessionCookieOf } from "../http/session-cookie.ts";
import type { Provider } from "../sign-in/provider.ts";
import type { SignInSettings } from "../sign-in/settings.ts";
import { answers } from "./shapes.ts";

export interface SessionRoutesOptions {
  readonly database: Database;
  /** Undefined: nobody signs in, and tokens are the only way in. */
  readonly signIn: SignInSettings | undefined;
  readonly provider: Provider | undefined;
}

async function whoIs(db: Queryable, request: FastifyRequest, publicUrl: URL | undefined): Promise<Whoami> {
  const { name, role, project, kind, userId } = actorOf(request);
  const cookie =
    request.headers.authorization === undefined ? sessionCookieOf(request, publicUrl) : undefined;
  return {
    name,
    role,
    project,
    kind,
    places: [...(await placesOf(db, userId))],
    csrfToken: cookie === undefined ? null : csrfTokenOf(cookie),
  };
}

/** @throws ProblemError `conflict` for a token that an admin made */
function assertOfPerson(request: FastifyRequest): void {
  const { kind, name } = actorOf(request);
  if (kind !== "token") return;
  throw new ProblemError("conflict", `${name} is a token that an admin made, and no session`, [
    {
      field: "authorization",
      value: kind,
      message: "is not of somebody who signed in",
      remedy: "an admin revokes it (`internevo token revoke`) or makes another",
    },
  ]);
}

/** Who asks, and the session of who signed in. */
export function registerSessionRoutes(app: ApiInstance, options: SessionRoutesOptions): void {
  const { database, signIn, provider } = options;
  const tags = ["access"];
  app.get(
    "/whoami",
    {
      config: { role: "viewer", scope: "any" },
      schema: { tags, summary: "Whose token this is", response: answers({ 200: WhoamiSchema }) },
    },
    async (request) => whoIs(database.db, request, signIn?.publicUrl),
  );
  app.patch(
    "/session",
    {
      config: { role: "viewer", scope: "any" },
      schema: {
        tags,
        summary: "Act in another of the person's places",
        description: "`project` is one of `places` of `GET /whoami`; null is the whole installation.",
        body: SessionChangeSchema,
        response: answers({ 200: WhoamiSchema }),
      },
    },
    async (request, reply) => {
      assertOfPerson(request);
      return mutateUnkeyed(database, request, reply, async (tx) => {
        const actor = actorOf(request);
        const place = await moveSession(tx, actor, request.body.project);
        request.actor = { ...actor, ...place };
        request.project = place.project;
        return { status: 200, body: await whoIs(tx, request, signIn?.publicUrl), target: actor.id };
      });
    },
  );
  app.delete(
    "/session",
    {
      config: { role: "viewer", scope: "any" },
      schema: {
        tags,
        summary: "Sign out",
        description: "The session, or the login of a command line, ends.",
        response: answers({ 200: SignedOutSchema }),
      },
    },
    async (request, reply) => {
      assertOfPerson(request);
      const { id, kind } = actorOf(request);
      if (signIn && kind === "session") clearSessionCookie(reply, signIn.publicUrl);
      await mutateUnkeyed(database, request, reply, async (tx) => {
        await endSession(tx, id);
        return { status: 200, body: null, target: id };
      });
      // The session has ended whether or not the provider answers.
      return { providerUrl: kind === "session" ? ((await provider?.signOutUrl()) ?? null) : null };
    },
  );
}
