import { randomUUID } from "node:crypto";
import { and, desc, eq, inArray, isNull, notInArray, sql } from "drizzle-orm";
import {
  canTransition,
  DEFAULT_PROJECT,
  FAILURES_OF_PLANS,
  isAtRest,
  isResumable,
  isTerminal,
  RESUME_KINDS,
  type Candidate,
  type Failure,
  type JobSpec,
  type JobState,
  type Priority,
  type Report,
  type ResumableJobState,
  MOST_UNENDED_JOBS,
} from "@internevo/domain";
import type { CommandType, Removal } from "@internevo/contracts";
import type { Queryable, Transaction } from "./database.ts";
import { attemptEnded, jobEvent, trialEnded, type JobSubject } from "./events.ts";
import { moveInQueue, releaseHosts } from "./host-queue.ts";
import { isLeaseLive, jobLease } from "./leases.ts";
import { lockProject } from "./no-project.ts";
import { endPlanChangeWithJob } from "./plan-changes.ts";
import { enqueueMessages, type OutboxMessage } from "./outbox.ts";
import { isUuid } from "./pages.ts";
import { assertRoomFor, type ProjectBound } from "./project-bounds.ts";
import { findRemoval } from "./retention.ts";
import { attempts, jobEvents, jobs, jobTransitions, runs, trials, type LoggedType } from "./schema/index.ts";
import { newTraceparent } from "./trace.ts";

/** The command that makes a service work on a job in that state. */
export const STAGE_COMMANDS = {
  profiling: "job.profile",
  planning: "job.plan",
  trialling: "job.trial",
  running: "job.run",
} as const satisfies Partial<Record<JobState, CommandType>>;
export type StageState = keyof typeof STAGE_COMMANDS;
export type StageCommand = (typeof STAGE_COMMANDS)[StageState];
export const STAGE_STATES = Object.keys(STAGE_COMMANDS) as readonly StageState[];
export const isStage = (state: JobState): state is StageState => state in STAGE_COMMANDS;

/** The state that a stage's command works on. */
export function stageOf(command: StageCommand): StageState {
  const found = STAGE_STATES.find((state) => STAGE_COMMANDS[state] === command);
  if (found === undefined) throw new TypeError(`${command} is no stage's command`);
  return found;
}

/**
 * Appends to the log that people follow. Writers of one job wait for each other (its row is locked until the
 * transaction ends), so that numbers become visible in their order and a reader that has seen n never misses
 * something below n.
 * @param data by type: see `JobStreamEventSchema`.
 */
export async function appendJobEvent(
  tx: Transaction,
  jobId: string,
  type: LoggedType,
  data: Record<string, unknown>,
): Promise<void> {
  await appendJobEvents(tx, jobId, [{ type, data }]);
}

/** Until the transaction ends nobody else writes the job's log: its numbers become visible in their order. */
export async function lockJobLog(tx: Transaction, jobId: string): Promise<void> {
  await tx.select({ id: jobs.id }).from(jobs).where(eq(jobs.id, jobId)).for("no key update");
}

/** As {@link appendJobEvent}, several at once, in order. */
export async function appendJobEvents(
  tx: Transaction,
  jobId: string,
  events: readonly { readonly type: LoggedType; readonly data: Record<string, unknown> }[],
): Promise<void> {
  if (events.length === 0) return;
  await lockJobLog(tx, jobId);
  await tx
    .insert(jobEvents)
    .values(
      events.map((event) => ({ jobId, type: event.type, data: event.data, at: sql`clock_timestamp()` })),
    );
}

