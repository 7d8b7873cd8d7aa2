import { formatInteger, ProblemError } from "@internevo/domain";
import type { SQL } from "drizzle-orm";
import type { PgTable } from "drizzle-orm/pg-core";
import type { Queryable } from "./database.ts";

/** How many of a kind a project may have, and what whoever adds one too many is told. */
export interface ProjectBound {
  readonly project: string;
  /** Of what, in the plural: `workloads`. */
  readonly things: string;
  readonly most: number;
  /** The field of what would be added. */
  readonly field: string;
  readonly value: unknown;
  readonly remedy: string;
}

/**
 * Checks that a project may have one more. Who calls it holds a lock that all hold who add to the project, so that
 * none passes the bound beside another.
 * @param kept which rows of the table are the project's and count
 * @throws ProblemError `quota-exceeded`
 */
export async function assertRoomFor(
  tx: Queryable,
  table: PgTable,
  kept: SQL | undefined,
  { project, things, most, field, value, remedy }: ProjectBound,
): Promise<void> {
  if ((await tx.$count(table, kept)) < most) return;
  const all = `${formatInteger(most)} ${things}`;
  throw new ProblemError("quota-exceeded", `project ${project} has ${all}, as many as a project may`, [
    { field, value, message: `would be one more than the ${all} that project ${project} may have`, remedy },
  ]);
}
