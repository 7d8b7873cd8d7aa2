import { existsSync, readFileSync } from "node:fs";
import { availableParallelism, totalmem } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { dataRootsOf } from "@internevo/data";
import { cudaHost, probeIn, type LaunchCapabilities } from "@internevo/launcher";
import type { ServiceDefinition } from "@internevo/service-kit";
import { PRIVATE_ADDRESSES_SETTING } from "@internevo/webhooks";
import type { Static } from "typebox";
import { pruneAuditLog } from "@internevo/store";
import { buildApi } from "./app.ts";
import { ApiConfigSchema } from "./config.ts";
import { ensureToken } from "./first-token.ts";
import { trustedProxies } from "./http/trusted-proxies.ts";
import { signInSettings } from "./sign-in/settings.ts";
import { createProfileSource } from "./profile-source.ts";
import { logThreadError } from "./work/thread-errors.ts";
import { createWorkers } from "./work/workers.ts";

const AUDIT_PRUNE_SECONDS = 3600;
/**
 * Connections that the system keeps until the process takes them. Where thousands come at once, one beyond them would
 * be tried again by its client's system after a second. Linux keeps 4096 at most unless told otherwise.
 */
const CONNECTIONS_TO_COME = 4096;
const CONSOLE = fileURLToPath(new URL("../../console/dist", import.meta.url));
const version = (
  JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as { version: string }
).version;

const onPath = (program: string): boolean =>
  (process.env["PATH"] ?? "")
    .split(delimiter)
    .some((directory) => directory !== "" && existsSync(join(directory, program)));

/** What can start ranks on this machine. */
const capabilities = ({
  INTERNEVO_API_MAXIMUM_LOCAL_RANKS: maximumLocalRanks,
  INTERNEVO_CLUSTERS: clustersFile,
  INTERNEVO_DATA_DIRECTORY: dataDirectory,
  INTERNEVO_NATIVE_DIRECTORY: nativeDirectory,
}: Static<typeof ApiConfigSchema>): LaunchCapabilities => ({
  hasProgram: onPath,
  clustersFile,
  maximumLocalRanks: maximumLocalRanks ?? Math.max(8, 4 * availableParallelism()),
  localMemoryBytes: totalmem(),
  cores: availableParallelism(),
  dataDirectory: dataDirectory === undefined ? undefined : resolve(dataDirectory),
  cuda: cudaHost(nativeDirectory),
});

export const apiService: ServiceDefinition<typeof ApiConfigSchema> = {
  name: "api",
  configSchema: ApiConfigSchema,
  async start(service) {
    const { config, database } = service;
    const signIn = signInSettings(config);
    const trustProxy = trustedProxies(config.INTERNEVO_API_TRUST_PROXY);
    const able = capabilities(config);
    const workers = createWorkers({
      searchesOfOneToken: config.INTERNEVO_API_SEARCHES_OF_ONE_TOKEN,
      idleThreadSeconds: config.INTERNEVO_API_IDLE_THREAD_SECONDS,
      roots: dataRootsOf(config.INTERNEVO_DATA_ROOTS),
      own: able.dataDirectory,
      onThreadError: (error) => logThreadError(service.log, error),
    });
    service.onShutdown(() => workers.close());
    const app = await buildApi({
      database,
      workers,
      capabilities: able,
      measuring: {
        probe: probeIn(config.INTERNEVO_NATIVE_DIRECTORY),
        threadsPerRank: config.INTERNEVO_THREADS_PER_RANK,
      },
      profileFor: createProfileSource(database),
      health: service.health,
      version,
      consoleDirectory: config.INTERNEVO_API_CONSOLE_DIRECTORY ?? CONSOLE,
      logger: service.log,
      limits: {
        requestsPerMinute: config.INTERNEVO_API_REQUESTS_PER_MINUTE,
        maximumEventLoopDelayMilliseconds: config.INTERNEVO_API_MAXIMUM_EVENT_LOOP_DELAY_MS,
        streamsOfOneToken: config.INTERNEVO_API_STREAMS_OF_ONE_TOKEN,
        streamsPerMinute: config.INTERNEVO_API_STREAMS_PER_MINUTE,
        streams: config.INTERNEVO_API_STREAMS,
      },
      trustProxy,
      signIn,
      webhookAddresses: { privateAddresses: config[PRIVATE_ADDRESSES_SETTING] },
      namespace: config.INTERNEVO_NAMESPACE,
    });
    service.onShutdown(() => app.close());
    service.every(AUDIT_PRUNE_SECONDS, "prune-audit-log", () =>
      pruneAuditLog(database.db, {
        days: config.INTERNEVO_API_AUDIT_DAYS,
        rows: config.INTERNEVO_API_AUDIT_ROWS,
      }),
    );
    const made = await ensureToken(database, config.INTERNEVO_API_TOKEN);
    // Not by the log, which is kept and hides tokens.
    if (made !== undefined)
      process.stderr.write(`The first start made an admin token. It is shown this once:\n\n    ${made}\n\n`);
    const { INTERNEVO_API_HOST: host, INTERNEVO_API_PORT: port } = config;
    const apiUrl = await app.listen({ host, port, backlog: CONNECTIONS_TO_COME });
    service.announce({ apiUrl });
  },
};
