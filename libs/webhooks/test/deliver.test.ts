import { randomUUID } from "node:crypto";
import { cloudEventSchema, type Envelope, type WebhookDelivery } from "@internevo/contracts";
import {
  addDeliveries,
  changeWebhook,
  createProject,
  createWebhook,
  getDelivery,
  getWebhook,
  listDeliveries,
  pruneDeliveries,
  relayOutbox,
  replayDelivery,
  submitJob,
  testWebhook,
  type Transaction,
} from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { exampleSpec } from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { Webhook as Verifier } from "standardwebhooks";
import { Type } from "typebox";
import { Check } from "typebox/value";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { deliverWebhooks } from "../src/index.ts";
import { startReceiver, type Receiver } from "./receiver.ts";

let test: TestDatabase;
let stop: AbortController;
let delivering: Promise<void>[] = [];
let receivers: Receiver[] = [];
beforeAll(async () => {
  test = await createTestDatabase();
  await within((tx) => createProject(tx, { name: "nlp" }));
});
afterAll(() => test.drop());
beforeEach(async () => {
  await test.database.db.execute("truncate webhooks, webhook_deliveries, outbox");
  stop = new AbortController();
});
afterEach(async () => {
  stop.abort(new Error("the test is over"));
  await Promise.all(delivering);
  await Promise.all(receivers.map((receiver) => receiver.close()));
  [delivering, receivers] = [[], []];
});

const within = <T>(work: (tx: Transaction) => Promise<T>): Promise<T> => test.database.transaction(work);
const start = (over: { privateAddresses?: boolean; timeoutSeconds?: number } = {}): void =>
  void delivering.push(
    deliverWebhooks({
      database: test.database,
      privateAddresses: true,
      timeoutSeconds: 5,
      signal: stop.signal,
      onAttempt: () => {},
      onError: (error) => {
        throw error;
      },
      ...over,
    }),
  );
async function receiver(...args: Parameters<typeof startReceiver>): Promise<Receiver> {
  const made = await startReceiver(...args);
  receivers.push(made);
  return made;
}
const hook = async (url: string, over: object = {}) =>
  within((tx) => createWebhook(tx, { name: randomUUID(), url, project: "nlp", ...over }));
const tested = (id: string): Promise<WebhookDelivery> => within((tx) => testWebhook(tx, id, "here"));
const ended = (id: string, attempts = 1): Promise<WebhookDelivery> =>
  eventually(`attempt ${attempts} of ${id}`, async () => {
    const delivery = await getDelivery(test.database.db, id);
    return delivery.log.length >= attempts && delivery;
  });
/** Time goes by: what waits is due. */
const letWaitsPass = () =>
  test.database.db.execute(
    "update webhook_deliveries set next_attempt_at = now(), claimed_until = null where state = 'pending'; notify internevo_webhooks",
  );
const events = (count: number, project = "nlp") =>
  within((tx) =>
    addDeliveries(
      tx,
      Array.from({ length: count }, () => ({
        id: randomUUID(),
        type: "job.transitioned",
        project,
        occurredAt: new Date().toISOString(),
        payload: "{}",
      })),
    ),
  );

describe("an event", () => {
  it("comes signed to the webhooks of its project that ask for it, once", async () => {
    const [all, some, others] = [await receiver(), await receiver(), await receiver()];
    const { secret } = await hook(all.url);
    await hook(some.url, { events: ["trial.ended"] });
    await hook(others.url, { project: "default" });
    start();
    start();
    const jobId = await within((tx) => submitJob(tx, { ...exampleSpec("small"), project: "nlp" }));
    const published: Envelope[] = [];
    const publisher = {
      namespace: "here",
      publish: async (envelope: Envelope) => (published.push(envelope), { streamSequence: 1 }),
    };
    // A crash between the publication and its commit: nothing may come from it.
    await expect(
      relayOutbox(test.database, {
        ...publisher,
        publish: () => Promise.reject(new Error("the broker is away")),
      }),
    ).rejects.toThrow("the broker is away");
    await relayOutbox(test.database, publisher);
    await eventually("the event", () => all.received.length > 0);
    const [request] = all.received;
    const { headers, body } = request!;
    const event = new Verifier(secret).verify(body, headers as Record<string, string>);
    expect(() => new Verifier(secret).verify(`${body} `, headers as Record<string, string>)).toThrow();
    const id = published.find(({ type }) => type === "job.transitioned")?.id;
    expect(headers).toMatchObject({ "webhook-id": id, "content-type": "application/cloudevents+json" });
    expect(event).toMatchObject({ id, project: "nlp", data: { jobId, jobName: "small", to: "profiling" } });
    expect([all.received.length, some.received.length, others.received.length]).toEqual([1, 0, 0]);
  });
});

