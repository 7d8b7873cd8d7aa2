import { randomUUID } from "node:crypto";
import { and, desc, eq, isNotNull, sql } from "drizzle-orm";
import {
  TEST_EVENT,
  testEvent,
  WEBHOOK_BOUNDS,
  type DeliveryAttempt,
  type DeliveryFilter,
  type Webhook,
  type WebhookDelivery,
} from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import type { Database, Queryable, Transaction } from "./database.ts";
import { decodeCursor, isUuid, pageLimit, pageOf, type Page, type PageRequest } from "./pages.ts";
import { projects, webhookDeliveries, webhooks } from "./schema/index.ts";
import { newTraceparent } from "./trace.ts";
import { disableWebhook, getWebhook } from "./webhooks.ts";

/** Told when there is something to deliver. */
export const WEBHOOK_CHANNEL = "internevo_webhooks";
const tellDeliverers = (tx: Queryable): Promise<unknown> =>
  tx.execute(sql`select pg_notify(${WEBHOOK_CHANNEL}, '')`);

/** An event, as the webhooks of its project are to have it. */
export interface DeliverableEvent {
  readonly id: string;
  readonly type: string;
  readonly project: string;
  readonly occurredAt: string;
  readonly payload: string;
}

/**
 * Puts events on their way to the webhooks that ask for them, in the transaction in which they are published:
 * each once. One statement, whatever their number. What a deleted project did is not told to the one that has its
 * name now.
 */
export async function addDeliveries(tx: Transaction, events: readonly DeliverableEvent[]): Promise<void> {
  if (events.length === 0) return;
  const column = (key: keyof DeliverableEvent) => sql.param(events.map((event) => event[key]));
  const { rows } = await tx.execute(sql`
    insert into ${webhookDeliveries} (id, webhook_id, event_id, event_type, payload, next_attempt_at, created_at)
    select gen_random_uuid(), w.id, e.id, e.type, e.payload, clock_timestamp(), clock_timestamp()
    from unnest(${column("id")}::uuid[], ${column("type")}::text[], ${column("project")}::text[],
      ${column("occurredAt")}::timestamptz[], ${column("payload")}::text[]) e(id, type, project, occurred_at, payload)
    join ${projects} p on p.name = e.project and p.created_at <= e.occurred_at
    join ${webhooks} w on w.project = e.project and w.enabled and (w.events is null or e.type = any(w.events))
    on conflict do nothing returning id`);
  if (rows.length > 0) await tellDeliverers(tx);
}

/** A delivery that this process is to send. */
export interface ClaimedDelivery {
  readonly id: string;
  readonly webhookId: string;
  /** Whose webhook it is. */
  readonly project: string;
  readonly eventId: string;
  readonly payload: string;
  readonly url: string;
  readonly secret: string;
  /** Its number, which nobody else has for this delivery. */
  readonly attempt: number;
  /** From 1; a replay begins anew. */
  readonly tries: number;
}

/**
 * Claims what is due, so many of each webhook at once as its bound allows, whichever process sends them. A claim
 * that is not settled in time is another's: the delivery is then sent again, with the same id.
 */
export function claimDeliveries(
  database: Database,
  { most, claimSeconds }: { readonly most: number; readonly claimSeconds: number },
): Promise<ClaimedDelivery[]> {
  const { concurrent, concurrentWhenFailing } = WEBHOOK_BOUNDS;
  return database.transaction(async (tx) => {
    // One at a time: two that counted at once would pass a bound together.
    await tx.execute(sql`select pg_advisory_xact_lock(hashtext('internevo webhooks'))`);
    const { rows } = await tx.execute<{ [K in keyof ClaimedDelivery]: ClaimedDelivery[K] }>(sql`
      with due as (
        select d.id, w.url, w.secret, w.project from ${webhooks} w cross join lateral (
          select id from ${webhookDeliveries}
          where webhook_id = w.id and state = 'pending' and next_attempt_at <= clock_timestamp()
          order by next_attempt_at
          limit greatest(0, case when w.failing_since is null then ${concurrent}::int else ${concurrentWhenFailing}::int end
            - (select count(*) from ${webhookDeliveries} b
               where b.webhook_id = w.id and b.claimed_until > clock_timestamp()))
        ) d where w.enabled limit ${most}::int)
      update ${webhookDeliveries} d set attempts = d.attempts + 1,
        claimed_until = clock_timestamp() + make_interval(secs => ${claimSeconds}::float8),
        next_attempt_at = clock_timestamp() + make_interval(secs => ${claimSeconds}::float8)
      from due where d.id = due.id
      returning d.id, d.webhook_id as "webhookId", d.event_id as "eventId", d.payload, due.url, due.secret,
        due.project,
        d.attempts as attempt, d.attempts - d.attempts_before as tries`);
    return rows;
  });
}

