import type { Readable } from "node:stream";
import { ProblemError } from "@internevo/domain";
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import pg from "pg";
import type { Transaction } from "../database.ts";
import * as schema from "../schema/index.ts";
import { copyIn } from "./copy.ts";
import { applyMigrations, type MigrationMark } from "../migrations.ts";
import { settleRestored, type Settled, type SettleOptions } from "./settle.ts";
import { columnList, quoted, type CopiedTable, type SequenceValue } from "./snapshot.ts";

/** A copied table, and how many rows it must have. */
export interface StoredTable extends CopiedTable {
  readonly rows: number;
}

export interface DatabaseToRestore {
  readonly url: string;
  readonly migration: MigrationMark;
  readonly tables: readonly StoredTable[];
  readonly sequences: readonly SequenceValue[];
  /** What {@link SnapshotReader.copyTable} wrote of a table. */
  readonly open: (table: StoredTable) => Readable;
  readonly settle: SettleOptions;
}

const notEmpty = (name: string): ProblemError =>
  new ProblemError("conflict", `the database has tables already, such as ${name}`, [
    {
      field: "DATABASE_URL",
      message: `names a database that is not empty: it has ${name}`,
      remedy: "name an empty database, or drop this one and create it again",
    },
  ]);

async function assertEmpty(tx: Transaction): Promise<void> {
  const { rows } = await tx.execute<{ name: string }>(sql`
    select c.relname::text as name from pg_class c
    where c.relkind in ('r', 'p', 'v', 'm')
      and c.relnamespace in (select oid from pg_namespace where nspname in ('public', 'drizzle')) limit 1`);
  if (rows[0]) throw notEmpty(rows[0].name);
}

/** Those that others refer to first. @throws Error where tables refer to each other in a circle */
export function inOrderOfReferences<T extends { readonly name: string }>(
  tables: readonly T[],
  references: readonly { readonly from: string; readonly to: string }[],
): T[] {
  const ordered: T[] = [];
  let left = [...tables];
  while (left.length > 0) {
    const names = new Set(left.map(({ name }) => name));
    const free = left.filter(
      ({ name }) => !references.some(({ from, to }) => from === name && to !== name && names.has(to)),
    );
    if (free.length === 0) throw new Error(`these tables refer to each other: ${[...names].join(", ")}`);
    ordered.push(...free);
    left = left.filter((table) => !free.includes(table));
  }
  return ordered;
}

const wrongRows = (table: StoredTable, rows: number): ProblemError =>
  new ProblemError("data-invalid", `the backup of table ${table.name} is not complete`, [
    {
      field: table.name,
      value: rows,
      message: `has ${rows} rows, and not ${table.rows} as its manifest says`,
      remedy: "restore another backup",
    },
  ]);

/** Fills the tables of a schema that was just made, without what their triggers do for new rows. */
async function fillTables(
  tx: Transaction,
  client: pg.Client,
  { tables, open }: DatabaseToRestore,
): Promise<void> {
  const { rows: references } = await tx.execute<{ from: string; to: string }>(sql`
    select f.relname::text as "from", t.relname::text as "to"
    from pg_constraint c join pg_class f on f.oid = c.conrelid join pg_class t on t.oid = c.confrelid
    where c.contype = 'f' and c.connamespace = 'public'::regnamespace`);
  const ordered = inOrderOfReferences(tables, references);
  const withTriggers = async (does: "enable" | "disable"): Promise<void> => {
    for (const { name } of ordered)
      await tx.execute(sql.raw(`alter table ${quoted(name)} ${does} trigger user`));
  };
  await withTriggers("disable");
  // Migrations put rows there, which the copy has as well.
  await tx.execute(sql.raw(`truncate table ${ordered.map(({ name }) => quoted(name)).join(", ")}`));
  for (const table of ordered) {
    const rows = await copyIn(
      client,
      `copy ${quoted(table.name)} (${columnList(table)}) from stdin`,
      open(table),
    );
    if (rows !== table.rows) throw wrongRows(table, rows);
  }
  await withTriggers("enable");
}

/**
 * Restores a database in one transaction: schema of the backup's version, rows, sequences, this version's
 * schema, and what {@link settleRestored} puts right. All of it is there afterwards, or nothing.
 * @throws ProblemError `conflict` for a database that is not empty, `data-invalid` for rows that are missing;
 * what `pg` says where it cannot be reached.
 */
export async function restoreDatabase(backup: DatabaseToRestore): Promise<Settled> {
  const client = new pg.Client({
    connectionString: backup.url,
    application_name: "internevo-restore",
    connectionTimeoutMillis: 5000,
    keepAlive: true,
  });
  // The query that runs fails with it.
  client.on("error", () => {});
  try {
    await client.connect();
    return await drizzle(client, { schema }).transaction(async (tx) => {
      await assertEmpty(tx);
      await applyMigrations(tx, { to: backup.migration });
      await fillTables(tx, client, backup);
      for (const { name, value } of backup.sequences)
        await tx.execute(sql`select setval(${`public.${quoted(name)}`}::regclass, ${value}::bigint)`);
      await applyMigrations(tx, { from: backup.migration });
      return settleRestored(tx, backup.settle);
    });
  } finally {
    // It may never have been open.
    await client.end().catch(() => {});
  }
}
