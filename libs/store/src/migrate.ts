import { ProblemError } from "@internevo/domain";
import { sql } from "drizzle-orm";
import { drizzle, type NodePgDatabase } from "drizzle-orm/node-postgres";
import pg from "pg";
import { pause, sqlStateOf, withRetryOnConnectionLoss, type RetryOptions } from "./connection-loss.ts";
import type { Transaction } from "./database.ts";
import { applyMigrations, migrationsAfter, type MigrationMark } from "./migrations.ts";
import * as schema from "./schema/index.ts";

/** Any number that no other program in the database locks. */
const MIGRATION_LOCK = "7226034559411003";
/**
 * Others wait as long behind a wait for locks. It is shorter than the second after which Postgres ends somebody who
 * waits in a circle.
 */
const LOCK_MILLISECONDS = 500;
const LOCK_PAUSE_MILLISECONDS = 300;
const LOCK_NOT_AVAILABLE = "55P03";

/** The newest migration that a database has; undefined: it is empty. */
async function lastMigration(
  db: NodePgDatabase<typeof schema>,
): Promise<Pick<MigrationMark, "createdAt"> | undefined> {
  const { rows: there } = await db.execute<{ table: string | null }>(
    sql`select to_regclass('drizzle.__drizzle_migrations')::text as table`,
  );
  if (there[0]?.table == null) return undefined;
  const { rows } = await db.execute<{ createdAt: number }>(
    sql`select created_at::float8 as "createdAt" from drizzle.__drizzle_migrations order by created_at desc limit 1`,
  );
  return rows[0];
}

/**
 * Locks the tables that are there and that migrations name. Services of the version before read and write meanwhile:
 * table after table, somebody who has one of them and waits for another would be waited for.
 */
async function lockTables(tx: Transaction, statements: string): Promise<void> {
  const { rows } = await tx.execute<{ name: string }>(
    sql`select relname::text as name from pg_class
      where relnamespace = 'public'::regnamespace and relkind = 'r' order by relname`,
  );
  const named = rows.map(({ name }) => name).filter((name) => new RegExp(`\\b${name}\\b`).test(statements));
  if (named.length === 0) return;
  await tx.execute(sql.raw(`set local lock_timeout = ${LOCK_MILLISECONDS}`));
  const list = named.map((name) => pg.escapeIdentifier(name)).join(", ");
  await tx.execute(sql.raw(`lock table ${list} in access exclusive mode`));
  await tx.execute(sql`set local lock_timeout = 0`);
}

const inUse = (cause: unknown): ProblemError =>
  new ProblemError(
    "unavailable",
    "the database cannot be brought to this version: somebody uses its tables all the time",
    [
      {
        field: "DATABASE_URL",
        message: "names a database in which a backup or another long statement runs",
        remedy: "start the service again when it has ended: select * from pg_stat_activity shows it",
      },
    ],
    { cause },
  );

/** Applies what is missing, all or nothing. */
async function applyMissing(client: pg.Client, { forSeconds = 30, signal }: RetryOptions): Promise<void> {
  const db = drizzle(client, { schema });
  const deadline = performance.now() + forSeconds * 1000;
  for (;;) {
    const from = await lastMigration(db);
    const missing = migrationsAfter(from);
    if (missing.length === 0) return;
    try {
      await db.transaction(async (tx) => {
        await lockTables(tx, missing.flatMap((each) => each.sql).join("\n"));
        await applyMigrations(tx, from === undefined ? {} : { from });
      });
      return;
    } catch (error) {
      if (sqlStateOf(error) !== LOCK_NOT_AVAILABLE || signal?.aborted) throw error;
      if (performance.now() > deadline) throw inUse(error);
      await pause(LOCK_PAUSE_MILLISECONDS, signal);
    }
  }
}

/**
 * Brings the database to this version's schema. Any number of processes may do it at once: one migrates, the
 * others wait. While Postgres cannot be reached, or others use the tables, it is tried again for `forSeconds`
 * (default 30).
 * @throws ProblemError `unavailable` when others use the tables for so long
 */
export async function migrateDatabase(
  url: string,
  options: { readonly forSeconds?: number; readonly signal?: AbortSignal } = {},
): Promise<void> {
  await withRetryOnConnectionLoss(async () => {
    const client = new pg.Client({
      connectionString: url,
      application_name: "internevo-migrate",
      connectionTimeoutMillis: 5000,
    });
    // The query that runs fails with it, and is tried again.
    client.on("error", () => {});
    try {
      await client.connect();
      await client.query(`select pg_advisory_lock(${MIGRATION_LOCK})`);
      await applyMissing(client, options);
      await client.query(`select pg_advisory_unlock(${MIGRATION_LOCK})`);
    } finally {
      // It may never have been open; the lock goes with the connection.
      await client.end().catch(() => {});
    }
  }, options);
}
