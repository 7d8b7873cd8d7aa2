import { and, desc, eq, inArray, or, type SQL } from "drizzle-orm";
import { DISMISSIBLE_PLAN_CHANGE_STATES } from "@internevo/domain";
import type { Transaction } from "./database.ts";
import { isUuid } from "./pages.ts";
import { dismissPlanChange } from "./plan-changes.ts";
import { offerAgain } from "./proposals.ts";
import { planChanges, proposals, runs, workloadFirings, workloads } from "./schema/index.ts";

/**
 * Whether a workload may change runs by itself. Until the transaction ends nobody pauses or deletes it: whoever does
 * finds what was asked for meanwhile.
 */
export async function mayChangeRuns(tx: Transaction, workloadId: string): Promise<boolean> {
  const [row] = await tx
    .select({ enabled: workloads.enabled })
    .from(workloads)
    .where(eq(workloads.id, workloadId))
    // Not shared: whoever asks ends a firing of it later, and would wait for another who asked.
    .for("no key update");
  return row?.enabled === true;
}

/** Changes that carry out a proposal of a workload, or for which a run searches because its schedule said so. */
const isFor = (tx: Transaction, workloadId: string): SQL | undefined =>
  or(
    inArray(
      planChanges.proposalId,
      tx.select({ id: proposals.id }).from(proposals).where(eq(proposals.workloadId, workloadId)),
    ),
    inArray(
      planChanges.firingId,
      tx
        .select({ id: workloadFirings.id })
        .from(workloadFirings)
        .where(eq(workloadFirings.workloadId, workloadId)),
    ),
  );

/**
 * Takes back what a workload has runs change by itself, and no run has begun. What somebody asked for stays. The
 * workload is locked until the transaction ends: nothing more is asked for it.
 */
export async function takeBackChanges(tx: Transaction, workloadId: string, reason: string): Promise<void> {
  if (!isUuid(workloadId)) return;
  // Not more: a run that has found a plan refers to the workload while it holds its change.
  await tx
    .select({ id: workloads.id })
    .from(workloads)
    .where(eq(workloads.id, workloadId))
    .for("no key update");
  // Changes before their proposals, in the order in which runs take them.
  const open = await tx
    .select({ id: planChanges.id, jobId: runs.jobId, proposalId: planChanges.proposalId })
    .from(planChanges)
    .innerJoin(runs, eq(runs.id, planChanges.runId))
    .where(
      and(
        eq(planChanges.origin, "workload"),
        inArray(planChanges.state, [...DISMISSIBLE_PLAN_CHANGE_STATES]),
        isFor(tx, workloadId),
      ),
    )
    // The newest first: its proposal waits again, and takes the place of older ones.
    .orderBy(desc(planChanges.createdAt))
    .for("update", { of: planChanges });
  for (const { id, jobId, proposalId } of open) {
    // First: a proposal goes the way of a change that is dismissed.
    if (proposalId !== null) await offerAgain(tx, proposalId, reason);
    await dismissPlanChange(tx, jobId, id, reason);
  }
}
