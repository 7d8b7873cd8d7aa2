import { drizzle, type NodePgDatabase, type NodePgQueryResultHKT } from "drizzle-orm/node-postgres";
import type { PgDatabase } from "drizzle-orm/pg-core";
import pg from "pg";
import { AnswerWatch } from "./answer-watch.ts";
import {
  isConnectionLoss,
  isDiskFull,
  withRetryOnConnectionLoss,
  type RetryOptions,
} from "./connection-loss.ts";
import { createNotificationHub, type NotificationHub } from "./notifications.ts";
import * as schema from "./schema/index.ts";

type Schema = typeof schema;
/** A database or a transaction: what every repository function takes first. */
export type Queryable = PgDatabase<NodePgQueryResultHKT, Schema>;
/** Marks functions whose changes belong together: call them inside `database.transaction`. */
export type Transaction = Parameters<Parameters<NodePgDatabase<Schema>["transaction"]>[0]>[0];

export interface DatabaseOptions {
  /** `postgres://…`, or a socket: `postgres://user:password@/name?host=/directory`. */
  readonly url: string;
  /** Shown in pg_stat_activity. */
  readonly applicationName: string;
  /** Default 8. */
  readonly maxConnections?: number;
  /** How long a statement may take. Default 30; null: as long as it wants. */
  readonly statementSeconds?: number | null;
  /** Told of lost idle connections; they are replaced. */
  readonly onConnectionError?: (error: Error) => void;
}

export interface Database {
  readonly url: string;
  /** For reads, and single statements. */
  readonly db: NodePgDatabase<Schema>;
  /** One transaction, tried once. */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /** A transaction that is idempotent as a whole, repeated while Postgres is away. */
  idempotentTransaction<T>(work: (tx: Transaction) => Promise<T>, options?: RetryOptions): Promise<T>;
  /** Postgres's notifications, by one connection that comes back by itself. */
  readonly notifications: NotificationHub;
  /** Whether Postgres answers now. */
  isUp(): Promise<boolean>;
  /**
   * Whether Postgres takes writes now, and has room on its disk. It writes a temporary file of some hundred KiB, which is
   * gone at once: no row, no log and nothing for vacuum is left of it.
   */
  canWrite(): Promise<boolean>;
  close(): Promise<void>;
}

const CONNECT_MILLISECONDS = 5000;
/** They do not fit in 64 kB, so that Postgres keeps them in a temporary file. */
const SPILLED_ROWS = 20_000;
/** By so much a silence may be longer than a statement: Postgres itself ends one that takes too long. */
const GRACE_MILLISECONDS = 10_000;

/**
 * Transactions that give their connection back however they end. Drizzle keeps one whose `begin` fails, and
 * the pool would have one fewer for good.
 */
function transactionsOf(pool: pg.Pool): NodePgDatabase<Schema>["transaction"] {
  const known = new WeakMap<pg.PoolClient, NodePgDatabase<Schema>>();
  return async (work, config) => {
    const client = await pool.connect();
    try {
      const db = known.get(client) ?? drizzle(client, { schema });
      known.set(client, db);
      return await db.transaction(work, config);
    } finally {
      client.release();
    }
  };
}

/**
 * Opens a pool that survives the death of Postgres, and its standstill. Nothing is connected before the first
 * query.
 */
export function openDatabase(options: DatabaseOptions): Database {
  const onConnectionError = options.onConnectionError ?? (() => {});
  const { statementSeconds = 30 } = options;
  const statementMilliseconds = statementSeconds === null ? null : statementSeconds * 1000;
  const pool = new pg.Pool({
    connectionString: options.url,
    application_name: options.applicationName,
    max: options.maxConnections ?? 8,
    connectionTimeoutMillis: CONNECT_MILLISECONDS,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    statement_timeout: statementMilliseconds ?? false,
    idle_in_transaction_session_timeout: 30_000,
  });
  // Without these listeners a killed Postgres ends the process: idle clients report to the pool, those in use
  // to themselves.
  pool.on("error", onConnectionError);
  pool.on("connect", (client) => client.on("error", onConnectionError));
  new AnswerWatch(pool, {
    url: options.url,
    applicationName: options.applicationName,
    connectMilliseconds: CONNECT_MILLISECONDS,
    longestSilenceMilliseconds:
      statementMilliseconds === null ? null : statementMilliseconds + GRACE_MILLISECONDS,
  });
  const db = drizzle(pool, { schema });
  const notifications = createNotificationHub({
    url: options.url,
    applicationName: options.applicationName,
    onConnectionError,
  });
  const transaction: Database["transaction"] = (work) => db.transaction(work);
  db.transaction = transactionsOf(pool);
  let closing: Promise<void> | undefined;
  return {
    url: options.url,
    db,
    transaction,
    idempotentTransaction: (work, retry) => withRetryOnConnectionLoss(() => transaction(work), retry),
    notifications,
    async isUp() {
      try {
        await db.execute("select 1");
        return true;
      } catch (error) {
        if (isConnectionLoss(error)) return false;
        throw error;
      }
    },
    async canWrite() {
      try {
        return await transaction(async (tx) => {
          await tx.execute("set local work_mem = '64kB'");
          const { rows } = await tx.execute<{ writable: boolean }>(
            `select not pg_is_in_recovery() and current_setting('transaction_read_only') = 'off'
               and count(*) > 0 as writable from generate_series(1, ${SPILLED_ROWS})`,
          );
          return rows[0]?.writable === true;
        });
      } catch (error) {
        if (isDiskFull(error) || isConnectionLoss(error)) return false;
        throw error;
      }
    },
    close() {
      closing ??= Promise.all([notifications.close(), pool.end()]).then(() => {});
      return closing;
    },
  };
}
