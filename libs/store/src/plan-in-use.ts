import { and, desc, eq, isNotNull, sql } from "drizzle-orm";
import type { Candidate, JobSpec } from "@internevo/domain";
import type { Queryable } from "./database.ts";
import { lastStepOf } from "./last-step.ts";
import type { RunOfJob } from "./plan-changes.ts";
import { isSameWork, type Work } from "./same-work.ts";
import { jobs, runs } from "./schema/index.ts";

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
