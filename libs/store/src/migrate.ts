import { join } from "node:path";
import { drizzle } from "drizzle-orm/node-postgres";
import { migrate } from "drizzle-orm/node-postgres/migrator";
import pg from "pg";
import { withRetryOnConnectionLoss } from "./connection-loss.ts";

/** Any number that no other program in the database locks. */
const MIGRATION_LOCK = "7226034559411003";
/** The folder of migrations, with their journal. */
export const MIGRATIONS = join(import.meta.dirname, "..", "drizzle");

/**
 * Brings the database to this version's schema. Any number of processes may do it at once: one migrates, the
 * others wait. While Postgres cannot be reached, it is tried again for `forSeconds` (default 30).
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
      await migrate(drizzle(client), { migrationsFolder: MIGRATIONS });
      await client.query(`select pg_advisory_unlock(${MIGRATION_LOCK})`);
    } finally {
      // It may never have been open; the lock goes with the connection.
      await client.end().catch(() => {});
    }
  }, options);
}
