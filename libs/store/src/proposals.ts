import { randomUUID } from "node:crypto";
import { and, desc, eq, inArray, ne, sql } from "drizzle-orm";
import {
  ANSWERABLE_PROPOSAL_STATES,
  CARRIED_OUT_PROPOSAL_STATES,
  isAnswerable,
  PROPOSAL_STATE_WORDS,
  ProblemError,
  type Candidate,
  type Plan,
  type PlanChange,
  type Proposal,
  type ProposalState,
  type Workload,
} from "@internevo/domain";
import type { Queryable, Transaction } from "./database.ts";
import { announceOfWorkload } from "./events.ts";
import { decodeCursor, isUuid, pageLimit, pageOf, type Page, type PageRequest } from "./pages.ts";
import { hasRunningWork } from "./same-work.ts";
import { proposals, workloads } from "./schema/index.ts";
import { workloadOf } from "./workloads.ts";

type Row = typeof proposals.$inferSelect;

function proposalOf({ firingId: _firing, planningId: _planning, ...row }: Row): Proposal {
  return { ...row, createdAt: row.createdAt.toISOString(), changedAt: row.changedAt.toISOString() };
}

const announce = (tx: Queryable, row: Row): Promise<void> =>
  announceOfWorkload(tx, row.workloadId, "proposal.transitioned", {
    proposalId: row.id,
    to: row.state,
    jobId: row.jobId,
    predictedGain: row.predictedGain,
    measuredGain: row.measuredGain,
    current: row.current?.plan ?? null,
    proposed: row.proposed.plan,
    reason: row.reason,
  });

export interface NewProposal {
  readonly workloadId: string;
  readonly firingId: string;
  readonly planningId: string | null;
  readonly current: Candidate | null;
  readonly proposed: Candidate;
  readonly predictedGain: number;
  readonly differences: Proposal["differences"];
  /** Where a run carries it out at once. */
  readonly carriedOut?: { readonly jobId: string; readonly state: "trying" | "applying" };
}

const isOf = (workloadId: string, states: readonly ProposalState[]) =>
  and(eq(proposals.workloadId, workloadId), inArray(proposals.state, [...states]));

/** One proposal of a workload waits for an answer: whoever makes one wait sees what others have made. */
const lockWaiting = (tx: Transaction, workloadId: string): Promise<unknown> =>
  tx.execute(sql`select pg_advisory_xact_lock(hashtext(${`internevo proposals ${workloadId}`}))`);

/**
 * Stores a better plan, in place of what waits for an answer. @returns undefined when this firing has made one already.
 */
export async function createProposal(tx: Transaction, given: NewProposal): Promise<Proposal | undefined> {
  await lockWaiting(tx, given.workloadId);
  const { carriedOut, ...proposal } = given;
  const [row] = await tx
    .insert(proposals)
    .values({
      id: randomUUID(),
      ...proposal,
      ...carriedOut,
      createdAt: sql`clock_timestamp()`,
      changedAt: sql`clock_timestamp()`,
    })
    .onConflictDoNothing()
    .returning();
  if (!row) return undefined;
  const waiting = await tx
    .select({ id: proposals.id })
    .from(proposals)
    .where(and(isOf(row.workloadId, ANSWERABLE_PROPOSAL_STATES), ne(proposals.id, row.id)));
  for (const { id } of waiting)
    await moveProposal(tx, id, { to: "superseded", reason: "a newer proposal took its place" });
  await announceOfWorkload(tx, row.workloadId, "proposal.made", {
    proposalId: row.id,
    predictedGain: row.predictedGain,
    current: row.current?.plan ?? null,
    proposed: row.proposed.plan,
  });
  return proposalOf(row);
}

interface Move {
  readonly to: ProposalState;
  readonly reason: string | null;
  readonly jobId?: string;
  readonly measuredGain?: number | null;
  /** Default: those that somebody can still answer. */
  readonly from?: readonly ProposalState[];
}

/** @returns undefined when it was in none of the states that it may leave so */
export async function moveProposal(
  tx: Transaction,
  id: string,
  { to, from = ANSWERABLE_PROPOSAL_STATES, ...rest }: Move,
): Promise<Proposal | undefined> {
  const [row] = await tx
    .update(proposals)
    .set({ state: to, ...rest, changedAt: sql`clock_timestamp()` })
    .where(and(eq(proposals.id, id), inArray(proposals.state, [...from])))
    .returning();
  if (!row) return undefined;
  await announce(tx, row);
  return proposalOf(row);
}

/**
 * What becomes of a proposal when the change of a run's plan that carries it out comes into a state.
 * @param waits it waits for somebody's answer: it was only tried, or the job ended before it was made or judged
 */
function stateAfter(
  { state, isTrial, measuredGain }: Pick<PlanChange, "state" | "isTrial" | "measuredGain">,
  waits: boolean,
) {
  switch (state) {
    case "kept":
      return isTrial ? "tried" : "applied";
    case "returned":
      return (isTrial || waits) && measuredGain !== null ? "tried" : "returned";
    case "dismissed":
    case "superseded":
      return state;
    default:
      return undefined;
  }
}

/**
 * A proposal goes the way of the change that carries it out, in the same transaction.
 * @param waits see {@link stateAfter}
 */
