import { isFileKind, WEIGHTS_KINDS, type RetentionKind } from "@internevo/domain";
import {
  assertFence,
  completeRemoval,
  endRetentionRun,
  getRetentionSettings,
  isConnectionLoss,
  listOpenRemovals,
  recordRemoval,
  removeRetainedRows,
  StaleFenceError,
  type Database,
  type Fence,
  type OpenRemoval,
  type RemovedAmounts,
} from "@internevo/store";
import { dueJobs, NeededWeights, Remarks, type DueJob, type DuePart } from "./due.ts";
import { deleteFolder } from "./folders.ts";

export interface RetentionWork {
  readonly database: Database;
  readonly dataDirectory: string;
  /** Of the lease of retention: nothing is decided without it. */
  readonly fence: Fence;
  readonly runId: number;
  readonly now: Date;
  /** Ends the work between two files, or batches of rows: the next run goes on. */
  readonly signal: AbortSignal;
  /** Told when a removal was decided, and nothing is deleted yet. */
  readonly onDecided?: (removal: OpenRemoval) => void;
  readonly onRemoved?: (kind: RetentionKind, amounts: RemovedAmounts) => void;
  /** Told of what could not be deleted; it is tried again with the next run. */
  readonly onFailure?: (error: unknown, removal: Pick<OpenRemoval, "jobId" | "kind">) => void;
}

/** Rows that one statement deletes: others wait for it. */
const ROWS_AT_ONCE = 5000;

/** Deletes what was decided. */
async function finish(work: RetentionWork, removal: OpenRemoval): Promise<void> {
  const { database, dataDirectory, fence, signal } = work;
  const { jobId, kind } = removal;
  if (isFileKind(kind)) await deleteFolder({ dataDirectory, jobId, kind }, removal.at, signal);
  else
    for (;;) {
      signal.throwIfAborted();
      const removed = await database.transaction(async (tx) => {
        await assertFence(tx, fence);
        return removeRetainedRows(tx, kind, jobId, ROWS_AT_ONCE);
      });
      if (removed === 0) break;
    }
  await database.transaction((tx) => completeRemoval(tx, fence, removal.id, work.runId));
  work.onRemoved?.(kind, removal);
}

/** Errors after which nothing else would succeed either. */
const endsAll = (error: unknown, signal: AbortSignal): boolean =>
  signal.aborted || error instanceof StaleFenceError || isConnectionLoss(error);

async function finishOrRemark(work: RetentionWork, removal: OpenRemoval, remarks: Remarks): Promise<void> {
  try {
    await finish(work, removal);
  } catch (error) {
    if (endsAll(error, work.signal)) throw error;
    work.onFailure?.(error, removal);
    remarks.add(
      `${removal.kind} of job ${removal.jobId} could not be deleted, and will be tried again: ${(error as Error).message}`,
    );
  }
}

const decide = (work: RetentionWork, job: DueJob, part: DuePart, needed: NeededWeights) =>
  work.database.transaction((tx) =>
    recordRemoval(tx, {
      fence: work.fence,
      runId: work.runId,
      jobId: job.id,
      now: work.now,
      ...part,
      isNeeded: async (inner) => WEIGHTS_KINDS.includes(part.kind) && needed.has(inner, job),
    }),
  );

/**
 * Removes what is due, and ends the run. Each removal is recorded before anything is deleted, so that one that was
 * killed in the middle is finished by the next run, and nobody takes half of something for the whole.
 * @throws StaleFenceError when another process has taken the work over; the signal's reason when it aborts
 */
export async function removeDue(work: RetentionWork): Promise<void> {
  const { database, dataDirectory, fence, now, runId, signal } = work;
  const remarks = new Remarks();
  for (const removal of await listOpenRemovals(database.db)) await finishOrRemark(work, removal, remarks);
  const settings = await getRetentionSettings(database.db);
  const needed = new NeededWeights(dataDirectory);
  for await (const job of dueJobs({ db: database.db, dataDirectory, settings, now, signal, remarks }))
    for (const part of job.parts) {
      signal.throwIfAborted();
      const removal = await decide(work, job, part, needed);
      if (!removal) continue;
      work.onDecided?.(removal);
      await finishOrRemark(work, removal, remarks);
    }
  await database.transaction((tx) => endRetentionRun(tx, fence, runId, remarks.all()));
}
