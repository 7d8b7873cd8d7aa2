import helmet from "@fastify/helmet";
import rateLimit from "@fastify/rate-limit";
import underPressure from "@fastify/under-pressure";
import { API_PREFIX } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import type { FairTurnsOptions } from "@internevo/service-kit";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { countedAs } from "../work/caller.ts";

export interface Limits {
  /** Requests a minute for one token, one person, or one address where there is no token. */
  readonly requestsPerMinute: number;
  /**
   * Wrong tokens a minute from one address; then its wrong tokens are refused as too many for the rest of the
   * minute. Valid ones are not.
   */
  readonly wrongTokensPerMinute: number;
  /** Sign-ins of command lines that one address, or one token, begins in a minute: each asks the provider. */
  readonly deviceSignInsPerMinute: number;
  /** The same of all. */
  readonly deviceSignInsPerMinuteOfAll: number;
  /**
   * Questions a minute that one address has the API ask the provider of identities: whether somebody has signed in at
   * a device, and who comes back from the provider.
   */
  readonly providerQuestionsPerMinute: number;
  /** The same at once, of all; more wait, and beyond the most that wait they are refused. */
  readonly providerQuestions: FairTurnsOptions;
  /** Delay of the event loop beyond which requests are refused, milliseconds; 0: no limit. */
  readonly maximumEventLoopDelayMilliseconds: number;
  /** Event streams that one token, or one person, has open at once. */
  readonly streamsOfOneToken: number;
  /** Event streams that one token, or one person, opens in a minute: each reads what it has not seen. */
  readonly streamsPerMinute: number;
  /** Event streams that are open at once; of the tokens of one project a quarter. */
  readonly streams: number;
  /** Files of jobs that one token, or one person, downloads at once. */
  readonly downloadsOfOneToken: number;
  /** Files of jobs that are downloaded at once; by the tokens of one project a quarter. */
  readonly downloads: number;
  /** Connections that are open at once; those beyond are closed unread. Each is a file that the process holds. */
  readonly connections: number;
  /** Requests at work at once, but for event streams; more wait, and beyond the most that wait they are refused. */
  readonly requests: FairTurnsOptions;
  /** The same of requests without a token, such as the ways to sign in: they wait for one another alone. */
  readonly openRequests: FairTurnsOptions;
  /**
   * Reads of the database that may take seconds, at work at once. With the pages of the past (`READS_AT_ONCE` of the
   * store) they are fewer than the API's connections: token look-ups find one.
   */
  readonly longReads: FairTurnsOptions;
  /** Large bodies that are read at once; the same. */
  readonly bodies: FairTurnsOptions;
}

/** Requests, or bodies, of one token that wait; more are refused. */
const MOST_WAITING_OF_ONE = 256;
const MOST_WAITING = 1024;

export const DEFAULT_LIMITS: Limits = {
  requestsPerMinute: 6000,
  wrongTokensPerMinute: 30,
  deviceSignInsPerMinute: 10,
  deviceSignInsPerMinuteOfAll: 120,
  providerQuestionsPerMinute: 30,
  providerQuestions: { atOnce: 8, atOnceOfOne: 4, mostOfOne: 32, mostWaiting: 64 },
  maximumEventLoopDelayMilliseconds: 2000,
  streamsOfOneToken: 100,
  streamsPerMinute: 600,
  streams: 1000,
  downloadsOfOneToken: 8,
  downloads: 64,
  connections: 5000,
  requests: { atOnce: 16, atOnceOfOne: 2, mostOfOne: 2 + MOST_WAITING_OF_ONE, mostWaiting: MOST_WAITING },
  openRequests: { atOnce: 4, atOnceOfOne: 2, mostOfOne: 66, mostWaiting: 256 },
  longReads: { atOnce: 2, atOnceOfOne: 1, mostOfOne: 16, mostWaiting: 64 },
  bodies: {
    atOnce: 64,
    // Whoever sends slowly leaves turns to the others of its project.
    atOnceOfOne: 4,
    atOnceOfGroup: 8,
    mostOfOne: 8 + MOST_WAITING_OF_ONE,
    mostWaiting: MOST_WAITING,
  },
};

/**
 * Headers that keep browsers strict, under which the console works: its own scripts only, styles that its
 * components write.
 */
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

