import { randomUUID } from "node:crypto";
import { and, desc, eq, inArray, sql, type SQL } from "drizzle-orm";
import {
  differencesOf,
  DISMISSIBLE_PLAN_CHANGE_STATES,
  isDismissible,
  isOpenPlanChange,
  namesAPlan,
  NOTHING_COMPARED,
  OPEN_PLAN_CHANGE_STATES,
  planLabel,
  planOfChange,
  ProblemError,
  type Candidate,
  type Comparison,
  type PlanChange,
  type PlanChangeState,
} from "@internevo/domain";
import type { Queryable, Transaction } from "./database.ts";
import { jobEvent, jobOfRun } from "./events.ts";
import { enqueueMessages } from "./outbox.ts";
import { isUuid, pageLimit, pageOf, decodeCursor, type Page, type PageRequest } from "./pages.ts";
import { createProposal, followPlanChange } from "./proposals.ts";
import { planChanges, runs, workloadFirings } from "./schema/index.ts";

type Row = typeof planChanges.$inferSelect;

/** A run, and the job that it is of. */
export interface RunOfJob {
  readonly id: string;
  readonly jobId: string;
}

const isOpen = inArray(planChanges.state, [...OPEN_PLAN_CHANGE_STATES]);

function changeOf(jobId: string, { runId: _run, firingId: _firing, ...row }: Row): PlanChange {
  const plans = { from: planOfChange(row.from), to: planOfChange(row.to) };
  return {
    ...row,
    jobId,
    ...plans,
    predictedGain: namesAPlan(plans) ? row.predictedGain : null,
    createdAt: row.createdAt.toISOString(),
    appliedAt: row.appliedAt?.toISOString() ?? null,
    endedAt: row.endedAt?.toISOString() ?? null,
  };
}

async function announce(tx: Queryable, row: Row): Promise<void> {
  const job = await jobOfRun(tx, row.runId);
  if (!job) return;
  await enqueueMessages(tx, [
    jobEvent(job, "plan-change.transitioned", {
      planChangeId: row.id,
      to: row.state,
      origin: row.origin,
      planBefore: row.from.plan,
      planAfter: row.to.plan,
      predictedGain: row.predictedGain,
      measuredGain: row.measuredGain,
      appliedAtStep: row.appliedAtStep,
      reason: row.reason,
    }),
  ]);
}

export type NewPlanChange = Pick<PlanChange, "origin" | "askedBy" | "gainThreshold" | "compareSteps"> & {
  readonly predictedGain: number;
  readonly from: Candidate;
  /** That of before, while another is searched. */
  readonly to: Candidate;
  readonly state?: "searching" | "asked";
  readonly reason?: string;
  readonly isTrial?: boolean;
  readonly proposalId?: string;
  /** The run of a workload's schedule for which the job searches: what it finds is a proposal of the workload. */
  readonly firingId?: string;
};

/**
 * Asks for a change of a run's plan.
 * @throws ProblemError `conflict` while another change of the run is open, or when the run has another plan than
 * `change.from` by now
 */
export async function storePlanChange(
  tx: Transaction,
  run: RunOfJob,
  change: NewPlanChange,
): Promise<PlanChange> {
  const [now] = await tx
    .select({ plan: sql<Candidate["plan"]>`${runs.candidate}->'plan'` })
    .from(runs)
    .where(eq(runs.id, run.id))
    .for("update");
  if (now && planLabel(now.plan) !== planLabel(change.from.plan))
    throw new ProblemError("conflict", `job ${run.jobId} has another plan by now`, [
      {
        field: "id",
        value: run.jobId,
        message: `trains with ${planLabel(now.plan)} since a moment ago`,
        remedy: "look at it again, and decide anew",
      },
    ]);
  const [row] = await tx
    .insert(planChanges)
    .values({ id: randomUUID(), runId: run.id, ...change, createdAt: sql`clock_timestamp()` })
    .onConflictDoNothing()
    .returning();
  if (row) {
    await announce(tx, row);
    return changeOf(run.jobId, row);
  }
  const open = await openPlanChange(tx, run);
  throw new ProblemError("conflict", `the plan of job ${run.jobId} is being changed already`, [
    {
      field: "id",
      value: run.jobId,
      message: open ? `has a plan change ${open.id} that is ${open.state}` : "has another plan change",
      remedy:
        open && isDismissible(open)
          ? "dismiss it first, or wait until it is made and judged"
          : "wait until it is judged",
    },
  ]);
}

/** The newest change of a run; undefined when there is none. @param which of these only */
async function newestChange(db: Queryable, run: RunOfJob, which?: SQL): Promise<PlanChange | undefined> {
  const [row] = await db
    .select()
    .from(planChanges)
    .where(and(eq(planChanges.runId, run.id), which))
    .orderBy(desc(planChanges.createdAt), desc(planChanges.id))
    .limit(1);
  return row && changeOf(run.jobId, row);
}

