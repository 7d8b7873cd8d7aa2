import { isNestedDeeper, ProblemError } from "@internevo/domain";
import { FairTurns } from "@internevo/service-kit";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { countedAs } from "../work/caller.ts";
import { SMALL_BODY_BYTES, type LargeBodies } from "./large-bodies.ts";

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

type Done = (error: Error | null, body?: unknown) => void;

/**
 * JSON is the only body that is understood, and only as deep as anything here means. It is read in the request's turn.
 * Of large ones each has a turn of the event loop by itself: others are answered between two of them.
 */
export function registerBodies(app: FastifyInstance, large: LargeBodies): void {
  app.removeAllContentTypeParsers();
  const parse = app.getDefaultJsonParser("error", "error");
  const checks = new FairTurns({ atOnce: 1, atOnceOfOne: 1, mostOfOne: Infinity, mostWaiting: Infinity });
  const never = new AbortController().signal;
  async function inTurn(request: FastifyRequest, body: string, check: () => void): Promise<void> {
    await request.turn?.resume();
    large.read(request);
    if (body.length <= SMALL_BODY_BYTES) return check();
    const end = await checks.take(request.actor ? countedAs(request.actor) : request.ip, never);
    setImmediate(end);
    check();
  }
  const checked = (request: FastifyRequest, body: string, done: Done): unknown => {
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
  };
  app.addContentTypeParser<string>("application/json", { parseAs: "string" }, (request, body, done) => {
    inTurn(request, body, () => void checked(request, body, done)).catch((error: unknown) =>
      done(error as Error),
    );
  });
}
