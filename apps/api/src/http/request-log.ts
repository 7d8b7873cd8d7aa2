import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

/** Of refusals that nobody with a token asked for, one line so often: they cost their sender nothing. */
const SAMPLE_MILLISECONDS = 10_000;

const isGone = (reply: FastifyReply): boolean =>
  !reply.raw.writableFinished && (reply.raw.destroyed || reply.raw.socket?.destroyed === true);

/**
 * The line of a request that was refused before any hook could run, and of all that have no token: sampled.
 */
export class SampledLog {
  #last = Number.NEGATIVE_INFINITY;
  #unlogged = 0;

  line(log: FastifyBaseLogger, fields: Readonly<Record<string, unknown>>, message: string): void {
    const now = performance.now();
    if (now - this.#last < SAMPLE_MILLISECONDS) {
      this.#unlogged += 1;
      log.debug(fields, message);
      return;
    }
    log.info({ ...fields, ...(this.#unlogged > 0 ? { othersBefore: this.#unlogged } : {}) }, message);
    this.#last = now;
    this.#unlogged = 0;
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
    if (isGone(reply)) return request.log.info(about, "the client left before its answer");
    const answered = { ...about, status: reply.statusCode };
    if (problem === null) return request.log.info(answered, "answered");
    if (problem.code === "internal")
      return request.log.error({ ...answered, err: problem.cause ?? problem }, "request failed");
    const refused = { ...answered, code: problem.code, detail: problem.message };
    if (actor === null) anonymous.line(request.log, refused, "request refused");
    else request.log.info(refused, "request refused");
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
