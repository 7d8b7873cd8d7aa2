import { randomBytes } from "node:crypto";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { parseEnv } from "node:util";
import { ProblemError } from "@internevo/domain";
import { assertNotHalfRestored, makeDataDirectory } from "./data-directory.ts";
import { lockDirectory } from "./directory-lock.ts";
import { natsProcess, natsUrl as natsUrlOf, waitForNats } from "./nats.ts";
import { freePort } from "./ports.ts";
import { findPostgres } from "./postgres-binaries.ts";
import { assertNoPostgres, preparePostgresHome, type PostgresIdentity } from "./postgres-identity.ts";
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
import { supervise, type ProcessDefinition, type ProcessEnd, type SupervisedProcess } from "./supervisor.ts";

/** A service's process: `node <entry>`. */
export interface ServiceProcess {
  readonly name: string;
  /** Absolute path of its `main.ts`. */
  readonly entry: string;
  readonly env?: Readonly<Record<string, string>>;
}

export interface ServerAddresses {
  readonly databaseUrl: string;
  /** Of a cluster all, separated by commas. */
  readonly natsUrl: string;
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
  /** How many NATS servers are started, as a cluster: for tests of one. Default 1. */
  readonly natsServers?: number;
  /** By which addresses services reach them, of those that they have: for tests of the network between. */
  readonly addressesOf?: (own: ServerAddresses) => Promise<ServerAddresses>;
  /** Prefix on the broker. Default: INTERNEVO_NAMESPACE, or `internevo`. */
  readonly namespace?: string;
  /** Whether commits survive a loss of power. Default true. */
  readonly durable?: boolean;
  /** Seconds for everything to be ready. Default 120. */
  readonly startSeconds?: number;
  /** Ends the start; of no consequence once the stack is ready. */
  readonly signal?: AbortSignal;
  /** Starts in a directory that is being restored, which others must not; it must have no Postgres yet. */
  readonly isRestore?: boolean;
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
 * The port of the API: the one that is asked for, else that of the last start while it is free, else any.
 * @param asked `INTERNEVO_API_PORT`; absent, empty or 0: any
 * @throws ProblemError for one that is not free; one that is none is the API's to refuse
 */
async function apiPort(asked: string | undefined, last: number | undefined): Promise<number> {
  const port = Number(asked || 0);
  if (!Number.isInteger(port) || port < 1 || port > 65_535) return freePort(last);
  if ((await freePort(port)) === port) return port;
  throw new ProblemError("unavailable", `port ${port} is in use`, [
    {
      field: "INTERNEVO_API_PORT",
      value: port,
      message: "is the port of another program",
      remedy: "end that program, or choose another port",
    },
  ]);
}

/** What a service's start waits for. */
interface Readiness {
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** The database and broker that are given from outside; an empty text means none. */
const given = (option: string | undefined, variable: string): string | undefined =>
  (option ?? process.env[variable]) || undefined;

/** The processes of one machine's stack, and what is known of them. */
class StackProcesses implements LocalStack {
  readonly #options: LocalStackOptions;
  readonly #dataDirectory: string;
  readonly #lock: ReturnType<typeof lockDirectory>;
  readonly #secrets: StackSecrets;
  readonly #externalDatabase: string | undefined;
  readonly #externalNats: string | undefined;
  readonly #namespace: string;
  readonly #env: Record<string, string>;
  readonly #startSeconds: number;
  readonly #supervised: SupervisedProcess[] = [];
  readonly #health = new Map<string, string>();
  readonly #readiness = new Map<string, Readiness>();
  readonly #lost = new AbortController();
  readonly #startedAt = new Date().toISOString();
  #apiUrl: string | null = null;
  #databaseUrl: string;
  #brokerUrl: string;
  #readyAt: string | null = null;
  #watch: NodeJS.Timeout | undefined;
  #stopping: Promise<void> | undefined;

