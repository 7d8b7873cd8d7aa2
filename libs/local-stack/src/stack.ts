import { randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { ProblemError } from "@internevo/domain";
import { makeDataDirectory } from "./data-directory.ts";
import { lockDirectory } from "./directory-lock.ts";
import { natsProcess, natsUrl as natsUrlOf, waitForNats } from "./nats.ts";
import { freePort } from "./ports.ts";
import { findPostgres } from "./postgres-binaries.ts";
import { preparePostgresHome, type PostgresIdentity } from "./postgres-identity.ts";
import {
  initialisePostgres,
  postgresProcess,
  postgresUrl,
  stopLeftoverPostgres,
  waitForPostgres,
  type PostgresSettings,
} from "./postgres.ts";
import { endProcessesOfStack, processStart, STACK_MARKER } from "./proc.ts";
import {
  readSecrets,
  writeSecrets,
  writeStackInfo,
  type StackInfo,
  type StackSecrets,
} from "./stack-info.ts";
import { supervise, type ProcessEnd, type SupervisedProcess } from "./supervisor.ts";

/** A service's process: `node <entry>`. */
export interface ServiceProcess {
  readonly name: string;
  /** Absolute path of its `main.ts`. */
  readonly entry: string;
  readonly env?: Readonly<Record<string, string>>;
}

export interface LocalStackOptions {
  /** Everything is kept below it; made when it is missing. */
  readonly dataDirectory: string;
  readonly services: readonly ServiceProcess[];
  /** Every line that a process writes; services write JSON. */
  readonly onLog?: (source: string, line: string) => void;
  /** Told when a process has ended and is started again. */
  readonly onRestart?: (source: string, end: ProcessEnd, inSeconds: number) => void;
  /** Default: DATABASE_URL of the environment; without either, or empty, an embedded Postgres is started. */
  readonly databaseUrl?: string;
  /** Default: NATS_URL of the environment; without either, or empty, a NATS server is started. */
  readonly natsUrl?: string;
  /** Prefix on the broker. Default: INTERNEVO_NAMESPACE, or `internevo`. */
  readonly namespace?: string;
  /** Whether commits survive a loss of power. Default true. */
  readonly durable?: boolean;
  /** Seconds for everything to be ready. Default 120. */
  readonly startSeconds?: number;
  /** Ends the start; of no consequence once the stack is ready. */
  readonly signal?: AbortSignal;
  /** For tests of ways that this machine would not choose. */
  readonly postgresIdentity?: PostgresIdentity;
}

export interface LocalStack {
  /** As in `<dataDirectory>/stack.json`. */
  info(): StackInfo;
  /** The pid of `postgres`, `nats` or a service, while it runs. */
  pidOf(name: string): number | undefined;
  /**
   * Aborts when the data directory is not this stack's any more (it was deleted): everything is being stopped
   * then. Its reason is a ProblemError `unavailable`.
   */
  readonly lost: AbortSignal;
  /** Stops services, broker and database in this order, and whatever they have left; safe to call again. */
  stop(): Promise<void>;
}

const secret = () => randomBytes(24).toString("base64url");
const BAD_CONFIGURATION = 2;
const STARTS_BEFORE_GIVING_UP = 3;
const WATCH_MILLISECONDS = 1000;

/** The environment of every process: the caller's, without what would make a service another one. */
function baseEnvironment(dataDirectory: string): Record<string, string> {
  const env: Record<string, string> = {};
  for (const [name, value] of Object.entries(process.env))
    if (value !== undefined && !name.startsWith("npm_")) env[name] = value;
  return { ...env, [STACK_MARKER]: dataDirectory };
}

/**
 * Starts what one machine needs, and keeps it running: Postgres, NATS, and the services; a process that dies
 * is started again.
 * @throws ProblemError `bad-request` when the directory cannot be used, `conflict` when another stack uses
 * the directory, `unavailable` when a program is missing or something does not start; the signal's reason.
 * What was started is stopped then.
 */
export async function startLocalStack(options: LocalStackOptions): Promise<LocalStack> {
  const dataDirectory = resolve(options.dataDirectory);
  makeDataDirectory(dataDirectory);
  const lock = lockDirectory(dataDirectory);
  const supervised: SupervisedProcess[] = [];
  const health = new Map<string, string>();
  const announced: { apiUrl: string | null } = { apiUrl: null };
  const startedAt = new Date().toISOString();
  let readyAt: string | null = null;
  let stopping: Promise<void> | undefined;

  const secrets: StackSecrets = readSecrets(dataDirectory) ?? {
    postgresPassword: secret(),
    natsToken: secret(),
    apiToken: secret(),
  };
  // An empty text means none, so that a caller can leave the environment's out.
  const external = {
    database: (options.databaseUrl ?? process.env["DATABASE_URL"]) || undefined,
    nats: (options.natsUrl ?? process.env["NATS_URL"]) || undefined,
  };
  const namespace = options.namespace ?? process.env["INTERNEVO_NAMESPACE"] ?? "internevo";
  const env = baseEnvironment(dataDirectory);
  const logFile = (name: string) => join(dataDirectory, "logs", `${name}.log`);
  let databaseUrl = external.database ?? "";
  let brokerUrl = external.nats ?? "";

  const info = (): StackInfo => ({
    schemaVersion: 1,
    pid: process.pid,
    pidStart: processStart(process.pid) ?? "",
    startedAt,
    readyAt,
    apiUrl: announced.apiUrl,
    apiToken: secrets.apiToken,
    databaseUrl,
    natsUrl: brokerUrl,
    namespace,
    processes: Object.fromEntries(
      supervised.map((one) => [
        one.name,
        { pid: one.pid() ?? null, healthUrl: health.get(one.name) ?? null },
      ]),
    ),
  });
  const record = () => {
    if (!stopping && lock.isHeld()) writeStackInfo(dataDirectory, info());
  };

  const readiness = new Map<string, { resolve: () => void; reject: (error: Error) => void }>();
  const events = {
    /** Anew: its process is another one. */
    onStart(name: string) {
      if (readyAt === null) return;
      try {
        record();
      } catch (error) {
        options.onLog?.(
          name,
          `${join(dataDirectory, "stack.json")} cannot be written: ${(error as Error).message}; it names the process of before`,
        );
      }
    },
    onLine(name: string, line: string) {
      options.onLog?.(name, line);
      if (!line.includes('"event":"ready"')) return;
      const { healthUrl, apiUrl } = JSON.parse(line) as { healthUrl?: string; apiUrl?: string };
      if (healthUrl !== undefined) health.set(name, healthUrl);
      if (apiUrl !== undefined) announced.apiUrl = apiUrl;
      readiness.get(name)?.resolve();
      record();
    },
    onEnd(name: string, end: ProcessEnd, restartInSeconds: number | undefined) {
      if (restartInSeconds === undefined) return;
      options.onRestart?.(name, end, restartInSeconds);
      const one = supervised.find((candidate) => candidate.name === name);
      if (end.code === BAD_CONFIGURATION || (one?.starts() ?? 0) >= STARTS_BEFORE_GIVING_UP) {
        readiness
          .get(name)
          ?.reject(
            new ProblemError(
              "unavailable",
              `${name} does not start (${end.signal ?? `exit ${end.code}`}): ${end.tail.slice(-5).join("\n")}`,
            ),
          );
      }
    },
  };
  const start = (definition: Parameters<typeof supervise>[0]) => {
    const one = supervise(definition, events);
    supervised.push(one);
    return one;
  };
  /** The last words of a process that keeps ending before it is of use. */
  const givesUp = (one: SupervisedProcess, name: string) => {
    let why: string | undefined;
    const watch = (): void =>
      void one.nextEnd().then((end) => {
        if (one.starts() >= STARTS_BEFORE_GIVING_UP)
          why = `${name} ended ${one.starts()} times: ${end.tail.slice(-5).join("\n")}`;
        else watch();
      });
    watch();
    return () => why;
  };

  async function startPostgres(): Promise<void> {
    const home = preparePostgresHome(findPostgres(), dataDirectory, options.postgresIdentity);
    await stopLeftoverPostgres(home.dataDirectory);
    secrets.postgresPort = await freePort(secrets.postgresPort);
    const settings: PostgresSettings = {
      home,
      port: secrets.postgresPort,
      password: secrets.postgresPassword,
      logFile: logFile("postgres"),
      durable: options.durable ?? true,
      env: env,
    };
    writeSecrets(dataDirectory, secrets);
    initialisePostgres(settings);
    databaseUrl = postgresUrl(settings);
    await waitForPostgres(settings, 60, givesUp(start(postgresProcess(settings)), "Postgres"));
  }
  async function startNats(): Promise<void> {
    secrets.natsPort = await freePort(secrets.natsPort);
    writeSecrets(dataDirectory, secrets);
    const settings = {
      directory: join(dataDirectory, "nats"),
      port: secrets.natsPort,
      token: secrets.natsToken,
      logFile: logFile("nats"),
      env,
    };
    brokerUrl = natsUrlOf(settings);
    start(natsProcess(settings));
    await waitForNats(secrets.natsPort);
  }
  async function startServices(): Promise<void> {
    if (options.services.length === 0) return;
    secrets.apiPort = await freePort(secrets.apiPort);
    writeSecrets(dataDirectory, secrets);
    const serviceEnv = {
      ...env,
      DATABASE_URL: databaseUrl,
      NATS_URL: brokerUrl,
      INTERNEVO_NAMESPACE: namespace,
      INTERNEVO_DATA_DIRECTORY: dataDirectory,
      // The health server's port is any free one, for each.
      HEALTH_PORT: "0",
    };
    const ready = options.services.map(
      (service) => new Promise<void>((resolve, reject) => readiness.set(service.name, { resolve, reject })),
    );
    const late = new Promise<never>((_, reject) => {
      setTimeout(
        () =>
          reject(
            new ProblemError(
              "unavailable",
              `the services were not ready within ${options.startSeconds ?? 120} s; see ${join(dataDirectory, "logs")}`,
            ),
          ),
        (options.startSeconds ?? 120) * 1000,
      ).unref();
    });
    const { signal } = options;
    const ended = new Promise<never>((_, reject) =>
      signal?.addEventListener("abort", () => reject(signal.reason as Error), { once: true }),
    );
    // The race below hears them, unless it is over: then nobody need.
    for (const one of [late, ended]) one.catch(() => {});
    for (const service of options.services) {
      // For young objects V8 takes 128 MiB in a process that answers requests, by the machine's memory, and
      // seldom gives any back.
      const nodeOptions = service.name === "api" ? ["--max-semi-space-size=8"] : [];
      // Threads of searches come and go: with an arena of malloc for each, what they leave is spread over all
      // of them and never given back.
      const own =
        service.name === "api"
          ? {
              MALLOC_ARENA_MAX: "2",
              ...(env["MALLOC_ARENA_MAX"] === undefined ? {} : { MALLOC_ARENA_MAX: env["MALLOC_ARENA_MAX"] }),
              INTERNEVO_API_PORT: String(secrets.apiPort),
              INTERNEVO_API_TOKEN: secrets.apiToken,
            }
          : {};
      start({
        name: service.name,
        command: "setpriv",
        args: ["--pdeathsig", "KILL", process.execPath, ...nodeOptions, service.entry],
        env: { ...serviceEnv, ...own, ...service.env },
        directory: dataDirectory,
        logFile: logFile(service.name),
        stopSignal: "SIGTERM",
        stopSeconds: 25,
      });
    }
    await Promise.race([Promise.all(ready), late, ended]);
  }

  async function stopAll(): Promise<void> {
    const isServer = (one: SupervisedProcess) => one.name === "postgres" || one.name === "nats";
    clearInterval(watch);
    await Promise.all(supervised.filter((one) => !isServer(one)).map((one) => one.stop()));
    for (const one of supervised.filter(isServer).reverse()) await one.stop();
    await endProcessesOfStack(dataDirectory, 5);
    rmSync(join(dataDirectory, "stack.json"), { force: true });
    lock.release();
  }
  const stop = () => (stopping ??= stopAll());

  const lost = new AbortController();
  let watch: NodeJS.Timeout | undefined;
  /**
   * Without its directory nothing can be stored, and nobody finds the stack to stop it: it must not run on.
   */
  function watchDirectory(): void {
    watch = setInterval(() => {
      if (lock.isHeld()) return;
      lost.abort(
        new ProblemError(
          "unavailable",
          `the data directory ${dataDirectory} was deleted while the stack ran; everything is stopped`,
          [
            {
              field: "dataDirectory",
              value: dataDirectory,
              message: "was deleted, or its lock was",
              remedy:
                "start the stack again, which begins with an empty directory; stop it before you delete its directory",
            },
          ],
        ),
      );
      void stop();
    }, WATCH_MILLISECONDS);
  }

  try {
    // What a killed stack has left: ranks, services. Postgres and NATS are known by their own pid files.
    await endProcessesOfStack(dataDirectory, 5);
    // Both are awaited even when one fails: what is half started could not be stopped.
    const started = await Promise.allSettled([
      external.database === undefined ? startPostgres() : undefined,
      external.nats === undefined ? startNats() : undefined,
    ]);
    for (const one of started) if (one.status === "rejected") throw one.reason;
    record();
    options.signal?.throwIfAborted();
    await startServices();
    readyAt = new Date().toISOString();
    record();
    watchDirectory();
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    info,
    pidOf: (name) => supervised.find((one) => one.name === name)?.pid(),
    lost: lost.signal,
    stop,
  };
}
