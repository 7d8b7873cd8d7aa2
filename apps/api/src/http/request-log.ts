import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

/** Of requests without a token, one line so often: they cost their sender nothing. */
const SAMPLE_MILLISECONDS = 10_000;

const isGone = (reply: FastifyReply): boolean =>
  !reply.raw.writableFinished && (reply.raw.destroyed || reply.raw.socket?.destroyed === true);

/**
 * The line of a request that was refused before any hook could run, and of all that have no token: of each message
 * a sample.
 */
export class SampledLog {
  readonly #samples = new Map<string, { at: number; unlogged: number }>();

  line(log: FastifyBaseLogger, fields: Readonly<Record<string, unknown>>, message: string): void {
    const now = performance.now();
    const last = this.#samples.get(message);
    if (last !== undefined && now - last.at < SAMPLE_MILLISECONDS) {
      last.unlogged += 1;
      log.debug(fields, message);
      return;
    }
    log.info({ ...fields, ...(last?.unlogged ? { othersBefore: last.unlogged } : {}) }, message);
    this.#samples.set(message, { at: now, unlogged: 0 });
  }
}

/** One line a request, when it is over: answered, refused, failed, or left by its client. */
export function registerRequestLog(app: FastifyInstance, anonymous: SampledLog): void {
  app.decorateRequest("isLogged", false);
  const line = (request: FastifyRequest, reply: FastifyReply): void => {
    if (request.isLogged) return;
    request.isLogged = true;
    const { problem, actor } = request;
    const about = {
      method: request.method,
      route: request.routeOptions.url ?? "(none)",
      milliseconds: Math.round(reply.elapsedTime),
      actor: actor?.name,
    };
    const write = (fields: Readonly<Record<string, unknown>>, message: string): void =>
      actor === null ? anonymous.line(request.log, fields, message) : request.log.info(fields, message);
    if (isGone(reply)) return write(about, "the client left before its answer");
    const answered = { ...about, status: reply.statusCode };
    if (problem === null) return write(answered, "answered");
    if (problem.code === "internal")
      return request.log.error({ ...answered, err: problem.cause ?? problem }, "request failed");
    write({ ...answered, code: problem.code, detail: problem.message }, "request refused");
  };
  app.addHook("onRequest", async (request, reply) => {
    // A client that leaves keeps the answer from being finished, and with it the hook below from running.
    reply.raw.once("close", () => line(request, reply));
  });
  app.addHook("onResponse", async (request, reply) => line(request, reply));
}

declare module "fastify" {
  interface FastifyRequest {
    isLogged: boolean;
  }
}
