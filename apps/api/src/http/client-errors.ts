import { METHODS as ALL_METHODS, STATUS_CODES, type IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { ProblemError, type ProblemCode } from "@internevo/domain";
import type { FastifyInstance } from "fastify";
import { problemDocument, PROBLEM_TYPE } from "./problems.ts";
import { traceOf } from "./trace.ts";

interface Said {
  readonly status: number;
  readonly message: string;
  readonly remedy: string;
}

function saidOf(code: string | undefined): Said {
  switch (code) {
    case "HPE_HEADER_OVERFLOW":
      return {
        status: 431,
        message: "has headers that are too large",
        remedy: "send less than 16 KiB of headers",
      };
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return { status: 408, message: "did not come whole in time", remedy: "send it again" };
    case "HPE_INVALID_METHOD":
      return {
        status: 400,
        message: "has a method that HTTP does not know",
        remedy: "use GET, POST or DELETE",
      };
    default:
      return { status: 400, message: "is not HTTP/1.1", remedy: "send a well-formed request" };
  }
}

/** Whoever is answered has so long to take the answer, and to close. */
const LINGER_MILLISECONDS = 1000;

/** Closes this side, and cuts the connection soon after, also where the other side keeps its half open. */
function endSoon(socket: Duplex, lastBytes?: string): void {
  const linger = setTimeout(() => socket.destroy(), LINGER_MILLISECONDS).unref();
  socket.once("close", () => clearTimeout(linger));
  if (lastBytes === undefined) socket.end();
  else socket.end(lastBytes);
}

/**
 * A connection that would be cut with its last answer is closed as {@link endSoon} does. Cut while its client still
 * sends, it would be reset, and the client would see no answer. What it sends meanwhile is read, and forgotten.
 */
export function closeSlowly(socket: Socket): void {
  socket.destroySoon = () => endSoon(socket);
}

/**
 * The bytes of an answer to what Node does not take for a request.
 */
function answerOnSocket(
  socket: Duplex,
  { status, message, remedy }: Said,
  code: ProblemCode,
  headers = "",
): void {
  const problem = new ProblemError(code, `the request ${message}`, [{ field: "(request)", message, remedy }]);
  const body = JSON.stringify({ ...problemDocument(problem, traceOf(undefined).traceId), status });
  endSoon(
    socket,
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\n${headers}Content-Type: ${PROBLEM_TYPE}; ` +
      `charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
}

/**
 * What could not even be read as a request is answered as every other fault is, and its connection is closed.
 */
export function answerClientError(error: NodeJS.ErrnoException, socket: Socket): void {
  // Nobody listens, or an answer is on its way already.
  if (error.code === "ECONNRESET" || !socket.writable) return void socket.destroy();
  answerOnSocket(socket, saidOf(error.code), "bad-request");
}

/** A body of which nothing comes any more is answered as a request that does not come whole in time. */
export function answerStalled(socket: Socket): void {
  if (socket.writable) answerOnSocket(socket, saidOf("ERR_HTTP_REQUEST_TIMEOUT"), "bad-request");
}

/** Methods of some path; what else HTTP knows is refused by the path. */
const METHODS = "GET, HEAD, POST, DELETE";

/** Those that the framework refuses by their path. CONNECT names no path. */
const USUAL_METHODS: ReadonlySet<string> = new Set([
  "GET",
  "HEAD",
  "POST",
  "PUT",
  "PATCH",
  "DELETE",
  "OPTIONS",
  "TRACE",
  "CONNECT",
]);

/**
 * Answers what Node would answer itself, without a word: tunnels, expectations that are not `100-continue`,
 * and requests without a host.
 */
export function registerOddRequests(app: FastifyInstance): void {
  app.server.on("connect", (_request: IncomingMessage, socket: Duplex) => {
    socket.on("error", () => socket.destroy());
    answerOnSocket(
      socket,
      {
        status: 405,
        message: "asks for a tunnel, and this server opens none",
        remedy: `use ${METHODS}, without this server as a proxy`,
      },
      "method-not-allowed",
      `Allow: ${METHODS}\r\n`,
    );
  });
  app.server.on("checkExpectation", (request: IncomingMessage) => {
    answerOnSocket(
      request.socket,
      {
        status: 417,
        message: "has an Expect header that is not 100-continue",
        remedy: "leave the Expect header out",
      },
      "bad-request",
    );
  });
  // Node would refuse it (the option requireHostHeader) with an empty answer.
  app.addHook("onRequest", async (request) => {
    if (request.headers.host !== undefined || request.raw.httpVersion === "1.0") return;
    throw new ProblemError("bad-request", "the request has no Host header", [
      { field: "host", message: "is missing", remedy: "send the Host header that HTTP/1.1 asks for" },
    ]);
  });
  // A method that no path has is refused by its path (405), whatever body it has: the framework would say 400
  // to some.
  for (const method of ALL_METHODS)
    if (!USUAL_METHODS.has(method)) app.addHttpMethod(method, { overrideExisting: true });
}
