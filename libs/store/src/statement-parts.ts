import { sql, type SQL } from "drizzle-orm";
import type { PgColumn } from "drizzle-orm/pg-core";

/**
 * Whether a column has one of these values: one parameter for all of them. A parameter for each would be another
 * statement with every number of them, and building it takes longer than Postgres takes for the answer.
 */
export const isOneOf = (column: PgColumn, values: readonly string[]): SQL =>
  sql`${column} = any(${sql.param([...values])}::${sql.raw(column.getSQLType())}[])`;

/** The rows of a query as one value of another: several lists are read by one statement, at one moment. */
export const listOf = <T>(rows: SQL): SQL<T[]> =>
  sql<T[]>`(select coalesce(json_agg(listed), '[]') from (${rows}) listed)`;

/** An instant as JavaScript's clock says it. @param instant a column or an expression, as SQL has it */
export const millisecondsOf = (instant: string): SQL<number> =>
  sql<number>`${sql.raw(`(extract(epoch from ${instant}) * 1000)::float8`)}`;
