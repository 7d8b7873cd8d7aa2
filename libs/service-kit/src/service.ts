import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import type { Static, TObject } from "typebox";
import type { DestinationStream } from "pino";
import { ProblemError } from "@internevo/domain";
import { connectBus, type Bus, type Consumption } from "@internevo/bus";
import { isConnectionLoss, migrateDatabase, openDatabase, pause, type Database } from "@internevo/store";
import { commandMetrics } from "./command-metrics.ts";
import { handleCommand, type CommandOptions, type CommandRuntime, type CommandType } from "./command.ts";
import { readConfig, type BaseConfig, type Environment } from "./config.ts";
import { createHealth, type Health } from "./health.ts";
import { createLogger, logError, type Logger } from "./logging.ts";
import { runReconciler, runRelay } from "./maintenance.ts";

/** What `start` of a service gets. */
export interface Service<C> {
  readonly name: string;
  readonly config: C & BaseConfig;
  readonly log: Logger;
  readonly database: Database;
  readonly bus: Bus;
  readonly health: Health;
  /** Aborts when the service stops. */
  readonly shutdown: AbortSignal;
  /** Works on a type's commands, once in effect; see {@link CommandOptions}. */
  handleCommand<T extends CommandType>(options: CommandOptions<T>): void;
  /** Repeats a task until the service stops; errors are logged. The first time is at once. */
  every(seconds: number, name: string, task: (signal: AbortSignal) => Promise<void>): void;
  /** Runs when the service stops, before the connections are closed; last added, first run. */
  onShutdown(end: () => Promise<void> | void): void;
  /** Adds to the line that says `"event":"ready"`, for whoever started the process: addresses, ports. */
  announce(details: Record<string, string | number>): void;
}

export interface ServiceDefinition<S extends TObject> {
  /** `planner`, `trial-runner`, … */
  readonly name: string;
  /** Beyond {@link BaseConfig}: properties named as environment variables, `INTERNEVO_<NAME>_…`. */
  readonly configSchema: S;
  readonly start: (service: Service<Static<S>>) => Promise<void> | void;
}

export interface StartOptions {
  readonly environment: Environment;
  readonly logDestination?: DestinationStream;
}

export interface RunningService {
  readonly healthUrl: string;
  readonly announced: Readonly<Record<string, string | number>>;
  /**
   * Stops: no more messages, handlers abort and give their leases back, connections close. Bounded; safe to
   * call again.
   */
  stop(): Promise<void>;
}

/** What the bus tells of and nobody else hears. */
const BROKER_FAULTS: ReadonlySet<string> = new Set([
  "streams-missing",
  "listening-failed",
  "flush-failed",
  "unreadable-event",
]);

const START_SECONDS = 30;
const STOP_SECONDS = 15;

async function connectWithPatience(log: Logger, connect: () => Promise<Bus>): Promise<Bus> {
  const deadline = performance.now() + START_SECONDS * 1000;
  for (;;) {
    try {
      return await connect();
    } catch (error) {
      // A cause means that nobody answered; a server of the wrong kind stays wrong.
      if (
        !(error instanceof ProblemError && error.code === "unavailable" && error.cause !== undefined) ||
        performance.now() > deadline
      )
        throw error;
      log.warn(error.message);
      await pause(500);
    }
  }
}

/**
 * Starts a service in this process: configuration, log, migrations, database, broker, relay, health server,
 * then its own `start`.
 * @throws ProblemError when the configuration is wrong or a server cannot be reached.
 */
