import { randomUUID } from "node:crypto";
import { and, desc, eq, isNull, sql } from "drizzle-orm";
import { isAtRest, isResumable, ProblemError } from "@internevo/domain";
import {
  isCommandType,
  type CommandType,
  type DeadLetter,
  type Envelope,
  type MessageData,
} from "@internevo/contracts";
import type { Queryable, Transaction } from "./database.ts";
import { getJob } from "./jobs.ts";
import { enqueueMessage } from "./outbox.ts";
import { decodeCursor, isUuid, pageLimit, pageOf, type Page, type PageRequest } from "./pages.ts";
import { projectOfLetter } from "./projects.ts";
import { deadLetters, messageFailures } from "./schema/index.ts";

/** Counts an unexpected failure of a message. @returns how many there were, this one included. */
export async function recordMessageFailure(
  db: Queryable,
  consumer: string,
  eventId: string,
  error: string,
): Promise<number> {
  const [row] = await db
    .insert(messageFailures)
    .values({ consumer, eventId, failures: 1, lastError: error, lastFailedAt: sql`clock_timestamp()` })
    .onConflictDoUpdate({
      target: [messageFailures.consumer, messageFailures.eventId],
      set: {
        failures: sql`${messageFailures.failures} + 1`,
        lastError: error,
        lastFailedAt: sql`clock_timestamp()`,
      },
    })
    .returning({ failures: messageFailures.failures });
  return row?.failures ?? 1;
}

export interface NewDeadLetter {
  readonly consumer: string;
  readonly messageId: string;
  readonly messageType: string;
  readonly subject: string;
  readonly payload: unknown;
  readonly error: string;
  readonly deliveries: number;
}

export async function storeDeadLetter(tx: Queryable, letter: NewDeadLetter): Promise<string> {
  const id = randomUUID();
  await tx.insert(deadLetters).values({ id, ...letter, createdAt: sql`clock_timestamp()` });
  return id;
}

const letterOf = (row: typeof deadLetters.$inferSelect): DeadLetter => ({
  id: row.id,
  consumer: row.consumer,
  messageType: row.messageType,
  subject: row.subject,
  payload: row.payload,
  error: row.error,
  deliveries: row.deliveries,
  createdAt: row.createdAt.toISOString(),
  resolution: row.resolution,
});

/** Newest first; with `openOnly` those that nobody has replayed or discarded. @param only of this project; null: all. */
export async function listDeadLetters(
  db: Queryable,
  request: PageRequest & { readonly openOnly?: boolean } = {},
  only: string | null = null,
): Promise<Page<DeadLetter>> {
  const limit = pageLimit(request);
  const after = decodeCursor(request.cursor);
  const rows = await db
    .select()
    .from(deadLetters)
    .where(
      and(
        only === null ? undefined : eq(projectOfLetter, only),
        request.openOnly ? isNull(deadLetters.resolution) : undefined,
        after &&
          sql`(${deadLetters.createdAt}, ${deadLetters.id}) < (${after.at.toISOString()}::timestamptz, ${after.id}::uuid)`,
      ),
    )
    .orderBy(desc(deadLetters.createdAt), desc(deadLetters.id))
    .limit(limit + 1);
  return pageOf(rows, limit, (row) => ({ at: row.createdAt, id: row.id }), letterOf);
}

/** No such dead letter, or none that whoever asks may see. */
export const noDeadLetter = (id: string): ProblemError =>
  new ProblemError("not-found", `there is no dead letter ${id}`, [
    { field: "id", value: id, message: "names no dead letter", remedy: "see the list of dead letters" },
  ]);

async function lockOpenLetter(tx: Transaction, id: string): Promise<typeof deadLetters.$inferSelect> {
  const [row] = isUuid(id)
    ? await tx.select().from(deadLetters).where(eq(deadLetters.id, id)).for("update")
    : [];
  if (!row) throw noDeadLetter(id);
  if (row.resolution)
    throw new ProblemError("conflict", `dead letter ${id} was ${row.resolution} already`, [
      { field: "id", value: id, message: `was ${row.resolution} already`, remedy: "nothing is left to do" },
    ]);
  return row;
}

async function resolve(
  tx: Transaction,
  id: string,
  resolution: "replayed" | "discarded",
  by: string,
): Promise<DeadLetter> {
  const [row] = await tx
    .update(deadLetters)
    .set({ resolution, resolvedAt: sql`clock_timestamp()`, resolvedBy: by })
    .where(eq(deadLetters.id, id))
    .returning();
  if (!row) throw noDeadLetter(id);
  return letterOf(row);
}

/**
 * Sends a dead letter's message again, as a new one.
 * @throws ProblemError `not-found`; `conflict` when it was resolved before, cannot be read as a message, or
 * its job has ended or is held.
 */
export async function replayDeadLetter(tx: Transaction, id: string, by: string): Promise<DeadLetter> {
  const row = await lockOpenLetter(tx, id);
  const envelope = row.payload as Partial<Envelope> | null;
  if (
    !isCommandType(row.messageType) ||
    typeof envelope?.data !== "object" ||
    typeof envelope.traceparent !== "string"
  ) {
    throw new ProblemError("conflict", `dead letter ${id} is no message that can be sent again`, [
      { field: "payload", message: "is not readable", remedy: "discard it" },
    ]);
  }
  const jobId = (envelope.data as { jobId?: string }).jobId;
  const job = jobId === undefined ? undefined : await getJob(tx, jobId);
  if (jobId !== undefined && (!job || isAtRest(job.state))) {
    const message = job?.state === "held" ? "is held" : "has ended";
    throw new ProblemError("conflict", `job ${jobId} of dead letter ${id} ${message}`, [
      {
        field: "jobId",
        value: jobId,
        message,
        remedy: `${job && isResumable(job.state) ? "let the job go on" : "submit the job again"}, and discard the letter`,
      },
    ]);
  }
  await enqueueMessage(tx, {
    type: row.messageType,
    data: envelope.data as MessageData<CommandType>,
    traceparent: envelope.traceparent,
  });
  return resolve(tx, id, "replayed", by);
}

/** Puts a dead letter away. @throws ProblemError `not-found`; `conflict` when it was resolved before. */
export async function discardDeadLetter(tx: Transaction, id: string, by: string): Promise<DeadLetter> {
  await lockOpenLetter(tx, id);
  return resolve(tx, id, "discarded", by);
}
