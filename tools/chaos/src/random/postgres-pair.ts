import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "@internevo/local-stack";
import {
  findPostgres,
  initialisePostgres,
  postgresProcess,
  postgresUrl,
  preparePostgresHome,
  runAsOwner,
  supervise,
  waitForPostgres,
  type PostgresSettings,
  type SupervisedProcess,
} from "@internevo/local-stack/postgres-server";
import pg from "pg";
import { Link } from "./links.ts";

/** Of both servers, which are thrown away. */
const PASSWORD = "pair";
const LOOK_MILLISECONDS = 100;
/** Where a promotion, or a copy, has to end. */
const PATIENCE_SECONDS = 60;

/** Copies one server's files while it runs, but not its log of changes, which the copy asks for. */
const COPY = `find "$2" -mindepth 1 -delete
cd "$1"
tar -c --exclude='./pg_wal/*' --exclude=./postmaster.pid --warning=no-file-changed . | tar -x -C "$2"`;
/** The copy follows the server that it was made of when it starts. */
const FOLLOW = `cat > "$1/backup_label"
touch "$1/standby.signal"
printf "primary_conninfo = '%s'\\n" "$2" >> "$1/postgresql.auto.conf"`;

class Server {
  readonly name: string;
  readonly settings: PostgresSettings;
  #process: SupervisedProcess | undefined;
  #isUp = false;

  constructor(directory: string, name: string, port: number) {
    const home = join(directory, name);
    mkdirSync(home, { recursive: true, mode: 0o755 });
    this.name = name;
    this.settings = {
      home: preparePostgresHome(findPostgres(), home),
      port,
      password: PASSWORD,
      logFile: join(home, "log"),
      durable: false,
      env: { PATH: process.env["PATH"] ?? "" },
    };
  }

  get pid(): number | undefined {
    return this.#process?.pid();
  }

  /** Whether it was started, and has not ended. */
  get isUp(): boolean {
    return this.#isUp;
  }

  /** It is not started again when it ends: whoever looks after the pair decides what becomes of it. */
  start(): void {
    this.#isUp = true;
    this.#process = supervise(postgresProcess(this.settings), {
      onStart: () => this.#process?.letEnd(),
      onLine: () => {},
      onEnd: () => (this.#isUp = false),
    });
  }

  stop(): Promise<void> {
    return this.#process?.stop() ?? Promise.resolve();
  }

  /** Asks by a connection of its own. */
  async connected<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
    const client = new pg.Client({
      connectionString: postgresUrl(this.settings, "postgres"),
      connectionTimeoutMillis: 2000,
      query_timeout: PATIENCE_SECONDS * 1000,
    });
    // Heard again, and handled, where the connection is used.
    client.on("error", () => {});
    try {
      await client.connect();
      return await work(client);
    } finally {
      // The server may have been killed meanwhile: then nothing is left to be closed.
      await client.end().catch(() => {});
    }
  }

  ask<T extends pg.QueryResultRow>(text: string): Promise<readonly T[]> {
    return this.connected(async (client) => (await client.query<T>(text)).rows);
  }

  /** Becomes a copy of another that runs: needs no program beside the server's own. */
  copyOf(other: Server): Promise<void> {
    const { home, env } = this.settings;
    return other.connected(async (client) => {
      await client.query("select pg_backup_start('pair', true)");
      runAsOwner(home, COPY, [other.settings.home.dataDirectory, home.dataDirectory], env);
      const { rows } = await client.query<{ label: string }>(
        "select labelfile as label from pg_backup_stop(false)",
      );
      const source = postgresUrl(other.settings, "postgres");
      runAsOwner(home, FOLLOW, [home.dataDirectory, source], env, rows[0]?.label);
    });
  }
}

/**
 * Two servers behind one address: a primary, and a standby that has every commit before anybody is told of it. When
 * the primary dies the standby takes its place, and the dead one comes back as the standby of the other. What
 * a cluster's own tools do is done here in the plainest way: one looks after both, and clients reach the primary
 * through a link that changes where it leads.
 */
