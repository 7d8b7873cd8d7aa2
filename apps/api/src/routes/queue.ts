import { QueueSettingsChangeSchema } from "@internevo/contracts";
import { QueueSettingsSchema } from "@internevo/domain";
import { getQueueSettings, setQueueSettings, type Database } from "@internevo/store";
import type { ApiInstance } from "../http/instance.ts";
import { mutate } from "../http/mutations.ts";
import { answers } from "./shapes.ts";

const tags = ["projects"];

/** How the queue for hosts shares them out among projects. */
export function registerQueueRoutes(app: ApiInstance, options: { readonly database: Database }): void {
  const { database } = options;
  app.get(
    "/queue",
    {
      config: { role: "viewer", scope: "any" },
      schema: {
        tags,
        summary: "How the queue for hosts forgets usage, and how long it lets others go first",
        response: answers({ 200: QueueSettingsSchema }),
      },
    },
    async () => getQueueSettings(database.db),
  );
  app.patch(
    "/queue",
    {
      config: { role: "admin", scope: "installation" },
      schema: {
        tags,
        summary: "Change the queue's half-life of usage, or its patience",
        description:
          "What is left out stays as it is. The order of what waits changes at once; what runs goes on.",
        body: QueueSettingsChangeSchema,
        response: answers({ 200: QueueSettingsSchema }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => ({
        status: 200,
        body: await setQueueSettings(tx, request.body),
        target: "queue",
      })),
  );
}
