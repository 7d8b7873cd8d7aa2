import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import type { Static, TObject } from "typebox";
import type { DestinationStream } from "pino";
import type { CommandType } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import { connectBus, type Bus, type Consumption } from "@internevo/bus";
import { isConnectionLoss, migrateDatabase, openDatabase, pause, type Database } from "@internevo/store";
import { commandMetrics } from "./command-metrics.ts";
import { handleCommand, type CommandOptions, type CommandRuntime } from "./command.ts";
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

/** For so long an answer of readiness counts: the check makes Postgres write some hundred KiB. */
const DISK_CHECK_SECONDS = 5;
/** The check is a round trip to JetStream. */
const BROKER_CHECK_SECONDS = 1;
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

/** The parts of a service that runs, and how they end. */
class ServiceParts<S extends TObject> {
  readonly announced: Record<string, string | number> = {};
  readonly #definition: ServiceDefinition<S>;
  readonly #config: Static<S> & BaseConfig;
  readonly #runtime: CommandRuntime;
  readonly #health: Health;
  readonly #shutdown: AbortController;
  readonly #consumptions: Consumption[] = [];
  readonly #tasks: Promise<void>[] = [];
  readonly #ends: (() => Promise<void> | void)[] = [];
  #stopping: Promise<void> | undefined;

  constructor(
    definition: ServiceDefinition<S>,
    config: Static<S> & BaseConfig,
    {
      health,
      shutdown,
      ...connections
    }: Pick<CommandRuntime, "database" | "bus" | "log"> & {
      readonly health: Health;
      readonly shutdown: AbortController;
    },
  ) {
    this.#definition = definition;
    this.#config = config;
    this.#health = health;
    this.#shutdown = shutdown;
    this.#runtime = {
      ...connections,
      service: definition.name,
      holder: `${definition.name}@${hostname()}:${process.pid}:${randomUUID()}`,
      metrics: commandMetrics(health.registry),
      shutdown: shutdown.signal,
    };
  }

  /** @returns where the health server answers. */
  async start(): Promise<string> {
    const { database, bus, log } = this.#runtime;
    const health = this.#health;
    health.addCheck("database", () => database.isUp());
    health.addCheck("database disk", () => database.canWrite(), DISK_CHECK_SECONDS);
    health.addCheck("broker", () => bus.takesMessages(), BROKER_CHECK_SECONDS);
    health.addCheck("accepting", () => !this.#shutdown.signal.aborted);
    const healthUrl = await health.listen(this.#config.HEALTH_HOST, this.#config.HEALTH_PORT);
    await this.#definition.start(this.#service());
    this.#tasks.push(runRelay(this.#runtime), runReconciler(this.#runtime));
    log.info({ event: "ready", healthUrl, ...this.announced }, "ready");
    return healthUrl;
  }

  #service(): Service<Static<S>> {
    const { database, bus, log } = this.#runtime;
    return {
      name: this.#definition.name,
      config: this.#config,
      log,
      database,
      bus,
      health: this.#health,
      shutdown: this.#shutdown.signal,
      handleCommand: (command) => void this.#consumptions.push(handleCommand(this.#runtime, command)),
      every: (seconds, task, work) => void this.#tasks.push(this.#repeat(seconds, task, work)),
      onShutdown: (end) => void this.#ends.push(end),
      announce: (details) => void Object.assign(this.announced, details),
    };
  }

  async #repeat(seconds: number, task: string, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const { signal } = this.#shutdown;
    while (!signal.aborted) {
      try {
        await work(signal);
      } catch (error) {
        if (!signal.aborted)
          this.#runtime.log.warn(
            { err: error, task },
            isConnectionLoss(error) ? `${task} waits for Postgres` : `${task} failed and will be tried again`,
          );
      }
      await pause(seconds * 1000, signal);
    }
  }

  stop(): Promise<void> {
    return (this.#stopping ??= this.#stopAll());
  }

  async #stopAll(): Promise<void> {
    const { database, bus, log } = this.#runtime;
    log.info("stopping");
    this.#shutdown.abort();
    await this.#windUp();
    for (const end of this.#ends.reverse())
      await Promise.resolve()
        .then(end)
        .catch((error: unknown) => logError(log, error, "a part did not stop cleanly"));
    await this.#health.close();
    await bus
      .close()
      .catch((error: unknown) => logError(log, error, "the broker's connection did not close cleanly"));
    await database.close();
    log.info("stopped");
  }

  /** Waits for handlers and tasks to end, within bounds. */
  async #windUp(): Promise<void> {
    const consumptions = this.#consumptions.map((consumption) => consumption.stop());
    const wound = Promise.all([...consumptions, ...this.#tasks]);
    const bound = new AbortController();
    const inTime = await Promise.race([
      wound.then(() => true),
      pause(STOP_SECONDS * 1000, bound.signal).then(() => false),
    ]);
    bound.abort();
    if (!inTime) this.#runtime.log.warn(`work did not end within ${STOP_SECONDS} s; its leases will expire`);
  }
}

const connectBusOf = (name: string, config: BaseConfig, log: Logger): Promise<Bus> =>
  connectWithPatience(log, () =>
    connectBus({
      url: config.NATS_URL,
      name: `internevo-${name}`,
      namespace: config.INTERNEVO_NAMESPACE,
      ...(config.INTERNEVO_NATS_REPLICAS === undefined ? {} : { replicas: config.INTERNEVO_NATS_REPLICAS }),
      onStatus: (status) =>
        BROKER_FAULTS.has(status.type)
          ? log.warn(status, "the broker failed at something")
          : log.debug(status, "the broker's connection changed"),
    }),
  );

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
  await migrateDatabase(config.DATABASE_URL, { forSeconds: START_SECONDS });
  const database = openDatabase({
    url: config.DATABASE_URL,
    applicationName: `internevo-${name}`,
    onConnectionError: (error) => log.debug({ err: error }, "a connection to Postgres was lost"),
  });
  let bus: Bus;
  try {
    bus = await connectBusOf(name, config, log);
  } catch (error) {
    await database.close();
    throw error;
  }
  const shutdown = new AbortController();
  const parts = new ServiceParts(definition, config, { database, bus, log, health, shutdown });
  try {
    const healthUrl = await parts.start();
    return { healthUrl, announced: parts.announced, stop: () => parts.stop() };
  } catch (error) {
    await parts.stop();
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
