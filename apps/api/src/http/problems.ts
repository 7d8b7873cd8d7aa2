import { STATUS_CODES } from "node:http";
import type { Problem } from "@internevo/contracts";
import { beginningOf, ProblemError, type ProblemCode } from "@internevo/domain";
import { isConnectionLoss, isDiskFull } from "@internevo/store";
import { traceOf } from "./trace.ts";
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

/** The HTTP status of every problem. */
export function statusOf(code: ProblemCode): number {
  switch (code) {
    case "bad-request":
      return 400;
    case "unauthorized":
      return 401;
    case "forbidden":
    case "quota-exceeded":
      return 403;
    case "not-found":
      return 404;
    case "method-not-allowed":
      return 405;
    case "conflict":
      return 409;
    case "precondition-failed":
      return 412;
    case "payload-too-large":
      return 413;
    case "unsupported-media-type":
      return 415;
    case "job-invalid":
    case "plan-invalid":
    case "profile-invalid":
    case "profile-missing":
    case "data-invalid":
    case "no-feasible-plan":
      return 422;
    case "rate-limited":
      return 429;
    case "unavailable":
      return 503;
    case "internal":
      return 500;
  }
}

const TITLES: Readonly<Record<ProblemCode, string>> = {
  "bad-request": "The request is not valid",
  "job-invalid": "The job is not valid",
  "plan-invalid": "The plan is not valid",
  "profile-invalid": "The profile is not valid",
  "profile-missing": "There is no profile of this cluster",
  "no-feasible-plan": "No plan is feasible",
  "data-invalid": "The training data is not valid",
  unauthorized: "A valid token is needed",
  forbidden: "The token's role does not allow this",
  "not-found": "There is no such thing",
  "method-not-allowed": "The path has no such method",
  conflict: "The present state does not allow this",
  "precondition-failed": "It has changed since it was looked at",
  "payload-too-large": "The body is too large",
  "unsupported-media-type": "The body's media type is not understood",
  "quota-exceeded": "The project's quota does not allow this",
  "rate-limited": "Too many requests",
  unavailable: "The service is not available now",
  internal: "An error inside the service",
};

export const PROBLEM_TYPE = "application/problem+json";

/** What is wrong with the body itself, before any schema. */
function problemOfFramework(error: FastifyError): ProblemError {
  switch (error.code) {
    case "FST_ERR_CTP_BODY_TOO_LARGE":
      return new ProblemError("payload-too-large", "the body is larger than 1 MiB", [
        {
          field: "(body)",
          message: "is larger than 1 MiB",
          remedy: "send a smaller document; data is named by its path, not sent",
        },
      ]);
    case "FST_ERR_CTP_INVALID_MEDIA_TYPE":
      return new ProblemError("unsupported-media-type", error.message, [
        { field: "content-type", message: "is not understood", remedy: "send application/json" },
      ]);
    case "FST_ERR_CTP_EMPTY_JSON_BODY":
      return new ProblemError("bad-request", "the body is empty", [
        { field: "(body)", message: "is empty", remedy: "send a JSON document" },
      ]);
    case "FST_ERR_CTP_INVALID_JSON_BODY":
    case "FST_ERR_CTP_INVALID_CONTENT_LENGTH":
      return new ProblemError("bad-request", error.message, [
        { field: "(body)", message: error.message, remedy: "send a well-formed JSON document" },
      ]);
    case "FST_UNDER_PRESSURE":
      return new ProblemError("unavailable", "the service is under pressure; try again shortly");
  }
  if (error.statusCode === 429) return new ProblemError("rate-limited", error.message);
  if (
    error instanceof SyntaxError ||
    (error.statusCode !== undefined && error.statusCode >= 400 && error.statusCode < 500)
  ) {
    return new ProblemError("bad-request", error.message, [
      { field: "(request)", message: error.message, remedy: "send a well-formed request" },
    ]);
  }
  return new ProblemError("internal", "an error inside the service; its trace id finds it in the logs", [], {
    cause: error,
  });
}

export function toProblem(error: unknown): ProblemError {
  if (error instanceof ProblemError) return error;
  if (isConnectionLoss(error))
    return new ProblemError("unavailable", "the database cannot be reached now; try again shortly", [], {
      cause: error,
    });
  if (isDiskFull(error))
    return new ProblemError(
      "unavailable",
      "the database has no room on its disk; nothing was changed",
      [
        {
          field: "(database)",
          message: "has no room on its disk",
          remedy:
            "make room on the disk of Postgres, for instance remove checkpoints or exports that lie there too, and ask again",
        },
      ],
      { cause: error },
    );
  return problemOfFramework(error as FastifyError);
}

/** Of any text of a problem: longer ones repeat what was sent, or what was read. */
const MOST_CHARACTERS = 2000;

export function problemDocument(problem: ProblemError, traceId: string): Problem {
  return {
    type: `urn:internevo:problem:${problem.code}`,
    title: TITLES[problem.code],
    status: statusOf(problem.code),
    code: problem.code,
    detail: beginningOf(problem.message, MOST_CHARACTERS),
    ...(problem.details.length > 0
      ? {
          errors: problem.details.map((detail) => ({
            ...detail,
            field: beginningOf(detail.field, MOST_CHARACTERS),
            message: beginningOf(detail.message, MOST_CHARACTERS),
            remedy: beginningOf(detail.remedy, MOST_CHARACTERS),
            ...("value" in detail ? { value: shortened(detail.value) } : {}),
          })),
        }
      : {}),
    traceId,
  };
}

/** A value is repeated so that it can be found, not so that it can be read back. */
function shortened(value: unknown): unknown {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch {
    // A circle, or a number without end: JSON has neither, and an error's answer must not fail.
    return "(a value that JSON cannot hold)";
  }
  return text === undefined || text.length <= 500 ? value : `${text.slice(0, 500)}…`;
}

export function sendProblem(request: FastifyRequest, reply: FastifyReply, error: unknown): FastifyReply {
  const problem = toProblem(error);
  // A URL that is no URL is refused before any hook has run.
  request.trace ??= traceOf(request.headers["traceparent"]);
  request.problem = problem;
  const status = statusOf(problem.code);
  if (status === 401) reply.header("www-authenticate", 'Bearer realm="internevo"');
  // What asks for fewer at once, not for fewer a minute, does not know when one ends.
  if (status === 429 && !reply.hasHeader("retry-after")) reply.header("retry-after", "5");
  if (status === 503 && !reply.hasHeader("retry-after")) reply.header("retry-after", "1");
  return reply.code(status).type(PROBLEM_TYPE).send(problemDocument(problem, request.trace.traceId));
}

/** Every error of every route leaves as RFC 9457. */
export function registerProblems(app: FastifyInstance): void {
  app.decorateRequest("problem", null);
  app.setErrorHandler((error, request, reply) => sendProblem(request, reply, error));
}

/** For paths that no route answers. */
export const notFoundProblem = (request: FastifyRequest): ProblemError =>
  new ProblemError(
    "not-found",
    `${request.method} ${request.url.split("?")[0]} ${STATUS_CODES[404]?.toLowerCase()}`,
    [
      {
        field: "(path)",
        value: request.url.split("?")[0],
        message: "no route answers",
        remedy: "see /docs for the routes",
      },
    ],
  );

declare module "fastify" {
  interface FastifyRequest {
    problem: ProblemError | null;
  }
}