async function recordTransition(
  tx: Transaction,
  job: JobSubject,
  move: {
    readonly version: number;
    readonly from: JobState | null;
    readonly to: JobState;
    readonly reason: string | null;
    /** What happened with it. */
    readonly before?: readonly OutboxMessage[];
  },
): Promise<void> {
  const { jobId, traceparent } = job;
  const { version, from, to, reason, before = [] } = move;
  await tx.insert(jobTransitions).values({ jobId, version, from, to, reason, at: sql`clock_timestamp()` });
  await appendJobEvent(tx, jobId, "state", { from, to, reason });
  await enqueueMessages(tx, [
    ...before,
    jobEvent(job, "job.transitioned", { from, to, reason }),
    ...(isStage(to) ? [{ type: STAGE_COMMANDS[to], data: { jobId }, traceparent }] : []),
  ]);
}

export interface SubmitOptions {
  /** W3C trace context of the request; without it a new trace begins. */
  readonly traceparent?: string;
  /** Default: a new uuid. */
  readonly id?: string;
  /** Who submits it: the name of a token. */
  readonly owner?: string;
  /** Fields that its file states, of those whose defaults follow from others. */
  readonly stated?: readonly string[];
  /** The id of the job whose weights it begins with, which who submits it sees. */
  readonly weightsOf?: string | undefined;
}

/**
 * Checks that a project may have one more job that has not ended. The project must be locked.
 * @throws ProblemError `quota-exceeded`
 */
const assertRoomForJob = (
  tx: Transaction,
  project: string,
  named: Pick<ProjectBound, "field" | "value">,
): Promise<void> =>
  assertRoomFor(tx, jobs, and(eq(jobs.project, project), isNull(jobs.endedAt)), {
    project,
    things: "jobs that have not ended",
    most: MOST_UNENDED_JOBS,
    ...named,
    remedy: "wait until some have ended, or cancel those that are not needed (`internevo cancel`)",
  });

/**
 * Stores a job in its first state, with history, event and the first stage's command. @returns its id.
 * @throws ProblemError `not-found` when its project is gone; `quota-exceeded` where it has as many jobs as it may.
 */
export async function submitJob(
  tx: Transaction,
  spec: JobSpec,
  options: SubmitOptions = {},
): Promise<string> {
  const id = options.id ?? randomUUID();
  const traceparent = options.traceparent ?? newTraceparent();
  const { name, project = DEFAULT_PROJECT } = spec;
  await lockProject(tx, project);
  await assertRoomForJob(tx, project, { field: "project", value: project });
  await tx
    .insert(jobs)
    .values({
      id,
      name,
      project,
      spec,
      stated: options.stated ?? [],
      weightsOf: options.weightsOf ?? null,
      state: "profiling",
      owner: options.owner ?? null,
      traceparent,
    });
  const subject = { jobId: id, jobName: name, project, traceparent };
  await recordTransition(tx, subject, { version: 1, from: null, to: "profiling", reason: null });
  return id;
}

export interface JobRow {
  readonly id: string;
  readonly name: string;
  readonly project: string;
  readonly owner: string | null;
  readonly spec: JobSpec;
  readonly stated: readonly string[];
  readonly weightsOf: string | null;
  readonly state: JobState;
  readonly reason: string | null;
  readonly version: number;
  readonly createdAt: Date;
  readonly traceparent: string;
  readonly profileId: string | null;
  readonly planningId: string | null;
  readonly chosen: Candidate | null;
  readonly failure: Failure | null;
  readonly report: Report | null;
}

/** What a worker needs of a job. */
export async function getJob(db: Queryable, jobId: string): Promise<JobRow | undefined> {
  if (!isUuid(jobId)) return undefined;
  const [row] = await db.select().from(jobs).where(eq(jobs.id, jobId));
  return row;
}

/** Fields that a job's file stated, of those whose defaults follow from others. */
export async function getStatedFields(db: Queryable, jobId: string): Promise<readonly string[]> {
  const [row] = await db.select({ stated: jobs.stated }).from(jobs).where(eq(jobs.id, jobId));
  return row?.stated ?? [];
}

