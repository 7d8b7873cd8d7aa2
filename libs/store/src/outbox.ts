import { randomUUID } from "node:crypto";
import { and, asc, desc, eq, inArray, isNotNull, isNull, lt, sql } from "drizzle-orm";
import {
  cloudEventOf,
  isEventType,
  type Envelope,
  type MessageData,
  type MessageType,
} from "@internevo/contracts";
import { DEFAULT_PROJECT } from "@internevo/domain";
import type { Database, Queryable, Transaction } from "./database.ts";
import { inbox, jobs, outbox } from "./schema/index.ts";
import { addDeliveries, type DeliverableEvent } from "./webhook-deliveries.ts";

export const OUTBOX_CHANNEL = "internevo_outbox";

export interface OutboxMessage<T extends MessageType = MessageType> {
  readonly type: T;
  readonly data: MessageData<T>;
  readonly traceparent: string;
  /** Of an event. */
  readonly project?: string;
}

const subjectIdOf = (data: Record<string, unknown>): string => {
  const id = data["jobId"] ?? data["workloadId"];
  if (typeof id !== "string") throw new TypeError("a message names its job or its workload");
  return id;
};

/**
 * Writes a message in the transaction of the change that it announces; the relay publishes it after the
 * commit. @returns its id.
 */
export async function enqueueMessage<T extends MessageType>(
  tx: Queryable,
  message: OutboxMessage<T>,
): Promise<string> {
  const [id] = await enqueueMessages(tx, [message]);
  return id as string;
}

/** The same of several, in order. @returns their ids. */
export async function enqueueMessages(tx: Queryable, messages: readonly OutboxMessage[]): Promise<string[]> {
  if (messages.length === 0) return [];
  const rows = messages.map(({ type, data: content, traceparent, project = null }) => {
    const data = content as Record<string, unknown>;
    return { id: randomUUID(), type, subjectId: subjectIdOf(data), project, data, traceparent };
  });
  await tx.insert(outbox).values(rows);
  return rows.map(({ id }) => id);
}

/** What the broker answered to a publication. */
export interface Publication {
  readonly streamSequence: number;
}

/** Where messages are published to. */
export interface Publisher {
  /** Of the installation. */
  readonly namespace: string;
  publish(envelope: Envelope): Promise<Publication>;
}

/**
 * Publishes waiting messages, oldest first. Several relays may run: each row is locked by one of them. A
 * crash between publication and commit publishes again with the same id, which the broker drops and the inbox
 * would. Events are put on their way to webhooks in the same transaction, so that each comes there once.
 * @returns how many were published.
 */
export async function relayOutbox(database: Database, publisher: Publisher, limit = 50): Promise<number> {
  return database.transaction(async (tx) => {
    const rows = await tx
      .select()
      .from(outbox)
      .where(isNull(outbox.publishedAt))
      .orderBy(asc(outbox.sequence))
      .limit(limit)
      .for("update", { skipLocked: true });
    const deliverable: DeliverableEvent[] = [];
    for (const row of rows) {
      const { project, data } = await withProject(tx, row);
      const { id, type, traceparent } = row;
      const common = { id, traceparent, occurredAt: row.occurredAt.toISOString() };
      const publication = await publisher.publish({
        ...common,
        type,
        ...(project === null ? {} : { project }),
        data: data as MessageData<MessageType>,
      });
      if (isEventType(type) && project !== null) {
        const event = cloudEventOf({ ...common, type, project, data }, publisher.namespace);
        const { occurredAt } = common;
        deliverable.push({ id, type, project, occurredAt, payload: JSON.stringify(event) });
      }
      await tx
        .update(outbox)
        .set({ publishedAt: sql`clock_timestamp()`, streamSequence: publication.streamSequence })
        .where(eq(outbox.id, row.id));
    }
    await addDeliveries(tx, deliverable);
    return rows.length;
  });
}

/**
 * Whose an event is. A service of before events had projects may still run beside this one, and knew one event:
 * it is completed here.
 */
async function withProject(
  tx: Transaction,
  { type, subjectId, project, data }: typeof outbox.$inferSelect,
): Promise<Pick<typeof outbox.$inferSelect, "project" | "data">> {
  if (project !== null || !isEventType(type)) return { project, data };
  const [job] = await tx
    .select({ name: jobs.name, project: jobs.project })
    .from(jobs)
    .where(eq(jobs.id, subjectId));
  return { project: job?.project ?? DEFAULT_PROJECT, data: { jobName: job?.name ?? "", ...data } };
}

/** The newest message of a type about a job or workload. */
export async function latestMessage(
  db: Queryable,
  subjectId: string,
  type: MessageType,
): Promise<
  | { readonly id: string; readonly publishedAt: Date | null; readonly streamSequence: number | null }
  | undefined
> {
  const [row] = await db
    .select({ id: outbox.id, publishedAt: outbox.publishedAt, streamSequence: outbox.streamSequence })
    .from(outbox)
    .where(and(eq(outbox.subjectId, subjectId), eq(outbox.type, type)))
    .orderBy(desc(outbox.sequence))
    .limit(1);
  return row;
}

/**
 * Marks a message as handled by a consumer. @returns false when it already was: its effect must not happen
 * again.
 */
export async function recordHandled(tx: Transaction, consumer: string, eventId: string): Promise<boolean> {
  const rows = await tx
    .insert(inbox)
    .values({ consumer, eventId })
    .onConflictDoNothing()
    .returning({ eventId: inbox.eventId });
  return rows.length === 1;
}

/** Whether a consumer's effect of a message is in the database. */
export async function wasHandled(db: Queryable, consumer: string, eventId: string): Promise<boolean> {
  const rows = await db
    .select({ eventId: inbox.eventId })
    .from(inbox)
    .where(and(eq(inbox.consumer, consumer), eq(inbox.eventId, eventId)));
  return rows.length > 0;
}

/** Forgets messages that no broker redelivers any more. */
export async function pruneMessages(db: Queryable, olderThanDays = 30): Promise<void> {
  const before = sql`clock_timestamp() - make_interval(days => ${olderThanDays})`;
  const old = db
    .select({ id: outbox.id })
    .from(outbox)
    .where(and(isNotNull(outbox.publishedAt), lt(outbox.publishedAt, before)))
    .limit(5000);
  await db.delete(outbox).where(inArray(outbox.id, old));
  await db.delete(inbox).where(lt(inbox.handledAt, before));
}