export class PostgresPair {
  readonly #servers: readonly [Server, Server];
  readonly #link: Link;
  #primary: Server;
  /** The standby was made from the primary that is one now. */
  #isCopied = false;
  /** Commits wait for the standby. */
  #isSynchronous = false;
  #isOver = false;
  #tending: Promise<void> = Promise.resolve();
  /** How often the standby took the primary's place. */
  failovers = 0;

  private constructor(servers: readonly [Server, Server], link: Link) {
    this.#servers = servers;
    this.#link = link;
    this.#primary = servers[0];
  }

  /** @param directory of the two servers, which others may walk through */
  static async start(directory: string): Promise<PostgresPair> {
    const [first, second] = [
      new Server(directory, "a", await freePort()),
      new Server(directory, "b", await freePort()),
    ];
    const pair = new PostgresPair([first, second], await Link.to(first.settings.port));
    try {
      initialisePostgres(first.settings);
      first.start();
      await waitForPostgres(first.settings);
      await first.ask("alter system set wal_keep_size = '256MB'");
    } catch (error) {
      await pair.stop();
      throw error;
    }
    pair.#tending = pair.#tend();
    return pair;
  }

  /** Of whichever server is the primary. */
  get url(): string {
    return postgresUrl({ port: this.#link.port, password: PASSWORD });
  }

  /** Of the standby itself, past whatever leads to the primary. */
  get standbyUrl(): string {
    return postgresUrl({ port: this.#standby.settings.port, password: PASSWORD });
  }

  get #standby(): Server {
    return this.#servers[0] === this.#primary ? this.#servers[1] : this.#servers[0];
  }

  pidOf(role: "primary" | "standby"): number | undefined {
    return (role === "primary" ? this.#primary : this.#standby).pid;
  }

  /** Whether the standby could take the primary's place now without losing a commit. */
  get isSynchronous(): boolean {
    return this.#isSynchronous && this.#primary.isUp && this.#standby.isUp;
  }

  async #tend(): Promise<void> {
    for (; !this.#isOver; await sleep(LOOK_MILLISECONDS)) {
      try {
        if (!this.#primary.isUp) await this.#replacePrimary();
        else if (!this.#standby.isUp) await this.#startStandby();
        else if (!this.#isSynchronous) await this.#waitForStandby();
      } catch (error) {
        // Whoever died meanwhile is seen in the next turn.
        console.error(`  the pair of Postgres: ${(error as Error).message}`);
      }
    }
  }

  async #replacePrimary(): Promise<void> {
    const standby = this.#standby;
    if (!this.#isSynchronous || !standby.isUp) return this.#primary.start();
    // The answer of a promotion may have been lost: it is asked for once only.
    await standby.ask(`select pg_promote(true, ${PATIENCE_SECONDS}) where pg_is_in_recovery()`);
    this.#primary = standby;
    this.#isCopied = false;
    this.#isSynchronous = false;
    this.#link.leadTo(standby.settings.port);
    this.failovers += 1;
  }

  async #startStandby(): Promise<void> {
    if (!this.#isCopied) {
      await this.#standby.copyOf(this.#primary);
      this.#isCopied = true;
    }
    this.#standby.start();
  }

  async #waitForStandby(): Promise<void> {
    const [found] = await this.#primary.ask("select 1 from pg_stat_replication where state = 'streaming'");
    if (!found) return;
    await this.#primary.ask("alter system set synchronous_standby_names = '*'");
    await this.#primary.ask("select pg_reload_conf()");
    const [set] = await this.#primary.ask<{ name: string }>(
      "select current_setting('synchronous_standby_names') as name",
    );
    this.#isSynchronous = set?.name === "*";
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#tending;
    this.#link.close();
    await Promise.all(this.#servers.map((server) => server.stop()));
  }
}