/** The state of a job as it is now. */
export async function getJobState(db: Queryable, jobId: string): Promise<JobState | undefined> {
  const [row] = await db.select({ state: jobs.state }).from(jobs).where(eq(jobs.id, jobId));
  return row?.state;
}

/** A job's own id and its state, locked until the transaction ends. Undefined when there is none. */
async function lockJob(
  tx: Transaction,
  jobId: string,
): Promise<{ readonly id: string; readonly state: JobState } | undefined> {
  if (!isUuid(jobId)) return undefined;
  const [row] = await tx
    .select({ id: jobs.id, state: jobs.state })
    .from(jobs)
    .where(eq(jobs.id, jobId))
    .for("update");
  return row;
}

/**
 * The state of a job, locked until the transaction ends: nobody else moves it meanwhile. Undefined when there is none.
 */
export async function lockJobState(tx: Transaction, jobId: string): Promise<JobState | undefined> {
  return (await lockJob(tx, jobId))?.state;
}

export interface TransitionRequest {
  readonly jobId: string;
  /** The states that it may be in now. */
  readonly from: JobState | readonly JobState[];
  readonly to: JobState;
  readonly reason?: string;
  /** With `to: "failed"` and `to: "held"`. */
  readonly failure?: Failure;
  /** With `to: "succeeded"`: stored, and announced before the state. */
  readonly report?: Report;
}

/**
 * Moves a job on: state, history, event, `job.transitioned` and the next stage's command, in the caller's
 * transaction.
 * @returns whether it happened; false when the job is in another state, or is not there.
 * @throws TypeError when no job may ever go that way.
 */
export async function transitionJob(tx: Transaction, request: TransitionRequest): Promise<boolean> {
  const { to } = request;
  const allowed = typeof request.from === "string" ? [request.from] : request.from;
  for (const from of allowed)
    if (!canTransition(from, to)) throw new TypeError(`no job goes from ${from} to ${to}`);
  const [job] = await tx
    .select({
      // The row's own: Postgres also finds it by an id in upper case, which is another text.
      jobId: jobs.id,
      state: jobs.state,
      version: jobs.version,
      jobName: jobs.name,
      project: jobs.project,
      traceparent: jobs.traceparent,
    })
    .from(jobs)
    .where(eq(jobs.id, request.jobId))
    .for("update");
  if (!job || !allowed.includes(job.state)) return false;
  const { state: from, version: before, ...subject } = job;
  const { jobId } = subject;
  const reason = request.reason ?? request.failure?.message ?? null;
  const version = before + 1;
  await tx
    .update(jobs)
    .set({
      state: to,
      reason,
      version,
      updatedAt: sql`clock_timestamp()`,
      endedAt: isTerminal(to) ? sql`clock_timestamp()` : null,
      failure: request.failure ?? null,
      ...(request.report ? { report: request.report } : {}),
    })
    .where(eq(jobs.id, jobId));
  if (isAtRest(to)) await releaseHosts(tx, jobLease(jobId));
  const ended = to === "cancelled" || to === "failed" ? await endOpenWork(tx, subject, to) : [];
  if (to === "cancelled" || to === "failed")
    await endPlanChangeWithJob(tx, jobId, to === "cancelled" ? "the job was cancelled" : "the job failed");
  if (request.report) await appendJobEvent(tx, jobId, "report", { ...request.report });
  await recordTransition(tx, subject, { version, from, to, reason, before: ended });
  return true;
}

/**
 * A job that ended leaves no trial that seems to run or to wait, and no attempt that seems to run: whoever
 * worked on it may be gone. @returns the events of what was at work.
 */