describe("a receiver", () => {
  it("that takes a test is in the log with status, time and answer", async () => {
    const there = await receiver((response) => response.writeHead(200).end("thanks\u0000!"));
    const { webhook, secret } = await hook(there.url);
    start();
    const delivery = await ended((await tested(webhook.id)).id);
    expect(delivery).toMatchObject({ state: "succeeded", attempts: 1, eventType: "webhook.test" });
    expect(delivery.log).toMatchObject([{ status: 200, error: null, excerpt: "thanks\ufffd!" }]);
    expect(delivery.log[0]?.durationSeconds).toBeGreaterThan(0);
    const { headers, body } = there.received[0]!;
    new Verifier(secret).verify(body, headers as Record<string, string>);
    const { dataschema: _, ...shape } = cloudEventSchema(
      "dev.internevo.webhook.test.v1",
      "",
      Type.Object({}),
    ).properties;
    expect(Check(Type.Object(shape), JSON.parse(body))).toBe(true);
    expect((await getWebhook(test.database.db, webhook.id)).lastSuccessAt).not.toBeNull();
  });

  it("that is down is tried again with the same id, and gets the event when it is back", async () => {
    const first = await receiver();
    const port = Number(new URL(first.url).port);
    await first.close();
    const { webhook } = await hook(first.url);
    start();
    const { id } = await tested(webhook.id);
    const failed = await ended(id);
    expect(failed).toMatchObject({
      state: "pending",
      log: [{ status: null, error: expect.stringContaining("ECONNREFUSED") }],
    });
    const wait = Date.parse(failed.nextAttemptAt ?? "") - Date.now();
    expect(wait).toBeGreaterThan(5000);
    expect(wait).toBeLessThan(12_000);
    expect((await getWebhook(test.database.db, webhook.id)).failingSince).not.toBeNull();
    const back = await receiver(undefined, port);
    await letWaitsPass();
    expect(await ended(id, 2)).toMatchObject({ state: "succeeded", attempts: 2, nextAttemptAt: null });
    expect(back.received[0]?.headers["webhook-id"]).toBe(failed.eventId);
    expect((await getWebhook(test.database.db, webhook.id)).failingSince).toBeNull();
  });

  it.each([
    ["answers 500", 500, {}, "answered 500"],
    [
      "redirects",
      302,
      { location: "http://127.0.0.1:1/elsewhere" },
      "answered 302: redirects are not followed",
    ],
  ])("that %s has not taken the event", async (_what, status, headers, error) => {
    const there = await receiver((response) => response.writeHead(status, headers).end("no"));
    const { webhook } = await hook(there.url);
    start();
    const delivery = await ended((await tested(webhook.id)).id);
    expect(delivery).toMatchObject({ state: "pending", log: [{ status, error, excerpt: "no" }] });
    expect(there.received).toHaveLength(1);
  });

  it("that asks for time gets it", async () => {
    const there = await receiver((response) => response.writeHead(503, { "retry-after": "600" }).end());
    const { webhook } = await hook(there.url);
    start();
    const { nextAttemptAt } = await ended((await tested(webhook.id)).id);
    expect(Date.parse(nextAttemptAt ?? "") - Date.now()).toBeGreaterThan(590_000);
  });

  it("that speaks another protocol has answered all the same", async () => {
    const there = await receiver((response) =>
      response.socket?.end("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"),
    );
    const { webhook } = await hook(there.url);
    start();
    const delivery = await ended((await tested(webhook.id)).id);
    expect(delivery).toMatchObject({ state: "pending", log: [{ status: 101, error: "answered 101" }] });
  });

  it("whose answer never ends is read no further than its first bytes", async () => {
    let sent = 0;
    const there = await receiver((response) => {
      response.writeHead(200);
      const more = (): void => {
        while (!response.destroyed && response.write("x".repeat(65_536))) sent += 65_536;
        if (!response.destroyed) response.once("drain", more);
      };
      more();
    });
    const { webhook } = await hook(there.url);
    start();
    const delivery = await ended((await tested(webhook.id)).id);
    expect(delivery).toMatchObject({ state: "succeeded", log: [{ status: 200 }] });
    expect(delivery.log[0]?.excerpt).toBe("x".repeat(1024));
    expect(sent).toBeLessThan(50e6);
  });

  it("that is slow ends its own request only, and holds nobody else up", async () => {
    const slow = await receiver(() => {});
    const quick = await receiver();
    const [one, other] = [await hook(slow.url), await hook(quick.url)];
    start({ timeoutSeconds: 2 });
    const began = Date.now();
    await events(20);
    await eventually("all of the quick one", () => quick.received.length === 20);
    expect(Date.now() - began).toBeLessThan(2000);
    expect(slow.mostOpen()).toBe(4);
    const failed = await eventually("a failure", async () =>
      (await listDeliveries(test.database.db, one.webhook.id)).items.find(({ log }) => log.length > 0),
    );
    expect(failed.log).toMatchObject([{ status: null, error: "no answer within 2 s" }]);
    // One that fails has one request open.
    const before = slow.received.length;
    expect(before).toBeLessThan(10);
    expect((await getWebhook(test.database.db, other.webhook.id)).pending).toBe(0);
  });

  it("at a private address is not asked at all, whatever its name says", async () => {
    const there = await receiver();
    const { port } = new URL(there.url);
    start({ privateAddresses: false });
    for (const host of ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"]) {
      const { webhook } = await hook(`http://${host}:${port}/`);
      const delivery = await ended((await tested(webhook.id)).id);
      expect(delivery.log, host).toMatchObject([
        { status: null, error: expect.stringContaining("has no public address") },
      ]);
    }
    expect(there.received).toEqual([]);
  });

  it("that is gone is asked no more, and what waits is given up", async () => {
    const there = await receiver((response) => response.writeHead(410).end());
    const { webhook } = await hook(there.url);
    start();
    const { id } = await tested(webhook.id);
    await eventually("its end", async () => !(await getWebhook(test.database.db, webhook.id)).enabled);
    expect(await getWebhook(test.database.db, webhook.id)).toMatchObject({
      disabledReason: expect.stringContaining("410"),
      pending: 0,
    });
    expect((await getDelivery(test.database.db, id)).state).toBe("failed");
    await events(1);
    expect((await listDeliveries(test.database.db, webhook.id)).items).toHaveLength(1);
    await expect(tested(webhook.id)).rejects.toThrow("is disabled");
  });
});