export interface RequestLimits {
  /**
   * Counts a request for its token, or for its address, and says so in the answer's headers. @throws
   * ProblemError `rate-limited`
   */
  count(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Whether another request of its sender would be refused as too many. */
  isUsedUp(request: FastifyRequest): Promise<boolean>;
  /** Counts a wrong token for its address. @throws ProblemError `rate-limited` */
  countGuess(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Counts a sign-in of a command line that is begun. @throws ProblemError `rate-limited` */
  countDeviceSignIn(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Counts a question to the provider of identities for its address. @returns false where it has asked too often */
  mayAskProvider(request: FastifyRequest): Promise<boolean>;
  /** Counts an event stream that is opened, for its token. @throws ProblemError `rate-limited` */
  countStream(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Whether the address has shown so many wrong tokens that another one would be refused as too many. */
  isGuessing(request: FastifyRequest): Promise<boolean>;
}

const MINUTE_MILLISECONDS = 60_000;

/**
 * Health and metrics are asked by machines that must not be told to wait: they would take the service for
 * dead, or lose sight of it.
 */
export const isForMachines = (request: FastifyRequest): boolean =>
  request.routeOptions.config.isForMachines === true;

/** An IPv6 address counts as its /64 network, of which one machine has all addresses. */
export const addressOf = (request: FastifyRequest): string => rateLimit.normalizeIP(request.ip);

/** Pages of the console, its files, and the descriptions of the API: what is there without a token. */
export const isPage = (request: FastifyRequest): boolean =>
  request.routeOptions.config.role === undefined && !request.url.startsWith(`${API_PREFIX}/`);

/**
 * The token or the person that shows one, else the address. What an address sends without a token is counted apart
 * for pages, for ways to sign in, and for the rest: one does not use up the other.
 */
function senderOf(request: FastifyRequest): string {
  // Routes that were registered before tokens are looked at lack even the decoration.
  if (request.actor) return countedAs(request.actor);
  if (isPage(request)) return `pages ${addressOf(request)}`;
  return request.routeOptions.config.scope === "open" ? `sign-in ${addressOf(request)}` : addressOf(request);
}

/** What counts a question to the provider of identities for its address. It is said in no header. */
function providerLimit(app: FastifyInstance, limits: Limits): RequestLimits["mayAskProvider"] {
  const asked = app.createRateLimit({
    max: limits.providerQuestionsPerMinute,
    timeWindow: MINUTE_MILLISECONDS,
    keyGenerator: (request) => `provider ${addressOf(request)}`,
  });
  return async (request) => {
    const state = await asked(request);
    return state.isAllowed || !state.isExceeded;
  };
}

/** Counts per token or person for those who have one, and wrong tokens per address. */
export async function registerLimits(app: FastifyInstance, limits: Limits): Promise<RequestLimits> {
  await app.register(rateLimit, { global: false });
  await app.register(underPressure, {
    maxEventLoopDelay: limits.maximumEventLoopDelayMilliseconds,
    async pressureHandler(request, reply) {
      if (isForMachines(request)) return;
      reply.header("retry-after", 2);
      throw new ProblemError("unavailable", "the service is under pressure; try again shortly");
    },
  });
  const requests = app.createRateLimit({
    max: limits.requestsPerMinute,
    timeWindow: MINUTE_MILLISECONDS,
    keyGenerator: senderOf,
  });
  const guesses = app.createRateLimit({
    max: limits.wrongTokensPerMinute,
    timeWindow: MINUTE_MILLISECONDS,
    keyGenerator: addressOf,
  });

  const opened = app.createRateLimit({
    max: limits.streamsPerMinute,
    timeWindow: MINUTE_MILLISECONDS,
    keyGenerator: (request) => `stream ${senderOf(request)}`,
  });

  const begun = app.createRateLimit({
    max: limits.deviceSignInsPerMinute,
    timeWindow: MINUTE_MILLISECONDS,
    keyGenerator: (request) => `device ${senderOf(request)}`,
  });
  const begunByAll = app.createRateLimit({
    max: limits.deviceSignInsPerMinuteOfAll,
    timeWindow: MINUTE_MILLISECONDS,
    keyGenerator: () => "devices of all",
  });

  async function hasNoneLeft(limiter: typeof requests, request: FastifyRequest): Promise<boolean> {
    const state = await limiter(request, { increment: false });
    return !state.isAllowed && state.remaining === 0;
  }

  async function take(limiter: typeof requests, request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const state = await limiter(request);
    if (state.isAllowed) throw new Error("nobody is exempt from the limits");
    const { max, remaining, ttlInSeconds, isExceeded } = state;
    reply.headers({
      "x-ratelimit-limit": max,
      "x-ratelimit-remaining": remaining,
      "x-ratelimit-reset": ttlInSeconds,
    });
    if (!isExceeded) return;
    reply.header("retry-after", ttlInSeconds);
    // What else the connection has asked for is not looked at.
    if (request.actor === null) reply.header("connection", "close");
    throw new ProblemError("rate-limited", `too many requests; try again in ${ttlInSeconds} s`);
  }
  return {
    count: (request, reply) => take(requests, request, reply),
    isUsedUp: (request) => hasNoneLeft(requests, request),
    async countDeviceSignIn(request, reply) {
      await take(begun, request, reply);
      // What an address is refused does not count for all.
      await take(begunByAll, request, reply);
    },
    mayAskProvider: providerLimit(app, limits),
    countStream: (request, reply) => take(opened, request, reply),
    async countGuess(request, reply) {
      // Below its limit the answer tells of the limit on requests, as every other does.
      const state = await guesses(request, { increment: false });
      if (!state.isAllowed && state.remaining > 0) return void (await guesses(request));
      await take(guesses, request, reply);
    },
    isGuessing: (request) => hasNoneLeft(guesses, request),
  };
}

declare module "fastify" {
  interface FastifyContextConfig {
    /** Asked by what watches the service: no limit counts it, and pressure does not refuse it. */
    isForMachines?: true;
  }
}
