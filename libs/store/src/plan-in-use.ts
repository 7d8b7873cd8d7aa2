import { and, desc, eq, exists, isNotNull, sql, type SQL } from "drizzle-orm";
import { DEFAULT_PROJECT, type Candidate, type JobSpec, type Workload } from "@internevo/domain";
import type { Queryable } from "./database.ts";
import { lastStepOf } from "./last-step.ts";
import type { RunOfJob } from "./plan-changes.ts";
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

type Work = Pick<Workload, "project" | "spec">;

/** Jobs that do the same work as what has these values in its spec. */
function isSameSpec(valueOf: (field: (typeof SAME)[number] | "cluster") => SQL): SQL | undefined {
  const same = SAME.map((field) => sql`${jobs.spec} -> ${field} is not distinct from ${valueOf(field)}`);
  // With how few nodes training may go on is nothing to a search.
  return and(...same, sql`(${jobs.spec} -> 'cluster') - 'minNodes' = (${valueOf("cluster")}) - 'minNodes'`);
}

/** Jobs of a workload's project that do the same work. */
const isSameWork = ({ project, spec }: Work): SQL | undefined =>
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

/**
 * The plan that a workload goes by: the one that the newest job of the same work trains or trained with, or that its
 * trials chose. Undefined where there is no such job. What was proposed counts when a run goes by it.
 */
export async function planInUse(db: Queryable, workload: Work): Promise<Candidate | undefined> {
  const [chosen] = await db
    .select({ candidate: sql<Candidate>`coalesce(${runs.candidate}, ${jobs.chosen})` })
    .from(jobs)
    .leftJoin(runs, eq(runs.jobId, jobs.id))
    .where(and(isNotNull(jobs.chosen), isSameWork(workload)))
    .orderBy(desc(jobs.createdAt))
    .limit(1);
  return chosen?.candidate;
}

/** A run that trains now, and what it trains. */
export interface RunningWork extends RunOfJob {
  readonly candidate: Candidate;
  readonly spec: JobSpec;
  readonly lastStep: number;
}

const lastStep = sql<number>`coalesce(${lastStepOf(sql`${runs.id}`, sql`m.step`)}, 0)`.mapWith(Number);

/** The newest run of a workload's work that trains now. */
export async function runningWork(db: Queryable, workload: Work): Promise<RunningWork | undefined> {
  const [row] = await db
    .select({ id: runs.id, jobId: jobs.id, candidate: runs.candidate, spec: jobs.spec, lastStep })
    .from(runs)
    .innerJoin(jobs, eq(jobs.id, runs.jobId))
    .where(and(eq(jobs.state, "running"), isSameWork(workload)))
    .orderBy(desc(jobs.createdAt))
    .limit(1);
  return row;
}
