import helmet from "@fastify/helmet";
import rateLimit from "@fastify/rate-limit";
import underPressure from "@fastify/under-pressure";
import { ProblemError } from "@internevo/domain";
import type { FastifyInstance, FastifyRequest } from "fastify";

export interface Limits {
  /** Requests a minute for one token, or one address where there is no token. */
  readonly requestsPerMinute: number;
  /** Wrong tokens a minute from one address; then the address is refused for the rest of the minute. */
  readonly wrongTokensPerMinute: number;
  /** Delay of the event loop beyond which requests are refused, milliseconds; 0: no limit. */
  readonly maximumEventLoopDelayMilliseconds: number;
}

export const DEFAULT_LIMITS: Limits = { requestsPerMinute: 6000, wrongTokensPerMinute: 30, maximumEventLoopDelayMilliseconds: 2000 };

/** Headers that keep browsers strict, under which the console works: its own scripts only, styles that its components write. */
export async function registerSecurityHeaders(app: FastifyInstance): Promise<void> {
  await app.register(helmet, {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'self'"],
        baseUri: ["'none'"],
        connectSrc: ["'self'"],
        fontSrc: ["'self'", "data:"],
        formAction: ["'self'"],
        frameAncestors: ["'none'"],
        imgSrc: ["'self'", "data:"],
        objectSrc: ["'none'"],
        scriptSrc: ["'self'"],
        styleSrc: ["'self'", "'unsafe-inline'"],
        workerSrc: ["'self'", "blob:"],
      },
    },
    // Plain HTTP on a local network is a supported way to run it; whoever puts TLS in front adds this there.
    strictTransportSecurity: false,
    crossOriginOpenerPolicy: false,
    originAgentCluster: false,
  });
}

export interface TokenGuesses {
  assertMayTry(request: FastifyRequest): Promise<void>;
  onRefused(request: FastifyRequest): Promise<void>;
}

const tooMany = (afterSeconds: number): ProblemError => new ProblemError("rate-limited", `too many requests; try again in ${afterSeconds} s`);

/** Health and metrics are asked by machines that must not be told to wait: they would take the service for dead, or lose sight of it. */
const isForMachines = (request: FastifyRequest): boolean => request.routeOptions.config.role === undefined;

/** Counts per token for those who have one, and wrong tokens per address. */
export async function registerLimits(app: FastifyInstance, limits: Limits): Promise<TokenGuesses> {
  const minute = 60_000;
  await app.register(rateLimit, {
    global: true,
    hook: "preHandler",
    max: limits.requestsPerMinute,
    timeWindow: minute,
    keyGenerator: (request) => request.actor?.id ?? request.ip,
    allowList: isForMachines,
    errorResponseBuilder: (_request, context) => tooMany(Math.ceil(context.ttl / 1000)),
  });
  await app.register(underPressure, {
    maxEventLoopDelay: limits.maximumEventLoopDelayMilliseconds,
    async pressureHandler(request, reply) {
      if (isForMachines(request)) return;
      reply.header("retry-after", 2);
      throw new ProblemError("unavailable", "the service is under pressure; try again shortly");
    },
  });
  const wrong = new Map<string, { count: number; until: number }>();
  return {
    async assertMayTry(request) {
      const seen = wrong.get(request.ip);
      if (seen && seen.until > Date.now() && seen.count >= limits.wrongTokensPerMinute) throw tooMany(Math.ceil((seen.until - Date.now()) / 1000));
    },
    async onRefused(request) {
      const now = Date.now();
      if (wrong.size > 10_000) for (const [ip, entry] of wrong) if (entry.until <= now) wrong.delete(ip);
      const seen = wrong.get(request.ip);
      if (seen && seen.until > now) seen.count += 1;
      else wrong.set(request.ip, { count: 1, until: now + minute });
    },
  };
}