export async function startService<S extends TObject>(
  definition: ServiceDefinition<S>,
  options: StartOptions,
): Promise<RunningService> {
  const { name } = definition;
  const config = readConfig(name, definition.configSchema, options.environment);
  const log = createLogger(name, config.LOG_LEVEL, options.logDestination);
  const health = createHealth(name);
  const shutdown = new AbortController();
  const consumptions: Consumption[] = [];
  const tasks: Promise<void>[] = [];
  const ends: (() => Promise<void> | void)[] = [];
  const announced: Record<string, string | number> = {};

  await migrateDatabase(config.DATABASE_URL, { forSeconds: START_SECONDS });
  const database = openDatabase({
    url: config.DATABASE_URL,
    applicationName: `internevo-${name}`,
    onConnectionError: (error) => log.debug({ err: error }, "a connection to Postgres was lost"),
  });
  let bus: Bus;
  try {
    bus = await connectWithPatience(log, () =>
      connectBus({
        url: config.NATS_URL,
        name: `internevo-${name}`,
        namespace: config.INTERNEVO_NAMESPACE,
        onStatus: (status) =>
          BROKER_FAULTS.has(status.type)
            ? log.warn(status, "the broker failed at something")
            : log.debug(status, "the broker's connection changed"),
      }),
    );
  } catch (error) {
    await database.close();
    throw error;
  }
  const runtime: CommandRuntime = {
    service: name,
    holder: `${name}@${hostname()}:${process.pid}:${randomUUID()}`,
    database,
    bus,
    log,
    metrics: commandMetrics(health.registry),
    shutdown: shutdown.signal,
  };

  let stopping: Promise<void> | undefined;
  async function stopAll(): Promise<void> {
    log.info("stopping");
    shutdown.abort();
    const wound = Promise.all([...consumptions.map((consumption) => consumption.stop()), ...tasks]);
    const bound = new AbortController();
    const inTime = await Promise.race([
      wound.then(() => true),
      pause(STOP_SECONDS * 1000, bound.signal).then(() => false),
    ]);
    bound.abort();
    if (!inTime) log.warn(`work did not end within ${STOP_SECONDS} s; its leases will expire`);
    for (const end of ends.reverse())
      await Promise.resolve()
        .then(end)
        .catch((error: unknown) => logError(log, error, "a part did not stop cleanly"));
    await health.close();
    await bus
      .close()
      .catch((error: unknown) => logError(log, error, "the broker's connection did not close cleanly"));
    await database.close();
    log.info("stopped");
  }
  const stop = () => (stopping ??= stopAll());

  const service: Service<Static<S>> = {
    name,
    config,
    log,
    database,
    bus,
    health,
    shutdown: shutdown.signal,
    handleCommand: (command) => void consumptions.push(handleCommand(runtime, command)),
    every(seconds, task, work) {
      tasks.push(
        (async () => {
          while (!shutdown.signal.aborted) {
            try {
              await work(shutdown.signal);
            } catch (error) {
              if (!shutdown.signal.aborted)
                log.warn(
                  { err: error, task },
                  isConnectionLoss(error)
                    ? `${task} waits for Postgres`
                    : `${task} failed and will be tried again`,
                );
            }
            await pause(seconds * 1000, shutdown.signal);
          }
        })(),
      );
    },
    onShutdown: (end) => void ends.push(end),
    announce: (details) => void Object.assign(announced, details),
  };
  try {
    health.addCheck("database", () => database.isUp());
    health.addCheck("broker", () => bus.isConnected());
    health.addCheck("accepting", () => !shutdown.signal.aborted);
    const healthUrl = await health.listen(config.HEALTH_HOST, config.HEALTH_PORT);
    await definition.start(service);
    tasks.push(runRelay(runtime), runReconciler(runtime));
    log.info({ event: "ready", healthUrl, ...announced }, "ready");
    return { healthUrl, announced, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/**
 * The whole life of a service's process: starts it with the environment, stops it at SIGTERM or SIGINT, exits
 * with 0; with 2 when the configuration is wrong, with 1 when it cannot start. An error that nobody caught is
 * logged and ends the process: its supervisor starts it again.
 */
export async function runService<S extends TObject>(definition: ServiceDefinition<S>): Promise<void> {
  const fallbackLog = createLogger(definition.name, "info");
  const die = (error: unknown) => {
    fallbackLog.fatal({ err: error }, "an error that nobody caught");
    process.exit(70);
  };
  process.on("uncaughtException", die);
  process.on("unhandledRejection", die);
  let running: RunningService | undefined;
  let asked = false;
  const onSignal = () => {
    if (asked) return;
    asked = true;
    if (!running) process.exit(0);
    void running.stop().then(() => process.exit(0));
  };
  process.on("SIGTERM", onSignal);
  process.on("SIGINT", onSignal);
  try {
    running = await startService(definition, { environment: process.env });
  } catch (error) {
    logError(fallbackLog, error, `${definition.name} cannot start`);
    process.exit(error instanceof ProblemError && error.code === "bad-request" ? 2 : 1);
  }
}
