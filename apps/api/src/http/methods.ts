import { ProblemError } from "@internevo/domain";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

/** The path of a route as an expression: `/jobs/:id` stands for one segment, `*` for whatever follows. */
function expressionOfPart(part: string): string {
  if (part.startsWith(":")) return "[^/]+";
  return part === "*" ? ".*" : part.replace(/[^\w-]/g, "\\$&");
}
const expressionOf = (pattern: string): RegExp =>
  new RegExp(`^${pattern.split("/").map(expressionOfPart).join("/").replace(/\/$/, "")}/?$`);

export interface KnownMethods {
  /** The methods that routes of this path have; empty when there is no such path. */
  of(path: string): string[];
}

/** Remembers which methods each path has. Register it before the routes. */
export function registerMethods(app: FastifyInstance): KnownMethods {
  const routes = new Map<string, { readonly path: RegExp; readonly methods: Set<string> }>();
  app.addHook("onRoute", ({ url, method }) => {
    // The console's: any path at all.
    if (url === "/*" || url === "*") return;
    const route = routes.get(url) ?? { path: expressionOf(url), methods: new Set() };
    routes.set(url, route);
    for (const each of [method].flat()) route.methods.add(each);
  });
  return {
    of: (path) =>
      [
        ...new Set(
          [...routes.values()]
            .filter((route) => route.path.test(path))
            .flatMap((route) => [...route.methods]),
        ),
      ].sort(),
  };
}

/** For a method that a path does not have. */
export function methodProblem(
  request: FastifyRequest,
  reply: FastifyReply,
  allowed: readonly string[],
): ProblemError {
  reply.header("allow", allowed.join(", "));
  const path = request.url.split("?")[0];
  return new ProblemError("method-not-allowed", `${path} has no ${request.method}`, [
    {
      field: "(method)",
      value: request.method,
      message: "is no method of this path",
      remedy: `use ${allowed.join(" or ")}`,
    },
  ]);
}