/** How an attempt ended. */
export interface AttemptOutcome {
  readonly attempt: DeliveryAttempt;
  /** The receiver wants nothing more. */
  readonly isGone: boolean;
  /** Before the next try; null: there is none. */
  readonly retryInSeconds: number | null;
}

/** Writes down how an attempt ended. @returns false where another one has the delivery by now. */
export function settleDelivery(
  database: Database,
  { id, webhookId, attempt: number }: ClaimedDelivery,
  { attempt, isGone, retryInSeconds }: AttemptOutcome,
): Promise<boolean> {
  const isDone = attempt.error === null;
  const isOver = isDone || retryInSeconds === null;
  const ended = isDone ? "succeeded" : "failed";
  const log = sql`(select jsonb_agg(kept.entry order by kept.place) from (
      select entry, place from jsonb_array_elements(${webhookDeliveries.log} || ${JSON.stringify([attempt])}::jsonb)
        with ordinality as all_of(entry, place) order by place desc limit ${WEBHOOK_BOUNDS.keptAttempts}::int) kept)`;
  return database.idempotentTransaction(async (tx) => {
    const rows = await tx
      .update(webhookDeliveries)
      .set({
        state: isOver ? ended : "pending",
        log,
        claimedUntil: null,
        nextAttemptAt: isOver ? null : sql`clock_timestamp() + make_interval(secs => ${retryInSeconds})`,
        endedAt: isOver ? sql`clock_timestamp()` : null,
      })
      .where(
        and(
          eq(webhookDeliveries.id, id),
          eq(webhookDeliveries.attempts, number),
          eq(webhookDeliveries.state, "pending"),
          // Not written down yet: this may be the second time, after a lost connection.
          isNotNull(webhookDeliveries.claimedUntil),
        ),
      )
      .returning({ id: webhookDeliveries.id });
    if (rows.length === 0) return false;
    await (isDone ? countSuccess(tx, webhookId) : countFailure(tx, webhookId, isGone));
    return true;
  });
}

/** Success is written down to the minute: a busy webhook's row is not written for each delivery. */
async function countSuccess(tx: Transaction, webhookId: string): Promise<void> {
  await tx
    .update(webhooks)
    .set({ failingSince: null, lastSuccessAt: sql`clock_timestamp()` })
    .where(
      and(
        eq(webhooks.id, webhookId),
        sql`(${webhooks.failingSince} is not null or ${webhooks.lastSuccessAt} is null or ${webhooks.lastSuccessAt} < clock_timestamp() - interval '1 minute')`,
      ),
    );
}

async function countFailure(tx: Transaction, webhookId: string, isGone: boolean): Promise<void> {
  const { disabledAfterDays } = WEBHOOK_BOUNDS;
  const [row] = await tx
    .update(webhooks)
    .set({ failingSince: sql`coalesce(${webhooks.failingSince}, clock_timestamp())` })
    .where(eq(webhooks.id, webhookId))
    .returning({
      isLate: sql<boolean>`${webhooks.failingSince} < clock_timestamp() - make_interval(days => ${disabledAfterDays})`,
    });
  if (isGone) await disableWebhook(tx, webhookId, "the receiver answered 410: it wants nothing more");
  else if (row?.isLate === true)
    await disableWebhook(tx, webhookId, `every delivery failed for ${disabledAfterDays} days`);
}

/** Gives a claim back: the delivery is due at once, for whoever looks next. */
export async function releaseDelivery(db: Queryable, { id, attempt }: ClaimedDelivery): Promise<void> {
  await db
    .update(webhookDeliveries)
    .set({ claimedUntil: null, nextAttemptAt: sql`clock_timestamp()` })
    .where(
      and(
        eq(webhookDeliveries.id, id),
        eq(webhookDeliveries.attempts, attempt),
        eq(webhookDeliveries.state, "pending"),
      ),
    );
}

const deliveryOf = ({
  attemptsBefore: _before,
  claimedUntil: _claimed,
  ...row
}: typeof webhookDeliveries.$inferSelect): WebhookDelivery => ({
  ...row,
  nextAttemptAt: row.nextAttemptAt?.toISOString() ?? null,
  createdAt: row.createdAt.toISOString(),
  endedAt: row.endedAt?.toISOString() ?? null,
});

/** No such delivery, or none that whoever asks may see. */
export const noDelivery = (id: string): ProblemError =>
  new ProblemError("not-found", `there is no delivery ${id}`, [
    {
      field: "id",
      value: id,
      message: "names no delivery, or one that is kept no more",
      remedy: "see GET /api/v1/webhooks/:id/deliveries",
    },
  ]);

