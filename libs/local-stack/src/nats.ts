import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ProblemError } from "@internevo/domain";
import { assertServerVersion } from "@internevo/bus";
import { commandContains, endProcesses, isAlive } from "./proc.ts";
import type { ProcessDefinition } from "./supervisor.ts";

export interface NatsSettings {
  /** `nats`; further servers of a cluster have a number behind it. */
  readonly name: string;
  /** Its configuration and its store. */
  readonly directory: string;
  readonly port: number;
  /** Of the cluster that it belongs to: its own port for the others, and those of all. */
  readonly routes?: { readonly own: number; readonly all: readonly number[] };
  readonly token: string;
  readonly logFile: string;
  readonly env: Readonly<Record<string, string>>;
}

export const natsUrl = ({ token, port }: Pick<NatsSettings, "token" | "port">): string =>
  `nats://${encodeURIComponent(token)}@127.0.0.1:${port}`;

/** Where the servers of a cluster find each other. */
const clusterOf = ({ name, routes }: NatsSettings) =>
  routes && {
    server_name: name,
    cluster: {
      name: "internevo",
      host: "127.0.0.1",
      port: routes.own,
      routes: routes.all.filter((port) => port !== routes.own).map((port) => `nats://127.0.0.1:${port}`),
    },
  };

/**
 * Finds a server that is new enough. @throws ProblemError `unavailable`, with the version when it is too old.
 */
export function findNatsServer(): string {
  const directories = [
    ...(process.env["PATH"] ?? "").split(delimiter),
    "/usr/local/bin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/sbin",
  ];
  const path = directories
    .map((directory) => join(directory, "nats-server"))
    .find((candidate) => existsSync(candidate));
  if (path === undefined) {
    throw new ProblemError("unavailable", "nats-server is not installed", [
      {
        field: "NATS_URL",
        message: "is not given, and there is no nats-server to start",
        remedy: "install Debian's nats-server, or set NATS_URL",
      },
    ]);
  }
  const version =
    /v(\d+\.\d+\.\d+)/.exec(spawnSync(path, ["--version"], { encoding: "utf8" }).stdout)?.[1] ?? "0.0.0";
  assertServerVersion(version);
  return path;
}

/** Ends a server that a killed parent has left. */
async function stopLeftoverNats(directory: string): Promise<void> {
  const pidFile = join(directory, "nats.pid");
  const pid = existsSync(pidFile) ? Number(readFileSync(pidFile, "utf8").trim()) : 0;
  if (pid > 0 && isAlive(pid) && commandContains(pid, join(directory, "nats.conf")))
    await endProcesses([pid], "SIGTERM", 5);
}

/** A NATS server with JetStream as a supervised process on the loopback. */
export function natsProcess(settings: NatsSettings): ProcessDefinition {
  const { name, directory, port, token, logFile, env } = settings;
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const configuration = join(directory, "nats.conf");
  const text = JSON.stringify(
    {
      host: "127.0.0.1",
      port,
      pid_file: join(directory, "nats.pid"),
      jetstream: {
        store_dir: join(directory, "store"),
        max_memory_store: 64 * 1024 * 1024,
        max_file_store: 1024 * 1024 * 1024,
      },
      authorization: { token },
      ...clusterOf(settings),
    },
    null,
    1,
  );
  writeFileSync(configuration, text, { mode: 0o600 });
  return {
    name,
    command: "setpriv",
    args: ["--pdeathsig", "TERM", findNatsServer(), "-c", configuration],
    env,
    directory,
    logFile,
    stopSignal: "SIGTERM",
    stopSeconds: 5,
    prepare: () => stopLeftoverNats(directory),
  };
}

/** Waits until the port answers as NATS does. */
export async function waitForNats(port: number, seconds = 30): Promise<void> {
  const deadline = performance.now() + seconds * 1000;
  for (;;) {
    const greeted = await new Promise<boolean>((resolve) => {
      const socket = connect(port, "127.0.0.1");
      socket.setTimeout(2000, () => socket.destroy());
      socket.once("data", (data) => (resolve(data.toString().startsWith("INFO ")), socket.destroy()));
      socket.once("error", () => resolve(false));
      socket.once("close", () => resolve(false));
    });
    if (greeted) return;
    if (performance.now() > deadline) throw new Error(`NATS does not answer on port ${port}`);
    await sleep(50);
  }
}