export async function followPlanChange(
  tx: Transaction,
  change: Pick<PlanChange, "state" | "isTrial" | "measuredGain" | "reason" | "proposalId">,
  waits = false,
): Promise<void> {
  const { proposalId, reason, measuredGain } = change;
  if (proposalId === null) return;
  if (waits && measuredGain === null) return offerAgain(tx, proposalId, reason);
  const to = stateAfter(change, waits);
  if (to === undefined) return;
  await moveProposal(tx, proposalId, { to, reason, measuredGain, from: CARRIED_OUT_PROPOSAL_STATES });
}

/**
 * A proposal that a run was to carry out, and that nobody has refused or measured, waits again for an answer; unless a
 * newer one does.
 */
export async function offerAgain(tx: Transaction, id: string, reason: string | null): Promise<void> {
  const [row] = await tx
    .select()
    .from(proposals)
    .where(and(eq(proposals.id, id), inArray(proposals.state, [...CARRIED_OUT_PROPOSAL_STATES])))
    .for("update");
  if (!row) return;
  await lockWaiting(tx, row.workloadId);
  // The job that has tried it stays known.
  if (row.measuredGain === null) await tx.update(proposals).set({ jobId: null }).where(eq(proposals.id, id));
  const newer = await tx.$count(proposals, isOf(row.workloadId, ANSWERABLE_PROPOSAL_STATES));
  const waiting = row.measuredGain === null ? "proposed" : "tried";
  await moveProposal(tx, id, {
    to: newer > 0 ? "superseded" : waiting,
    reason,
    from: CARRIED_OUT_PROPOSAL_STATES,
  });
}

/** @throws ProblemError `not-found` */
export async function lockProposal(tx: Transaction, workloadId: string, id: string): Promise<Proposal> {
  const [row] = isUuid(id)
    ? await tx
        .select()
        .from(proposals)
        .where(and(eq(proposals.id, id), eq(proposals.workloadId, workloadId)))
        .for("update")
    : [];
  if (row) return proposalOf(row);
  throw new ProblemError("not-found", `the workload has no proposal ${id}`, [
    {
      field: "proposalId",
      value: id,
      message: "names no proposal of this workload",
      remedy: "see the workload's proposals",
    },
  ]);
}

/** @throws ProblemError `conflict` for a proposal that nobody can answer any more */
export function assertAnswerable(proposal: Proposal): void {
  if (isAnswerable(proposal)) return;
  const words = PROPOSAL_STATE_WORDS[proposal.state].toLowerCase();
  throw new ProblemError("conflict", `proposal ${proposal.id} is ${words}: it cannot be answered`, [
    {
      field: "proposalId",
      value: proposal.id,
      message: `is in the state ${proposal.state}${proposal.reason === null ? "" : `: ${proposal.reason}`}`,
      remedy: "see the workload's proposals for one that waits, or plan the workload again",
    },
  ]);
}

/**
 * What became of the newest proposal of the same change of plans; undefined when there was none.
 * @param change `current` null: no plan was in use
 */
export async function earlierProposal(
  db: Queryable,
  workloadId: string,
  { current, proposed }: { readonly current: Plan | null; readonly proposed: Plan },
): Promise<Proposal | undefined> {
  const [row] = await db
    .select()
    .from(proposals)
    .where(
      and(
        eq(proposals.workloadId, workloadId),
        sql`${proposals.proposed}->'plan' = ${JSON.stringify(proposed)}::jsonb`,
        current === null
          ? sql`${proposals.current} is null`
          : sql`${proposals.current}->'plan' = ${JSON.stringify(current)}::jsonb`,
      ),
    )
    .orderBy(desc(proposals.createdAt), desc(proposals.id))
    .limit(1);
  return row && proposalOf(row);
}

/** More proposals than runs are asked for at a time; a project has fewer workloads. */
const MOST_PURSUED = 1000;

/**
 * The proposals that a workload's policy lets a run try or get, without anybody's answer, where such a run trains.
 * Projects take turns, each with its oldest first.
 */
export async function proposalsToPursue(
  db: Queryable,
  limit = MOST_PURSUED,
): Promise<readonly { readonly workload: Workload; readonly proposal: Proposal }[]> {
  const turn = sql`row_number() over (
    partition by ${workloads.project} order by ${proposals.createdAt}, ${proposals.id})`;
  const rows = await db
    .select({ workload: workloads, proposal: proposals })
    .from(proposals)
    .innerJoin(workloads, eq(workloads.id, proposals.workloadId))
    .where(
      and(
        eq(proposals.state, "proposed"),
        eq(workloads.enabled, true),
        ne(workloads.policy, "notify"),
        hasRunningWork(db),
      ),
    )
    .orderBy(turn, proposals.createdAt, proposals.id)
    .limit(limit);
  return rows.map(({ workload, proposal }) => ({
    workload: workloadOf(workload),
    proposal: proposalOf(proposal),
  }));
}

/** Newest first. */
export async function listProposals(
  db: Queryable,
  workloadId: string,
  request: PageRequest = {},
): Promise<Page<Proposal>> {
  if (!isUuid(workloadId)) return { items: [], nextCursor: null };
  const limit = pageLimit(request);
  const after = decodeCursor(request.cursor);
  const rows = await db
    .select()
    .from(proposals)
    .where(
      and(
        eq(proposals.workloadId, workloadId),
        after &&
          sql`(${proposals.createdAt}, ${proposals.id}) < (${after.at.toISOString()}::timestamptz, ${after.id}::uuid)`,
      ),
    )
    .orderBy(desc(proposals.createdAt), desc(proposals.id))
    .limit(limit + 1);
  return pageOf(rows, limit, (row) => ({ at: row.createdAt, id: row.id }), proposalOf);
}
