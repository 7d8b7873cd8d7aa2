import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { exampleSpec } from "@internevo/test-kit/fixtures";
import { getJobState, submitJob, transitionJob } from "./jobs.ts";
import {
  acquireInTurn,
  acquireLease,
  assertFence,
  giveUpTurns,
  isLeaseLive,
  releaseInTurn,
  releaseLease,
  renewLease,
  StaleFenceError,
  type Turn,
} from "./leases.ts";

/** Seconds of a lease that ended a moment ago, though the machine's clock be set back a little meanwhile. */
const OVER = -1;

let test: TestDatabase;
beforeAll(async () => void (test = await createTestDatabase()));
afterAll(() => test.drop());

it("gives a lease to one of many that ask at once, with a greater token each time", async () => {
  const { db } = test.database;
  let token = 0;
  for (let round = 0; round < 5; round += 1) {
    const got = (
      await Promise.all(
        Array.from({ length: 8 }, (_, index) => acquireLease(db, "one", `holder-${index}`, 30)),
      )
    ).filter((fence) => fence !== undefined);
    expect(got).toHaveLength(1);
    const [fence] = got;
    if (!fence) throw new Error("no fence");
    expect(fence.token).toBeGreaterThan(token);
    token = fence.token;
    expect(await isLeaseLive(db, "one")).toBe(true);
    await releaseLease(db, fence);
    expect(await renewLease(db, fence, 30)).toBe(false);
  }
});

it("throws away what a replaced holder writes", async () => {
  const { database } = test;
  const jobId = await database.transaction((tx) => submitJob(tx, exampleSpec()));
  const stale = await acquireLease(database.db, "job", "slow", OVER);
  const fresh = await acquireLease(database.db, "job", "quick", 30);
  if (!stale || !fresh) throw new Error("no fence");
  const write = (fence: typeof stale) =>
    database.transaction(async (tx) => {
      await assertFence(tx, fence);
      return transitionJob(tx, { jobId, from: "profiling", to: "planning" });
    });
  await expect(write(stale)).rejects.toThrow(StaleFenceError);
  expect(await getJobState(database.db, jobId)).toBe("profiling");
  expect(await renewLease(database.db, stale, 30)).toBe(false);
  await releaseLease(database.db, stale);
  expect(await write(fresh)).toBe(true);
});

it("lets nobody take a lease over while its holder's transaction is open", async () => {
  const { database } = test;
  const held = await acquireLease(database.db, "open", "first", OVER);
  if (!held) throw new Error("no fence");
  const order: string[] = [];
  let takeOver: Promise<unknown> = Promise.resolve();
  await database.transaction(async (tx) => {
    await assertFence(tx, held);
    takeOver = acquireLease(database.db, "open", "second", 30).then(() => order.push("taken over"));
    // Long enough for the other's statement to arrive and wait: Postgres says when.
    for (;;) {
      const { rows } = await tx.execute<{ waiting: number }>(
        "select count(*)::int as waiting from pg_locks where not granted",
      );
      if ((rows[0]?.waiting ?? 0) > 0) break;
    }
    order.push("written");
  });
  await takeOver;
  expect(order).toEqual(["written", "taken over"]);
});

describe("waiters for a lease", () => {
  const waiterOf = (waiter: string, minute: number, started = false): Turn => ({
    waiter,
    started,
    since: new Date(Date.UTC(2026, 0, 1, 0, minute)),
    goesOn: true,
  });
  const ask = (resource: string, turn: Turn) =>
    test.database.transaction((tx) => acquireInTurn(tx, resource, `holder of ${turn.waiter}`, 30, turn));

  it("get it in the order of their submission, whoever asks first after it is free", async () => {
    const held = await acquireLease(test.database.db, "queue", "other", 30);
    if (!held) throw new Error("no fence");
    const [first, second, third] = [waiterOf("a", 1), waiterOf("b", 2), waiterOf("c", 3)];
    for (const turn of [third, first, second]) expect(await ask("queue", turn)).toBeUndefined();
    await releaseLease(test.database.db, held);
    for (const turn of [third, second]) expect(await ask("queue", turn)).toBeUndefined();
    const fence = await ask("queue", first);
    if (!fence) throw new Error("the first in the queue did not get it");
    await releaseLease(test.database.db, fence);
    expect(await ask("queue", third)).toBeUndefined();
    expect(await ask("queue", second)).toBeDefined();
  });

  it("let go first who held it and goes on, until it is over", async () => {
    const [old, young] = [waiterOf("old", 1), waiterOf("young", 2)];
    const fence = await ask("again", young);
    if (!fence) throw new Error("no fence");
    expect(await ask("again", old)).toBeUndefined();
    await releaseInTurn(test.database.db, fence, young);
    // Between two of its stages it asks for nothing, and keeps its place all the same.
    expect(await ask("again", old)).toBeUndefined();
    const next = await ask("again", young);
    if (!next) throw new Error("its place was not kept");
    await releaseInTurn(test.database.db, next, young);
    await giveUpTurns(test.database.db, young.waiter);
    expect(await ask("again", old)).toBeDefined();
  });

  it("keep no place after who does not go on", async () => {
    const [scheduled, job] = [{ ...waiterOf("scheduled", 1), goesOn: false }, waiterOf("job", 2)];
    const fence = await ask("once", scheduled);
    if (!fence) throw new Error("no fence");
    await releaseInTurn(test.database.db, fence, scheduled);
    expect(await ask("once", job)).toBeDefined();
  });

  it("count no more when they do not ask again", async () => {
    const held = await acquireLease(test.database.db, "gone", "other", 30);
    if (!held) throw new Error("no fence");
    const [gone, here] = [waiterOf("gone", 1), waiterOf("here", 2)];
    expect(await ask("gone", gone)).toBeUndefined();
    await releaseLease(test.database.db, held);
    expect(await ask("gone", here)).toBeUndefined();
    await test.database.db.execute(
      "update lease_waiters set expires_at = clock_timestamp() - interval '1 second' where waiter = 'gone'",
    );
    expect(await ask("gone", here)).toBeDefined();
  });
});
