import { desc, eq } from "drizzle-orm";
import type { EventData, EventType } from "@internevo/contracts";
import type { Queryable } from "./database.ts";
import { enqueueMessages, type OutboxMessage } from "./outbox.ts";
import { jobs, runs, workloadFirings, workloads, type attempts, type trials } from "./schema/index.ts";
import { newTraceparent } from "./trace.ts";

/** What events are about: a job or a workload, and whose it is. */
export interface EventSubject {
  readonly project: string;
  readonly traceparent: string;
}
export interface JobSubject extends EventSubject {
  readonly jobId: string;
  readonly jobName: string;
}

/** Without what every event of a job has. */
type DataOfJob<T extends EventType> = Omit<EventData<T>, "jobId" | "jobName">;

/** An event of a job, to be written beside other messages. */
export const jobEvent = <T extends EventType>(
  { jobId, jobName, project, traceparent }: JobSubject,
  type: T,
  data: DataOfJob<T>,
): OutboxMessage => ({ type, project, traceparent, data: { jobId, jobName, ...data } });

const JOB_COLUMNS = {
  jobId: jobs.id,
  jobName: jobs.name,
  project: jobs.project,
  traceparent: jobs.traceparent,
};

/** The job of a run, as its events name it. */
export async function jobOfRun(db: Queryable, runId: string): Promise<JobSubject | undefined> {
  const [row] = await db
    .select(JOB_COLUMNS)
    .from(jobs)
    .innerJoin(runs, eq(runs.jobId, jobs.id))
    .where(eq(runs.id, runId));
  return row;
}

/** As events name a job. */
export async function jobSubject(db: Queryable, jobId: string): Promise<JobSubject | undefined> {
  const [row] = await db.select(JOB_COLUMNS).from(jobs).where(eq(jobs.id, jobId));
  return row;
}

/** A trial that has ended, as its row says. */
export const trialEnded = (job: JobSubject, row: typeof trials.$inferSelect): OutboxMessage =>
  jobEvent(job, "trial.ended", {
    trialId: row.id,
    rank: row.rank,
    plan: row.candidate.plan,
    state: row.state,
    predictedStepTimeSeconds: row.candidate.predicted.stepTimeSeconds,
    stepTimeSeconds: row.measured?.stepTimeSeconds ?? null,
    tokensPerGpuPerSecond: row.measured?.tokensPerGpuPerSecond ?? null,
    peakMemoryBytes: row.measured?.peakMemoryBytes ?? null,
    failure: row.failure,
  });

/** An attempt that has ended, as its row says. */
export const attemptEnded = (
  job: JobSubject,
  row: Pick<typeof attempts.$inferSelect, "number" | "state" | "lastStep" | "failure" | "gaveWayTo">,
): OutboxMessage =>
  jobEvent(job, "attempt.ended", {
    number: row.number,
    state: row.state,
    lastStep: row.lastStep,
    failure: row.failure,
    gaveWayTo: row.gaveWayTo,
  });

/** Who asked for what was measured or planned. */
export type Asker = { readonly jobId: string } | { readonly workloadId: string };

/** A workload has a trace of its own for each of its runs. */
async function workloadSubject(
  db: Queryable,
  workloadId: string,
): Promise<(EventSubject & { readonly workloadName: string }) | undefined> {
  const [row] = await db
    .select({
      workloadName: workloads.name,
      project: workloads.project,
      traceparent: workloadFirings.traceparent,
    })
    .from(workloads)
    .leftJoin(workloadFirings, eq(workloadFirings.workloadId, workloads.id))
    .where(eq(workloads.id, workloadId))
    .orderBy(desc(workloadFirings.createdAt))
    .limit(1);
  return row && { ...row, traceparent: row.traceparent ?? newTraceparent() };
}

/** Announces what a job did. A job that is gone announces nothing. */
export async function announceOfJob<T extends EventType>(
  tx: Queryable,
  jobId: string,
  type: T,
  data: DataOfJob<T>,
): Promise<void> {
  const job = await jobSubject(tx, jobId);
  if (job) await enqueueMessages(tx, [jobEvent(job, type, data)]);
}

/** Announces what became of a workload's proposal. */
export async function announceOfWorkload<T extends "proposal.made" | "proposal.transitioned">(
  tx: Queryable,
  workloadId: string,
  type: T,
  data: Omit<EventData<T>, "workloadId" | "workloadName">,
): Promise<void> {
  const found = await workloadSubject(tx, workloadId);
  if (!found) return;
  const { workloadName, project, traceparent } = found;
  await enqueueMessages(tx, [{ type, project, traceparent, data: { workloadId, workloadName, ...data } }]);
}

/** Announces what was found for a job or a workload. */
export async function announceFound<T extends "profile.measured" | "planning.done">(
  tx: Queryable,
  asker: Asker,
  type: T,
  data: Omit<EventData<T>, "jobId" | "jobName" | "workloadId" | "workloadName">,
): Promise<void> {
  const job = "jobId" in asker ? await jobSubject(tx, asker.jobId) : undefined;
  const workload = "workloadId" in asker ? await workloadSubject(tx, asker.workloadId) : undefined;
  const subject = job ?? workload;
  if (!subject) return;
  const whole = {
    jobId: job?.jobId ?? null,
    jobName: job?.jobName ?? null,
    workloadId: "workloadId" in asker ? asker.workloadId : null,
    workloadName: workload?.workloadName ?? null,
    ...data,
  };
  const { project, traceparent } = subject;
  await enqueueMessages(tx, [{ type, project, traceparent, data: whole as unknown as EventData<T> }]);
}
