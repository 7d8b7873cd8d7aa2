import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { connectBus, parseNatsUrl, type Bus } from "@internevo/bus";
import type { Envelope } from "@internevo/contracts";
import type { ProblemError } from "@internevo/domain";
import { eventually, PATIENCE } from "@internevo/test-kit";
import { testStack } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
import { startLocalStack, type LocalStack } from "../src/index.ts";

const SERVERS = ["nats", "nats-2", "nats-3"];
const dataDirectory = mkdtempSync(join(tmpdir(), "internevo-nats-cluster-"));
let stack: LocalStack;
beforeAll(async () => {
  stack = await startLocalStack({
    dataDirectory,
    services: [],
    databaseUrl: testStack().databaseUrl,
    natsUrl: "",
    natsServers: SERVERS.length,
  });
}, 60_000);
afterAll(async () => {
  await stack.stop();
  rmSync(dataDirectory, { recursive: true, force: true });
});

/** As a service does: until the servers have agreed on a leader. */
const busOf = (namespace: string, replicas?: number): Promise<Bus> =>
  eventually(
    "the cluster is ready",
    () =>
      connectBus({
        url: stack.info().natsUrl,
        name: "test",
        namespace,
        ...(replicas === undefined ? {} : { replicas }),
      }).catch((error: unknown) => {
        const { code, message } = error as ProblemError;
        if (code === "unavailable" && message.startsWith("JetStream of")) return undefined;
        throw error;
      }),
    60,
  );

/** How many servers keep each stream of a namespace. */
async function replicasOf(url: string, namespace: string): Promise<Record<string, number>> {
  const { tls: _tls, ...address } = parseNatsUrl(url);
  const connection = await connect(address);
  try {
    const manager = await jetstreamManager(connection);
    const found: Record<string, number> = {};
    for (const stream of ["COMMANDS", "EVENTS"])
      found[stream] = (await manager.streams.info(`${namespace}_${stream}`)).config.num_replicas;
    return found;
  } finally {
    await connection.close();
  }
}

const command = (): Envelope<"job.plan"> => ({
  id: randomUUID(),
  type: "job.plan",
  occurredAt: new Date().toISOString(),
  traceparent: `00-${"1".repeat(32)}-${"2".repeat(16)}-01`,
  data: { jobId: randomUUID() },
});

it("keeps streams on three servers of a cluster, those of one server before too", async () => {
  const first = await busOf("grown", 1);
  await first.close();
  expect(await replicasOf(stack.info().natsUrl, "grown")).toEqual({ COMMANDS: 1, EVENTS: 1 });
  const second = await busOf("grown");
  await second.close();
  expect(await replicasOf(stack.info().natsUrl, "grown")).toEqual({ COMMANDS: 3, EVENTS: 3 });
}, 60_000);

it("says which setting asks for more servers than there are", async () => {
  await expect(busOf("many", 5)).rejects.toMatchObject({
    code: "unavailable",
    details: [{ field: "INTERNEVO_NATS_REPLICAS", value: 5 }],
  });
  const { natsUrl } = testStack();
  await expect(
    connectBus({ url: natsUrl, name: "test", namespace: `many-${randomUUID().slice(0, 8)}`, replicas: 3 }),
  ).rejects.toMatchObject({ code: "unavailable", details: [{ field: "INTERNEVO_NATS_REPLICAS" }] });
}, 60_000);

it("loses no command when its servers die one after the other", async () => {
  const bus = await busOf("deaths");
  const handled = new Map<string, number>();
  const consumption = bus.consume({
    type: "job.plan",
    concurrency: 4,
    handler: (delivery) => {
      const id = delivery.envelope?.id ?? "unreadable";
      handled.set(id, (handled.get(id) ?? 0) + 1);
      delivery.ack();
      return Promise.resolve();
    },
  });
  const sent: string[] = [];
  let slowestSeconds = 0;
  /** As the outbox does: until the broker has it. */
  const send = async (): Promise<void> => {
    const message = command();
    const began = performance.now();
    await eventually(
      "an acknowledged message",
      () =>
        bus.publish(message).then(
          () => true,
          () => false,
        ),
      60,
    );
    slowestSeconds = Math.max(slowestSeconds, (performance.now() - began) / 1000);
    sent.push(message.id);
  };
  for (const name of SERVERS) {
    for (let count = 0; count < 20; count += 1) await send();
    const before = stack.pidOf(name);
    process.kill(before ?? 0, "SIGKILL");
    for (let count = 0; count < 20; count += 1) await send();
    await eventually(`${name} is there again`, () => ![undefined, before].includes(stack.pidOf(name)), 20);
  }
  await eventually("every command is handled", () => sent.every((id) => handled.has(id)), 60);
  expect(sent).toHaveLength(120);
  expect([...handled.keys()].sort()).toEqual([...sent].sort());
  expect(slowestSeconds, "a stream has another leader soon").toBeLessThan(10 * PATIENCE);
  await consumption.stop();
  await bus.close();
}, 180_000);
