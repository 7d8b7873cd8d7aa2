import { randomBytes, randomUUID } from "node:crypto";
import { and, desc, eq, inArray, sql, type SQL } from "drizzle-orm";
import { WEBHOOK_BOUNDS, type Webhook, type WebhookChange, type WebhookCreate } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import type { Queryable, Transaction } from "./database.ts";
import { lockProject } from "./no-project.ts";
import { assertRoomFor } from "./project-bounds.ts";
import { decodeCursor, isUuid, pageLimit, pageOf, type Page, type PageRequest } from "./pages.ts";
import { webhookDeliveries, webhooks } from "./schema/index.ts";

/** What a secret begins with, as Standard Webhooks asks. */
export const SECRET_PREFIX = "whsec_";
const SECRET_BYTES = 32;
const newSecret = (): string => SECRET_PREFIX + randomBytes(SECRET_BYTES).toString("base64");

const COLUMNS = {
  id: webhooks.id,
  name: webhooks.name,
  project: webhooks.project,
  url: webhooks.url,
  events: webhooks.events,
  enabled: webhooks.enabled,
  disabledReason: webhooks.disabledReason,
  failingSince: webhooks.failingSince,
  lastSuccessAt: webhooks.lastSuccessAt,
  createdAt: webhooks.createdAt,
  pending: sql<number>`(select count(*)::int from ${webhookDeliveries} d where d.webhook_id = ${webhooks}.id and d.state = 'pending')`,
};
type Row = Omit<typeof webhooks.$inferSelect, "secret"> & { readonly pending: number };

const webhookOf = (row: Row): Webhook => ({
  ...row,
  failingSince: row.failingSince?.toISOString() ?? null,
  lastSuccessAt: row.lastSuccessAt?.toISOString() ?? null,
  createdAt: row.createdAt.toISOString(),
});

/** No such webhook, or none that whoever asks may see. */
export const noWebhook = (id: string): ProblemError =>
  new ProblemError("not-found", `there is no webhook ${id}`, [
    { field: "id", value: id, message: "names no webhook", remedy: "see GET /api/v1/webhooks" },
  ]);

/** @throws ProblemError `not-found` */
export async function getWebhook(db: Queryable, id: string): Promise<Webhook> {
  const [row] = isUuid(id) ? await db.select(COLUMNS).from(webhooks).where(eq(webhooks.id, id)) : [];
  if (!row) throw noWebhook(id);
  return webhookOf(row);
}

/**
 * Makes a webhook. @returns it, and its secret. @throws ProblemError `conflict` where its project has one of that
 * name; `quota-exceeded` where it has as many as it may
 */
export async function createWebhook(
  tx: Transaction,
  made: WebhookCreate & { readonly project: string },
): Promise<{ readonly webhook: Webhook; readonly secret: string }> {
  const { name, url, events = null, project } = made;
  // Who makes one in the same project waits, so that none passes the limit beside another.
  await lockProject(tx, project);
  const ofProject = eq(webhooks.project, project);
  await assertRoomFor(tx, webhooks, ofProject, {
    project,
    things: "webhooks",
    most: WEBHOOK_BOUNDS.webhooksOfAProject,
    field: "name",
    value: name,
    remedy: "remove one that is not needed (`internevo webhook remove`)",
  });
  if ((await tx.$count(webhooks, and(ofProject, eq(webhooks.name, name)))) > 0)
    throw new ProblemError("conflict", `project ${project} has a webhook ${name} already`, [
      { field: "name", value: name, message: "is taken", remedy: "use another name, or change that webhook" },
    ]);
  const secret = newSecret();
  const id = randomUUID();
  await tx
    .insert(webhooks)
    .values({ id, name, project, url, events, secret, createdAt: sql`clock_timestamp()` });
  return { webhook: await getWebhook(tx, id), secret };
}

/** Newest first. @param only of this project; null: all */
export async function listWebhooks(
  db: Queryable,
  request: PageRequest = {},
  only: string | null = null,
): Promise<Page<Webhook>> {
  const limit = pageLimit(request);
  const after = decodeCursor(request.cursor);
  const rows = await db
    .select(COLUMNS)
    .from(webhooks)
    .where(
      and(
        only === null ? undefined : eq(webhooks.project, only),
        after &&
          sql`(${webhooks.createdAt}, ${webhooks.id}) < (${after.at.toISOString()}::timestamptz, ${after.id}::uuid)`,
      ),
    )
    .orderBy(desc(webhooks.createdAt), desc(webhooks.id))
    .limit(limit + 1);
  return pageOf(rows, limit, (row) => ({ at: row.createdAt, id: row.id }), webhookOf);
}

const DISABLED_BY_HAND = "somebody disabled it";

/** Changes what is given. @throws ProblemError `not-found` */
export async function changeWebhook(tx: Transaction, id: string, change: WebhookChange): Promise<Webhook> {
  await getWebhook(tx, id);
  const { enabled, ...rest } = change;
  if (Object.keys(rest).length > 0) await tx.update(webhooks).set(rest).where(eq(webhooks.id, id));
  if (enabled === true)
    await tx
      .update(webhooks)
      .set({ enabled, disabledReason: null, failingSince: null })
      .where(eq(webhooks.id, id));
  if (enabled === false) await disableWebhook(tx, id, DISABLED_BY_HAND);
  return getWebhook(tx, id);
}

/** Nothing more is sent to these, also not what waits. @returns how many were enabled */
async function disableWhere(tx: Queryable, which: SQL | undefined, reason: string): Promise<number> {
  const rows = await tx
    .update(webhooks)
    .set({ enabled: false, disabledReason: reason })
    .where(and(which, eq(webhooks.enabled, true)))
    .returning({ id: webhooks.id });
  const ids = rows.map(({ id }) => id);
  if (ids.length > 0)
    await tx
      .update(webhookDeliveries)
      .set({ state: "failed", nextAttemptAt: null, claimedUntil: null, endedAt: sql`clock_timestamp()` })
      .where(and(inArray(webhookDeliveries.webhookId, ids), eq(webhookDeliveries.state, "pending")));
  return ids.length;
}

/** Nothing more is sent to it, also not what waits. */
export async function disableWebhook(tx: Queryable, id: string, reason: string): Promise<void> {
  await disableWhere(tx, eq(webhooks.id, id), reason);
}

/** The same of all webhooks of the installation. @returns how many were enabled */
export const disableAllWebhooks = (tx: Queryable, reason: string): Promise<number> =>
  disableWhere(tx, undefined, reason);

/** Removes a webhook with its deliveries. @throws ProblemError `not-found` */
export async function removeWebhook(tx: Queryable, id: string): Promise<void> {
  const rows = isUuid(id)
    ? await tx.delete(webhooks).where(eq(webhooks.id, id)).returning({ id: webhooks.id })
    : [];
  if (rows.length === 0) throw noWebhook(id);
}
