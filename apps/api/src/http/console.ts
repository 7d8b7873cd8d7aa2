import { existsSync } from "node:fs";
import { join } from "node:path";
import fastifyStatic from "@fastify/static";
import { ProblemError } from "@internevo/domain";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { methodProblem, type KnownMethods } from "./methods.ts";
import { notFoundProblem, sendProblem } from "./problems.ts";

/** Paths of the server itself: what is not found there is a problem, never a page. */
const OWN_PATHS = /^\/(api|docs|healthz|readyz|metrics)(\/|$)/;

const wantsPage = (request: FastifyRequest): boolean => {
  const path = request.url.split("?")[0] ?? "/";
  const isFile = /\.[a-z0-9]+$/i.test(path);
  return (
    (request.method === "GET" || request.method === "HEAD") &&
    !OWN_PATHS.test(path) &&
    !isFile &&
    (request.headers.accept ?? "").includes("text/html")
  );
};

const notBuiltProblem = (request: FastifyRequest): ProblemError =>
  new ProblemError("not-found", "the console is not built", [
    {
      field: "(path)",
      value: request.url.split("?")[0],
      message: "is the console's, which is not built",
      remedy:
        "build it with `npm run setup`, or point INTERNEVO_API_CONSOLE_DIRECTORY to where it is built; then start the API again",
    },
  ]);

/**
 * Serves the built console, if it was built: its files, and its page for every path that it may have made up
 * itself.
 */
export async function registerConsole(
  app: FastifyInstance,
  directory: string,
  methods: KnownMethods,
): Promise<void> {
  const present = existsSync(join(directory, "index.html"));
  if (present) {
    await app.register(fastifyStatic, {
      root: directory,
      wildcard: true,
      cacheControl: false,
      // The build leaves `x.js.br` and `x.js.gz` beside `x.js`.
      preCompressed: true,
      setHeaders(reply, path) {
        // Built files carry their content's hash in their name; the page that names them does not.
        reply.header(
          "cache-control",
          path.includes("/assets/") ? "public, max-age=31536000, immutable" : "no-cache",
        );
      },
    });
  }
  const answerNoRoute = (request: FastifyRequest, reply: FastifyReply) => {
    if (wantsPage(request))
      return present
        ? reply.header("cache-control", "no-cache").sendFile("index.html")
        : sendProblem(request, reply, notBuiltProblem(request));
    const allowed = methods.of(request.url.split("?")[0] ?? "/");
    return sendProblem(
      request,
      reply,
      allowed.length > 0 ? methodProblem(request, reply, allowed) : notFoundProblem(request),
    );
  };
  app.setNotFoundHandler(answerNoRoute);
  // Before a body is read: whatever is wrong with it, the path has no such method.
  app.addHook("preParsing", (request, reply, _body, done) => {
    if (request.is404 && !wantsPage(request)) answerNoRoute(request, reply);
    else done();
  });
}
