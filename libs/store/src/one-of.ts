import { sql, type SQL } from "drizzle-orm";
import type { PgColumn } from "drizzle-orm/pg-core";

/**
 * Whether a column has one of these values: one parameter for all of them. A parameter for each would be another
 * statement with every number of them, and building it takes longer than Postgres takes for the answer.
 */
export const isOneOf = (column: PgColumn, values: readonly string[]): SQL =>
  sql`${column} = any(${sql.param([...values])}::${sql.raw(column.getSQLType())}[])`;
