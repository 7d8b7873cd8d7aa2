import { ProblemError } from "@internevo/domain";
import { sqlStateOf } from "./connection-loss.ts";

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