async function endOpenWork(
  tx: Transaction,
  job: JobSubject,
  to: "cancelled" | "failed",
): Promise<OutboxMessage[]> {
  const { jobId } = job;
  const failure: Failure = {
    code: "cancelled",
    message:
      to === "cancelled"
        ? "the job was cancelled before this trial had ended"
        : "the job failed before this trial had ended",
  };
  const ended = await tx
    .update(trials)
    .set({ state: "cancelled", failure, endedAt: sql`clock_timestamp()` })
    .where(and(eq(trials.jobId, jobId), inArray(trials.state, ["pending", "running"])))
    .returning();
  const ofJob = tx.select({ id: runs.id }).from(runs).where(eq(runs.jobId, jobId));
  const left = await tx
    .update(attempts)
    .set({ state: to === "cancelled" ? "stopped" : "lost", endedAt: sql`clock_timestamp()` })
    .where(and(inArray(attempts.runId, ofJob), eq(attempts.state, "running")))
    .returning();
  return [
    // Those that only waited have not begun.
    ...ended.filter(({ startedAt }) => startedAt !== null).map((row) => trialEnded(job, row)),
    ...left.map((row) => attemptEnded(job, row)),
  ];
}

/**
 * Ends a job that cannot go on, whatever stage it is in. @returns false when it had already ended; a job that
 * is being cancelled becomes cancelled.
 */
export async function failJob(tx: Transaction, jobId: string, failure: Failure): Promise<boolean> {
  if (await transitionJob(tx, { jobId, from: STAGE_STATES, to: "failed", failure })) return true;
  return transitionJob(tx, { jobId, from: "cancelling", to: "cancelled", reason: "cancelled" });
}

export type CancelOutcome = "cancelled" | "cancelling" | "already-ended" | "not-found";

/**
 * Cancels a job: at once when nobody works on it, else it is `cancelling` until the worker has stopped.
 * Asking again changes nothing.
 */
export async function requestCancel(
  tx: Transaction,
  jobId: string,
  reason = "cancelled on request",
): Promise<CancelOutcome> {
  // The row lock first: a worker that has just taken the lease waits for it before it looks at the state, see
  // beginWork.
  const job = await lockJob(tx, jobId);
  if (job === undefined) return "not-found";
  const { id, state } = job;
  if (isTerminal(state)) return state === "cancelled" ? "cancelled" : "already-ended";
  // Whoever held a job works on it no more, though the lease may live for a moment.
  const to = state !== "held" && (await isLeaseLive(tx, jobLease(id))) ? "cancelling" : "cancelled";
  if (state === to) return to;
  await transitionJob(tx, { jobId: id, from: state, to, reason });
  return to;
}

/**
 * Gives a job another priority, and with it another place where it waits. The job's row must be locked.
 * @param by who asks, for the job's log.
 */
export async function setPriority(
  tx: Transaction,
  job: Pick<JobRow, "id" | "spec">,
  priority: Priority,
  by: string,
): Promise<void> {
  const { id, spec } = job;
  await tx
    .update(jobs)
    .set({ spec: { ...spec, priority }, updatedAt: sql`clock_timestamp()` })
    .where(eq(jobs.id, id));
  await moveInQueue(tx, jobLease(id), priority);
  await appendJobEvent(tx, id, "log", {
    level: "info",
    source: "api",
    message: `priority ${priority}, by ${by}`,
  });
}

/** The stage that a job is in, or stopped in. */
async function lastStage(tx: Transaction, jobId: string): Promise<StageState> {
  const [row] = await tx
    .select({ to: jobTransitions.to })
    .from(jobTransitions)
    .where(and(eq(jobTransitions.jobId, jobId), inArray(jobTransitions.to, [...STAGE_STATES])))
    .orderBy(desc(jobTransitions.version))
    .limit(1);
  if (!row || !isStage(row.to)) throw new Error(`job ${jobId} has been in no stage`);
  return row.to;
}

/** Trials that were not to end, and those whose failure says nothing of their plan, are still to be run. */
async function reopenTrials(tx: Transaction, jobId: string): Promise<void> {
  await tx
    .update(trials)
    .set({ state: "pending", failure: null, startedAt: null, endedAt: null })
    .where(
      and(
        eq(trials.jobId, jobId),
        inArray(trials.state, ["failed", "cancelled"]),
        notInArray(sql`${trials.failure} ->> 'code'`, [...FAILURES_OF_PLANS]),
      ),
    );
}

