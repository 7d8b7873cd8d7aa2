import { isNestedDeeper, ProblemError } from "@internevo/domain";
import type { FastifyInstance } from "fastify";

/**
 * Levels of a body; a job file has six. What is deeper would only overflow the stack of whatever walks
 * through it.
 */
const MAXIMUM_DEPTH = 100;

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** JSON that the parser refuses all the same: a field would be taken for what every object has. */
function reservedName(): ProblemError {
  const message = 'has a field "__proto__", or "prototype" in a field "constructor"';
  return new ProblemError("bad-request", `the body ${message}`, [
    { field: "(body)", message, remedy: "leave the field out; no route has one of such a name" },
  ]);
}

/** JSON is the only body that is understood, and only as deep as anything here means. */
export function registerBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  const parse = app.getDefaultJsonParser("error", "error");
  app.addContentTypeParser<string>("application/json", { parseAs: "string" }, (request, body, done) => {
    if (isNestedDeeper(body, MAXIMUM_DEPTH)) {
      const message = `is nested more than ${MAXIMUM_DEPTH} levels deep`;
      return done(
        new ProblemError("bad-request", `the body ${message}`, [
          { field: "(body)", message, remedy: "send a document of the route's shape; see /docs" },
        ]),
      );
    }
    // Clients send the type with every request, also where a route takes no body.
    if (body === "" && request.routeOptions.schema?.body === undefined) return done(null, undefined);
    return parse(request, body, (error, value) =>
      done(error && isJson(body) ? reservedName() : error, value),
    );
  });
}
