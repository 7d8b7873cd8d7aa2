import { ProblemError } from "@internevo/domain";
import { eq } from "drizzle-orm";
import { sqlStateOf } from "./connection-loss.ts";
import type { Queryable } from "./database.ts";
import { projects } from "./schema/index.ts";

export const noProject = (name: string, field: string): ProblemError =>
  new ProblemError("not-found", `there is no project ${name}`, [
    { field, value: name, message: "names no project", remedy: "see GET /api/v1/projects" },
  ]);

const FOREIGN_KEY_VIOLATION = "23503";

/**
 * What it means that something cannot be stored in its project: that this was deleted meanwhile, if Postgres
 * says so.
 */
export const orNoProject = (error: unknown, name: string): unknown =>
  sqlStateOf(error) === FOREIGN_KEY_VIOLATION ? noProject(name, "project") : error;

/** Who counts what a project keeps before adding to it holds it, so that none passes a limit beside another. */
export async function lockProject(tx: Queryable, name: string): Promise<void> {
  const found = await tx
    .select({ name: projects.name })
    .from(projects)
    .where(eq(projects.name, name))
    .for("no key update");
  if (found.length === 0) throw noProject(name, "project");
}
