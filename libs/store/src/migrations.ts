import { join } from "node:path";
import { sql } from "drizzle-orm";
import { readMigrationFiles, type MigrationMeta } from "drizzle-orm/migrator";
import type { Transaction } from "./database.ts";

/** The folder of migrations, with their journal. */
export const MIGRATIONS = join(import.meta.dirname, "..", "drizzle");

/** The newest migration that a database has. */
export interface MigrationMark {
  /** As the journal of migrations has it, in milliseconds. */
  readonly createdAt: number;
  readonly hash: string;
}

const journal = (): readonly MigrationMeta[] => readMigrationFiles({ migrationsFolder: MIGRATIONS });

/** Whether this version can bring a database forward from a migration: it knows it, unchanged. */
export const isKnownMigration = ({ createdAt, hash }: MigrationMark): boolean =>
  journal().some((each) => each.folderMillis === createdAt && each.hash === hash);

/** What a database of this version has. */
export function newestMigration(): MigrationMark {
  const last = journal().at(-1);
  if (!last) throw new Error("there are no migrations");
  return { createdAt: last.folderMillis, hash: last.hash };
}

/** Those after one, which a database has; all where it has none. */
export const migrationsAfter = (from?: Pick<MigrationMark, "createdAt">): readonly MigrationMeta[] =>
  journal().filter(({ folderMillis }) => from === undefined || folderMillis > from.createdAt);

/** Makes where drizzle keeps which migrations there were, as its own migrator does. */
async function prepareJournal(tx: Transaction): Promise<void> {
  await tx.execute(sql`create schema if not exists drizzle`);
  await tx.execute(
    sql`create table if not exists drizzle.__drizzle_migrations (id serial primary key, hash text not null, created_at bigint)`,
  );
}

/**
 * Applies migrations within the caller's transaction, which drizzle's own migrator cannot.
 * @param from those after this one; undefined: from the first.
 * @param to up to this one; undefined: all.
 */
export async function applyMigrations(
  tx: Transaction,
  { from, to }: { readonly from?: Pick<MigrationMark, "createdAt">; readonly to?: MigrationMark },
): Promise<void> {
  await prepareJournal(tx);
  for (const { folderMillis, hash, sql: statements } of migrationsAfter(from)) {
    if (to !== undefined && folderMillis > to.createdAt) continue;
    for (const statement of statements) await tx.execute(sql.raw(statement));
    await tx.execute(
      sql`insert into drizzle.__drizzle_migrations (hash, created_at) values (${hash}, ${folderMillis})`,
    );
  }
}
