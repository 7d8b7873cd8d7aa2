import { ROLES, type Role } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import { findTokenOwner, type Database, type TokenOwner } from "@internevo/store";
import type { FastifyInstance, FastifyRequest } from "fastify";

const rankOf = (role: Role): number => ROLES.indexOf(role);

/** Tokens come in the header only: in a URL they would end in logs and histories. */
function bearerOf(request: FastifyRequest): string {
  const header = request.headers.authorization;
  const match = /^Bearer +([\w.~+/-]+=*) *$/i.exec(header ?? "");
  if (match?.[1] !== undefined) return match[1];
  const message = header === undefined ? "is missing" : "is not `Bearer` and a token";
  throw new ProblemError("unauthorized", `the Authorization header ${message}`, [{ field: "authorization", message, remedy: "send `Authorization: Bearer <token>`; the token was printed at the first start" }]);
}

export interface AuthOptions {
  readonly database: Database;
  /** Called before a token is looked up; throws when this address has guessed too often. */
  readonly assertMayTry: (request: FastifyRequest) => Promise<void>;
  readonly onRefused: (request: FastifyRequest) => Promise<void>;
}

/** Every route with a `role` in its configuration asks for a token of at least that role. */
export function registerAuth(app: FastifyInstance, options: AuthOptions): void {
  app.decorateRequest("actor", null);
  app.addHook("onRequest", async (request) => {
    const { role } = request.routeOptions.config;
    if (role === undefined) return;
    await options.assertMayTry(request);
    const token = bearerOf(request);
    const owner = await findTokenOwner(options.database.db, token);
    if (owner === undefined) {
      await options.onRefused(request);
      throw new ProblemError("unauthorized", "the token is not valid", [{ field: "authorization", message: "is not a valid token", remedy: "use the token that was printed at the first start, or ask an admin for one" }]);
    }
    request.actor = owner;
    if (rankOf(owner.role) < rankOf(role)) {
      throw new ProblemError("forbidden", `this needs the role ${role}, and the token's is ${owner.role}`, [{ field: "authorization", value: owner.role, message: `is a token of role ${owner.role}`, remedy: `use a token of role ${ROLES.slice(rankOf(role)).join(" or ")}` }]);
    }
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
  }
}
