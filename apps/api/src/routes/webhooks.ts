import {
  API_PREFIX,
  ChangedWebhookSchema,
  CreatedWebhookSchema,
  DeliveryFilterSchema,
  WebhookChangeSchema,
  WebhookCreateSchema,
  WebhookDeliveryPageSchema,
  WebhookDeliverySchema,
  WebhookPageSchema,
  WebhookSchema,
} from "@internevo/contracts";
import {
  changeWebhook,
  createWebhook,
  getDelivery,
  getWebhook,
  listDeliveries,
  listWebhooks,
  removeWebhook,
  replayDelivery,
  testWebhook,
  type Database,
} from "@internevo/store";
import { checkReceiver, type AddressRule } from "@internevo/webhooks";
import { Type } from "typebox";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { mutate, mutateUnkeyed } from "../http/mutations.ts";
import { PageQuery } from "../http/pages.ts";
import { projectForSubmission, visibleTo } from "../http/rights.ts";
import { answers, headers, IdParams } from "./shapes.ts";

export interface WebhookRoutesOptions {
  readonly database: Database;
  readonly addresses: AddressRule;
  /** Of the installation: it is in every event. */
  readonly namespace: string;
}

const tags = ["webhooks"];

/** Webhooks: receivers of a project's events, and what became of each delivery. */
export function registerWebhookRoutes(app: ApiInstance, options: WebhookRoutesOptions): void {
  registerCreation(app, options);
  registerReads(app, options);
  registerChanges(app, options);
  registerDeliveries(app, options);
}

function registerCreation(app: ApiInstance, { database, addresses }: WebhookRoutesOptions): void {
  app.post(
    "/webhooks",
    {
      config: { role: "admin", scope: "submission" },
      schema: {
        tags,
        summary: "Create a webhook",
        description:
          "Events of its project are sent to its URL, signed as Standard Webhooks says. `secret` is shown in this " +
          "answer only. For the same reason there is no `Idempotency-Key`; a repeated request finds the name taken (409).",
        body: WebhookCreateSchema,
        response: answers({ 201: CreatedWebhookSchema }),
      },
    },
    async (request, reply) => {
      const { project: named, ...made } = request.body;
      const project = await projectForSubmission(database.db, request, named, "project");
      const warnings = checkReceiver(made.url, addresses);
      // An answer to a key is stored as it is, and this one has a secret.
      return mutateUnkeyed(database, request, reply, async (tx) => {
        const { webhook, secret } = await createWebhook(tx, { ...made, project });
        return {
          status: 201,
          body: { ...webhook, warnings, secret },
          target: webhook.id,
          location: `${API_PREFIX}/webhooks/${webhook.id}`,
        };
      });
    },
  );
}

function registerReads(app: ApiInstance, { database }: WebhookRoutesOptions): void {
  app.get(
    "/webhooks",
    {
      config: { role: "admin", scope: "visible" },
      schema: {
        tags,
        summary: "List webhooks, newest first, without their secrets",
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers({ 200: WebhookPageSchema }),
      },
    },
    async (request) => listWebhooks(database.db, request.query, visibleTo(actorOf(request))),
  );
  app.get(
    "/webhooks/:id",
    {
      config: { role: "admin", scope: "webhook" },
      schema: { tags, summary: "One webhook", params: IdParams, response: answers({ 200: WebhookSchema }) },
    },
    async (request) => getWebhook(database.db, request.params.id),
  );
}

function registerChanges(app: ApiInstance, { database, addresses, namespace }: WebhookRoutesOptions): void {
  app.patch(
    "/webhooks/:id",
    {
      config: { role: "admin", scope: "webhook" },
      schema: {
        tags,
        summary: "Change a webhook's URL and events, enable or disable it",
        description: "What waits for a webhook that is disabled is given up; it can be replayed later.",
        params: IdParams,
        body: WebhookChangeSchema,
        response: answers({ 200: ChangedWebhookSchema }),
      },
    },
    async (request, reply) => {
      const { url } = request.body;
      const warnings = url === undefined ? [] : checkReceiver(url, addresses);
      return mutate(database, request, reply, async (tx) => {
        const { id } = request.params;
        const webhook = await changeWebhook(tx, id, request.body);
        return { status: 200, body: { ...webhook, warnings }, target: id };
      });
    },
  );
  app.delete(
    "/webhooks/:id",
    {
      config: { role: "admin", scope: "webhook" },
      schema: {
        tags,
        summary: "Remove a webhook with its deliveries",
        params: IdParams,
        response: answers({ 204: Type.Null() }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const { id } = request.params;
        await removeWebhook(tx, id);
        return { status: 204, body: null, target: id };
      }),
  );
  app.post(
    "/webhooks/:id/test",
    {
      config: { role: "admin", scope: "webhook" },
      schema: {
        tags,
        summary: "Send a test event to a webhook",
        description: "409 while it is disabled. `GET /webhook-deliveries/:id` says what came of it.",
        headers: headers.idempotent,
        params: IdParams,
        response: answers({ 202: WebhookDeliverySchema }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const { id } = request.params;
        const delivery = await testWebhook(tx, id, namespace);
        return { status: 202, body: delivery, target: id };
      }),
  );
}

function registerDeliveries(app: ApiInstance, { database }: WebhookRoutesOptions): void {
  app.get(
    "/webhooks/:id/deliveries",
    {
      config: { role: "admin", scope: "webhook" },
      schema: {
        tags,
        summary: "Deliveries of a webhook, newest first",
        params: IdParams,
        querystring: Type.Object(
          { ...PageQuery, ...DeliveryFilterSchema.properties },
          { additionalProperties: false },
        ),
        response: answers({ 200: WebhookDeliveryPageSchema }),
      },
    },
    async (request) => listDeliveries(database.db, request.params.id, request.query),
  );
  app.get(
    "/webhook-deliveries/:id",
    {
      config: { role: "admin", scope: "webhook-delivery" },
      schema: {
        tags,
        summary: "One delivery: what is sent, and what came of each attempt",
        params: IdParams,
        response: answers({ 200: WebhookDeliverySchema }),
      },
    },
    async (request) => getDelivery(database.db, request.params.id),
  );
  app.post(
    "/webhook-deliveries/:id/replay",
    {
      config: { role: "admin", scope: "webhook-delivery" },
      schema: {
        tags,
        summary: "Send a delivery that has ended again, with the same id",
        description: "409 while it is on its way, and while its webhook is disabled.",
        headers: headers.idempotent,
        params: IdParams,
        response: answers({ 202: WebhookDeliverySchema }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const { id } = request.params;
        return { status: 202, body: await replayDelivery(tx, id), target: id };
      }),
  );
}
