import { randomUUID } from "node:crypto";
import type { Envelope } from "@internevo/contracts";
import { startOwnNats, type OwnNats } from "@internevo/test-kit/own-nats";
import { afterEach, expect, it } from "vitest";
import { connectBus, type Bus } from "../src/index.ts";

let nats: OwnNats;
let bus: Bus;
async function start(fileStoreBytes: number): Promise<void> {
  nats = await startOwnNats(fileStoreBytes);
  bus = await connectBus({ url: nats.url, name: "test" });
}
afterEach(async () => {
  nats.thaw();
  await bus.close();
  nats.stop();
});

const moved = (reason: string): Envelope<"job.transitioned"> => ({
  id: randomUUID(),
  type: "job.transitioned",
  occurredAt: new Date().toISOString(),
  traceparent: `00-${"1".repeat(32)}-${"2".repeat(16)}-01`,
  project: "nlp",
  data: { jobId: randomUUID(), jobName: "small", from: "profiling", to: "planning", reason },
});

it("takes nothing while the broker stands still, and says so within seconds", async () => {
  await start(2 ** 24);
  expect(await bus.takesMessages()).toBe(true);
  nats.freeze();
  const began = performance.now();
  expect(await bus.takesMessages()).toBe(false);
  expect(performance.now() - began).toBeLessThan(5000);
  nats.thaw();
  await expect.poll(() => bus.takesMessages(), { timeout: 15_000 }).toBe(true);
});

it("takes nothing while JetStream has no room, though it is connected", async () => {
  await start(2 ** 18);
  expect(await bus.takesMessages()).toBe(true);
  const fill = async (): Promise<void> => {
    for (let message = 0; message < 100; message += 1) await bus.publish(moved("x".repeat(2 ** 14)));
  };
  await expect(fill()).rejects.toThrow(/insufficient|resources|storage/);
  expect(bus.isConnected()).toBe(true);
  expect(await bus.takesMessages()).toBe(false);
});