/** The change of a run that is asked for or compared. */
export const openPlanChange = (db: Queryable, run: RunOfJob): Promise<PlanChange | undefined> =>
  newestChange(db, run, isOpen);

/** The newest change of a run, whatever became of it. */
export const lastPlanChange = (db: Queryable, run: RunOfJob): Promise<PlanChange | undefined> =>
  newestChange(db, run);

/** Newest first. */
export async function listPlanChanges(
  db: Queryable,
  jobId: string,
  request: PageRequest = {},
): Promise<Page<PlanChange>> {
  const limit = pageLimit(request);
  const after = decodeCursor(request.cursor);
  const rows = await db
    .select({ change: planChanges })
    .from(planChanges)
    .innerJoin(runs, eq(runs.id, planChanges.runId))
    .where(
      and(
        eq(runs.jobId, jobId),
        after &&
          sql`(${planChanges.createdAt}, ${planChanges.id})
            < (${after.at.toISOString()}::timestamptz, ${after.id}::uuid)`,
      ),
    )
    .orderBy(desc(planChanges.createdAt), desc(planChanges.id))
    .limit(limit + 1);
  return pageOf(
    rows.map(({ change }) => change),
    limit,
    (row) => ({ at: row.createdAt, id: row.id }),
    (row) => changeOf(jobId, row),
  );
}

export interface BegunChange {
  /** The checkpoint that the run goes on from. */
  readonly atStep: number;
  /** The first that goes by the new plan. */
  readonly attempt: number;
}

interface Move {
  readonly from: readonly PlanChangeState[];
  readonly to: PlanChangeState;
  readonly reason?: string;
  readonly begun?: BegunChange;
  readonly comparison?: Comparison;
  readonly found?: FoundPlan;
  readonly proposalWaits?: boolean;
}

async function move(tx: Transaction, id: string, move: Move): Promise<Row | undefined> {
  const { to, reason, begun, comparison, found } = move;
  const [row] = await tx
    .update(planChanges)
    .set({
      state: to,
      ...(reason === undefined ? {} : { reason }),
      ...found,
      ...(begun === undefined
        ? {}
        : { appliedAtStep: begun.atStep, firstAttempt: begun.attempt, appliedAt: sql`clock_timestamp()` }),
      ...(comparison === undefined
        ? {}
        : {
            secondsBefore: comparison.secondsBefore,
            secondsAfter: comparison.secondsAfter,
            measuredGain: comparison.measuredGain,
          }),
      ...(isOpenPlanChange(to) ? {} : { endedAt: sql`clock_timestamp()` }),
    })
    .where(and(eq(planChanges.id, id), inArray(planChanges.state, [...move.from])))
    .returning();
  if (row) {
    await announce(tx, row);
    await followPlanChange(tx, row, move.proposalWaits);
  }
  return row;
}

/** The run's attempts from the next on go by another plan. */
const setRunPlan = (tx: Transaction, runId: string, candidate: Candidate): Promise<unknown> =>
  tx.update(runs).set({ candidate }).where(eq(runs.id, runId));

/** What a search has found. */
export interface FoundPlan {
  /** By the new measurements, as the plan in use. */
  readonly from: Candidate;
  readonly to: Candidate;
  readonly predictedGain: number;
}

/** A search has found a better plan: the change is asked for. @returns false when it was dismissed meanwhile */
export async function askForFoundPlan(
  tx: Transaction,
  { id }: Pick<PlanChange, "id">,
  { from, to, predictedGain }: FoundPlan,
): Promise<boolean> {
  const row = await move(tx, id, { from: ["searching"], to: "asked", found: { from, to, predictedGain } });
  if (row?.firingId) await proposeFound(tx, row, row.firingId);
  return row !== undefined;
}

/** What a job has found for a workload is a proposal of it, which the change carries out. */
async function proposeFound(tx: Transaction, row: Row, firingId: string): Promise<void> {
  const job = await jobOfRun(tx, row.runId);
  const [firing] = await tx
    .select({ workloadId: workloadFirings.workloadId })
    .from(workloadFirings)
    .where(eq(workloadFirings.id, firingId));
  // The workload may have been removed meanwhile.
  if (!job || !firing) return;
  const proposal = await createProposal(tx, {
    workloadId: firing.workloadId,
    firingId,
    planningId: null,
    current: row.from,
    proposed: row.to,
    predictedGain: row.predictedGain,
    differences: differencesOf(row.from.plan, row.to.plan),
    carriedOut: { jobId: job.jobId, state: row.isTrial ? "trying" : "applying" },
  });
  if (proposal)
    await tx.update(planChanges).set({ proposalId: proposal.id }).where(eq(planChanges.id, row.id));
}

