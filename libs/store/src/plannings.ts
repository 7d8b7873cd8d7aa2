import { randomUUID } from "node:crypto";
import { and, asc, desc, eq, isNotNull, notExists, notInArray } from "drizzle-orm";
import type { Candidate, PlanningResult } from "@internevo/domain";
import type { Queryable } from "./database.ts";
import { announceFound, type Asker } from "./events.ts";
import { isUuid } from "./pages.ts";
import { jobs, planningCandidates, plannings, proposals, workloads } from "./schema/index.ts";

const ROWS_AT_ONCE = 500;

/** Of a workload, beside those that proposals or jobs refer to. */
export const MOST_PLANNINGS = 50;

export interface PlanningOwner {
  readonly jobId?: string;
  readonly workloadId?: string;
  readonly profileId?: string;
}

/** Of plannings those that neither a proposal nor a job refers to. */
const isUnreferenced = (db: Queryable) =>
  and(
    notExists(db.select({ id: proposals.id }).from(proposals).where(eq(proposals.planningId, plannings.id))),
    notExists(db.select({ id: jobs.id }).from(jobs).where(eq(jobs.planningId, plannings.id))),
  );

/**
 * Removes plannings of a workload, with their candidates, all but the newest and those that a proposal or a job refers
 * to.
 */
export async function removePlannings(tx: Queryable, workloadId: string, kept: number): Promise<void> {
  const newest = tx
    .select({ id: plannings.id })
    .from(plannings)
    .where(eq(plannings.workloadId, workloadId))
    .orderBy(desc(plannings.createdAt), desc(plannings.id))
    .limit(kept);
  await tx
    .delete(plannings)
    .where(and(eq(plannings.workloadId, workloadId), notInArray(plannings.id, newest), isUnreferenced(tx)));
}

/**
 * Removes what earlier versions stored of workloads that had been deleted while they were planned. @returns how many
 */
export async function removeOrphanedPlannings(db: Queryable): Promise<number> {
  const owner = db.select({ id: workloads.id }).from(workloads).where(eq(workloads.id, plannings.workloadId));
  const removed = await db
    .delete(plannings)
    .where(and(isNotNull(plannings.workloadId), notExists(owner), isUnreferenced(db)))
    .returning({ id: plannings.id });
  return removed.length;
}

/**
 * Stores a search's answer: candidates as ranked rows, rejection counts, warnings. Of a workload older ones are removed
 * ({@link MOST_PLANNINGS}). @returns its id.
 */
export async function storePlanning(
  tx: Queryable,
  result: PlanningResult,
  owner: PlanningOwner,
): Promise<string> {
  const id = randomUUID();
  const { candidates, runnableCandidates, counts, ...summary } = result;
  await tx
    .insert(plannings)
    .values({
      id,
      jobId: owner.jobId ?? null,
      workloadId: owner.workloadId ?? null,
      profileId: owner.profileId ?? null,
      summary,
      counts,
    });
  const rowsOf = (list: "all" | "runnable", ranked: readonly Candidate[]) =>
    ranked.map((candidate, index) => ({
      planningId: id,
      list,
      position: index + 1,
      rank: candidate.rank,
      stepTimeSeconds: candidate.predicted.stepTimeSeconds,
      peakMemoryBytes: candidate.predicted.peakMemoryBytes,
      candidate,
    }));
  const rows = [...rowsOf("all", candidates), ...rowsOf("runnable", runnableCandidates)];
  for (let at = 0; at < rows.length; at += ROWS_AT_ONCE)
    await tx.insert(planningCandidates).values(rows.slice(at, at + ROWS_AT_ONCE));
  if (owner.workloadId !== undefined) await removePlannings(tx, owner.workloadId, MOST_PLANNINGS);
  await announce(tx, id, result, owner);
  return id;
}

async function announce(
  tx: Queryable,
  planningId: string,
  { counts, runnableCandidates: [best] }: PlanningResult,
  { jobId, workloadId, profileId }: PlanningOwner,
): Promise<void> {
  let asker: Asker;
  if (jobId !== undefined) asker = { jobId };
  else if (workloadId !== undefined) asker = { workloadId };
  else return;
  await announceFound(tx, asker, "planning.done", {
    planningId,
    profileId: profileId ?? null,
    evaluated: counts.evaluated,
    feasible: counts.feasible,
    best: best
      ? {
          plan: best.plan,
          stepTimeSeconds: best.predicted.stepTimeSeconds,
          tokensPerGpuPerSecond: best.predicted.tokensPerGpuPerSecond,
          peakMemoryBytes: best.predicted.peakMemoryBytes,
        }
      : null,
  });
}

/** A search's answer as the planner gave it. */
export async function getPlanning(db: Queryable, id: string): Promise<PlanningResult | undefined> {
  if (!isUuid(id)) return undefined;
  const [row] = await db.select().from(plannings).where(eq(plannings.id, id));
  if (!row) return undefined;
  const ranked = await db
    .select({ list: planningCandidates.list, candidate: planningCandidates.candidate })
    .from(planningCandidates)
    .where(eq(planningCandidates.planningId, id))
    .orderBy(asc(planningCandidates.position));
  const listed = (list: "all" | "runnable") =>
    ranked.filter((entry) => entry.list === list).map((entry) => entry.candidate);
  return {
    ...row.summary,
    candidates: listed("all"),
    runnableCandidates: listed("runnable"),
    counts: row.counts,
  };
}

/** The profile that a search was made with; undefined where it is not known any more. */
export async function profileOfPlanning(db: Queryable, id: string): Promise<string | undefined> {
  const [row] = await db
    .select({ profileId: plannings.profileId })
    .from(plannings)
    .where(eq(plannings.id, id));
  return row?.profileId ?? undefined;
}

/** The newest search for a workload. */
export async function newestWorkloadPlanning(
  db: Queryable,
  workloadId: string,
): Promise<{ readonly id: string; readonly result: PlanningResult } | undefined> {
  const [row] = await db
    .select({ id: plannings.id })
    .from(plannings)
    .where(eq(plannings.workloadId, workloadId))
    .orderBy(desc(plannings.createdAt))
    .limit(1);
  const result = row && (await getPlanning(db, row.id));
  return row && result && { id: row.id, result };
}