/** @throws ProblemError `not-found` */
export async function getDelivery(db: Queryable, id: string): Promise<WebhookDelivery> {
  const [row] = isUuid(id)
    ? await db.select().from(webhookDeliveries).where(eq(webhookDeliveries.id, id))
    : [];
  if (!row) throw noDelivery(id);
  return deliveryOf(row);
}

/** Of a webhook, newest first. @throws ProblemError `not-found` */
export async function listDeliveries(
  db: Queryable,
  webhookId: string,
  request: PageRequest & DeliveryFilter = {},
): Promise<Page<WebhookDelivery>> {
  await getWebhook(db, webhookId);
  const limit = pageLimit(request);
  const after = decodeCursor(request.cursor);
  const rows = await db
    .select()
    .from(webhookDeliveries)
    .where(
      and(
        eq(webhookDeliveries.webhookId, webhookId),
        request.state === undefined ? undefined : eq(webhookDeliveries.state, request.state),
        after &&
          sql`(${webhookDeliveries.createdAt}, ${webhookDeliveries.id}) < (${after.at.toISOString()}::timestamptz, ${after.id}::uuid)`,
      ),
    )
    .orderBy(desc(webhookDeliveries.createdAt), desc(webhookDeliveries.id))
    .limit(limit + 1);
  return pageOf(rows, limit, (row) => ({ at: row.createdAt, id: row.id }), deliveryOf);
}

function assertEnabled({ id, name, enabled }: Webhook): void {
  if (enabled) return;
  throw new ProblemError("conflict", `webhook ${name} is disabled`, [
    { field: "id", value: id, message: "is disabled", remedy: "enable it first" },
  ]);
}

/**
 * Sends a delivery that has ended again, with the same id and payload. @throws ProblemError `not-found`; `conflict`
 * while it is on its way, or its webhook is disabled
 */
export async function replayDelivery(tx: Transaction, id: string): Promise<WebhookDelivery> {
  const delivery = await getDelivery(tx, id);
  assertEnabled(await getWebhook(tx, delivery.webhookId));
  const rows = await tx
    .update(webhookDeliveries)
    .set({
      state: "pending",
      attemptsBefore: sql`${webhookDeliveries.attempts}`,
      nextAttemptAt: sql`clock_timestamp()`,
      endedAt: null,
    })
    .where(and(eq(webhookDeliveries.id, id), sql`${webhookDeliveries.state} <> 'pending'`))
    .returning({ id: webhookDeliveries.id });
  if (rows.length === 0)
    throw new ProblemError("conflict", `delivery ${id} is on its way already`, [
      { field: "id", value: id, message: "has not ended", remedy: "wait until it has" },
    ]);
  await tellDeliverers(tx);
  return getDelivery(tx, id);
}

/** Sends an event that says nothing. @throws ProblemError `not-found`; `conflict` for a disabled webhook */
export async function testWebhook(
  tx: Transaction,
  webhookId: string,
  namespace: string,
): Promise<WebhookDelivery> {
  const webhook = await getWebhook(tx, webhookId);
  assertEnabled(webhook);
  const [id, eventId] = [randomUUID(), randomUUID()];
  const event = testEvent(webhook, { id: eventId, at: new Date(), traceparent: newTraceparent(), namespace });
  await tx
    .insert(webhookDeliveries)
    .values({
      id,
      webhookId,
      eventId,
      eventType: TEST_EVENT,
      payload: JSON.stringify(event),
      nextAttemptAt: sql`clock_timestamp()`,
      createdAt: sql`clock_timestamp()`,
    });
  await tellDeliverers(tx);
  return getDelivery(tx, id);
}

/** Forgets deliveries that are old, or more of a webhook than are kept: the oldest. @returns how many. */
export async function pruneDeliveries(db: Queryable): Promise<number> {
  const { keptDays, keptDeliveries } = WEBHOOK_BOUNDS;
  const old = await db.execute(sql`
    delete from ${webhookDeliveries} where ended_at < clock_timestamp() - make_interval(days => ${keptDays}::int)`);
  // The newest of what is not kept is looked up once for each webhook.
  const tooMany = await db.execute(sql`
    with ends as materialized (
      select w.id as webhook_id, o.created_at, o.id from ${webhooks} w cross join lateral (
        select created_at, id from ${webhookDeliveries} where webhook_id = w.id
        order by created_at desc, id desc offset ${keptDeliveries}::int limit 1) o)
    delete from ${webhookDeliveries} d using ends
    where d.webhook_id = ends.webhook_id and (d.created_at, d.id) <= (ends.created_at, ends.id)`);
  return (old.rowCount ?? 0) + (tooMany.rowCount ?? 0);
}
