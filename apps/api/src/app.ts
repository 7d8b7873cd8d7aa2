import cookies from "@fastify/cookie";
import { API_PREFIX } from "@internevo/contracts";
import type { Health } from "@internevo/service-kit";
import type { Measuring } from "@internevo/stages";
import { findValidTokens, isConnectionLoss, type Database } from "@internevo/store";
import Fastify, { LogController, type FastifyBaseLogger } from "fastify";
import type { TypeBoxTypeProvider } from "@fastify/type-provider-typebox";
import { ClusterWatch } from "./clusters/cluster-watch.ts";
import { registerAuth } from "./http/auth.ts";
import { registerBodies } from "./http/bodies.ts";
import { answerClientError, registerOddRequests } from "./http/client-errors.ts";
import { registerConsole } from "./http/console.ts";
import type { ApiInstance } from "./http/instance.ts";
import { registerLargeBodies, SMALL_BODY_BYTES } from "./http/large-bodies.ts";
import { registerRequestTurns } from "./http/request-turns.ts";
import {
  DEFAULT_LIMITS,
  registerLimits,
  registerSecurityHeaders,
  type Limits,
  type RequestLimits,
} from "./http/limits.ts";
import { LongReads } from "./http/long-reads.ts";
import { registerMethods } from "./http/methods.ts";
import { registerRefusalAudit, type RefusalAudit } from "./http/refusal-audit.ts";
import { answerOneAtATime } from "./http/one-at-a-time.ts";
import { OpenAnswers } from "./http/open-answers.ts";
import { registerOpenApi } from "./http/openapi.ts";
import { registerProblems, sendProblem } from "./http/problems.ts";
import { OpenStreams } from "./http/sse.ts";
import { DEFAULT_TIMEOUTS, httpTimeouts, registerTimeouts, type Timeouts } from "./http/timeouts.ts";
import { registerRights, type RouteRule } from "./http/rights.ts";
import { registerRequestLog, SampledLog } from "./http/request-log.ts";
import type { TrustsProxy } from "./http/trusted-proxies.ts";
import { registerTrace } from "./http/trace.ts";
import { registerValidation } from "./http/validation.ts";
import { registerAdviceRoutes } from "./routes/advice.ts";
import { registerArtifacts } from "./routes/artifacts.ts";
import { registerAuditRoutes } from "./routes/audit.ts";
import { registerClusterRoutes } from "./routes/clusters.ts";
import { registerComparison } from "./routes/comparison.ts";
import { registerDeadLetterRoutes } from "./routes/dead-letters.ts";
import { registerFrameworkRoutes } from "./routes/frameworks.ts";
import { registerHealthRoutes } from "./routes/health.ts";
import { registerJobFile } from "./routes/job-file.ts";
import { registerJobRoutes } from "./routes/jobs.ts";
import { registerPlanChangeRoutes } from "./routes/plan-changes.ts";
import { registerPlanRoutes, type PlanRoutesOptions } from "./routes/plans.ts";
import { registerProfileRoutes } from "./routes/profiles.ts";
import { registerProjectRoutes } from "./routes/projects.ts";
import { registerSessionRoutes } from "./routes/session.ts";
import { registerSignInRoutes } from "./routes/sign-in.ts";
import { registerTokenRoutes } from "./routes/tokens.ts";
import { registerQueueRoutes } from "./routes/queue.ts";
import { registerRetentionRoutes } from "./routes/retention.ts";
import { registerUsageRoutes } from "./routes/usage.ts";
import { registerWebhookRoutes } from "./routes/webhooks.ts";
import { registerWorkloadRoutes } from "./routes/workloads.ts";
import type { LaunchCapabilities } from "@internevo/launcher";
import type { AddressRule } from "@internevo/webhooks";
import { Provider } from "./sign-in/provider.ts";
import type { SignInSettings } from "./sign-in/settings.ts";
import type { Workers } from "./work/workers.ts";

