import { Line, ProjectNameSchema } from "@internevo/domain";
import { Type, type Static, type TSchema } from "typebox";
import {
  cloudEventSource,
  CLOUD_EVENT_CONSTANTS,
  EventTypeSchema,
  TYPE_PREFIX,
  type CloudEvent,
} from "./events.ts";
import { PageSchema } from "./http.ts";

const nullable = <S extends TSchema>(schema: S) => Type.Union([schema, Type.Null()]);
const Id = Type.String({ format: "uuid" });
const Instant = Type.String({ format: "date-time" });

/** What is promised of webhooks, and what bounds them. */
export const WEBHOOK_BOUNDS = {
  webhooksOfAProject: 20,
  /** Requests that one webhook has open at once, and those of one that fails. */
  concurrent: 4,
  concurrentWhenFailing: 1,
  /** Tries of a delivery; with the waits between them they take about a day. */
  tries: 12,
  /** A webhook whose every try failed for so long is disabled. */
  disabledAfterDays: 5,
  /** Deliveries of a webhook that are kept, and for how long when they have ended. */
  keptDeliveries: 10_000,
  keptDays: 30,
  /** Attempts of a delivery that its log keeps. */
  keptAttempts: 20,
  /** Of an answer, for the log. */
  excerptBytes: 1024,
} as const;

const UrlSchema = Line(2000, { description: "http or https; who reads it can send requests there" });
const EventsSchema = Type.Union(
  [Type.Array(EventTypeSchema, { minItems: 1, uniqueItems: true }), Type.Null()],
  { description: "types of the events that are sent; null: all of them" },
);

/** A receiver of a project's events. Its secret is in the answer that makes it, and nowhere else. */
export const WebhookSchema = Type.Object({
  id: Id,
  name: Type.String(),
  project: ProjectNameSchema,
  url: UrlSchema,
  events: EventsSchema,
  enabled: Type.Boolean(),
  disabledReason: nullable(Type.String({ description: "why it is disabled; null: it is not" })),
  failingSince: nullable(
    Type.String({ format: "date-time", description: "the first failure since the last success; null: none" }),
  ),
  lastSuccessAt: nullable(Instant),
  pending: Type.Integer({ description: "deliveries that have not ended" }),
  createdAt: Instant,
});
export type Webhook = Static<typeof WebhookSchema>;
export const WebhookPageSchema = PageSchema(WebhookSchema);

export const WebhookCreateSchema = Type.Object(
  {
    name: Line(100),
    url: UrlSchema,
    events: Type.Optional(EventsSchema),
    project: Type.Optional(ProjectNameSchema),
  },
  { additionalProperties: false },
);
export type WebhookCreate = Static<typeof WebhookCreateSchema>;

/** Of a webhook what somebody may change. */
export const WebhookChangeSchema = Type.Object(
  {
    url: Type.Optional(UrlSchema),
    events: Type.Optional(EventsSchema),
    enabled: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false },
);
export type WebhookChange = Static<typeof WebhookChangeSchema>;

const warnings = Type.Array(Type.String(), { description: "what is allowed and may be a mistake" });
export const ChangedWebhookSchema = Type.Object({ ...WebhookSchema.properties, warnings });
export type ChangedWebhook = Static<typeof ChangedWebhookSchema>;
export const CreatedWebhookSchema = Type.Object({
  ...ChangedWebhookSchema.properties,
  secret: Type.String({ description: "signs every delivery; shown this once" }),
});
export type CreatedWebhook = Static<typeof CreatedWebhookSchema>;

export const DELIVERY_STATES = ["pending", "succeeded", "failed"] as const;
export type DeliveryState = (typeof DELIVERY_STATES)[number];

/** One request to a receiver, and what came of it. */
export const DeliveryAttemptSchema = Type.Object({
  at: Instant,
  durationSeconds: Type.Number(),
  status: nullable(Type.Integer({ description: "of the answer; null: there was none" })),
  error: nullable(Type.String({ description: "why it failed; null: it succeeded" })),
  excerpt: Type.String({ description: "the first bytes of the answer" }),
});
export type DeliveryAttempt = Static<typeof DeliveryAttemptSchema>;

/** An event on its way to a webhook. */
export const WebhookDeliverySchema = Type.Object({
  id: Id,
  webhookId: Id,
  eventId: Type.String({ format: "uuid", description: "the webhook-id of its requests" }),
  eventType: Type.String(),
  state: Type.Enum(DELIVERY_STATES),
  attempts: Type.Integer({ description: "requests that were begun, those before a replay too" }),
  nextAttemptAt: nullable(Instant),
  createdAt: Instant,
  endedAt: nullable(Instant),
  log: Type.Array(DeliveryAttemptSchema, { description: "the newest attempts, oldest first" }),
  payload: Type.String({ description: "what is sent" }),
});
export type WebhookDelivery = Static<typeof WebhookDeliverySchema>;
export const WebhookDeliveryPageSchema = PageSchema(WebhookDeliverySchema);

/** Which deliveries are asked for. */
export const DeliveryFilterSchema = Type.Object({ state: Type.Optional(Type.Enum(DELIVERY_STATES)) });
export type DeliveryFilter = Static<typeof DeliveryFilterSchema>;

/** What is sent when somebody tests a webhook; it is on no subject of NATS. */
export const TEST_EVENT = "webhook.test";
const TEST_VERSION = `${TEST_EVENT}.v1`;

/** @param made.namespace of the installation */
export const testEvent = (
  webhook: Pick<Webhook, "id" | "name" | "project">,
  made: { readonly id: string; readonly at: Date; readonly traceparent: string; readonly namespace: string },
): Omit<CloudEvent, "dataschema"> => ({
  ...CLOUD_EVENT_CONSTANTS,
  id: made.id,
  source: cloudEventSource(made.namespace),
  type: TYPE_PREFIX + TEST_VERSION,
  subject: `webhook/${webhook.id}`,
  time: made.at.toISOString(),
  project: webhook.project,
  traceparent: made.traceparent,
  data: { webhookId: webhook.id, webhookName: webhook.name },
});
