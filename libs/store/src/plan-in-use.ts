import { and, desc, eq, exists, isNotNull, or, sql } from "drizzle-orm";
import type { Candidate, JobSpec, Workload } from "@internevo/domain";
import type { Queryable } from "./database.ts";
import { lastStepOf } from "./last-step.ts";
import type { RunOfJob } from "./plan-changes.ts";
import { isSameWork, isSameWorkUnderAnyPlan, type Work } from "./same-work.ts";
import { jobs, proposals, runs } from "./schema/index.ts";

/**
 * The plan that a workload goes by: the one that the newest job of the same work trains or trained with, or that its
 * trials chose. Undefined where there is no such job. What was proposed counts when a run goes by it, also where the
 * run's job file fixes it.
 */
export async function planInUse(
  db: Queryable,
  workload: Pick<Workload, "id" | "project" | "spec">,
): Promise<Candidate | undefined> {
  const candidate = sql<Candidate>`coalesce(${runs.candidate}, ${jobs.chosen})`;
  const isProposed = exists(
    db
      .select({ id: proposals.id })
      .from(proposals)
      .where(
        and(
          eq(proposals.workloadId, workload.id),
          sql`${proposals.proposed} -> 'plan' = (${candidate}) -> 'plan'`,
        ),
      ),
  );
  const takesUp = and(sql`${jobs.spec} -> 'plan' is not null`, isSameWorkUnderAnyPlan(workload), isProposed);
  const [chosen] = await db
    .select({ candidate })
    .from(jobs)
    .leftJoin(runs, eq(runs.jobId, jobs.id))
    .where(and(isNotNull(jobs.chosen), or(isSameWork(workload), takesUp)))
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

/** Whether a run does a workload's work now, and so holds its cluster, also under a plan that its job file fixes. */
export async function isBeingTrained(db: Queryable, workload: Work): Promise<boolean> {
  const rows = await db
    .select({ id: runs.id })
    .from(runs)
    .innerJoin(jobs, eq(jobs.id, runs.jobId))
    .where(and(eq(jobs.state, "running"), isSameWorkUnderAnyPlan(workload)))
    .limit(1);
  return rows.length > 0;
}

/** The newest run of a workload's work that trains now, and whose plan the workload may change. */
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