export const MAXIMUM_BODY_BYTES = 1 << 20;

export interface ApiOptions {
  readonly database: Database;
  readonly workers: Workers;
  readonly capabilities: LaunchCapabilities;
  /** What measures clusters: the API says what a job would measure first. */
  readonly measuring?: Measuring;
  readonly profileFor: PlanRoutesOptions["profileFor"];
  readonly health: Health;
  readonly version: string;
  /** The built console; what is not there is not served. */
  readonly consoleDirectory: string;
  readonly logger?: FastifyBaseLogger;
  readonly limits?: Partial<Limits>;
  readonly timeouts?: Partial<Timeouts>;
  /**
   * Silence after which a stream's heartbeat is sent, and time between two looks at its token. Default 15
   * 000.
   */
  readonly heartbeatMilliseconds?: number;
  /** Whose `X-Forwarded-For` is believed. Default: nobody's. */
  readonly trustProxy?: TrustsProxy | false;
  /** How people sign in; absent: by tokens alone. */
  readonly signIn?: SignInSettings | undefined;
  /** Where webhooks may send to. Default: to public addresses. */
  readonly webhookAddresses?: AddressRule;
  /** Of the installation on its broker. Default `internevo`. */
  readonly namespace?: string;
  readonly now?: () => Date;
}

/**
 * The API as a server that listens nowhere yet: tests inject requests, `main.ts` listens. `close()` ends open
 * streams too.
 */
export async function buildApi(options: ApiOptions): Promise<ApiInstance> {
  const { database } = options;
  const anonymous = new SampledLog();
  const timeouts = { ...DEFAULT_TIMEOUTS, ...options.timeouts };
  const bounds = { ...DEFAULT_LIMITS, ...options.limits };
  const { heartbeatMilliseconds = 15_000 } = options;
  const app = createServer(options, timeouts, anonymous);
  const streams = new OpenStreams(app, {
    streams: bounds.streams,
    streamsOfOneToken: bounds.streamsOfOneToken,
    lookMilliseconds: heartbeatMilliseconds,
    validTokens: (ids) => findValidTokens(database.db, ids),
    onError: (error) => {
      // Without the database there is nobody to ask: the next look will find it, or the one after.
      if (!isConnectionLoss(error)) app.log.error({ err: error }, "tokens of streams could not be looked at");
    },
  });
  registerTimeouts(app, timeouts);
  app.server.maxConnections = bounds.connections;

  answerOneAtATime(app.server);
  const methods = registerMethods(app);
  const largeBodies = registerLargeBodies(app, {
    turns: bounds.bodies,
    stalledMilliseconds: timeouts.stalledMilliseconds,
    largestBytes: MAXIMUM_BODY_BYTES,
  });
  registerBodies(app, largeBodies);
  registerTrace(app);
  registerRequestLog(app, anonymous);
  registerOddRequests(app);
  registerHealthRoutes(app, { health: options.health, streams });
  registerProblems(app);
  registerValidation(app);
  await registerSecurityHeaders(app);
  await registerOpenApi(app, options.version);
  const limits = await registerLimits(app, bounds);
  await app.register(cookies);
  const rules = registerRights(app, database);
  const turn = registerRequestTurns(app, bounds, timeouts);
  registerAuth(app, { database, limits, turn, publicUrl: options.signIn?.publicUrl });
  const refusals = registerRefusalAudit(app, database);

  await app.register(
    async (scope) =>
      registerRoutes(scope as ApiInstance, options, refusals, {
        streams,
        heartbeatMilliseconds,
        downloads: new OpenAnswers({
          things: "downloads",
          ofOne: bounds.downloadsOfOneToken,
          ofAll: bounds.downloads,
          remedy: "end one, or ask again when one has ended",
        }),
        longReads: new LongReads(bounds.longReads),
        limits,
        bounds,
      }),
    { prefix: API_PREFIX },
  );
  app.decorate("routeRules", rules);
  await registerConsole(app, options.consoleDirectory, methods);
  return app;
}

