import { and, eq, exists, sql, type SQL } from "drizzle-orm";
import { DEFAULT_PROJECT, type JobSpec, type Workload } from "@internevo/domain";
import type { Queryable } from "./database.ts";
import { jobs, runs, workloads } from "./schema/index.ts";

/** What decides whether two jobs want the same plan: everything that a search looks at. */
const SAME = [
  "model",
  "sequenceLengthTokens",
  "globalBatchTokens",
  "precision",
  "headroom",
  "memoryModel",
  "timeModel",
] as const satisfies readonly (keyof JobSpec)[];

/** What says whose work a workload is, and which. */
export type Work = Pick<Workload, "project" | "spec">;

/** Jobs that do the same work as what has these values in its spec. */
function isSameSpec(valueOf: (field: (typeof SAME)[number] | "cluster") => SQL): SQL | undefined {
  const same = SAME.map((field) => sql`${jobs.spec} -> ${field} is not distinct from ${valueOf(field)}`);
  // With how few nodes training may go on is nothing to a search.
  return and(...same, sql`(${jobs.spec} -> 'cluster') - 'minNodes' = (${valueOf("cluster")}) - 'minNodes'`);
}

/** Jobs of a workload's project that do the same work. */
export const isSameWork = ({ project, spec }: Work): SQL | undefined =>
  and(
    eq(jobs.project, project ?? DEFAULT_PROJECT),
    isSameSpec((field) => sql`${JSON.stringify(spec[field]) ?? null}::jsonb`),
  );

/** Workloads with a run that trains now and does their work. */
export const hasRunningWork = (db: Queryable): SQL =>
  exists(
    db
      .select({ id: runs.id })
      .from(runs)
      .innerJoin(jobs, eq(jobs.id, runs.jobId))
      .where(
        and(
          eq(jobs.state, "running"),
          eq(jobs.project, workloads.project),
          isSameSpec((field) => sql`${workloads.spec} -> ${field}`),
        ),
      ),
  );