export type ResumeOutcome =
  | { readonly outcome: "resumed"; readonly from: ResumableJobState; readonly stage: StageState }
  | { readonly outcome: "not-resumable"; readonly state: JobState }
  /** Retention took what it would go on from. */
  | { readonly outcome: "removed"; readonly removal: Removal }
  | { readonly outcome: "not-found" };

/**
 * Locks the project of a job that somebody is about to let go on. Whoever locks the job's row before that asks for it
 * first: those who submit and resume in a project wait for each other at the project, and nowhere else.
 * @returns the project; undefined where there is no such job.
 */
export async function lockProjectOfJob(tx: Transaction, jobId: string): Promise<string | undefined> {
  if (!isUuid(jobId)) return undefined;
  const [row] = await tx.select({ project: jobs.project }).from(jobs).where(eq(jobs.id, jobId));
  if (row) await lockProject(tx, row.project);
  return row?.project;
}

/**
 * Lets a job that was held, failed or was cancelled go on in the stage in which it stopped, with what it has:
 * its profile and plans, the trials that were measured, the last checkpoint. Not one whose checkpoints or steps
 * retention took: it would begin anew under the name of what was trained.
 * @throws ProblemError `quota-exceeded` for one that has ended, where its project has as many jobs as it may.
 */
export async function resumeJob(
  tx: Transaction,
  jobId: string,
  reason = "let go on on request",
): Promise<ResumeOutcome> {
  const project = await lockProjectOfJob(tx, jobId);
  const job = await lockJob(tx, jobId);
  if (project === undefined || job === undefined) return { outcome: "not-found" };
  const { id, state } = job;
  if (!isResumable(state)) return { outcome: "not-resumable", state };
  const removal = await findRemoval(tx, id, RESUME_KINDS);
  if (removal) return { outcome: "removed", removal };
  // A job that is held has not ended: it counts already.
  if (isTerminal(state)) await assertRoomForJob(tx, project, { field: "id", value: id });
  const stage = await lastStage(tx, id);
  if (stage === "trialling") await reopenTrials(tx, id);
  await transitionJob(tx, { jobId: id, from: state, to: stage, reason });
  return { outcome: "resumed", from: state, stage };
}

/** When a job came into the state that it is in: attempts from before were of before somebody let it go on. */
export async function inStateSince(db: Queryable, jobId: string): Promise<Date> {
  const [row] = await db
    .select({ at: jobTransitions.at })
    .from(jobTransitions)
    .where(eq(jobTransitions.jobId, jobId))
    .orderBy(desc(jobTransitions.version))
    .limit(1);
  if (!row) throw new Error(`job ${jobId} has no history`);
  return row.at;
}

/** The state of a job as a new lease holder must see it: waits for a cancellation that is being decided. */
export async function stateForNewHolder(tx: Transaction, jobId: string): Promise<JobState | undefined> {
  if (!isUuid(jobId)) return undefined;
  const [row] = await tx.select({ state: jobs.state }).from(jobs).where(eq(jobs.id, jobId)).for("share");
  return row?.state;
}

/** Remembers what the stages decided; only while the job has not ended. */
export async function updateJob(
  tx: Transaction,
  jobId: string,
  values: {
    readonly profileId?: string;
    readonly planningId?: string;
    readonly chosen?: Candidate;
    readonly report?: Report;
  },
): Promise<boolean> {
  const rows = await tx
    .update(jobs)
    .set({ ...values, updatedAt: sql`clock_timestamp()` })
    .where(and(eq(jobs.id, jobId), sql`${jobs.endedAt} is null`))
    .returning({ id: jobs.id });
  return rows.length === 1;
}
