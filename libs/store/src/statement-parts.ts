import { DEFAULT_PROJECT } from "@internevo/domain";
import { and, eq, gte, sql, type SQL } from "drizzle-orm";
import type { PgColumn } from "drizzle-orm/pg-core";
import { projects } from "./schema/index.ts";

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

/**
 * What is kept by a project's name, as its members may see it: nothing of a deleted project that had the name
 * before. The default project is never deleted, and has what was there before projects were.
 * @param project a column with the name @param at a column with the instant that a row is of
 */
export const seenByMembers = (name: string, project: PgColumn, at: PgColumn): SQL | undefined =>
  and(
    eq(project, name),
    name === DEFAULT_PROJECT
      ? undefined
      : gte(at, sql`(select ${projects.createdAt} from ${projects} where ${projects.name} = ${name})`),
  );
