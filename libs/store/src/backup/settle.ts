import { eq, isNotNull, isNull, sql } from "drizzle-orm";
import type { Transaction } from "../database.ts";
import { attemptEnded, jobOfRun } from "../events.ts";
import { STAGE_STATES, transitionJob } from "../jobs.ts";
import { enqueueMessages } from "../outbox.ts";
import { countEndedHold } from "../queue-standing.ts";
import { millisecondsOf } from "../statement-parts.ts";
import { beginHolds, gpuWorkOf, type EndedHold } from "../usage.ts";
import { disableAllWebhooks } from "../webhooks.ts";
import { takeBackChanges } from "../workload-changes.ts";
import {
  attempts,
  hostClaims,
  hostHolds,
  hostWaiters,
  jobs,
  leases,
  outbox,
  preemptibleHolds,
  trackerCursors,
  trials,
  webhookDeliveries,
  workloadFirings,
  workloads,
} from "../schema/index.ts";

export interface SettleOptions {
  /** When the backup was taken, ISO 8601. */
  readonly takenAt: string;
  /**
   * Null: what had not ended goes on when services start. Otherwise jobs are held, workloads paused and webhooks
   * disabled, with this reason.
   */
  readonly heldWith: string | null;
  /** Where files of jobs were, as it may stand in job files, and where they are now. */
  readonly moved: { readonly from: readonly string[]; readonly to: string };
}

/** What was put right after a restore. */
export interface Settled {
  readonly heldJobs: number;
  readonly pausedWorkloads: number;
  readonly disabledWebhooks: number;
  /** Jobs and workloads whose paths into the data directory were changed. */
  readonly movedPaths: number;
}

/** Who worked at the moment of the backup works here no more. */
async function forgetHolders(tx: Transaction, takenAt: string): Promise<void> {
  await tx
    .update(leases)
    .set({ holder: null, expiresAt: sql`clock_timestamp()` })
    .where(isNotNull(leases.holder));
  await tx
    .update(webhookDeliveries)
    .set({ claimedUntil: null })
    .where(isNotNull(webhookDeliveries.claimedUntil));
  await tx.update(trackerCursors).set({ claimedUntil: null }).where(isNotNull(trackerCursors.claimedUntil));
  const lost = await tx
    .update(attempts)
    .set({ state: "lost", endedAt: sql`greatest(${attempts.startedAt}, ${takenAt}::timestamptz)` })
    .where(eq(attempts.state, "running"))
    .returning();
  for (const attempt of lost) {
    const job = await jobOfRun(tx, attempt.runId);
    if (job) await enqueueMessages(tx, [attemptEnded(job, attempt)]);
  }
  await tx.update(trials).set({ state: "pending", startedAt: null }).where(eq(trials.state, "running"));
}

/** Hosts that were held are counted until the backup, and not for the time until the restore. */
async function countHolds(tx: Transaction, takenAt: string): Promise<readonly string[]> {
  const { rows } = await tx.execute<{ [K in keyof EndedHold]: EndedHold[K] } & { owner: string }>(sql`
    update ${hostHolds} set ended_at = greatest(began_at, ${takenAt}::timestamptz) where ended_at is null
    returning owner, project, gpus, ${millisecondsOf("began_at")} as "beganAtMs",
      ${millisecondsOf("ended_at")} as "endedAtMs"`);
  for (const hold of rows) await countEndedHold(tx, hold);
  return rows.map(({ owner }) => owner);
}

/**
 * Nothing begins by itself: jobs are held, schedules paused, and commands on their way taken back. Receivers of
 * events hear nothing of that: where the old stack runs, its jobs are not held.
 */
async function holdAll(tx: Transaction, reason: string): Promise<Omit<Settled, "movedPaths">> {
  const disabledWebhooks = await disableAllWebhooks(tx, reason);
  await tx.delete(hostWaiters);
  await tx.delete(hostClaims);
  await tx.delete(preemptibleHolds);
  // Only commands have no project.
  await tx.delete(outbox).where(sql`${isNull(outbox.publishedAt)} and ${isNull(outbox.project)}`);
  const paused = await tx
    .update(workloads)
    .set({ enabled: false, lastOutcome: reason })
    .where(eq(workloads.enabled, true))
    .returning({ id: workloads.id });
  // Jobs that somebody lets go on change nothing for them.
  for (const { id } of paused) await takeBackChanges(tx, id, reason);
  await tx
    .update(workloadFirings)
    .set({ state: "skipped", outcome: reason, endedAt: sql`clock_timestamp()` })
    .where(eq(workloadFirings.state, "pending"));
  const unended = await tx
    .select({ id: jobs.id, state: jobs.state })
    .from(jobs)
    .where(isNull(jobs.endedAt))
    .orderBy(jobs.createdAt);
  let heldJobs = 0;
  for (const { id, state } of unended) {
    if (state === "cancelling")
      await transitionJob(tx, { jobId: id, from: state, to: "cancelled", reason: "cancelled on request" });
    else if (await transitionJob(tx, { jobId: id, from: STAGE_STATES, to: "held", reason })) heldJobs += 1;
  }
  return { heldJobs, pausedWorkloads: paused.length, disabledWebhooks };
}

/** A document with each text that is below a folder put below another. */
export function withMovedPaths(document: unknown, from: readonly string[], to: string): unknown {
  if (typeof document === "string") {
    const old = from.find((folder) => document === folder || document.startsWith(`${folder}/`));
    return old === undefined ? document : `${to}${document.slice(old.length)}`;
  }
  if (Array.isArray(document)) return document.map((each) => withMovedPaths(each, from, to));
  if (typeof document !== "object" || document === null) return document;
  return Object.fromEntries(
    Object.entries(document).map(([key, value]) => [key, withMovedPaths(value, from, to)]),
  );
}

/** Job files may name checkpoints and exports of other jobs, by where these were. */
async function movePaths(tx: Transaction, { from, to }: SettleOptions["moved"]): Promise<number> {
  let count = 0;
  for (const table of [jobs, workloads]) {
    const rows = await tx
      .select({ id: table.id, spec: table.spec })
      .from(table)
      .where(
        sql.join(
          from.map((folder) => sql`strpos(${table.spec}::text, ${folder}) > 0`),
          sql` or `,
        ),
      );
    for (const { id, spec } of rows) {
      const moved = withMovedPaths(spec, from, to) as typeof spec;
      if (JSON.stringify(moved) === JSON.stringify(spec)) continue;
      await tx.update(table).set({ spec: moved }).where(eq(table.id, id));
      count += 1;
    }
  }
  return count;
}

/**
 * Puts right what is true of another machine and of another time: who works on what, how long hosts are held,
 * where files are.
 */
export async function settleRestored(
  tx: Transaction,
  { takenAt, heldWith, moved }: SettleOptions,
): Promise<Settled> {
  await forgetHolders(tx, takenAt);
  const holders = await countHolds(tx, takenAt);
  const movedPaths = await movePaths(tx, moved);
  if (heldWith !== null) return { ...(await holdAll(tx, heldWith)), movedPaths };
  await beginHolds(tx, [...(await gpuWorkOf(tx, holders)).values()]);
  return { heldJobs: 0, pausedWorkloads: 0, disabledWebhooks: 0, movedPaths };
}

/** Why jobs are held, and webhooks disabled, that a backup has. @param takenAt ISO 8601 */
export const restoredReason = (takenAt: string): string =>
  `restored from a backup of ${takenAt.slice(0, 19).replace("T", " ")} UTC`;