  constructor(options: LocalStackOptions) {
    this.#options = options;
    this.#dataDirectory = resolve(options.dataDirectory);
    if (options.isRestore !== true) assertNotHalfRestored(this.#dataDirectory);
    makeDataDirectory(this.#dataDirectory);
    this.#lock = lockDirectory(this.#dataDirectory);
    this.#secrets = readSecrets(this.#dataDirectory) ?? {
      postgresPassword: secret(),
      natsToken: secret(),
      apiToken: secret(),
    };
    this.#externalDatabase = given(options.databaseUrl, "DATABASE_URL");
    this.#externalNats = given(options.natsUrl, "NATS_URL");
    this.#databaseUrl = this.#externalDatabase ?? "";
    this.#brokerUrl = this.#externalNats ?? "";
    this.#namespace = options.namespace ?? process.env["INTERNEVO_NAMESPACE"] ?? "internevo";
    this.#env = baseEnvironment(this.#dataDirectory);
    this.#startSeconds = options.startSeconds ?? 120;
  }

  /** Starts everything; what was started is stopped where something does not start. */
  async start(): Promise<void> {
    try {
      // What a killed stack has left: ranks, services. Postgres and NATS are known by their own pid files.
      await endProcessesOfStack(this.#dataDirectory, 5);
      // Both are awaited even when one fails: what is half started could not be stopped.
      const started = await Promise.allSettled([
        this.#externalDatabase === undefined ? this.#startPostgres() : undefined,
        this.#externalNats === undefined ? this.#startNats() : undefined,
      ]);
      for (const one of started) if (one.status === "rejected") throw one.reason;
      this.#record();
      this.#options.signal?.throwIfAborted();
      await this.#startServices();
      this.#readyAt = new Date().toISOString();
      this.#record();
      this.#watchDirectory();
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  info(): StackInfo {
    const described = this.#supervised.map((one) => [
      one.name,
      { pid: one.pid() ?? null, healthUrl: this.#health.get(one.name) ?? null },
    ]);
    return {
      schemaVersion: 1,
      pid: process.pid,
      pidStart: processStart(process.pid) ?? "",
      startedAt: this.#startedAt,
      readyAt: this.#readyAt,
      apiUrl: this.#apiUrl,
      apiToken: this.#secrets.apiToken,
      databaseUrl: this.#databaseUrl,
      natsUrl: this.#brokerUrl,
      namespace: this.#namespace,
      processes: Object.fromEntries(described) as StackInfo["processes"],
    };
  }

  pidOf(name: string): number | undefined {
    return this.#supervised.find((one) => one.name === name)?.pid();
  }

  stop(): Promise<void> {
    return (this.#stopping ??= this.#stopAll());
  }

  async #stopAll(): Promise<void> {
    const isServer = (one: SupervisedProcess) => one.name === "postgres" || /^nats(-\d+)?$/.test(one.name);
    clearInterval(this.#watch);
    // Whoever stops this process may have stopped them too, all at once: they are not to come back now.
    for (const one of this.#supervised) one.letEnd();
    await Promise.all(this.#supervised.filter((one) => !isServer(one)).map((one) => one.stop()));
    for (const one of this.#supervised.filter(isServer).reverse()) await one.stop();
    await endProcessesOfStack(this.#dataDirectory, 5);
    rmSync(join(this.#dataDirectory, "stack.json"), { force: true });
    this.#lock.release();
  }

  #record(): void {
    if (!this.#stopping && this.#lock.isHeld()) writeStackInfo(this.#dataDirectory, this.info());
  }

  #logFile(name: string): string {
    return join(this.#dataDirectory, "logs", `${name}.log`);
  }

  #supervise(definition: ProcessDefinition): SupervisedProcess {
    const one = supervise(definition, {
      onStart: (name) => this.#onStart(name),
      onLine: (name, line) => this.#onLine(name, line),
      onEnd: (name, end, restartInSeconds) => this.#onEnd(name, end, restartInSeconds),
    });
    this.#supervised.push(one);
    return one;
  }

  /** Anew: its process is another one. */
  #onStart(name: string): void {
    if (this.#readyAt === null) return;
    try {
      this.#record();
    } catch (error) {
      const file = join(this.#dataDirectory, "stack.json");
      this.#options.onLog?.(
        name,
        `${file} cannot be written: ${(error as Error).message}; it names the process of before`,
      );
    }
  }

  #onLine(name: string, line: string): void {
    this.#options.onLog?.(name, line);
    if (!line.includes('"event":"ready"')) return;
    const { healthUrl, apiUrl } = JSON.parse(line) as { healthUrl?: string; apiUrl?: string };
    if (healthUrl !== undefined) this.#health.set(name, healthUrl);
    if (apiUrl !== undefined) this.#apiUrl = apiUrl;
    this.#readiness.get(name)?.resolve();
    this.#record();
  }

  #onEnd(name: string, end: ProcessEnd, restartInSeconds: number | undefined): void {
    if (restartInSeconds === undefined) return;
    this.#options.onRestart?.(name, end, restartInSeconds);
    const one = this.#supervised.find((candidate) => candidate.name === name);
    if (end.code !== BAD_CONFIGURATION && (one?.starts() ?? 0) < STARTS_BEFORE_GIVING_UP) return;
    const how = end.signal ?? `exit ${end.code}`;
    this.#readiness
      .get(name)
      ?.reject(
        new ProblemError("unavailable", `${name} does not start (${how}): ${end.tail.slice(-5).join("\n")}`),
      );
  }

  async #startPostgres(): Promise<void> {
    const secrets = this.#secrets;
    if (this.#options.isRestore === true) assertNoPostgres(this.#dataDirectory);
    const home = preparePostgresHome(findPostgres(), this.#dataDirectory, this.#options.postgresIdentity);
    await stopLeftoverPostgres(home.dataDirectory);
    secrets.postgresPort = await freePort(secrets.postgresPort);
    const settings: PostgresSettings = {
      home,
      port: secrets.postgresPort,
      password: secrets.postgresPassword,
      logFile: this.#logFile("postgres"),
      durable: this.#options.durable ?? true,
      env: this.#env,
    };
    writeSecrets(this.#dataDirectory, secrets);
    initialisePostgres(settings);
    this.#databaseUrl = postgresUrl(settings);
    await waitForPostgres(settings, 60, givesUp(this.#supervise(postgresProcess(settings)), "Postgres"));
  }

  async #startNats(): Promise<void> {
    const servers = this.#options.natsServers ?? 1;
    const { clients, routes } = await this.#natsPorts(servers);
    const settings = clients.map((port, index) => {
      const name = index === 0 ? "nats" : `nats-${index + 1}`;
      const own = routes[index];
      return {
        name,
        directory: join(this.#dataDirectory, name),
        port,
        token: this.#secrets.natsToken,
        logFile: this.#logFile(name),
        env: this.#env,
        ...(own === undefined ? {} : { routes: { own, all: routes } }),
      };
    });
    this.#brokerUrl = settings.map(natsUrlOf).join(",");
    for (const each of settings) this.#supervise(natsProcess(each));
    for (const { port } of settings) await waitForNats(port);
  }

  /** Ports of servers: those of the last start while they are free, else any. One server needs none for others. */
  async #natsPorts(servers: number): Promise<{ clients: readonly number[]; routes: readonly number[] }> {
    const secrets = this.#secrets;
    const last = secrets.natsClusterPorts;
    const first = await freePort(secrets.natsPort);
    const clients = [first];
    const routes: number[] = [];
    if (servers > 1)
      for (let index = 0; index < servers; index += 1) {
        if (index > 0) clients.push(await freePort(last?.clients[index]));
        routes.push(await freePort(last?.routes[index]));
      }
    secrets.natsPort = first;
    if (servers > 1) secrets.natsClusterPorts = { clients, routes };
    writeSecrets(this.#dataDirectory, secrets);
    return { clients, routes };
  }

  async #startServices(): Promise<void> {
    const { services } = this.#options;
    if (services.length === 0) return;
    this.#secrets.apiPort = await apiPort(this.#env["INTERNEVO_API_PORT"], this.#secrets.apiPort);
    writeSecrets(this.#dataDirectory, this.#secrets);
    const ready = services.map(
      (service) =>
        new Promise<void>((resolve, reject) => this.#readiness.set(service.name, { resolve, reject })),
    );
    const bounds = [this.#late(), this.#ended()];
    // The race below hears them, unless it is over: then nobody need.
    for (const one of bounds) one.catch(() => {});
    const own = { databaseUrl: this.#databaseUrl, natsUrl: this.#brokerUrl };
    const addresses = (await this.#options.addressesOf?.(own)) ?? own;
    for (const service of services) this.#startService(service, addresses);
    await Promise.race([Promise.all(ready), ...bounds]);
  }

  #late(): Promise<never> {
    return new Promise<never>((_, reject) => {
      const late = (): void =>
        reject(
          new ProblemError(
            "unavailable",
            `the services were not ready within ${this.#startSeconds} s; see ${join(this.#dataDirectory, "logs")}`,
          ),
        );
      setTimeout(late, this.#startSeconds * 1000).unref();
    });
  }

  #ended(): Promise<never> {
    const { signal } = this.#options;
    return new Promise<never>((_, reject) =>
      signal?.addEventListener("abort", () => reject(signal.reason as Error), { once: true }),
    );
  }

  #startService(service: ServiceProcess, { databaseUrl, natsUrl }: ServerAddresses): void {
    this.#supervise({
      name: service.name,
      command: "setpriv",
      args: ["--pdeathsig", "KILL", process.execPath, service.entry],
      env: {
        ...startEnvironment(service.entry),
        ...this.#env,
        DATABASE_URL: databaseUrl,
        NATS_URL: natsUrl,
        INTERNEVO_NAMESPACE: this.#namespace,
        INTERNEVO_DATA_DIRECTORY: this.#dataDirectory,
        // The health server's port is any free one, for each.
        HEALTH_PORT: "0",
        ...(service.name === "api" ? this.#apiEnvironment() : {}),
        ...service.env,
      },
      directory: this.#dataDirectory,
      logFile: this.#logFile(service.name),
      stopSignal: "SIGTERM",
      stopSeconds: 25,
    });
  }

  #apiEnvironment(): Record<string, string> {
    return { INTERNEVO_API_PORT: String(this.#secrets.apiPort), INTERNEVO_API_TOKEN: this.#secrets.apiToken };
  }

  /**
   * Without its directory nothing can be stored, and nobody finds the stack to stop it: it must not run on.
   */
  #watchDirectory(): void {
    this.#watch = setInterval(() => {
      if (this.#lock.isHeld()) return;
      this.#lost.abort(directoryLost(this.#dataDirectory));
      void this.stop();
    }, WATCH_MILLISECONDS);
  }
}

/** What `process.env` of an app says that its process is started with. */
function startEnvironment(entry: string): NodeJS.Dict<string> {
  const file = join(dirname(entry), "..", "process.env");
  return existsSync(file) ? parseEnv(readFileSync(file, "utf8")) : {};
}

/** The last words of a process that keeps ending before it is of use. */
function givesUp(one: SupervisedProcess, name: string): () => string | undefined {
  let why: string | undefined;
  const watch = (): void =>
    void one.nextEnd().then((end) => {
      if (one.starts() >= STARTS_BEFORE_GIVING_UP)
        why = `${name} ended ${one.starts()} times: ${end.tail.slice(-5).join("\n")}`;
      else watch();
    });
  watch();
  return () => why;
}

const directoryLost = (dataDirectory: string): ProblemError =>
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
  );

/**
 * Starts what one machine needs, and keeps it running: Postgres, NATS, and the services; a process that dies
 * is started again.
 * @throws ProblemError `bad-request` when the directory cannot be used, `conflict` when another stack uses
 * the directory, `unavailable` when a program is missing or something does not start; the signal's reason.
 * What was started is stopped then.
 */
export async function startLocalStack(options: LocalStackOptions): Promise<LocalStack> {
  const stack = new StackProcesses(options);
  await stack.start();
  return stack;
}
