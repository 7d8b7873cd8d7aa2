import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { ProblemError } from "@internevo/domain";
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
      return { status: 431, message: "has headers that are too large", remedy: "send less than 16 KiB of headers" };
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return { status: 408, message: "did not come whole in time", remedy: "send it again" };
    case "HPE_INVALID_METHOD":
      return { status: 400, message: "has a method that HTTP does not know", remedy: "use GET, POST or DELETE" };
    default:
      return { status: 400, message: "is not HTTP/1.1", remedy: "send a well-formed request" };
  }
}

/** What could not even be read as a request is answered as every other fault is, and its connection is closed. */
export function answerClientError(error: NodeJS.ErrnoException, socket: Socket): void {
  // Nobody listens, or an answer is on its way already.
  if (error.code === "ECONNRESET" || !socket.writable) return void socket.destroy();
  const { status, message, remedy } = saidOf(error.code);
  const problem = new ProblemError("bad-request", `the request ${message}`, [{ field: "(request)", message, remedy }]);
  const body = JSON.stringify({ ...problemDocument(problem, traceOf(undefined).traceId), status });
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\nContent-Type: ${PROBLEM_TYPE}; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`);
}
