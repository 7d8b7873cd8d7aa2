import { randomUUID } from "node:crypto";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { createTestBus, createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import type { Bus } from "@internevo/bus";
import { COMMANDS, type Envelope } from "@internevo/contracts";
import { resolveJob } from "@internevo/domain";
import {
  acquireLease,
  appendJobEvent,
  claimHosts,
  createWorkload,
  enqueueMessage,
  finishFiring,
  fireWorkloadNow,
  getFiring,
  getJob,
  getJobDetail,
  getJobState,
  isLeaseLive,
  jobLease,
  listDeadLetters,
  listJobEvents,
  lockJobState,
  newTraceparent,
  queuePlace,
  relayOutbox,
  replayDeadLetter,
  requestCancel,
  setPriority,
  submitJob,
  transitionJob,
  type Transaction,
} from "@internevo/store";
import type { CommandOptions } from "../src/command.ts";
import type { WorkStoppedError } from "../src/lease-keeper.ts";
import type { RunningService, Service } from "../src/service.ts";
import { aJob, eventually } from "@internevo/test-kit";
import { signalled, startTestService } from "./support.ts";

const spec = resolveJob(aJob());

let database: TestDatabase;
let bus: Bus;
let namespace: string;
const running: RunningService[] = [];
beforeAll(async () => void (database = await createTestDatabase()));
afterAll(() => database.drop());
beforeEach(async () => {
  namespace = `test-${randomUUID().slice(0, 8)}`;
  bus = await createTestBus(namespace);
});
afterEach(async () => {
  vi.useRealTimers();
  await Promise.all(running.splice(0).map((service) => service.stop()));
  await bus.close();
});

const serve = async (start: (service: Service<object>) => void) => {
  const service = await startTestService({ database, namespace }, start);
  running.push(service);
  return service;
};
const submit = () => database.database.transaction((tx) => submitJob(tx, spec));
const stateOf = (jobId: string) => getJobState(database.database.db, jobId);
const logs = async (jobId: string) =>
  (await listJobEvents(database.database.db, jobId))
    .filter((event) => event.type === "log")
    .map((event) => event.data["message"]);
const say = (tx: Transaction, jobId: string, message: string) =>
  appendJobEvent(tx, jobId, "log", { level: "info", source: "test", message });
const profiles = (over: Partial<CommandOptions<"job.profile">> = {}): CommandOptions<"job.profile"> => ({
  type: "job.profile",
  handler:
    async ({ data }) =>
    async (tx) => {
      await say(tx, data.jobId, "effect");
      await transitionJob(tx, { jobId: data.jobId, from: "profiling", to: "planning" });
    },
  ...over,
});
const envelopeFor = (jobId: string, id: string = randomUUID()): Envelope => ({
  id,
  type: "job.profile",
  occurredAt: new Date().toISOString(),
  traceparent: newTraceparent(),
  data: { jobId },
});

describe("handleCommand", () => {
  it("has one effect of a command that is published and delivered many times, to two services", async () => {
    const jobId = await submit();
    const same = envelopeFor(jobId);
    for (let index = 0; index < 5; index += 1) await bus.publish(same);
    for (let index = 0; index < 5; index += 1) await bus.publish(envelopeFor(jobId));
    for (let index = 0; index < 2; index += 1)
      await serve((service) => service.handleCommand(profiles({ concurrency: 3 })));
    await eventually("the transition", async () => (await stateOf(jobId)) === "planning");
    // Everything that is left is taken from the queue, too.
    const second = await submit();
    await eventually("the second job's transition", async () => (await stateOf(second)) === "planning");
    await eventually(
      "an empty queue",
      async () => !(await bus.keeps("job.profile", { id: same.id, streamSequence: 1 })),
    );
    expect(await logs(jobId)).toEqual(["effect"]);
  });

  it("is done with a message whose work waits for hosts, and is called again in its turn", async () => {
    const { database: db } = database;
    const [holder, waiter] = [await submit(), await submit()];
    const started: string[] = [];
    const holds = signalled();
    // One at a time: who waits must not take the only place.
    await serve((service) =>
      service.handleCommand(
        profiles({
          handler: async (context) => {
            await context.claimHosts(["host-1"]);
            started.push(context.data.jobId);
            if (context.data.jobId === holder) holds.resolve();
            return async (tx) =>
              void (await transitionJob(tx, {
                jobId: context.data.jobId,
                from: "profiling",
                to: "planning",
              }));
          },
        }),
      ),
    );
    await bus.publish(envelopeFor(holder));
    await holds.promise;
    await eventually("the holder's transition", async () => (await stateOf(holder)) === "planning");
    await bus.publish(envelopeFor(waiter));
    await eventually(
      "the waiter's place",
      async () => (await queuePlace(db.db, jobLease(waiter))) !== undefined,
    );
    await eventually("the waiter's lease", async () => !(await isLeaseLive(db.db, jobLease(waiter))));
    expect(await queuePlace(db.db, jobLease(waiter))).toMatchObject({
      behind: [{ id: holder, holds: true }],
    });
    // The holder keeps its hosts between its stages, and gives them back when it is over.
    expect(started).toEqual([holder]);
    await db.transaction((tx) => requestCancel(tx, holder));
    await eventually("the waiter's transition", async () => (await stateOf(waiter)) === "planning");
    expect(started).toEqual([holder, waiter]);
  });

  it("waits for hosts with the priority that its job got while it worked", async () => {
    const { database: db } = database;
    const [holder, waiter] = [await submit(), await submit()];
    const command = { type: "job.profile", data: { jobId: holder }, traceparent: newTraceparent() } as const;
    const claim = { owner: jobLease(holder), hosts: ["host-2"], submittedAt: new Date(), command };
    expect(await db.transaction((tx) => claimHosts(tx, claim))).toBe(true);
    await serve((service) =>
      service.handleCommand(
        profiles({
          handler: async (context) => {
            if (context.data.jobId === waiter) {
              await db.transaction(async (tx) => {
                await lockJobState(tx, waiter);
                const job = await getJob(tx, waiter);
                if (job) await setPriority(tx, job, "high", "ada");
              });
              await context.claimHosts(["host-2"]);
            }
            return profiles().handler(context);
          },
        }),
      ),
    );
    await eventually(
      "the waiter's place",
      async () => (await queuePlace(db.db, jobLease(waiter))) !== undefined,
    );
    const { rows } = await db.db.execute(
      `select priority from host_waiters where owner = '${jobLease(waiter)}'`,
    );
    expect(rows).toEqual([{ priority: "high" }]);
  });

  it("loses to the holder that replaced it: nothing of its effect is written", async () => {
    const jobId = await submit();
    const inHand = signalled();
    const replaced = signalled();
    let calls = 0;
    await serve((service) =>
      service.handleCommand(
        profiles({
          handler: async (context) => {
            calls += 1;
            if (calls === 1) {
              inHand.resolve();
              await replaced.promise;
              await expect(context.fenced((tx) => say(tx, jobId, "stale"))).rejects.toThrow(
                "not held any more",
              );
            }
            return async (tx) => {
              await say(tx, jobId, `effect of call ${calls}`);
              await transitionJob(tx, { jobId, from: "profiling", to: "planning" });
            };
          },
        }),
      ),
    );
    await inHand.promise;
    await database.database.db.execute(
      `update leases set expires_at = now() - interval '1 second' where resource = '${jobLease(jobId)}'`,
    );
    const usurper = await acquireLease(database.database.db, jobLease(jobId), "usurper", 1);
    expect(usurper?.token).toBe(2);
    replaced.resolve();
    await eventually("the transition", async () => (await stateOf(jobId)) === "planning");
    expect(await logs(jobId)).toEqual(["effect of call 2"]);
  });

  it("stops the work of a job that is cancelled, and says so", async () => {
    const jobId = await submit();
    const inHand = signalled();
    const why: unknown[] = [];
    await serve((service) =>
      service.handleCommand(
        profiles({
          handler: async ({ signal }) => {
            inHand.resolve();
            await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
            why.push((signal.reason as WorkStoppedError).why);
            throw signal.reason;
          },
          onCancelled: (tx, data) => say(tx, data.jobId, "cleaned up"),
        }),
      ),
    );
    await inHand.promise;
    expect(await database.database.transaction((tx) => requestCancel(tx, jobId))).toBe("cancelling");
    await eventually("the cancellation", async () => (await stateOf(jobId)) === "cancelled", 10);
    expect(why).toEqual(["cancelled"]);
    expect(await logs(jobId)).toEqual(["cleaned up"]);
  });

  it("stops work that has become obsolete, and does not begin it again", async () => {
    const { db } = database.database;
    const workload = await createWorkload(db, {
      name: randomUUID(),
      spec,
      cron: "0 3 * * *",
      timeZone: "UTC",
      catchUpWindowSeconds: 60,
      gainThreshold: 0,
      nextRunAt: null,
    });
    await database.database.transaction((tx) => fireWorkloadNow(tx, workload.id));
    const inHand = signalled();
    const why: unknown[] = [];
    let isObsolete = false;
    let calls = 0;
    await serve((service) =>
      service.handleCommand({
        type: "workload.replan",
        isObsolete: () => Promise.resolve(isObsolete),
        handler: async ({ signal }) => {
          calls += 1;
          if (calls > 1) return async () => {};
          inHand.resolve();
          await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
          why.push((signal.reason as WorkStoppedError).why);
          throw signal.reason;
        },
      }),
    );
    await inHand.promise;
    isObsolete = true;
    await eventually("the delivery that finds nothing to do", () => calls === 2);
    expect(why).toEqual(["cancelled"]);
  });

  it("confirms before a start that nobody has replaced it", async () => {
    const jobId = await submit();
    const confirmed: unknown[] = [];
    const inHand = signalled();
    const replaced = signalled();
    await serve((service) =>
      service.handleCommand(
        profiles({
          handler: async (context) => {
            if (confirmed.length > 0) return profiles().handler(context);
            confirmed.push(await context.confirm());
            inHand.resolve();
            await replaced.promise;
            await context.confirm().catch((error: unknown) => confirmed.push(error));
            return profiles().handler(context);
          },
        }),
      ),
    );
    await inHand.promise;
    await database.database.db.execute(
      `update leases set expires_at = now() - interval '1 second' where resource = '${jobLease(jobId)}'`,
    );
    await acquireLease(database.database.db, jobLease(jobId), "usurper", 1);
    replaced.resolve();
    await eventually("the transition", async () => (await stateOf(jobId)) === "planning");
    expect(confirmed).toEqual([
      undefined,
      expect.objectContaining({ message: expect.stringContaining("not held any more") as string }),
    ]);
  });

  it("is not taken for a broker that went away while it works for long", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "Date"] });
    const quick = await submit();
    const errors: unknown[] = [];
    const inHand = signalled();
    const finish = signalled();
    let ended = 0;
    const consumption = bus.consume({
      type: "job.profile",
      onError: (error) => errors.push(error),
      handler: async (delivery) => {
        inHand.resolve();
        await finish.promise;
        delivery.ack();
        ended += 1;
      },
    });
    await bus.publish(envelopeFor(quick));
    await inHand.promise;
    await bus.publish(envelopeFor(quick));
    // Several times as long as the broker's heartbeats may stay away.
    await vi.advanceTimersByTimeAsync(30_000);
    finish.resolve();
    // Whoever takes the next one has said by then what was wrong with the first.
    await eventually("the end of both deliveries", () => ended === 2);
    await consumption.stop();
    expect(errors).toEqual([]);
  });

  it("hands over at once when a service stops in the middle", async () => {
    // Whoever waited for the delivery to time out would wait for an hour.
    const definition: { ackWaitSeconds: number } = COMMANDS["job.profile"];
    const { ackWaitSeconds } = definition;
    definition.ackWaitSeconds = 3600;
    onTestFinished(() => void (definition.ackWaitSeconds = ackWaitSeconds));
    const jobId = await submit();
    const inHand = signalled();
    const first = await serve((service) =>
      service.handleCommand(
        profiles({
          handler: async ({ signal }) => {
            inHand.resolve();
            await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
            throw signal.reason;
          },
        }),
      ),
    );
    await inHand.promise;
    // Whoever waited for the lease to expire, too, would wait for an hour.
    await database.database.db.execute(
      `update leases set expires_at = now() + interval '1 hour' where resource = '${jobLease(jobId)}'`,
    );
    await first.stop();
    await serve((service) => service.handleCommand(profiles()));
    await eventually("the transition", async () => (await stateOf(jobId)) === "planning");
  });

  it("gives a command up after its failures, fails the job, and keeps the message", async () => {
    const jobId = await submit();
    let calls = 0;
    await serve((service) =>
      service.handleCommand(
        profiles({
          backoffSeconds: () => 0.01,
          handler: async () => {
            calls += 1;
            throw new Error("a bug");
          },
        }),
      ),
    );
    await eventually("the failure", async () => (await stateOf(jobId)) === "failed");
    expect(calls).toBe(8);
    expect((await getJobDetail(database.database.db, jobId))?.failure).toMatchObject({
      code: "internal",
      message: expect.stringContaining("a bug"),
    });
    const [letter] = (await listDeadLetters(database.database.db)).items;
    expect(letter).toMatchObject({
      consumer: "tested/job.profile",
      messageType: "job.profile",
      payload: { data: { jobId } },
      resolution: null,
    });
    await expect(
      database.database.transaction((tx) => replayDeadLetter(tx, letter?.id ?? "", "me")),
    ).rejects.toMatchObject({ code: "conflict" });
  });

  it("waits while the database has no room, and counts that as no failure", async () => {
    const jobId = await submit();
    let full = 2;
    await serve((service) =>
      service.handleCommand(
        profiles({
          handler: async () => async (tx) => {
            if (full > 0) {
              full -= 1;
              await tx.execute("do $$ begin raise exception 'no room' using errcode = 'disk_full'; end $$");
            }
            await transitionJob(tx, { jobId, from: "profiling", to: "planning" });
          },
        }),
      ),
    );
    const envelope = envelopeFor(jobId);
    await bus.publish(envelope);
    await eventually("the transition", async () => (await stateOf(jobId)) === "planning");
    const { rows } = await database.database.db.execute(
      `select failures from message_failures where event_id = '${envelope.id}'`,
    );
    expect([full, rows]).toEqual([0, []]);
  });

  it("replays a dead letter once the fault is mended, with one effect", async () => {
    const { db } = database.database;
    const workload = await createWorkload(db, {
      name: randomUUID(),
      spec,
      cron: "0 3 * * *",
      timeZone: "UTC",
      catchUpWindowSeconds: 60,
      gainThreshold: 0,
      nextRunAt: null,
    });
    const firing = await database.database.transaction((tx) => fireWorkloadNow(tx, workload.id));
    let broken = true;
    await serve((service) =>
      service.handleCommand({
        type: "workload.replan",
        backoffSeconds: () => 0.01,
        handler: async ({ data }) => {
          if (broken) throw new Error("broken");
          return async (tx) =>
            void (await finishFiring(tx, data.firingId, { state: "succeeded", outcome: "no better plan" }));
        },
      }),
    );
    const open = async () =>
      (await listDeadLetters(db, { openOnly: true })).items.filter(
        (letter) => letter.messageType === "workload.replan",
      );
    await eventually("the dead letter", async () => (await open()).length === 1);
    broken = false;
    const [letter] = await open();
    const replays = await Promise.allSettled(
      Array.from({ length: 3 }, () =>
        database.database.transaction((tx) => replayDeadLetter(tx, letter?.id ?? "", "me")),
      ),
    );
    expect(replays.filter((replay) => replay.status === "fulfilled")).toHaveLength(1);
    await eventually("the firing's end", async () => (await getFiring(db, firing.id))?.state === "succeeded");
    expect(await open()).toEqual([]);
  });

  it("refuses an effect that leaves the job where it was", async () => {
    const jobId = await submit();
    await serve((service) =>
      service.handleCommand(
        profiles({ backoffSeconds: () => 0.01, handler: async () => async (tx) => say(tx, jobId, "half") }),
      ),
    );
    await eventually("the failure", async () => (await stateOf(jobId)) === "failed");
    expect(await logs(jobId)).toEqual([]);
  });
});

describe("the outbox relay", () => {
  it("publishes once in effect with two relays at once", async () => {
    const ids = new Set<string>();
    for (let index = 0; index < 60; index += 1) {
      ids.add(
        await database.database.transaction((tx) =>
          enqueueMessage(tx, {
            type: "workload.replan",
            data: { workloadId: randomUUID(), firingId: randomUUID() },
            traceparent: newTraceparent(),
          }),
        ),
      );
    }
    const other = await createTestBus(namespace);
    const places: number[] = [];
    const drain = async (through: Bus) => {
      while (
        (await relayOutbox(
          database.database,
          {
            namespace,
            async publish(envelope) {
              const result = await through.publish(envelope);
              if (ids.has(envelope.id) && !result.duplicate) places.push(result.streamSequence);
              return result;
            },
          },
          7,
        )) > 0
      );
    };
    await Promise.all([drain(bus), drain(other)]);
    await other.close();
    expect(places).toHaveLength(60);
    expect(new Set(places).size).toBe(60);
  });
});
