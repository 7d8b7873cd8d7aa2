import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import type { PostgresHome } from "./postgres-identity.ts";
import { commandContains, endProcesses, isAlive } from "./proc.ts";
import type { ProcessDefinition } from "./supervisor.ts";

const SUPERUSER = "internevo";
const DATABASE = "internevo";

export interface PostgresSettings {
  readonly home: PostgresHome;
  readonly port: number;
  readonly password: string;
  readonly logFile: string;
  /** Whether a commit survives a loss of power. Tests need not. */
  readonly durable: boolean;
  readonly env: Readonly<Record<string, string>>;
}

export const postgresUrl = (
  settings: Pick<PostgresSettings, "port" | "password">,
  database = DATABASE,
): string =>
  `postgres://${SUPERUSER}:${encodeURIComponent(settings.password)}@127.0.0.1:${settings.port}/${database}`;

/** The same server and user, another database. */
export const databaseUrlFor = (url: string, name: string): string => {
  const changed = new URL(url);
  changed.pathname = `/${name}`;
  return changed.href;
};

/** Ends a Postgres that a killed parent has left in the directory. */
export async function stopLeftoverPostgres(dataDirectory: string): Promise<void> {
  const pidFile = join(dataDirectory, "postmaster.pid");
  if (!existsSync(pidFile)) return;
  const pid = Number(readFileSync(pidFile, "utf8").split("\n")[0]);
  if (!Number.isInteger(pid) || pid <= 0 || !isAlive(pid)) return;
  if (commandContains(pid, dataDirectory)) await endProcesses([pid], "SIGINT", 15);
  // The pid belongs to another program by now, which Postgres cannot tell. Otherwise the file stays: it lets
  // Postgres find orphaned backends.
  else rmSync(pidFile, { force: true });
}

/** Runs a shell script as the user that Postgres runs as. */
export function runAsOwner(
  home: PostgresHome,
  script: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  input = "",
): void {
  const { command, args: before } = home.asOwner("/bin/sh", ["-c", script, "sh", ...args]);
  const done = spawnSync(command, before, { input, env: { ...env }, encoding: "utf8" });
  if (done.status !== 0)
    throw new Error(
      `the files of Postgres could not be made (${done.status ?? done.signal ?? done.error?.message}): ${done.stderr || done.stdout}`,
    );
}

/** Makes the database files on the first start. Half-made ones are made again. */
export function initialisePostgres({ home, password, env }: PostgresSettings): void {
  const { dataDirectory, binaries } = home;
  if (existsSync(join(dataDirectory, "internevo-made"))) return;
  runAsOwner(home, 'find "$1" -mindepth 1 -delete', [dataDirectory], env);
  const options = [
    "-D",
    dataDirectory,
    "-U",
    SUPERUSER,
    "--encoding=UTF8",
    "--locale=C",
    "--auth=scram-sha-256",
    "--pwfile=/dev/stdin",
    "--no-sync",
    "--no-instructions",
  ];
  // Through a pipe: what Node gives as stdin is a socket, which cannot be opened by name.
  runAsOwner(home, 'cat | "$@"', [join(binaries.bin, "initdb"), ...options], env, `${password}\n`);
  runAsOwner(home, 'touch "$1/internevo-made"', [dataDirectory], env);
}

/** Postgres as a supervised process on the loopback; SIGINT is its fast shutdown. */
export function postgresProcess(settings: PostgresSettings): ProcessDefinition {
  const { home, port, logFile, durable, env } = settings;
  const options = {
    listen_addresses: "127.0.0.1",
    port: String(port),
    unix_socket_directories: "",
    max_connections: "200",
    shared_buffers: "64MB",
    max_wal_size: "256MB",
    fsync: durable ? "on" : "off",
    full_page_writes: durable ? "on" : "off",
    log_timezone: "UTC",
    timezone: "UTC",
  };
  const wrapped = home.asOwner(
    join(home.binaries.bin, "postgres"),
    [
      "-D",
      home.dataDirectory,
      ...Object.entries(options).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
    ],
    "INT",
  );
  return {
    name: "postgres",
    ...wrapped,
    env,
    directory: "/",
    logFile,
    stopSignal: "SIGINT",
    stopSeconds: 15,
    prepare: () => stopLeftoverPostgres(home.dataDirectory),
  };
}

/** Waits until Postgres answers, and makes the database. */
export async function waitForPostgres(
  settings: Pick<PostgresSettings, "port" | "password">,
  seconds = 60,
  stop?: () => string | undefined,
): Promise<void> {
  const deadline = performance.now() + seconds * 1000;
  for (;;) {
    const client = new pg.Client({
      connectionString: postgresUrl(settings, "postgres"),
      connectionTimeoutMillis: 2000,
    });
    // Heard again, and handled, where the connection is used.
    client.on("error", () => {});
    try {
      await client.connect();
      const { rowCount } = await client.query("select 1 from pg_database where datname = $1", [DATABASE]);
      if (rowCount === 0) await client.query(`create database ${DATABASE}`);
      return;
    } catch (error) {
      const failed = stop?.();
      if (failed !== undefined || performance.now() > deadline)
        throw new Error(`Postgres does not answer: ${failed ?? (error as Error).message}`, { cause: error });
      await sleep(50);
    } finally {
      // It may never have been open.
      await client.end().catch(() => {});
    }
  }
}
