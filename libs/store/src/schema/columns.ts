import { timestamp } from "drizzle-orm/pg-core";

/** Milliseconds, as JavaScript's dates have them: a keyset cursor made from a date finds its row again. */
export const instant = (name: string) => timestamp(name, { withTimezone: true, precision: 3, mode: "date" });
