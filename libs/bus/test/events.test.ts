import { randomUUID } from "node:crypto";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { cloudEventType, eventSchema, type Envelope } from "@internevo/contracts";
import { eventually } from "@internevo/test-kit";
import { createTestBus, testStack } from "@internevo/test-kit/stack";
import { Check } from "typebox/value";
import { afterAll, beforeAll, expect, it } from "vitest";
import { parseNatsUrl, type Bus } from "../src/index.ts";

let bus: Bus;
let outsider: NatsConnection;
beforeAll(async () => {
  bus = await createTestBus();
  const { tls: _tls, ...address } = parseNatsUrl(testStack().natsUrl);
  outsider = await connect(address);
});
afterAll(async () => {
  await outsider.close();
  await bus.close();
});

const moved = (project: string): Envelope<"job.transitioned"> => ({
  id: randomUUID(),
  type: "job.transitioned",
  occurredAt: new Date().toISOString(),
  traceparent: `00-${"1".repeat(32)}-${"2".repeat(16)}-01`,
  project,
  data: { jobId: randomUUID(), jobName: "small", from: "profiling", to: "planning", reason: "measured" },
});

it("publishes events as CloudEvents, on a subject of their project", async () => {
  const heard: { readonly subject: string; readonly event: Record<string, unknown> }[] = [];
  outsider.subscribe(`${bus.namespace}.event.nlp.>`, {
    callback: (_error, message) => void heard.push({ subject: message.subject, event: message.json() }),
  });
  const own: Envelope<"job.transitioned">[] = [];
  const deafen = bus.listen("job.transitioned", (event) => own.push(event));
  await outsider.flush();
  const [theirs, ours] = [moved("vision"), moved("nlp")];
  await bus.publish(theirs);
  await bus.publish(ours);
  await eventually("both events", () => own.length === 2);
  await eventually("the project's event", () => heard.length > 0);
  deafen();
  expect(own, "services hear every project").toEqual([theirs, ours]);
  expect(heard).toHaveLength(1);
  expect(heard[0]?.subject).toBe(`${bus.namespace}.event.nlp.job.transitioned`);
  expect(Check(eventSchema("job.transitioned"), heard[0]?.event)).toBe(true);
  expect(heard[0]?.event).toMatchObject({
    specversion: "1.0",
    id: ours.id,
    source: `urn:internevo:${bus.namespace}`,
    type: cloudEventType("job.transitioned"),
    subject: `job/${ours.data.jobId}`,
    time: ours.occurredAt,
    project: "nlp",
    data: ours.data,
  });
});

it("refuses an event without a project", async () => {
  const { project: _project, ...nowhere } = moved("nlp");
  await expect(bus.publish(nowhere)).rejects.toThrow("the event job.transitioned names no project");
});
