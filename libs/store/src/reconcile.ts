import { and, eq, inArray, isNotNull, lt, sql, type SQL } from "drizzle-orm";
import type { MessageData } from "@internevo/contracts";
import type { Database, Transaction } from "./database.ts";
import { releaseAbandonedHosts } from "./host-queue.ts";
import { isLeaseLive, jobLease } from "./leases.ts";
import { enqueueMessage, latestMessage } from "./outbox.ts";
import {
  isStage,
  lockJobState,
  STAGE_COMMANDS,
  STAGE_STATES,
  transitionJob,
  type StageState,
} from "./jobs.ts";
import { hostWaiters, jobs, leases, outbox, workloadFirings } from "./schema/index.ts";

/** Whether the broker still keeps a published command (nobody has acknowledged it). */
export type CommandLookup = (message: {
  readonly id: string;
  readonly streamSequence: number;
}) => Promise<boolean>;

export interface Reconciliation {
  /** Commands that had vanished and were written again. */
  readonly recommanded: number;
  /** Jobs whose worker died while it was being cancelled. */
  readonly cancelled: number;
  /** Work that was over and had not given its hosts back. */
  readonly abandoned: number;
}

/** Its command is published when its turn has come. */
const waits = (owner: SQL) => sql`exists (select 1 from ${hostWaiters} w where w.owner = ${owner})`;
const liveLease = sql`exists (select 1 from ${leases} l where l.resource = 'job:' || ${jobs.id} and l.holder is not null and l.expires_at > clock_timestamp())`;

/**
 * Whether a message is on its way: not yet published, published too lately to judge, or kept by the broker.
 */
async function isOnItsWay(
  tx: Transaction,
  subjectId: string,
  type: (typeof STAGE_COMMANDS)[StageState] | "workload.replan",
  graceSeconds: number,
  keptByBroker: CommandLookup,
): Promise<boolean> {
  const message = await latestMessage(tx, subjectId, type);
  if (!message) return false;
  if (message.publishedAt === null || message.streamSequence === null) return true;
  const [young] = await tx
    .select({ id: outbox.id })
    .from(outbox)
    .where(
      and(
        eq(outbox.id, message.id),
        sql`${outbox.publishedAt} > clock_timestamp() - make_interval(secs => ${graceSeconds})`,
      ),
    );
  return young !== undefined || keptByBroker({ id: message.id, streamSequence: message.streamSequence });
}

/**
 * Puts right what a lost broker store, or a worker that died while cancelling, has left: a job in a stage
 * that nobody works on and that no message will start gets its command again; a cancelling job that nobody
 * works on is cancelled. Any number of processes may call it.
 */
export async function reconcile(
  database: Database,
  keptByBroker: CommandLookup,
  graceSeconds = 5,
): Promise<Reconciliation> {
  const stale = sql`clock_timestamp() - make_interval(secs => ${graceSeconds})`;
  const suspects = await database.db
    .select({ id: jobs.id })
    .from(jobs)
    .where(
      and(
        inArray(jobs.state, [...STAGE_STATES, "cancelling"]),
        lt(jobs.updatedAt, stale),
        sql`not ${liveLease}`,
        sql`not ${waits(sql`'job:' || ${jobs.id}`)}`,
      ),
    )
    .limit(200);
  let recommanded = 0;
  let cancelled = 0;
  for (const { id } of suspects) {
    const done = await database.transaction(async (tx) => {
      const state = await lockJobState(tx, id);
      if (state === undefined || (await isLeaseLive(tx, jobLease(id)))) return undefined;
      if (state === "cancelling")
        return (await transitionJob(tx, {
          jobId: id,
          from: "cancelling",
          to: "cancelled",
          reason:
            "cancelled; its worker does not answer: what it left running ends when it wakes up, or before anything else runs there",
        }))
          ? "cancelled"
          : undefined;
      if (!isStage(state) || (await isOnItsWay(tx, id, STAGE_COMMANDS[state], graceSeconds, keptByBroker)))
        return undefined;
      const [job] = await tx.select({ traceparent: jobs.traceparent }).from(jobs).where(eq(jobs.id, id));
      if (!job) return undefined;
      await enqueueMessage(tx, {
        type: STAGE_COMMANDS[state],
        data: { jobId: id },
        traceparent: job.traceparent,
      });
      return "recommanded";
    });
    if (done === "recommanded") recommanded += 1;
    if (done === "cancelled") cancelled += 1;
  }
  const firings = await database.db
    .select({ id: workloadFirings.id })
    .from(workloadFirings)
    .where(
      and(
        eq(workloadFirings.state, "pending"),
        lt(workloadFirings.createdAt, stale),
        isNotNull(workloadFirings.workloadId),
        sql`not ${waits(sql`'workload:' || ${workloadFirings.workloadId}`)}`,
      ),
    )
    .limit(200);
  for (const { id } of firings) {
    recommanded += await database.transaction(async (tx) => {
      const [firing] = await tx
        .select()
        .from(workloadFirings)
        .where(and(eq(workloadFirings.id, id), eq(workloadFirings.state, "pending")))
        .for("update", { skipLocked: true });
      if (!firing || (await isOnItsWay(tx, firing.workloadId, "workload.replan", graceSeconds, keptByBroker)))
        return 0;
      const data: MessageData<"workload.replan"> = { workloadId: firing.workloadId, firingId: firing.id };
      await enqueueMessage(tx, { type: "workload.replan", data, traceparent: firing.traceparent });
      return 1;
    });
  }
  const abandoned = await database.transaction(releaseAbandonedHosts);
  return { recommanded, cancelled, abandoned };
}