function createServer(
  options: ApiOptions,
  timeouts: typeof DEFAULT_TIMEOUTS,
  anonymous: SampledLog,
): ApiInstance {
  return Fastify({
    bodyLimit: MAXIMUM_BODY_BYTES,
    trustProxy: options.trustProxy ?? false,
    requestTimeout: timeouts.requestMilliseconds,
    // One line a request is written by the hook of request-log.ts, with its actor and trace.
    logController: new LogController({ disableRequestLogging: true }),
    frameworkErrors: (error, request, reply) => {
      void sendProblem(request, reply, error);
      anonymous.line(
        request.log,
        {
          method: request.method,
          status: reply.statusCode,
          code: request.problem?.code,
          detail: request.problem?.message,
        },
        "request refused",
      );
    },
    forceCloseConnections: "idle",
    // Ids that are too long are for their schema to refuse; the server bounds the whole head.
    routerOptions: { maxParamLength: 16_384, ignoreTrailingSlash: true },
    clientErrorHandler: answerClientError,
    // Of a body that is not read yet the process holds what came with its head, and no more.
    http: { requireHostHeader: false, highWaterMark: SMALL_BODY_BYTES, ...httpTimeouts(timeouts) },
    ...(options.logger ? { loggerInstance: options.logger } : {}),
  }).withTypeProvider<TypeBoxTypeProvider>();
}

declare module "fastify" {
  interface FastifyInstance {
    /** Who may use each route of the API. */
    routeRules: readonly RouteRule[];
  }
}

/** What lasts longer than a turn, and its bounds. */
interface Live {
  readonly streams: OpenStreams;
  readonly heartbeatMilliseconds: number;
  readonly downloads: OpenAnswers;
  readonly longReads: LongReads;
  readonly limits: RequestLimits;
  readonly bounds: Limits;
}

/** Everything below the prefix of the API. */
function registerRoutes(api: ApiInstance, options: ApiOptions, refusals: RefusalAudit, live: Live): void {
  const { database, workers, capabilities, measuring, profileFor } = options;
  const now = options.now ?? (() => new Date());
  const { streams, heartbeatMilliseconds, downloads, longReads, limits, bounds } = live;
  registerJobRoutes(api, { database, workers, capabilities, measuring, streams, heartbeatMilliseconds });
  registerJobFile(api, { database });
  registerComparison(api, { database, longReads });
  registerArtifacts(api, { database, dataDirectory: capabilities.dataDirectory, downloads });
  const source = { database, workers, profileFor };
  registerPlanRoutes(api, source);
  registerAdviceRoutes(api, source);
  registerPlanChangeRoutes(api, source);
  registerFrameworkRoutes(api, source);
  registerProfileRoutes(api, { database });
  registerWorkloadRoutes(api, { database, capabilities, now });
  registerDeadLetterRoutes(api, { database });
  registerProjectRoutes(api, { database });
  registerQueueRoutes(api, { database });
  registerRetentionRoutes(api, { database, dataDirectory: capabilities.dataDirectory });
  registerUsageRoutes(api, { database, now });
  registerTokenRoutes(api, { database });
  const { webhookAddresses: addresses = { privateAddresses: false }, namespace = "internevo" } = options;
  registerWebhookRoutes(api, { database, addresses, namespace });
  registerAuditRoutes(api, { database, longReads });
  const clusters = new ClusterWatch(capabilities, (error, cluster) =>
    api.log.error({ err: error, cluster }, "a cluster could not be looked at"),
  );
  api.addHook("onClose", () => clusters.close());
  registerClusterRoutes(api, { database, clusters });
  const { signIn } = options;
  const provider = signIn && new Provider(signIn, (error, message) => api.log.warn({ err: error }, message));
  registerSignInRoutes(api, { database, signIn, provider, refusals, limits, bounds });
  registerSessionRoutes(api, { database, signIn, provider });
}