describe("a delivery", () => {
  it("is given up after its last try, its webhook after days, and both come back by hand", async () => {
    let status = 500;
    const there = await receiver((response) => response.writeHead(status).end());
    const { webhook } = await hook(there.url);
    start();
    const { id } = await tested(webhook.id);
    await ended(id);
    await test.database.db.execute("update webhook_deliveries set attempts = 11");
    await letWaitsPass();
    expect(await ended(id, 2)).toMatchObject({ state: "failed", attempts: 12, nextAttemptAt: null });
    await test.database.db.execute("update webhooks set failing_since = now() - interval '6 days'");
    await within((tx) => replayDelivery(tx, id));
    await eventually("its end", async () => !(await getWebhook(test.database.db, webhook.id)).enabled);
    const reason = (await getWebhook(test.database.db, webhook.id)).disabledReason;
    expect(reason).toBe("every delivery failed for 5 days");
    await expect(within((tx) => replayDelivery(tx, id))).rejects.toThrow("is disabled");
    status = 200;
    await within((tx) => changeWebhook(tx, webhook.id, { enabled: true }));
    await within((tx) => replayDelivery(tx, id));
    expect(await ended(id, 4)).toMatchObject({ state: "succeeded", attempts: 14 });
    expect(new Set(there.received.map(({ headers }) => headers["webhook-id"])).size).toBe(1);
    const { rows } = await test.database.db.execute("select attempts_before from webhook_deliveries");
    expect(rows).toEqual([{ attempts_before: 13 }]);
  });

  it("cannot be replayed while it is on its way", async () => {
    const { webhook } = await hook("http://127.0.0.1:1");
    const { id } = await tested(webhook.id);
    await expect(within((tx) => replayDelivery(tx, id))).rejects.toThrow("is on its way already");
  });

  it("is kept for a bounded time and number", async () => {
    const { webhook } = await hook("http://127.0.0.1:1");
    await test.database.db.execute(`
      insert into webhook_deliveries (id, webhook_id, event_id, event_type, payload, state, created_at, ended_at)
      select gen_random_uuid(), '${webhook.id}', gen_random_uuid(), 'x', '', 'failed',
        now() - make_interval(secs => n), now() - case when n <= 10 then interval '31 days' else interval '0' end
      from generate_series(1, 10030) n`);
    await pruneDeliveries(test.database.db);
    const { rows } = await test.database.db.execute(
      "select count(*)::int as count, extract(epoch from now() - min(created_at))::int as oldest from webhook_deliveries",
    );
    expect(rows).toEqual([{ count: 10_000, oldest: expect.closeTo(10_010, -1) }]);
  });

  it("that was being sent when the service stopped is sent by the next one", async () => {
    const there = await receiver((response) => {
      if (there.received.length > 1) response.writeHead(200).end();
    });
    const { webhook } = await hook(there.url);
    start({ timeoutSeconds: 60 });
    const { id } = await tested(webhook.id);
    await eventually("the first request", () => there.received.length === 1);
    stop.abort(new Error("the service stops"));
    await Promise.all(delivering);
    stop = new AbortController();
    start();
    expect(await ended(id)).toMatchObject({ state: "succeeded", attempts: 2 });
    expect(there.received[1]?.headers["webhook-id"]).toBe(there.received[0]?.headers["webhook-id"]);
  });
});
