import type { Webhook, WebhookDelivery } from "@internevo/contracts";
import { formatInteger, formatMoment, formatSeconds } from "@internevo/domain";
import { table, type Colors } from "./output.ts";
import { shortIds } from "./resolve.ts";

const NONE = "–";
const when = (at: string | null): string => (at === null ? NONE : formatMoment(at));

const stateOf = ({ enabled, failingSince }: Webhook): string => {
  if (!enabled) return "disabled";
  return failingSince === null ? "works" : "fails";
};
export const eventsOf = ({ events }: Pick<Webhook, "events">): string => events?.join(", ") ?? "all";

export function webhooksTable(webhooks: readonly Webhook[], colors: Colors): string {
  const short = shortIds(webhooks.map(({ id }) => id));
  return table<Webhook>(
    [
      { title: "ID", value: ({ id }) => short(id) },
      { title: "NAME", value: ({ name }) => name },
      { title: "PROJECT", value: ({ project }) => project },
      { title: "STATE", value: stateOf },
      { title: "PENDING", align: "right", value: ({ pending }) => formatInteger(pending) },
      { title: "EVENTS", spare: 2, value: eventsOf },
      { title: "URL", spare: 1, value: ({ url }) => url },
    ],
    webhooks,
    colors,
  );
}

/** One webhook, a line a fact. */
export function webhookText(webhook: Webhook): string {
  const { id, name, project, url, disabledReason, failingSince, lastSuccessAt, pending, createdAt } = webhook;
  return [
    `webhook ${name} of project ${project}, ${stateOf(webhook)} (${id})`,
    `  url           ${url}`,
    `  events        ${eventsOf(webhook)}`,
    ...(disabledReason === null ? [] : [`  disabled      ${disabledReason}`]),
    ...(failingSince === null ? [] : [`  failing since ${formatMoment(failingSince)}`]),
    `  last success  ${when(lastSuccessAt)}`,
    `  pending       ${formatInteger(pending)}`,
    `  created       ${formatMoment(createdAt)}`,
  ].join("\n");
}

/** What came of the newest attempt. */
export function resultOf({ log }: WebhookDelivery): string {
  const last = log.at(-1);
  if (!last) return NONE;
  return `${last.error ?? `answered ${last.status ?? NONE}`} in ${formatSeconds(last.durationSeconds)}`;
}

export const deliveriesTable = (deliveries: readonly WebhookDelivery[], colors: Colors): string =>
  table<WebhookDelivery>(
    [
      { title: "ID", value: ({ id }) => id },
      { title: "CREATED", value: ({ createdAt }) => when(createdAt) },
      { title: "EVENT", value: ({ eventType }) => eventType },
      { title: "STATE", value: ({ state }) => state },
      { title: "ATTEMPTS", align: "right", value: ({ attempts }) => formatInteger(attempts) },
      { title: "NEXT", value: ({ nextAttemptAt }) => when(nextAttemptAt) },
      { title: "RESULT", spare: 1, value: resultOf },
    ],
    deliveries,
    colors,
  );