/** No plan is better: the run goes on as it was. @returns false when the change was dismissed meanwhile */
export async function endSearch(
  tx: Transaction,
  { id }: Pick<PlanChange, "id">,
  reason: string,
): Promise<boolean> {
  return (await move(tx, id, { from: ["searching"], to: "dismissed", reason })) !== undefined;
}

/** The run's next attempt goes by the new plan. @returns false when the change was dismissed, or made already */
export async function beginPlanChange(
  tx: Transaction,
  { id }: Pick<PlanChange, "id">,
  begun: BegunChange,
): Promise<boolean> {
  const row = await move(tx, id, { from: ["asked"], to: "comparing", begun });
  if (row) await setRunPlan(tx, row.runId, row.to);
  return row !== undefined;
}

/** How a change that was made ends. */
export interface EndOfPlanChange {
  readonly state: "kept" | "returned";
  readonly reason: string;
  readonly comparison: Comparison;
  /** The proposal that it carries out waits for somebody's answer: the run went back though it gained. */
  readonly proposalWaits?: boolean;
}

/**
 * Ends a change that was made. `returned`: the run's next attempt goes by the plan before. @returns false when it had
 * ended
 */
export async function endPlanChange(
  tx: Transaction,
  { id }: Pick<PlanChange, "id">,
  end: EndOfPlanChange,
): Promise<boolean> {
  const row = await move(tx, id, { from: ["comparing"], to: end.state, ...end });
  if (row && end.state === "returned") await setRunPlan(tx, row.runId, row.from);
  return row !== undefined;
}

async function openChangesOf(tx: Transaction, of: SQL): Promise<string[]> {
  const open = await tx
    .select({ id: planChanges.id })
    .from(planChanges)
    .innerJoin(runs, eq(runs.id, planChanges.runId))
    .where(and(of, isOpen));
  return open.map(({ id }) => id);
}

/** Training is complete: what was asked for was not made. Nobody has refused it. */
export async function endPlanChangeWithTraining(tx: Transaction, runId: string): Promise<void> {
  for (const id of await openChangesOf(tx, eq(runs.id, runId)))
    await move(tx, id, {
      from: OPEN_PLAN_CHANGE_STATES,
      to: "dismissed",
      reason: "training was complete first",
      proposalWaits: true,
    });
}

/**
 * A job has ended whose change was not judged: what was asked for is dismissed, and what was made is taken back, so
 * that a job that goes on later does so under the plan that it had.
 */
export async function endPlanChangeWithJob(tx: Transaction, jobId: string, reason: string): Promise<void> {
  for (const id of await openChangesOf(tx, eq(runs.jobId, jobId))) {
    await move(tx, id, {
      from: DISMISSIBLE_PLAN_CHANGE_STATES,
      to: "dismissed",
      reason,
      proposalWaits: true,
    });
    await endPlanChange(
      tx,
      { id },
      {
        state: "returned",
        reason: `${reason}: it was not judged`,
        comparison: NOTHING_COMPARED,
        proposalWaits: true,
      },
    );
  }
}

/** The run's attempts from the next on go by another plan, whatever change was asked for. */
export async function changeRunPlan(tx: Transaction, runId: string, candidate: Candidate): Promise<void> {
  for (const id of await openChangesOf(tx, eq(runs.id, runId)))
    await move(tx, id, {
      from: OPEN_PLAN_CHANGE_STATES,
      to: "superseded",
      reason: "the run got another plan meanwhile",
    });
  await setRunPlan(tx, runId, candidate);
}

/**
 * Takes back a change that was not made yet.
 * @throws ProblemError `not-found`; `conflict` for one that was made, or has ended
 */
export async function dismissPlanChange(
  tx: Transaction,
  jobId: string,
  id: string,
  reason: string,
): Promise<PlanChange> {
  const [found] = isUuid(id)
    ? await tx
        .select({ change: planChanges })
        .from(planChanges)
        .innerJoin(runs, eq(runs.id, planChanges.runId))
        .where(and(eq(planChanges.id, id), eq(runs.jobId, jobId)))
    : [];
  if (!found)
    throw new ProblemError("not-found", `job ${jobId} has no plan change ${id}`, [
      {
        field: "changeId",
        value: id,
        message: "names no plan change of this job",
        remedy: "see the job's plan changes",
      },
    ]);
  const why = found.change.reason === null ? reason : `${found.change.reason}; ${reason}`;
  const row = await move(tx, id, { from: DISMISSIBLE_PLAN_CHANGE_STATES, to: "dismissed", reason: why });
  if (row) return changeOf(jobId, row);
  const { state } = found.change;
  throw new ProblemError("conflict", `plan change ${id} is ${state}: it cannot be dismissed`, [
    {
      field: "changeId",
      value: id,
      message: `is in the state ${state}`,
      remedy:
        state === "comparing"
          ? "wait until it is judged, or ask for a change back then"
          : "nothing is left to dismiss",
    },
  ]);
}
