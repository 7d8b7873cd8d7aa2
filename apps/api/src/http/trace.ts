import { randomBytes } from "node:crypto";
import type { FastifyInstance } from "fastify";

/** W3C trace context of a request. */
export interface Trace {
  readonly traceId: string;
  /** What this service hands on: the caller's trace, this service's span. */
  readonly traceparent: string;
}

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/;

/**
 * Continues the caller's trace, or begins one when the header is absent or broken (the standard asks for
 * that).
 */
export function traceOf(header: string | string[] | undefined): Trace {
  const match = typeof header === "string" ? TRACEPARENT.exec(header) : null;
  const accepted =
    match !== null && match[1] !== "ff" && !/^0+$/.test(match[2] ?? "") && !/^0+$/.test(match[3] ?? "");
  const traceId = accepted ? (match[2] as string) : randomBytes(16).toString("hex");
  const flags = accepted ? (match[4] as string) : "01";
  return { traceId, traceparent: `00-${traceId}-${randomBytes(8).toString("hex")}-${flags}` };
}

export function registerTrace(app: FastifyInstance): void {
  app.decorateRequest("trace");
  app.addHook("onRequest", async (request, reply) => {
    request.trace = traceOf(request.headers["traceparent"]);
    request.log = request.log.child({ traceId: request.trace.traceId });
    reply.log = request.log;
    reply.header("traceresponse", request.trace.traceparent);
  });
}

declare module "fastify" {
  interface FastifyRequest {
    trace: Trace;
  }
}
