import { and, desc, eq, inArray, sql } from "drizzle-orm";
import { DEFAULT_PRIORITY, gaveWayWords } from "@internevo/domain";
import { waitsAgain } from "@internevo/contracts";
import type { Transaction } from "./database.ts";
import { attemptEnded, type JobSubject } from "./events.ts";
import { giveUpHosts } from "./host-queue.ts";
import { appendJobEvents, getJob } from "./jobs.ts";
import { jobLease } from "./leases.ts";
import { enqueueMessages } from "./outbox.ts";
import { attempts, runs, trials } from "./schema/index.ts";
import type { WaitingCommand } from "./schema/messages.ts";

/**
 * A job that nobody works on any more gives its hosts up for the one that asked, and waits for them again with
 * the command of its stage: it goes on with what it has. Its row must be locked.
 */
export async function giveWay(tx: Transaction, jobId: string, command: WaitingCommand): Promise<void> {
  const job = await getJob(tx, jobId);
  if (!job) throw new Error(`job ${jobId} is gone`);
  const to = await giveUpHosts(tx, {
    owner: jobLease(jobId),
    priority: job.spec.priority ?? DEFAULT_PRIORITY,
    submittedAt: job.createdAt,
    command,
  });
  const words =
    to === undefined ? "stopped to give way, though nobody needs its hosts any more" : gaveWayWords(to);
  const { name: jobName, project, traceparent } = job;
  await leaveOpenWork(tx, { jobId, jobName, project, traceparent }, to);
  await appendJobEvents(tx, jobId, [
    {
      type: "log",
      data: { level: "info", source: "queue", message: `${words}; goes on when it has its hosts again` },
    },
    {
      type: "progress",
      data: { stage: job.state, message: waitsAgain(words), done: null, total: null, waits: true },
    },
  ]);
}

/** What was interrupted is still to be run, and the newest attempt says for whom it ended. */
async function leaveOpenWork(tx: Transaction, job: JobSubject, gaveWayTo: string | undefined): Promise<void> {
  const { jobId } = job;
  await tx
    .update(trials)
    .set({ state: "pending", startedAt: null })
    .where(and(eq(trials.jobId, jobId), eq(trials.state, "running")));
  const [last] = await tx
    .select({ runId: attempts.runId, number: attempts.number, state: attempts.state })
    .from(attempts)
    .innerJoin(runs, eq(runs.id, attempts.runId))
    .where(eq(runs.jobId, jobId))
    .orderBy(desc(attempts.number))
    .limit(1);
  if (!last) return;
  const stopped = await tx
    .update(attempts)
    .set({
      state: "stopped",
      gaveWayTo: gaveWayTo ?? null,
      endedAt: sql`coalesce(${attempts.endedAt}, clock_timestamp())`,
    })
    .where(
      and(
        eq(attempts.runId, last.runId),
        eq(attempts.number, last.number),
        inArray(attempts.state, ["running", "stopped"]),
      ),
    )
    .returning();
  // One that had ended before was announced then.
  if (last.state === "running")
    await enqueueMessages(
      tx,
      stopped.map((row) => attemptEnded(job, row)),
    );
}
