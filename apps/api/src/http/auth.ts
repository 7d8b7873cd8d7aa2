import type { Role } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import type { Database, TokenOwner } from "@internevo/store";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { countedAs, inNameOfOwner } from "../work/caller.ts";
import { isForMachines, isPage, type RequestLimits } from "./limits.ts";
import { registerOpenings } from "./openings.ts";
import { assertFromConsole, sessionCookieOf } from "./session-cookie.ts";
import { assertRights } from "./rights.ts";
import { TokenLookup } from "./token-lookup.ts";
import { registerTokenUse } from "./token-use.ts";

/** Tokens come in the header only: in a URL they would end in logs and histories. */
const bearerOf = (request: FastifyRequest): string | undefined =>
  /^Bearer +([\w.~+/-]+=*) *$/i.exec(request.headers.authorization ?? "")?.[1];

const refused = (detail: string, message: string, remedy: string): ProblemError =>
  new ProblemError("unauthorized", detail, [{ field: "authorization", message, remedy }]);

function missing(request: FastifyRequest): ProblemError {
  const message = request.headers.authorization === undefined ? "is missing" : "is not `Bearer` and a token";
  return refused(
    `the Authorization header ${message}`,
    message,
    "send `Authorization: Bearer <token>`; the token was printed at the first start",
  );
}

/** What a request shows of who asks. */
interface Shown {
  readonly token: string | undefined;
  /** The token, where it comes as a session's cookie. */
  readonly cookie: string | undefined;
  /** Undefined: the token is none, or not valid. */
  readonly owner: TokenOwner | undefined;
}

/**
 * Every route with a `role` in its configuration asks for a token of at least that role, held where its `scope`
 * says (rights.ts). A browser's session has its token in a cookie. What is asked counts for the token, or for
 * the address where there is none, before anything is refused.
 */
export function registerAuth(
  app: FastifyInstance,
  options: {
    readonly database: Database;
    readonly limits: RequestLimits;
    /** Waits for the first turn of a request: {@link registerRequestTurns}. */
    readonly turn: (request: FastifyRequest, reply: FastifyReply) => Promise<void>;
    /** Where the console is, for those who sign in; undefined: nobody does. */
    readonly publicUrl: URL | undefined;
  },
): void {
  const { limits } = options;
  const lookup = new TokenLookup(options.database);
  const noteUse = registerTokenUse(app, options.database);
  app.decorateRequest("actor", null);
  registerCaller(app);
  const opening = registerOpenings(app);
  async function shownBy(request: FastifyRequest): Promise<Shown> {
    const cookie =
      request.headers.authorization === undefined ? sessionCookieOf(request, options.publicUrl) : undefined;
    const token = bearerOf(request) ?? cookie;
    const found =
      token === undefined ? undefined : await lookup.ownerOf(token, await limits.isGuessing(request));
    // A cookie comes by itself, and another site can have it sent: no other token may come so.
    return { token, cookie, owner: cookie !== undefined && found?.kind !== "session" ? undefined : found };
  }
  /** Nobody is looked up for a page, but where its address has used up what it may have. */
  async function countPage(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    if (isForMachines(request)) return;
    if (await limits.isUsedUp(request)) {
      const { token, owner } = await shownBy(request);
      request.actor = owner ?? null;
      if (token !== undefined && owner === undefined) await limits.countGuess(request, reply);
    }
    await limits.count(request, reply);
  }
  app.addHook("onRequest", async (request, reply) => {
    const { role, scope, isStream = false, isDeviceSignIn = false } = request.routeOptions.config;
    if (isPage(request)) return countPage(request, reply);
    // What is behind a token is for whoever has it: no browser or proxy should keep it.
    reply.header("cache-control", "no-store");
    const { token, cookie, owner } = await shownBy(request);
    request.actor = owner ?? null;
    if (owner) noteUse(owner.id);
    await limits.count(request, reply);
    const hasEnded = cookie !== undefined && owner === undefined;
    // Ways to sign in are there for those whose session has ended, too.
    if (hasEnded && role !== undefined) {
      await limits.countGuess(request, reply);
      throw refused(
        "the session has ended",
        "is not needed with a session, which has ended",
        "sign in again",
      );
    }
    if (token !== undefined && owner === undefined && !hasEnded) {
      await limits.countGuess(request, reply);
      throw refused(
        "the token is not valid",
        "is not a valid token",
        "use the token that was printed at the first start, or ask an admin for one (`internevo token create`)",
      );
    }
    if (isDeviceSignIn) await limits.countDeviceSignIn(request, reply);
    if (scope === "open") return options.turn(request, reply);
    // A path that no route answers: whoever may use the API is told so.
    if (role === undefined) return;
    if (owner === undefined) throw missing(request);
    if (cookie !== undefined) assertFromConsole(request, cookie, options.publicUrl);
    // By who it is: whoever only guesses tokens has no turn.
    if (isStream) await opening(countedAs(owner), request, reply);
    else await options.turn(request, reply);
    await assertRights(request, owner, role, options.database);
    if (isStream) await limits.countStream(request, reply);
  });
}

/**
 * Everything that answers a request runs in the name of its token. Its own hook: a context does not outlive
 * the promise of an async one.
 */
function registerCaller(app: FastifyInstance): void {
  app.addHook("preHandler", (request, _reply, done) => {
    // Routes that were registered before this one lack even the decoration.
    const { actor, turn } = request;
    if (!actor) done();
    else inNameOfOwner(actor, done, () => turn?.giveUp());
  });
}

/** Who asks; only in routes that have a role. */
export function actorOf(request: FastifyRequest): TokenOwner {
  if (request.actor === null) throw new Error(`route ${request.routeOptions.url ?? ""} has no role`);
  return request.actor;
}

declare module "fastify" {
  interface FastifyRequest {
    actor: TokenOwner | null;
  }
  interface FastifyContextConfig {
    /** The least role that may use the route; without it the route is open. */
    role?: Role;
    /** It answers with an event stream. */
    isStream?: true;
    /** It begins a sign-in of a command line. */
    isDeviceSignIn?: true;
  }
}
