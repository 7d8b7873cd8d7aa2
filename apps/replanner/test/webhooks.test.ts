import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createWebhook, getDelivery, listDeliveries, submitJob, testWebhook } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { exampleSpec } from "@internevo/test-kit/fixtures";
import { createWorld, type ServiceProcess, type World } from "@internevo/test-kit/world";
import { afterAll, beforeAll, expect, it } from "vitest";

let world: World;
beforeAll(async () => void (world = await createWorld()));
afterAll(() => world.close());

const SETTINGS = { INTERNEVO_WEBHOOK_PRIVATE_ADDRESSES: "true" };

/** A receiver that does what it is told with each request; @returns its URL and the ids that it got. */
async function receiver(onRequest: () => Promise<void>) {
  const ids: unknown[] = [];
  const server = createServer((request, response) => {
    ids.push(request.headers["webhook-id"]);
    request.resume().on("end", () => void onRequest().then(() => response.writeHead(204).end()));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    ids,
    close: () => (server.closeAllConnections(), server.close()),
  };
}

it("repeats with the same id what a service sent and did not live to write down", async () => {
  const { database } = world;
  let first: ServiceProcess | undefined;
  const there = await receiver(async () => {
    const killed = first;
    first = undefined;
    await killed?.kill();
  });
  const { webhook } = await database.transaction((tx) =>
    createWebhook(tx, { name: "ci", url: there.url, project: "default" }),
  );
  first = await world.startProcess("replanner", SETTINGS);
  const { gone } = first;
  const { id, eventId } = await database.transaction((tx) => testWebhook(tx, webhook.id, "here"));
  await gone;
  expect(await getDelivery(database.db, id)).toMatchObject({ state: "pending", attempts: 1, log: [] });
  // The claim of the dead service runs out.
  await database.db.execute("update webhook_deliveries set claimed_until = now(), next_attempt_at = now()");
  await world.startProcess("replanner", SETTINGS);
  await eventually(
    "the delivery",
    async () => (await getDelivery(database.db, id)).state === "succeeded",
    30,
    world.logs,
  );
  expect(there.ids).toEqual([eventId, eventId]);
  // What happens is delivered by the same service, from the outbox on.
  const jobId = await database.transaction((tx) => submitJob(tx, exampleSpec()));
  const [event] = await eventually(
    "the job's event",
    async () => {
      const { items } = await listDeliveries(database.db, webhook.id, { state: "succeeded" });
      const found = items.filter(({ eventType }) => eventType === "job.transitioned");
      return found.length > 0 && (found as [(typeof found)[number]]);
    },
    30,
    world.logs,
  );
  expect(JSON.parse(event.payload)).toMatchObject({ project: "default", subject: `job/${jobId}` });
  there.close();
});

it("refuses private addresses unless it is told to allow them", async () => {
  const other = await createWorld();
  const there = await receiver(async () => {});
  const { webhook } = await other.database.transaction((tx) =>
    createWebhook(tx, { name: "inside", url: there.url, project: "default" }),
  );
  await other.startProcess("replanner");
  const { id } = await other.database.transaction((tx) => testWebhook(tx, webhook.id, "here"));
  const delivery = await eventually(
    "the refusal",
    async () => {
      const found = await getDelivery(other.database.db, id);
      return found.log.length > 0 && found;
    },
    30,
    other.logs,
  );
  expect(delivery.log[0]?.error).toBe("127.0.0.1 has no public address");
  expect(there.ids).toEqual([]);
  there.close();
  await other.close();
});
