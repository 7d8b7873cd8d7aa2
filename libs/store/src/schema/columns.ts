import { sql } from "drizzle-orm";
import { timestamp } from "drizzle-orm/pg-core";

/** Milliseconds, as JavaScript's dates have them: a keyset cursor made from a date finds its row again. */
export const instant = (name: string) => timestamp(name, { withTimezone: true, precision: 3, mode: "date" });

/** What a column may hold, as a condition of its table. */
export const oneOf = (column: string, values: readonly string[]) =>
  sql.raw(`${column} in (${values.map((value) => `'${value}'`).join(", ")})`);
