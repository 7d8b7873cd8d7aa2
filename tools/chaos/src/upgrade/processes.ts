import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort, STACK_MARKER, type LocalStack, type ServiceProcess } from "@internevo/local-stack";

export type Version = "old" | "new";

/** How long a service may take to stop, and to be ready: systemd waits longer. */
const STOP_SECONDS = 60;
const READY_SECONDS = 90;
/** As systemd waits before it starts again what has ended. */
const RESTART_SECONDS = 1;
/** Levels of a log line that say that something went wrong. */
const BAD_LEVELS = ["error", "fatal"];

export interface Ended {
  readonly service: string;
  readonly version: Version;
  readonly how: string;
}

/** What the processes of a stack have said and done that nobody wants. */
export class Troubles {
  readonly ended: Ended[] = [];
  readonly #errors = new Map<string, number>();

  heard(service: string, version: Version, line: string): void {
    try {
      const { level, msg, err } = JSON.parse(line) as {
        level: string;
        msg: string;
        err?: { message?: string };
      };
      if (!BAD_LEVELS.includes(level)) return;
      const words = `${service} (${version}): ${msg}${err?.message === undefined ? "" : `: ${err.message}`}`;
      this.#errors.set(words, (this.#errors.get(words) ?? 0) + 1);
    } catch {
      // Not a line of its log.
    }
  }

  get errors(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#errors);
  }
}

interface Running {
  readonly child: ChildProcess;
  readonly ready: Promise<void>;
  readonly gone: Promise<string>;
}

/** One place of a service: a process of one version, then of the other. What ends by itself is started again. */
export class Place {
  readonly #name: string;
  readonly #instance: number;
  readonly #env: Readonly<Record<string, string>>;
  readonly #directory: string;
  readonly #troubles: Troubles;
  #running: Running | undefined;
  #stopping = false;

  constructor(
    name: string,
    instance: number,
    options: {
      readonly env: Readonly<Record<string, string>>;
      readonly directory: string;
      readonly troubles: Troubles;
    },
  ) {
    this.#name = name;
    this.#instance = instance;
    this.#env = options.env;
    this.#directory = options.directory;
    this.#troubles = options.troubles;
  }

  get label(): string {
    return `${this.#name} ${this.#instance + 1}`;
  }

  /** Starts a version. @throws Error where it is not ready in time */
  async start(service: ServiceProcess, version: Version): Promise<void> {
    this.#stopping = false;
    const running = this.#spawn(service, version);
    void running.gone.then(async (how) => {
      if (this.#stopping) return;
      this.#troubles.ended.push({ service: this.label, version, how });
      await sleep(RESTART_SECONDS * 1000);
      if (!this.#stopping) await this.start(service, version).catch(() => {});
    });
    const late = new AbortController();
    await Promise.race([
      running.ready,
      sleep(READY_SECONDS * 1000, undefined, { signal: late.signal }).then(() => {
        throw new Error(`${this.label} (${version}) is not ready within ${READY_SECONDS} s`);
      }),
    ]).finally(() => late.abort());
  }

  /** Asks it to end, as systemd does. @throws Error where it does not */
  async stop(): Promise<void> {
    this.#stopping = true;
    const running = this.#running;
    if (running === undefined) return;
    running.child.kill("SIGTERM");
    const late = new AbortController();
    await Promise.race([
      running.gone,
      sleep(STOP_SECONDS * 1000, undefined, { signal: late.signal }).then(() => {
        running.child.kill("SIGKILL");
        throw new Error(`${this.label} does not end within ${STOP_SECONDS} s of SIGTERM`);
      }),
    ]).finally(() => late.abort());
  }

  #spawn(service: ServiceProcess, version: Version): Running {
    const child = spawn("setpriv", ["--pdeathsig", "KILL", process.execPath, service.entry], {
      cwd: this.#directory,
      env: { ...this.#env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const log = join(this.#directory, "logs", `${this.#name}-${this.#instance + 1}-${version}.log`);
    const ready = Promise.withResolvers<void>();
    for (const stream of [child.stdout, child.stderr])
      createInterface({ input: stream }).on("line", (line) => {
        appendFileSync(log, `${line}\n`);
        this.#troubles.heard(this.label, version, line);
        if (line.includes('"event":"ready"')) ready.resolve();
      });
    const gone = once(child, "close").then(([code, signal]) => String(signal ?? `exit ${code}`));
    this.#running = { child, ready: ready.promise, gone };
    return this.#running;
  }
}

/** The places of a stack's services, and where its APIs answer. */
export interface Places {
  readonly of: (name: string, instance: number) => Place;
  readonly all: readonly Place[];
  readonly apiUrls: readonly string[];
}

/** Places for so many processes of each service, over one stack's database and broker. */
export async function makePlaces(
  stack: LocalStack,
  names: readonly string[],
  options: {
    readonly instances: number;
    readonly directory: string;
    readonly settings: Readonly<Record<string, string>>;
    readonly troubles: Troubles;
  },
): Promise<Places> {
  const { databaseUrl, natsUrl, namespace, apiToken } = stack.info();
  const { directory, settings, troubles } = options;
  const apiUrls: string[] = [];
  const places = new Map<string, Place>();
  for (const name of names)
    for (let instance = 0; instance < options.instances; instance += 1) {
      const env: Record<string, string> = {};
      for (const [key, value] of Object.entries(process.env))
        if (value !== undefined && !key.startsWith("npm_")) env[key] = value;
      Object.assign(env, settings, {
        [STACK_MARKER]: directory,
        DATABASE_URL: databaseUrl,
        NATS_URL: natsUrl,
        INTERNEVO_NAMESPACE: namespace,
        INTERNEVO_DATA_DIRECTORY: directory,
        HEALTH_PORT: "0",
      });
      if (name === "api") {
        const port = await freePort();
        // The version that takes the place over answers there too.
        Object.assign(env, { INTERNEVO_API_PORT: String(port), INTERNEVO_API_TOKEN: apiToken });
        apiUrls.push(`http://127.0.0.1:${port}`);
      }
      places.set(`${name} ${instance}`, new Place(name, instance, { env, directory, troubles }));
    }
  return {
    of: (name, instance) => places.get(`${name} ${instance}`) as Place,
    all: [...places.values()],
    apiUrls,
  };
}
